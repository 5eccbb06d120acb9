//! Transport of requests: kept connections, or a router in this process.
//!
//! A connection is kept for the next request once its answer was read to the end. A stream has its
//! own connection, which closes when the stream is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tower::{Service, ServiceExt as _};

use super::Address;

/// Error of a lower layer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Body of an answer, in chunks.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

type Sender = SendRequest<Full<Bytes>>;
type Answering = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, BoxError>> + Send>>;

const IDLE_MAX: usize = 8;

/// Transport of requests to a server.
pub struct Transport {
    name: String,
    route: Route,
}

enum Route {
    Connect {
        address: Address,
        host: HeaderValue,
        idle: Arc<Idle>,
    },
    Within(Box<dyn Fn(Request<Full<Bytes>>) -> Answering + Send + Sync>),
}

#[derive(Default)]
struct Idle(Mutex<Vec<Sender>>);

pub(super) struct Answered {
    pub(super) response: Response<AnswerBody>,
    pub(super) lease: Option<Lease>,
}

/// Connection in use, with the pool that it returns to.
pub(super) struct Lease {
    sender: Sender,
    idle: Arc<Idle>,
}

pub(super) enum SendError {
    /// No connection; nothing was sent.
    Absent(std::io::Error),
    /// The request may have been sent.
    Lost(BoxError),
}

impl Transport {
    /// Transport over connections to an address, opened when needed.
    pub fn to(address: Address) -> Self {
        let name = address.to_string();
        let host = match &address {
            Address::Tcp { .. } => name.strip_prefix("http://").unwrap_or_default(),
            Address::Unix(_) => "localhost",
        };
        let host =
            HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static("localhost"));
        Self {
            name,
            route: Route::Connect {
                address,
                host,
                idle: Arc::default(),
            },
        }
    }

    /// Transport to a service in this process, such as a router.
    pub fn within<S, B>(service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let call = move |request| -> Answering {
            let service = service.clone();
            Box::pin(async move {
                let response = service.oneshot(request).await.map_err(Into::into)?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            })
        };
        Self {
            name: "this process".to_owned(),
            route: Route::Within(Box::new(call)),
        }
    }

    /// Name of the server, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Answered, SendError> {
        match &self.route {
            Route::Within(call) => match call(request).await {
                Ok(response) => Ok(Answered {
                    response,
                    lease: None,
                }),
                Err(error) => Err(SendError::Lost(error)),
            },
            Route::Connect {
                address,
                host,
                idle,
            } => {
                request.headers_mut().insert(header::HOST, host.clone());
                // The server may have closed a kept connection, which shows only in use. That is no
                // error of the server, so a new connection is tried.
                if let Some(sender) = idle.take()
                    && let Ok(answered) = exchange(sender, request.clone(), idle).await
                {
                    return Ok(answered);
                }
                let sender = connect(address).await?;
                exchange(sender, request, idle).await
            }
        }
    }
}

impl Lease {
    /// Keeps the connection. The answer must have been read to the end.
    pub(super) async fn give_back(mut self) {
        if self.sender.ready().await.is_ok() {
            self.idle.give(self.sender);
        }
    }
}

impl Idle {
    fn take(&self) -> Option<Sender> {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        senders.retain(|sender| !sender.is_closed());
        senders.pop()
    }

    fn give(&self, sender: Sender) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() < IDLE_MAX {
            senders.push(sender);
        }
    }
}

async fn connect(address: &Address) -> Result<Sender, SendError> {
    match address {
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            let stream = stream.map_err(SendError::Absent)?;
            // Requests are small and wait for answers; Nagle's algorithm would only delay them.
            stream
                .set_nodelay(true)
                .map_err(|error| SendError::Lost(error.into()))?;
            shake_hands(TokioIo::new(stream)).await
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(SendError::Absent)?;
            shake_hands(TokioIo::new(stream)).await
        }
    }
}

async fn shake_hands<T>(io: TokioIo<T>) -> Result<Sender, SendError>
where
    TokioIo<T>: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(io)
        .await
        .map_err(|error| SendError::Lost(error.into()))?;
    // The task ends with the connection; its errors show in the answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

async fn exchange(
    mut sender: Sender,
    request: Request<Full<Bytes>>,
    idle: &Arc<Idle>,
) -> Result<Answered, SendError> {
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| SendError::Lost(error.into()))?;
    Ok(Answered {
        response: response.map(|body| body.map_err(Into::into).boxed_unsync()),
        lease: Some(Lease {
            sender,
            idle: Arc::clone(idle),
        }),
    })
}
