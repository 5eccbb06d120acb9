//! A typed client: every call of the API, over TCP, a Unix socket, or a router in this process.
//!
//! Every call can be repeated safely, because things are named by the client and actions carry a
//! key (design 50, L6). So a call whose answer was lost, or that met a server too busy for it, is
//! repeated with growing pauses until it is answered or its time is over. Nothing here words its
//! own reason: what the server refused is its [`Problem`](crate::Problem).

mod address;
mod booking;
mod calls;
mod error;
mod events;
mod exchange;
mod logs;
mod market;
mod pause;
mod query;
mod spine;
mod sse;
mod token;
mod transport;

pub use address::{Address, AddressError};
pub use calls::Mode;
pub use error::Error;
pub use events::{EventId, EventStream, StreamItem};
pub use exchange::Download;
pub use logs::{Follow, Logs};
pub use query::Query;
pub use token::{BearerToken, TokenError};
pub use transport::{AnswerBody, BoxError, Transport};

use std::sync::Arc;
use std::time::Duration;

pub(crate) use pause::{Pause, uneven};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait for an answer, repeats included; a call that asks the server to wait
    /// adds that.
    pub timeout: Duration,
    /// How often a call is sent at most.
    pub attempts_max: u32,
    /// Who the caller is; the local socket knows by itself.
    pub token: Option<BearerToken>,
}

/// How long to wait for an answer where nobody says (design 80, 1.3).
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// How often a call is sent where nobody says: some seconds of trouble are ridden out.
pub const ATTEMPTS_DEFAULT: u32 = 6;

/// A client. Clones are cheap and share its connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    transport: Transport,
    options: Options,
}

impl Options {
    /// The usual, as nobody in particular.
    pub const fn usual() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            attempts_max: ATTEMPTS_DEFAULT,
            token: None,
        }
    }
}

impl Client {
    /// A client over a transport.
    pub fn new(transport: Transport, options: Options) -> Self {
        Self {
            shared: Arc::new(Shared { transport, options }),
        }
    }

    /// What it talks to, for messages.
    pub fn server(&self) -> &str {
        self.shared.transport.name()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}
