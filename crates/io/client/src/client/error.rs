//! Errors of calls.

use std::time::Duration;

use thiserror::Error as ThisError;

use super::BoxError;
use crate::problem::Problem;

/// Error of a call.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The server refused.
    #[error(transparent)]
    Problem(#[from] Box<Problem>),
    /// No server answered the connection; nothing was sent.
    #[error("cannot reach {tried}")]
    Unreachable {
        /// Address of the server.
        tried: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke at every attempt; the call may have been done.
    #[error("{server} stopped answering; repeating the command is safe")]
    Lost {
        /// Address of the server.
        server: String,
        /// Cause.
        #[source]
        source: BoxError,
    },
    /// No answer came in time; the call may have been done.
    #[error("no answer from {server} in {after:?}; repeating the command is safe")]
    Timeout {
        /// Address of the server.
        server: String,
        /// Length of the wait.
        after: Duration,
    },
    /// The answer does not follow the API.
    #[error("the answer of {server} is not one of Bursar: {what}")]
    Protocol {
        /// Address of the server.
        server: String,
        /// Mistake in the answer.
        what: String,
    },
}

impl Error {
    /// Exit code of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Problem(problem) => problem.exit_code(),
            _ => 3,
        }
    }

    /// Problem of the server, if it refused.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}
