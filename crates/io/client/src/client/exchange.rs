//! One call: sent, repeated where that helps, and read.
//!
//! A call that is given up half-way may still be done by the server; repeating it is safe.

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

/// Bytes of an answer that is read whole; a page of the largest items has a tenth of it.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long any call may last: no answer is worth more, and clocks can be added to.
const CALL_MAX: Duration = Duration::from_hours(24);

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct Call {
    method: Method,
    target: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    /// How long the server was asked to wait before it answers.
    wait: Duration,
}

/// An answer that is read as it comes in.
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
        // What is sent here are ids and fixed words, all of which a header can hold.
        self.headers
            .extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    pub(super) fn json<T: Serialize>(mut self, body: &T) -> Self {
        // Our own types have texts for keys and nothing else that JSON lacks.
        self.body = serde_json::to_vec(body).unwrap_or_default().into();
        self.header(header::CONTENT_TYPE, "application/json")
    }

    pub(super) fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// How much of an answer belongs to the attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// All of it: a body that breaks off is asked for again.
    Whole,
    /// Its head: the caller reads the body.
    Head,
}

/// A good answer: its head with the body still to come, or with all bytes of it.
struct Good {
    download: Download,
    bytes: Bytes,
}

/// An attempt that did not do it, or of which that is not known.
struct Failed {
    error: Error,
    /// When the server said to come back.
    after: Duration,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            after: Duration::ZERO,
        }
    }
}

impl Client {
    /// Sends a call and reads its answer as JSON.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let bytes = self.fetch_bytes(call).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| self.protocol(format!("{} {}: {error}", call.method, call.target)))
    }

    /// Sends a call and reads its answer whole.
    pub(super) async fn fetch_bytes(&self, call: &Call) -> Result<Bytes, Error> {
        Ok(self.repeat(call, Extent::Whole).await?.bytes)
    }

    /// Sends a call whose answer is read as it comes in.
    pub(super) async fn download(&self, call: &Call) -> Result<Download, Error> {
        Ok(self.repeat(call, Extent::Head).await?.download)
    }

    /// The same without repeating it: for callers that repeat by themselves.
    pub(super) async fn download_once(&self, call: &Call) -> Result<Download, Error> {
        let after = self.shared.options.timeout;
        match tokio::time::timeout(after, self.attempt(call, Extent::Head)).await {
            Ok(Ok(good)) => Ok(good.download),
            Ok(Err(failed)) => Err(failed.error),
            Err(_) => Err(self.timed_out(after)),
        }
    }

    /// Sends a call until it is done, cannot be done, or its time is over.
    async fn repeat(&self, call: &Call, extent: Extent) -> Result<Good, Error> {
        let options = &self.shared.options;
        let allowed = options.timeout.saturating_add(call.wait).min(CALL_MAX);
        let deadline = Instant::now() + allowed;
        let mut pause = Pause::new();
        let mut attempts: u32 = 1;
        loop {
            let Failed { error, after } =
                match timeout_at(deadline, self.attempt(call, extent)).await {
                    Ok(Ok(good)) => return Ok(good),
                    Ok(Err(failed)) => failed,
                    Err(_) => return Err(self.timed_out(allowed)),
                };
            // Who finds nobody at the first knock is told at once; who was answered before and
            // finds nobody now may be at the door of a server that starts again.
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

    async fn attempt(&self, call: &Call, extent: Extent) -> Result<Good, Failed> {
        let mut download = self.send(call).await?;
        let is_good = download.status.is_success();
        if is_good && extent == Extent::Head {
            return Ok(Good {
                download,
                bytes: Bytes::new(),
            });
        }
        let bytes = download.read_to_end().await?;
        if is_good {
            Ok(Good { download, bytes })
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

    /// What the server said when it did not do it.
    fn refused(&self, download: &Download, bytes: &[u8]) -> Failed {
        let error = if let Ok(problem) = serde_json::from_slice::<Problem>(bytes) {
            Error::Problem(Box::new(problem))
        } else {
            let start: String = String::from_utf8_lossy(bytes).chars().take(60).collect();
            self.protocol(format!("status {} with {start:?}", download.status))
        };
        let asked = error.problem().and_then(|problem| problem.retry_after_ms);
        let after = asked.map(Duration::from_millis).or(download.retry_after);
        Failed {
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

    fn timed_out(&self, after: Duration) -> Error {
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
    /// The next bytes; `None` at the end. May be dropped and called again: nothing is lost.
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
            // Trailers say nothing that we read.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

impl Download {
    /// All of it, as far as it is not larger than any answer may be.
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

/// Whether the same call may fare better a moment later.
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
