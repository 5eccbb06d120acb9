//! A request, taken apart: who calls, what the address says, and the body.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::RequestPartsExt as _;
use axum::body::Body as HttpBody;
use axum::extract::{FromRequest, RawPathParams, Request};
use axum::response::Response;
use bursar_client::api::body::{self, Body};
use bursar_client::api::{BODY_BYTES_MAX, IDEMPOTENCY_HEADER};
use bursar_client::object::Object;
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_units::BookingId;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;

use super::respond::{Refused, bytes};
use super::{App, query::Query};
use crate::caller::Caller;
use crate::right::Right;
use crate::service::{Mode, Service, tenant_of};

/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A request of a known caller.
pub(super) struct Call {
    app: App,
    pub(super) caller: Arc<Caller>,
    right: Right,
    pub(super) headers: HeaderMap,
    pub(super) query: Query,
    path: Vec<(String, String)>,
    body: Bytes,
}

impl FromRequest<App> for Call {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refused> {
        let (mut parts, body) = request.into_parts();
        let service = app.service();
        let caller = app.0.callers.caller(&parts, service.ledger().view())?;
        let right = Right::new(service.ledger(), Arc::clone(&caller))?;
        let Ok(params) = parts.extract::<RawPathParams>().await else {
            let message = "is not text: percent-encode it as UTF-8";
            return Err(Problem::invalid(vec![FieldError::new("address", message)]).into());
        };
        let path = params
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let query = Query::parse(&parts.uri)?;
        let body = if parts.method == Method::GET {
            Bytes::new()
        } else {
            read_body(&parts.headers, body).await?
        };
        if parts.method == Method::GET
            && let Some(record) = query.min_record()?
        {
            right.hold(service.reach(record)).await??;
        }
        Ok(Self {
            app: app.clone(),
            caller,
            right,
            headers: parts.headers,
            query,
            path,
            body,
        })
    }
}

impl Call {
    pub(super) fn service(&self) -> &Service {
        self.app.service()
    }

    pub(super) fn shared_service(&self) -> Arc<Service> {
        Arc::clone(&self.app.0.service)
    }

    /// What a wait comes to, if the caller's right lasts so long.
    pub(super) async fn hold<T>(
        &self,
        wait: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        self.right.hold(wait).await?
    }

    /// An answer in pieces, which ends with the caller's right: every answer that lasts is made
    /// here. `farewell` is its last piece then; without one it is broken off, so that it cannot
    /// pass for whole.
    pub(super) fn pieces(
        &self,
        media_type: &'static str,
        pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        farewell: fn(&Problem) -> Option<Bytes>,
    ) -> Response {
        let held = Some((Box::pin(pieces), self.right.clone()));
        let held = stream::unfold(held, move |held| async move {
            let (mut pieces, right) = held?;
            match right.hold(pieces.next()).await {
                Ok(piece) => Some((piece?, Some((pieces, right)))),
                Err(problem) => {
                    let last = farewell(&problem);
                    Some((last.ok_or_else(|| io::Error::other(problem)), None))
                }
            }
        });
        bytes(media_type, HttpBody::from_stream(held))
    }

    /// A part of the address, as a name of its kind.
    pub(super) fn name<T>(&self, part: &str) -> Result<T, Problem>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.part(part).parse().map_err(|error: T::Err| {
            Problem::invalid(vec![FieldError::new(part, error.to_string())])
        })
    }

    /// A part of the address, as it is.
    pub(super) fn part(&self, part: &str) -> &str {
        let found = self.path.iter().find(|(name, _)| name == part);
        found.map_or("", |(_, value)| value)
    }

    /// The body, which must be there.
    pub(super) fn body<T: Body>(&self) -> Result<T, Problem> {
        self.require_body()?;
        self.body_or_empty()
    }

    /// The body; nothing at all is an empty object.
    pub(super) fn body_or_empty<T: Body>(&self) -> Result<T, Problem> {
        body::read(&self.body).map_err(|problem| *problem)
    }

    /// The body of a request that counts for a tenant: one that must be named and is not is a
    /// mistake like the others.
    pub(super) fn body_for_tenant<T: Body>(&self) -> Result<T, Problem> {
        self.body().map_err(|mut problem| {
            let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
            if body.is_object() && body.get("tenant").is_none() {
                let missing = tenant_of(&self.caller, None).err();
                problem
                    .errors
                    .extend(missing.into_iter().flat_map(|missing| missing.errors));
            }
            match problem.code {
                Code::Invalid => Problem::invalid(problem.errors),
                _ => problem,
            }
        })
    }

    /// The body, which is a declared object.
    pub(super) fn declared(&self) -> Result<Object, Problem> {
        self.require_body()?;
        body::read_declared(&self.body).map_err(|problem| *problem)
    }

    fn require_body(&self) -> Result<(), Problem> {
        if self.body.is_empty() {
            let detail = "the body is empty, it must be a JSON object";
            return Err(Problem::new(Code::Malformed, detail));
        }
        Ok(())
    }

    /// Whether the write is real.
    pub(super) fn mode(&self) -> Result<Mode, Problem> {
        Ok(if self.query.flag("dryRun")? {
            Mode::DryRun
        } else {
            Mode::Real
        })
    }

    /// The key under which an action is one, however often it is sent.
    pub(super) fn idempotency_key(&self) -> Result<Option<BookingId>, Problem> {
        let key = self
            .header(IDEMPOTENCY_HEADER)?
            .map(BookingId::new)
            .transpose();
        key.map_err(|error| {
            Problem::invalid(vec![FieldError::new("Idempotency-Key", error.to_string())])
        })
    }

    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Result<Option<&str>, Problem> {
        self.headers
            .get(name)
            .map(|value| {
                value
                    .to_str()
                    .map_err(|_| Problem::invalid(vec![FieldError::new(name, "is not plain text")]))
            })
            .transpose()
    }
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
        Ok(Err(_)) => Err(Problem::new(Code::Malformed, "the body broke off")),
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
