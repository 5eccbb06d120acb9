//! Listeners: loopback TCP and the Unix socket, with a bound on connections.
//!
//! A slow client has so long for its headers and its body, a vanished one is noticed by them, and
//! one that reads nothing is closed when its right ends.
//! Past the limit a connection is told `busy` and closed; running out of descriptors is waited
//! out, never a crash. Nothing listens beyond loopback unless it is told to, and then only
//! callers with a token come in.

mod guard;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
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

/// Descriptors that are kept for the store, snapshots and the program itself.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Connections that a server has in any case, however few descriptors there are.
const CONNECTIONS_MIN: u64 = 16;
/// The most that is worth having.
const CONNECTIONS_MAX: u64 = 100_000;
/// Connections past the limit that are told so at once; those beyond them are just closed.
const TOLD_BUSY_MAX: usize = 16;
/// How long a connection past the limit may take to ask, before it is closed without a word.
const BUSY_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait when the system has no descriptor to give.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// How long requests may go on after the server was told to stop.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// Why a server does not listen.
#[derive(Debug, Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("could not listen on {address}; is another server there? name another with `--listen`")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be had.
    #[error(
        "could not make the socket {path}; move away what is in its place, or name another data directory"
    )]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another server answers on the socket.
    #[error("another server answers on {path}; stop it, or name another data directory")]
    SocketInUse {
        /// Its path.
        path: PathBuf,
    },
    /// Nobody without a token may come from elsewhere.
    #[error(
        "{address} is reached from beyond this machine, and no token exists that would let \
         anybody in; start it on 127.0.0.1 first, run `bursar token create`, then start it with this \
         address"
    )]
    NoTokens {
        /// The address.
        address: SocketAddr,
    },
}

/// Where to listen.
#[derive(Clone, Debug)]
pub struct Listen {
    /// An address of TCP, port 0 for any.
    pub tcp: Option<SocketAddr>,
    /// The path of the local socket.
    pub socket: Option<PathBuf>,
    /// What whoever sends no token on loopback may do.
    pub anonymous: Anonymous,
    /// Connections at once; as many as descriptors allow where absent.
    pub connections_max: Option<usize>,
}

/// A server that listens.
pub struct Listening {
    tcp: Option<TcpListener>,
    socket: Option<(UnixListener, PathBuf)>,
    address: Option<SocketAddr>,
    router: Router,
    service: Arc<Service>,
    connections: Connections,
}

/// What bounds connections.
struct Connections {
    free: Arc<Semaphore>,
    told_busy: Arc<Semaphore>,
    /// Each connection holds a receiver; when all are gone, all have ended.
    stop: watch::Sender<bool>,
    /// Whoever counts those that are refused.
    refused: Option<Arc<Service>>,
}

impl Connections {
    fn new(max: usize, refused: Option<Arc<Service>>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(max)),
            told_busy: Arc::new(Semaphore::new(TOLD_BUSY_MAX)),
            stop: watch::Sender::new(false),
            refused,
        }
    }
}

impl Listening {
    /// Takes the addresses.
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

    /// The address of TCP, with its real port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Serves until `stop` resolves, then lets what is being done end.
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
            // Whoever comes later should see at once that nobody is there.
            let _gone = std::fs::remove_file(path);
        }
        service.stop();
        connections.stop.send_replace(true);
        // Connections that take longer are cut; what they asked is committed or not, as ever.
        let _late = tokio::time::timeout(DRAIN_WITHIN, connections.stop.closed()).await;
    }
}

/// Serves what is no service, with the same patience and so many connections at once, until it is
/// dropped.
pub(crate) async fn serve_alone(listener: TcpListener, router: &Router, connections_max: usize) {
    let connections = Connections::new(connections_max, None);
    accept_tcp(Some(listener), router, &connections).await;
}

/// Whether the server of a ledger that does not exist yet could listen there: one that could not
/// is refused before anything is made for it.
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
    let has_tokens = service
        .ledger()
        .view()
        .read()
        .spine
        .tokens
        .iter()
        .next()
        .is_some();
    require_token(address, has_tokens)?;
    TcpListener::bind(address)
        .await
        .map_err(|source| Error::Tcp { address, source })
}

/// Makes the socket. One that is left over is removed, one that answers is not.
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
                // Answers are small and wanted at once.
                let _slower = stream.set_nodelay(true);
                let is_loopback = from.ip().to_canonical().is_loopback();
                let peer = if is_loopback {
                    Peer::Loopback
                } else {
                    Peer::Beyond
                };
                take(stream, peer, router, connections);
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
                // Without the kernel's word on who is there, nobody is.
                let Ok(credentials) = stream.peer_cred() else {
                    continue;
                };
                let (uid, gid) = (credentials.uid(), credentials.gid());
                let peer = Peer::socket(User { uid, gid }, own_uid);
                take(stream, peer, router, connections);
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// A connection that went away before it was taken needs nothing; no descriptors need time.
async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "{}", log::ACCEPT_FAILED);
        tokio::time::sleep(EXHAUSTED_PAUSE).await;
    }
}

fn take<S>(stream: S, peer: Peer, router: &Router, connections: &Connections)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Ok(permit) = Arc::clone(&connections.free).try_acquire_owned() {
        let stop = connections.stop.subscribe();
        tokio::spawn(serve_connection(stream, peer, router.clone(), stop, permit));
        return;
    }
    if let Some(service) = &connections.refused {
        service.metrics().connection_refused();
    }
    if let Ok(permit) = Arc::clone(&connections.told_busy).try_acquire_owned() {
        tokio::spawn(tell_busy(stream, permit));
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
    // Not `pipeline_flush`: with it hyper keeps all that a body has for a reader that takes nothing.
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    // Whoever breaks off mid-sentence has told us so; there is nobody left to tell.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = watched.lost_patience() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

/// Answers the first request of a connection past the limit, whatever it is.
async fn tell_busy<S>(stream: S, _permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(|_: Request<Incoming>| async { Ok::<_, Infallible>(busy()) });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    let _told = tokio::time::timeout(BUSY_WITHIN, connection).await;
}

/// As many connections as descriptors allow.
fn connections_max() -> usize {
    let free = descriptors::limit().saturating_sub(DESCRIPTORS_RESERVED);
    usize::try_from(free.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)).unwrap_or(usize::MAX)
}
