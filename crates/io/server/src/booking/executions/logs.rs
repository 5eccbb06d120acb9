//! Stored output of an execution.
//!
//! A followed read ends when the execution has ended and its whole output was read; the end is
//! recorded only after the last byte is in the file. Writes do not change the ledger, so the file is
//! also polled.

use bursar_engine::Reference;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bursar_client::{Code, Problem};
use bursar_engine::booking::Standing;
use bursar_node::executor::{Executor, Stream};
use bursar_units::BookingId;
use bursar_units::causes::chain;
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::ExecutorSettings;
use crate::caller::Caller;
use crate::log;
use crate::service::Service;

const CHUNK_BYTES: usize = 64 << 10;
const POLL_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(crate) struct LogsFrom {
    pub(crate) stream: Stream,
    pub(crate) from: u64,
    pub(crate) follow: bool,
}

pub(crate) struct Logs {
    service: Arc<Service>,
    executor: Arc<dyn Executor>,
    id: BookingId,
    wanted: LogsFrom,
    reading: Option<Reading>,
    _permit: OwnedSemaphorePermit,
}

type Reading = Box<dyn Read + Send>;

impl Service {
    /// Reads the output of an execution. It is private: only callers that may act as its tenant can
    /// read it.
    pub(crate) async fn logs(
        self: &Arc<Self>,
        caller: &Caller,
        id: &BookingId,
        wanted: LogsFrom,
    ) -> Result<Logs, Problem> {
        let execution = self.find_execution(caller, id)?;
        if let Some(tenant) = &execution.body.tenant {
            caller.require_tenant(tenant)?;
        }
        let ExecutorSettings { executor, .. } = self.require_executor()?;
        let permit = self.stream_permit()?;
        let mut logs = Logs {
            service: Arc::clone(self),
            executor: Arc::clone(executor),
            id: id.clone(),
            wanted,
            reading: None,
            _permit: permit,
        };
        let has_ended = logs.has_ended();
        logs.reading = logs.open().await.map_err(|error| unreadable(id, &error))?;
        if has_ended && logs.reading.is_none() {
            let detail = format!("no output of {id} is stored");
            return Err(Problem::new(Code::NotFound, detail));
        }
        Ok(logs)
    }
}

impl Logs {
    /// Reads the next piece; `None` at the end. After an error the output is incomplete.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            // Both come before the read, so that the read finds all bytes written before the end.
            let changed = self
                .service
                .ledger
                .view()
                .changed(Reference::Booking(self.id.clone()));
            let is_last = !self.wanted.follow || self.has_ended();
            match self.read().await {
                Ok(bytes) if !bytes.is_empty() => return Some(Ok(bytes)),
                Ok(_) if is_last => return None,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(id = %self.id, error = chain(&error), "{}", log::EXECUTION_UNREADABLE);
                    return Some(Err(error));
                }
            }
            tokio::select! {
                _ = changed => {}
                () = tokio::time::sleep(POLL_EVERY) => {}
                // Aborted, not ended: the client asks again for the rest.
                () = self.service.stopped() => return Some(Err(io::ErrorKind::ConnectionAborted.into())),
            }
        }
    }

    /// Reads the next bytes; empty if there are no more for now.
    async fn read(&mut self) -> io::Result<Bytes> {
        if self.reading.is_none() {
            self.reading = self.open().await?;
        }
        let Some(reading) = self.reading.take() else {
            return Ok(Bytes::new());
        };
        let (bytes, reading) = blocking(move || read_piece(reading)).await?;
        self.reading = reading;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.wanted.from = self.wanted.from.saturating_add(size);
        Ok(bytes)
    }

    /// Opens the output; `None` if there is none. The future borrows nothing, because `Reading` is
    /// not `Sync`.
    fn open(&self) -> impl Future<Output = io::Result<Option<Reading>>> + use<> {
        let (executor, id, wanted) = (Arc::clone(&self.executor), self.id.clone(), self.wanted);
        blocking(move || {
            let output = executor.output(&id, wanted.stream, wanted.from);
            output.map_err(io::Error::other)
        })
    }

    fn has_ended(&self) -> bool {
        let state = self.service.ledger.view().read();
        matches!(
            state.bookings.standing(&self.id),
            None | Some(Standing::Ended(_))
        )
    }
}

/// Returns the bytes, and the reader unless it is at its end.
fn read_piece(mut reading: Reading) -> io::Result<(Bytes, Option<Reading>)> {
    let mut piece = vec![0; CHUNK_BYTES];
    let size = reading.read(&mut piece)?;
    piece.truncate(size);
    Ok((Bytes::from(piece), (size > 0).then_some(reading)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("reading the output panicked")))
}

fn unreadable(id: &BookingId, error: &io::Error) -> Problem {
    tracing::error!(%id, error = chain(error), "{}", log::EXECUTION_UNREADABLE);
    let detail = format!("the output of {id} cannot be read: {}", chain(error));
    Problem::new(Code::Unavailable, detail)
}
