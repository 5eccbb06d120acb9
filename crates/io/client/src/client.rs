//! Typed client: every call of the API, over TCP, a Unix socket, or a router in this process.
//!
//! Every call can be repeated safely, because clients choose the ids of objects and actions carry a
//! key (L6). A call whose answer was lost, or that a busy server refused, is repeated with growing
//! pauses until it is answered or its timeout is over. A refusal of the server is returned as its
//! [`Problem`](crate::Problem).

mod address;
mod booking;
mod calls;
mod cluster;
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
pub use token::{BearerToken, TokenError};
pub use transport::{AnswerBody, BoxError, Transport};

use query::Query;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use pause::{Pause, uneven};

/// Options of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum time for an answer, repeats included; the `wait` of a call is added to it.
    pub timeout: Duration,
    /// Maximum number of attempts of a call.
    pub attempts_max: u32,
    /// Token of the caller; not needed on the local socket.
    pub token: Option<BearerToken>,
}

/// Default of [`Options::timeout`].
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default of [`Options::attempts_max`]: enough for an outage of some seconds.
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
    /// Default options, without a token.
    pub const fn usual() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            attempts_max: ATTEMPTS_DEFAULT,
            token: None,
        }
    }
}

impl Client {
    /// Makes a client over a transport.
    pub fn new(transport: Transport, options: Options) -> Self {
        Self {
            shared: Arc::new(Shared { transport, options }),
        }
    }

    /// Name of the server, for messages.
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
