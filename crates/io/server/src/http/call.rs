//! A request with its caller, address, headers, query and body.

mod parameter;
mod query;
mod reading;

pub(crate) use reading::{Reading, page_size};

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::RequestPartsExt as _;
use axum::body::Body as HttpBody;
use axum::extract::{RawPathParams, Request};
use axum::response::Response;
use bursar_client::api::BODY_BYTES_MAX;
use bursar_client::{Code, Problem};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use query::Query;

use super::App;
use super::respond::bytes;
use crate::caller::Caller;
use crate::right::Right;
use crate::service::Service;

const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A request of an authenticated caller. Handlers parse it with [`Call::reading`].
pub(crate) struct Call {
    app: App,
    pub(crate) caller: Arc<Caller>,
    right: Right,
    headers: HeaderMap,
    query: Query,
    /// The variable parts of the address; `None` if they are not UTF-8.
    path: Option<PathParts>,
    body: Bytes,
}

/// A request that needs no caller.
pub(crate) struct Open {
    pub(crate) app: App,
    path: Option<PathParts>,
}

/// The variable parts of an address, by name.
type PathParts = Vec<(String, String)>;

impl Open {
    pub(super) async fn read(app: App, request: Request) -> Self {
        let path = path_parts(&mut request.into_parts().0).await;
        Self { app, path }
    }

    /// The first variable part of the address.
    pub(super) fn part(&self) -> &str {
        let part = self.path.iter().flatten().next();
        part.map_or("", |(_, text)| text)
    }
}

impl Call {
    pub(super) async fn read(app: App, request: Request) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let service = app.service();
        let caller = app.0.callers.caller(&parts, service.ledger().view())?;
        let right = Right::new(service.ledger(), Arc::clone(&caller))?;
        let path = path_parts(&mut parts).await;
        let body = if parts.method == Method::GET {
            Bytes::new()
        } else {
            read_body(&parts.headers, body).await?
        };
        Ok(Self {
            app,
            caller,
            right,
            query: Query::parse(&parts.uri),
            headers: parts.headers,
            path,
            body,
        })
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading::new(self)
    }

    pub(crate) fn service(&self) -> &Service {
        self.app.service()
    }

    pub(crate) fn shared_service(&self) -> Arc<Service> {
        Arc::clone(&self.app.0.service)
    }

    /// Waits, or fails when the caller's token ends before.
    pub(crate) async fn hold<T>(
        &self,
        wait: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        self.right.hold(wait).await?
    }

    /// Creates an answer that is sent in pieces and ends when the caller's token ends. Every lasting
    /// answer is created here. If the token ends, `last_piece` is the last piece; without one the
    /// answer is aborted, so that it cannot be taken for complete. The connection aborts an answer
    /// whose client does not read.
    pub(crate) fn pieces(
        &self,
        media_type: &'static str,
        pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        last_piece: fn(&Problem) -> Option<Bytes>,
    ) -> Response {
        let (answer, lasting) = self.right.lasting();
        let held = Some((Box::pin(pieces), self.right.clone(), answer));
        let held = stream::unfold(held, move |held| async move {
            let (mut pieces, right, answer) = held?;
            match right.hold(pieces.next()).await {
                Ok(piece) => Some((piece?, Some((pieces, right, answer)))),
                Err(problem) => {
                    let last = last_piece(&problem);
                    Some((last.ok_or_else(|| io::Error::other(problem)), None))
                }
            }
        });
        let mut response = bytes(media_type, HttpBody::from_stream(held));
        response.extensions_mut().insert(lasting);
        response
    }
}

async fn path_parts(parts: &mut Parts) -> Option<PathParts> {
    let path = parts.extract::<RawPathParams>().await.ok()?;
    let path = path.iter();
    Some(
        path.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    )
}

async fn read_body(headers: &HeaderMap, body: HttpBody) -> Result<Bytes, Problem> {
    let stated = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if stated.is_some_and(|stated: u64| {
        usize::try_from(stated).map_or(true, |size| size > BODY_BYTES_MAX)
    }) {
        return Err(too_large());
    }
    let collected = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(BODY_WITHIN, collected).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(Code::Malformed, "the body is incomplete")),
        Err(_) => {
            let detail = format!("the body did not arrive within {}s", BODY_WITHIN.as_secs());
            Err(Problem::new(Code::Malformed, detail))
        }
    }
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {BODY_BYTES_MAX} bytes; send it in parts");
    Problem::new(Code::TooLarge, detail)
}
