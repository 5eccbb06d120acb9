//! Answers as HTTP responses. Problems are written in one place ([`finish`]), where address and
//! record are known.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bursar_client::api::{PROBLEM_MEDIA_TYPE, RECORD_HEADER};
use bursar_client::{Code, Problem};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use crate::service::Answer;

static RECORD: HeaderName = HeaderName::from_static(RECORD_HEADER);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Initial capacity: most answers have a few hundred bytes.
const BODY_BYTES_USUAL: usize = 256;

/// A problem that a handler returns; [`finish`] writes it.
pub(crate) struct Refused(pub(crate) Box<Problem>);

pub(crate) type Handled = Result<Response, Refused>;

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status_code(self.0.status);
        response.extensions_mut().insert(Pending(self.0));
        response
    }
}

/// A problem in the extensions of a response, for [`finish`].
#[derive(Clone)]
struct Pending(Box<Problem>);

pub(crate) fn json<T: Serialize>(answer: Answer<T>) -> Handled {
    let Answer {
        status,
        record,
        body,
    } = answer;
    let mut bytes = Vec::with_capacity(BODY_BYTES_USUAL);
    serde_json::to_writer(&mut bytes, &body).map_err(|error| {
        let detail = format!("the answer cannot be written: {error}");
        Problem::new(Code::Internal, detail)
    })?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status_code(status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(RECORD.clone(), HeaderValue::from(record));
    Ok(response)
}

pub(crate) fn bytes(media_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Writes a pending problem, and sets the record header if it is missing.
pub(crate) fn finish(mut response: Response, path: &str, record: impl Fn() -> u64) -> Response {
    if let Some(Pending(mut problem)) = response.extensions_mut().remove::<Pending>() {
        problem.instance = Some(path.to_owned());
        let record = *problem.record.get_or_insert_with(&record);
        let allow = response.headers_mut().remove(ALLOW);
        response = problem_response(&problem);
        response
            .headers_mut()
            .insert(RECORD.clone(), HeaderValue::from(record));
        if let Some(allow) = allow {
            response.headers_mut().insert(ALLOW, allow);
        }
    } else if !response.headers().contains_key(&RECORD) {
        response
            .headers_mut()
            .insert(RECORD.clone(), HeaderValue::from(record()));
    }
    response
}

/// Answer to a connection over the limit.
pub(crate) fn busy() -> Response {
    let detail = "all connections are taken; try again after a moment";
    problem_response(&Problem {
        retry_after_ms: Some(1_000),
        ..Problem::new(Code::Busy, detail)
    })
}

fn problem_response(problem: &Problem) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(problem).unwrap_or_default()));
    *response.status_mut() = status_code(problem.status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
    if let Some(retry_after_ms) = problem.retry_after_ms {
        headers.insert(
            RETRY_AFTER,
            HeaderValue::from(retry_after_ms.div_ceil(1_000)),
        );
    }
    if problem.code == Code::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
