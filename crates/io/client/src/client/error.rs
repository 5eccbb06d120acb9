//! How a call can fail.

use std::time::Duration;

use thiserror::Error as ThisError;

use super::BoxError;
use crate::problem::Problem;

/// Why there is no answer, or which it was.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The server refused.
    #[error(transparent)]
    Problem(#[from] Box<Problem>),
    /// Nobody is there: nothing was sent.
    #[error("cannot reach {tried}")]
    Unreachable {
        /// The address.
        tried: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke, again and again: whether it was done is not known.
    #[error("{server} stopped answering; repeating the command is safe")]
    Lost {
        /// The address.
        server: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// No answer came in time: whether it was done is not known.
    #[error("no answer from {server} in {after:?}; repeating the command is safe")]
    Timeout {
        /// The address.
        server: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The answer is not what this API answers.
    #[error("{server} does not answer as Bursar does: {what}")]
    Protocol {
        /// The address.
        server: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Error {
    /// The exit code of a command that ends with it (design 80, 1.4).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Problem(problem) => problem.exit_code(),
            _ => 3,
        }
    }

    /// The problem, if the server refused.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}
