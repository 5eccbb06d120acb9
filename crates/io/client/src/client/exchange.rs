//! Sending, repeating and reading of one call.
//!
//! The server may still do a call whose future was dropped; repeating it is safe.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

use super::transport::{AnswerBody, Answered, Lease, SendError};
use super::{Client, Error, Pause};
use crate::problem::{Code, Problem};

/// Maximum size of an answer that is read whole; ten times a page of the largest items.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Maximum time of any call, so that adding it to a clock does not overflow.
const CALL_MAX: Duration = Duration::from_hours(24);

#[derive(Clone, Debug)]
pub(super) struct Call {
    method: Method,
    target: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    /// Time that the server may wait before it answers.
    wait: Duration,
}

/// Answer that is read in chunks.
pub struct Download {
    server: String,
    status: StatusCode,
    retry_after: Option<Duration>,
    body: AnswerBody,
    lease: Option<Lease>,
}

impl Call {
    pub(super) fn new(method: Method, target: String) -> Self {
        let (headers, body) = (Vec::new(), Bytes::new());
        Self {
            method,
            target,
            headers,
            body,
            wait: Duration::ZERO,
        }
    }

    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        // All values are ids or constants, which are valid in a header.
        self.headers
            .extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    pub(super) fn json<T: Serialize>(mut self, body: &T) -> Self {
        // Our own types can always be written as JSON.
        self.body = serde_json::to_vec(body).unwrap_or_default().into();
        self.header(header::CONTENT_TYPE, "application/json")
    }

    pub(super) fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// Head and body: the call is repeated if the body breaks off.
    Whole,
    /// Head: the caller reads the body.
    Head,
}

/// Answer with a success status; `bytes` is the body for [`Extent::Whole`].
struct Success {
    download: Download,
    bytes: Bytes,
}

struct FailedAttempt {
    error: Error,
    /// Pause that the server requested.
    after: Duration,
}

impl From<Error> for FailedAttempt {
    fn from(error: Error) -> Self {
        Self {
            error,
            after: Duration::ZERO,
        }
    }
}

impl Client {
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let bytes = self.fetch_bytes(call).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| self.protocol(format!("{} {}: {error}", call.method, call.target)))
    }

    pub(super) async fn fetch_bytes(&self, call: &Call) -> Result<Bytes, Error> {
        Ok(self.repeat(call, Extent::Whole).await?.bytes)
    }

    /// Sends a call whose answer is read as it comes in.
    pub(super) async fn download(&self, call: &Call) -> Result<Download, Error> {
        Ok(self.repeat(call, Extent::Head).await?.download)
    }

    /// The same without repeats, for callers that repeat.
    pub(super) async fn download_once(&self, call: &Call) -> Result<Download, Error> {
        let after = self.shared.options.timeout;
        match tokio::time::timeout(after, self.attempt(call, Extent::Head)).await {
            Ok(Ok(good)) => Ok(good.download),
            Ok(Err(failed)) => Err(failed.error),
            Err(_) => Err(self.timed_out(after)),
        }
    }

    /// Sends a call until it is done, is refused, or its time is over.
    async fn repeat(&self, call: &Call, extent: Extent) -> Result<Success, Error> {
        let options = &self.shared.options;
        let allowed = options.timeout.saturating_add(call.wait).min(CALL_MAX);
        let deadline = Instant::now() + allowed;
        let mut pause = Pause::new();
        let mut attempts: u32 = 1;
        loop {
            let FailedAttempt { error, after } =
                match timeout_at(deadline, self.attempt(call, extent)).await {
                    Ok(Ok(good)) => return Ok(good),
                    Ok(Err(failed)) => failed,
                    Err(_) => return Err(self.timed_out(allowed)),
                };
            // An absent server at the first attempt is an error at once. After a first answer the
            // server may be restarting.
            let is_absent = attempts == 1 && matches!(error, Error::Unreachable { .. });
            let length = pause.next().max(after);
            let is_over = attempts >= options.attempts_max || Instant::now() + length >= deadline;
            if is_over || is_absent || !is_worth_repeating(&error) {
                return Err(error);
            }
            sleep(length).await;
            attempts = attempts.saturating_add(1);
        }
    }

    async fn attempt(&self, call: &Call, extent: Extent) -> Result<Success, FailedAttempt> {
        let mut download = self.send(call).await?;
        let is_good = download.status.is_success();
        if is_good && extent == Extent::Head {
            return Ok(Success {
                download,
                bytes: Bytes::new(),
            });
        }
        let bytes = download.read_to_end().await?;
        if is_good {
            Ok(Success { download, bytes })
        } else {
            Err(self.refused(&download, &bytes))
        }
    }

    async fn send(&self, call: &Call) -> Result<Download, Error> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call
            .target
            .parse()
            .map_err(|_| self.protocol(format!("{} is not a path", call.target)))?;
        for (name, value) in &call.headers {
            request.headers_mut().insert(name, value.clone());
        }
        if let Some(token) = &self.shared.options.token {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, token.header());
        }
        let sent = self.shared.transport.send(request).await;
        let Answered { response, lease } = sent.map_err(|error| self.failed(error))?;
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let seconds = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Ok(Download {
            server: self.server().to_owned(),
            status: response.status(),
            retry_after: seconds.map(Duration::from_secs),
            body: response.into_body(),
            lease,
        })
    }

    fn refused(&self, download: &Download, bytes: &[u8]) -> FailedAttempt {
        let error = if let Ok(problem) = serde_json::from_slice::<Problem>(bytes) {
            Error::Problem(Box::new(problem))
        } else {
            let start: String = String::from_utf8_lossy(bytes).chars().take(60).collect();
            self.protocol(format!("status {} with {start:?}", download.status))
        };
        let retry_ms = error.problem().and_then(|problem| problem.retry_after_ms);
        let after = retry_ms.map(Duration::from_millis).or(download.retry_after);
        FailedAttempt {
            error,
            after: after.unwrap_or_default(),
        }
    }

    fn failed(&self, error: SendError) -> Error {
        match error {
            SendError::Absent(source) => Error::Unreachable {
                tried: self.server().to_owned(),
                source,
            },
            SendError::Lost(source) => Error::Lost {
                server: self.server().to_owned(),
                source,
            },
        }
    }

    pub(crate) fn timed_out(&self, after: Duration) -> Error {
        Error::Timeout {
            server: self.server().to_owned(),
            after,
        }
    }

    pub(crate) fn protocol(&self, what: String) -> Error {
        Error::Protocol {
            server: self.server().to_owned(),
            what,
        }
    }
}

impl Download {
    /// Next bytes; `None` at the end. Cancellation-safe: nothing is lost.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(source)) => {
                    return Err(Error::Lost {
                        server: self.server.clone(),
                        source,
                    });
                }
            };
            // Trailers are ignored.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// Reads the rest, up to [`ANSWER_BYTES_MAX`].
    async fn read_to_end(&mut self) -> Result<Bytes, Error> {
        let mut whole = BytesMut::new();
        while let Some(bytes) = self.chunk().await? {
            if whole.len().saturating_add(bytes.len()) > ANSWER_BYTES_MAX {
                let what = format!("an answer has more than {ANSWER_BYTES_MAX} bytes");
                return Err(Error::Protocol {
                    server: self.server.clone(),
                    what,
                });
            }
            whole.extend_from_slice(&bytes);
        }
        if let Some(lease) = self.lease.take() {
            lease.give_back().await;
        }
        Ok(whole.freeze())
    }
}

pub(super) fn is_worth_repeating(error: &Error) -> bool {
    match error {
        Error::Lost { .. } | Error::Unreachable { .. } => true,
        Error::Problem(problem) => matches!(
            problem.code,
            Code::Busy
                | Code::Unavailable
                | Code::NotLeader
                | Code::OutcomeUnknown
                | Code::SlowDown
        ),
        Error::Timeout { .. } | Error::Protocol { .. } => false,
    }
}
