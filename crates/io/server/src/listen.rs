//! Listeners: loopback TCP and the Unix socket, with a bound on connections.
//!
//! Headers and bodies have timeouts, which also close connections of clients that vanished. A
//! connection whose client does not read is closed when the caller's token ends.
//! A connection over the limit is answered `busy` and closed. When descriptors run out, the
//! listener waits and tries again. Only loopback is served by default; on any other address a
//! caller needs a token.

mod guard;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bursar_engine::State;
use bursar_node::executor::User;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::getuid;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt as _;

use guard::{Guard, Guarded};

use crate::auth::{Anonymous, CallerSource, Peer};
use crate::descriptors;
use crate::http::{busy, router};
use crate::log;
use crate::right::Lasting;
use crate::service::Service;

/// Descriptors reserved for the store, snapshots and the program itself.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Connections that are always allowed, however low the descriptor limit is.
const CONNECTIONS_MIN: u64 = 16;
const CONNECTIONS_MAX: u64 = 100_000;
/// Connections over the limit that are answered `busy` at a time; any others are closed unanswered.
const BUSY_ANSWERS_MAX: usize = 16;
/// Time in which a connection over the limit must send a request to be answered `busy`.
const BUSY_WITHIN: Duration = Duration::from_secs(1);
/// Pause before the next accept when no descriptor is free.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// Time in which open requests may finish after the stop signal.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// Error of a server that cannot listen.
#[derive(Debug, Error)]
pub enum Error {
    /// Binding the TCP address failed.
    #[error(
        "could not listen on {address}; check that no other server uses it, or choose another \
         address with `--listen`"
    )]
    Tcp {
        /// TCP address.
        address: SocketAddr,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Creating the Unix socket failed.
    #[error(
        "could not create the socket {path}; remove the file that has its name, or choose another \
         data directory"
    )]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Another server answers on the socket.
    #[error("another server answers on {path}; stop it, or choose another data directory")]
    SocketInUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The address is not loopback and no token exists yet.
    #[error(
        "{address} can be reached from other machines, which needs a token, and none exists; start \
         the server on 127.0.0.1, run `bursar token create`, then start it with this address"
    )]
    NoTokens {
        /// TCP address.
        address: SocketAddr,
    },
}

/// Addresses to listen on.
#[derive(Clone, Debug)]
pub struct Listen {
    /// TCP address; port 0 picks a free port.
    pub tcp: Option<SocketAddr>,
    /// Path of the Unix socket.
    pub socket: Option<PathBuf>,
    /// Access of callers without a token on loopback.
    pub anonymous: Anonymous,
    /// Limit on open connections; by default as many as the descriptor limit allows.
    pub connections_max: Option<usize>,
}

/// A server with its addresses bound.
pub struct Listening {
    tcp: Option<TcpListener>,
    socket: Option<(UnixListener, PathBuf)>,
    address: Option<SocketAddr>,
    router: Router,
    service: Arc<Service>,
    connections: Connections,
}

struct Connections {
    free: Arc<Semaphore>,
    busy_answers: Arc<Semaphore>,
    /// Each connection holds a receiver, so the channel closes when the last one has ended.
    stop: watch::Sender<bool>,
    /// Counts refused connections.
    metrics: Option<Arc<Service>>,
}

impl Connections {
    fn new(max: usize, metrics: Option<Arc<Service>>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(max)),
            busy_answers: Arc::new(Semaphore::new(BUSY_ANSWERS_MAX)),
            stop: watch::Sender::new(false),
            metrics,
        }
    }
}

impl Listening {
    /// Binds the addresses.
    pub async fn bind(service: Arc<Service>, listen: &Listen) -> Result<Self, Error> {
        let router = router(
            Arc::clone(&service),
            CallerSource::Connection(listen.anonymous),
        );
        let tcp = match listen.tcp {
            Some(address) => Some(bind_tcp(&service, address).await?),
            None => None,
        };
        let socket = match &listen.socket {
            Some(path) => Some((bind_socket(path).await?, path.clone())),
            None => None,
        };
        let address = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        let max = listen.connections_max.unwrap_or_else(connections_max);
        let connections = Connections::new(max, Some(Arc::clone(&service)));
        Ok(Self {
            tcp,
            socket,
            address,
            router,
            service,
            connections,
        })
    }

    /// Bound TCP address, with its real port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Serves until `stop` resolves, then waits a few seconds for open requests.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let Self {
            tcp,
            socket,
            router,
            service,
            connections,
            ..
        } = self;
        let (listener, path) = socket.unzip();
        {
            let accepting = async {
                tokio::join!(
                    accept_tcp(tcp, &router, &connections),
                    accept_socket(listener, &router, &connections),
                )
            };
            tokio::select! {
                _ = accepting => {}
                () = stop => {}
            }
        }
        if let Some(path) = path {
            // Later clients then fail at once.
            let _removed = std::fs::remove_file(path);
        }
        service.stop();
        connections.stop.send_replace(true);
        // Connections that take longer are cut. Their commands may or may not be committed.
        let _late = tokio::time::timeout(DRAIN_WITHIN, connections.stop.closed()).await;
    }
}

/// Serves a router that has no [`Service`], with the same timeouts, until it is dropped.
pub(crate) async fn serve_alone(listener: TcpListener, router: &Router, connections_max: usize) {
    let connections = Connections::new(connections_max, None);
    accept_tcp(Some(listener), router, &connections).await;
}

/// Checks that the server of a new ledger could listen on an address. Called before anything is
/// created for the ledger.
pub fn check_address(address: SocketAddr) -> Result<(), Error> {
    require_token(address, false)?;
    std::net::TcpListener::bind(address)
        .map(drop)
        .map_err(|source| Error::Tcp { address, source })
}

fn require_token(address: SocketAddr, has_tokens: bool) -> Result<(), Error> {
    if address.ip().is_loopback() || has_tokens {
        Ok(())
    } else {
        Err(Error::NoTokens { address })
    }
}

async fn bind_tcp(service: &Service, address: SocketAddr) -> Result<TcpListener, Error> {
    let has_tokens = |state: &State| state.spine.tokens.iter().next().is_some();
    require_token(address, has_tokens(&service.ledger().view().read()))?;
    TcpListener::bind(address)
        .await
        .map_err(|source| Error::Tcp { address, source })
}

/// Creates the socket. Replaces a stale one; fails if a server answers on it.
async fn bind_socket(path: &Path) -> Result<UnixListener, Error> {
    let failed = |source| Error::Socket {
        path: path.to_owned(),
        source,
    };
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return bound.map_err(failed),
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(Error::SocketInUse {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

async fn accept_tcp(listener: Option<TcpListener>, router: &Router, connections: &Connections) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                // Answers are small and must not be delayed.
                let _slower = stream.set_nodelay(true);
                let is_loopback = from.ip().to_canonical().is_loopback();
                let peer = if is_loopback {
                    Peer::Loopback
                } else {
                    Peer::Remote
                };
                serve_or_refuse(stream, peer, router, connections);
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn accept_socket(listener: Option<UnixListener>, router: &Router, connections: &Connections) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let own_uid = getuid().as_raw();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without peer credentials there is no caller.
                let Ok(credentials) = stream.peer_cred() else {
                    continue;
                };
                let (uid, gid) = (credentials.uid(), credentials.gid());
                let peer = Peer::socket(User { uid, gid }, own_uid);
                serve_or_refuse(stream, peer, router, connections);
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Waits after a failed accept, unless only the client had gone. Usually no descriptor was free.
async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "{}", log::ACCEPT_FAILED);
        tokio::time::sleep(EXHAUSTED_PAUSE).await;
    }
}

fn serve_or_refuse<S>(stream: S, peer: Peer, router: &Router, connections: &Connections)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Ok(permit) = Arc::clone(&connections.free).try_acquire_owned() {
        let stop = connections.stop.subscribe();
        tokio::spawn(serve_connection(stream, peer, router.clone(), stop, permit));
        return;
    }
    if let Some(service) = &connections.metrics {
        service.metrics().connection_refused();
    }
    if let Ok(permit) = Arc::clone(&connections.busy_answers).try_acquire_owned() {
        tokio::spawn(answer_busy(stream, permit));
    }
}

async fn serve_connection<S>(
    stream: S,
    peer: Peer,
    router: Router,
    mut stop: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let guard = Guard::new();
    let stream = Guarded::new(stream, Arc::clone(&guard));
    let watched = Arc::clone(&guard);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        guard.request_began();
        request.extensions_mut().insert(peer.clone());
        let answered = router.clone().oneshot(request.map(Body::new));
        let guard = Arc::clone(&guard);
        async move {
            let Ok(answer) = answered.await;
            if let Some(lasting) = answer.extensions().get::<Lasting>() {
                guard.answer_lasts(lasting.clone());
            }
            guard.request_ended();
            Ok::<_, Infallible>(answer)
        }
    });
    // Not `pipeline_flush`: with it hyper buffers a whole body for a client that does not read.
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    // Errors of a connection are ignored: nobody is left to receive them.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = watched.timed_out() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

async fn answer_busy<S>(stream: S, _permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(|_: Request<Incoming>| async { Ok::<_, Infallible>(busy()) });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    let _answered = tokio::time::timeout(BUSY_WITHIN, connection).await;
}

fn connections_max() -> usize {
    let free = descriptors::limit().saturating_sub(DESCRIPTORS_RESERVED);
    usize::try_from(free.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)).unwrap_or(usize::MAX)
}
