//! Output of an execution, with reconnection after a loss.
//!
//! A new connection asks for the bytes after those that were read, so no byte is lost or repeated,
//! even after a long silence or a restart of the server.

use bursar_units::BookingId;
use bytes::Bytes;
use http::Method;
use tokio::time::sleep;

use super::exchange::{Call, is_worth_repeating};
use super::{Client, Download, Error, Pause, Query};
use crate::api::{GetLogs, LogStream};

/// End of the output that is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Follow {
    /// Output up to now.
    Now,
    /// Output up to the end of the execution.
    UntilEnded,
}

/// Output of an execution, in chunks.
pub struct Logs {
    client: Client,
    id: BookingId,
    stream: LogStream,
    follow: Follow,
    from: u64,
    open: Option<Download>,
    pause: Pause,
    /// Consecutive failures.
    broken: u32,
}

impl Client {
    /// Opens one output stream of an execution. Fails if it cannot be read now.
    pub async fn logs(
        &self,
        id: &BookingId,
        stream: LogStream,
        follow: Follow,
    ) -> Result<Logs, Error> {
        let mut logs = Logs {
            client: self.clone(),
            id: id.clone(),
            stream,
            follow,
            from: 0,
            open: None,
            pause: Pause::new(),
            broken: 0,
        };
        logs.connect().await?;
        Ok(logs)
    }
}

impl Logs {
    /// Next bytes; `None` at the end. Cancellation-safe: nothing is lost.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.read().await {
                Ok(Some(bytes)) if bytes.is_empty() => {}
                Ok(Some(bytes)) => {
                    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    self.from = self.from.saturating_add(size);
                    self.pause = Pause::new();
                    return Ok(Some(bytes));
                }
                Ok(None) => return Ok(None),
                Err(error) => {
                    self.open = None;
                    self.broken = self.broken.saturating_add(1);
                    let is_over = self.broken >= self.client.shared.options.attempts_max;
                    if is_over || !is_worth_repeating(&error) {
                        return Err(error);
                    }
                    sleep(self.pause.next()).await;
                }
            }
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>, Error> {
        if self.open.is_none() {
            self.connect().await?;
        }
        match &mut self.open {
            Some(download) => download.chunk().await,
            None => Ok(None),
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let query = Query::of(&GetLogs {
            stream: Some(self.stream),
            follow: (self.follow == Follow::UntilEnded).then_some(true),
            from: (self.from > 0).then_some(self.from),
        });
        let target = format!("/v1/executions/{}/logs{}", self.id, query.as_str());
        let call = Call::new(Method::GET, target);
        self.open = Some(self.client.download_once(&call).await?);
        self.broken = 0;
        Ok(())
    }
}
