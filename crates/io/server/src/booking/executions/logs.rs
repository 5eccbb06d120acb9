//! What an execution writes, as far as it is kept.
//!
//! Whoever follows reads until the execution has ended and all it wrote was read: its end is on
//! record only after the last byte is in its file. A program writes without telling the ledger,
//! so its file is looked at now and then too.

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

use super::Executing;
use crate::caller::Caller;
use crate::log;
use crate::service::Service;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How long what was written may stay unseen by whoever follows.
const LOOK: Duration = Duration::from_millis(200);

/// Which part of what was written is wanted.
#[derive(Clone, Copy, Debug)]
pub struct LogsFrom {
    /// Of which stream.
    pub stream: Stream,
    /// From which byte on.
    pub from: u64,
    /// Whether to go on until the execution has ended.
    pub follow: bool,
}

/// What was written, on its way.
pub struct Logs {
    service: Arc<Service>,
    executor: Arc<dyn Executor>,
    id: BookingId,
    wanted: LogsFrom,
    reading: Option<Reading>,
    _permit: OwnedSemaphorePermit,
}

/// What was written, being read.
type Reading = Box<dyn Read + Send>;
/// What became of a read: the bytes, and what to read on from unless it is at its end.
type Piece = (Bytes, Option<Reading>);

impl Service {
    /// What an execution has written. It is told only to those who may act as its tenant: what a
    /// program writes is its owner's business.
    pub async fn logs(
        self: &Arc<Self>,
        caller: &Caller,
        id: &BookingId,
        wanted: LogsFrom,
    ) -> Result<Logs, Problem> {
        let seen = self.look_at_execution(caller, id)?;
        if let Some(tenant) = &seen.body.tenant {
            caller.require_tenant(tenant)?;
        }
        let Executing { executor, .. } = self.where_it_runs()?;
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
            let detail = format!("nothing is kept of what {id} wrote");
            return Err(Problem::new(Code::NotFound, detail));
        }
        Ok(logs)
    }
}

impl Logs {
    /// The next piece; `None` at the end. An error means that something is missing.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            // Both come before the read: what is written until the end is read after it.
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
                () = tokio::time::sleep(LOOK) => {}
                // Broken off, not ended: whoever follows asks again for the rest.
                () = self.service.stopped() => return Some(Err(io::ErrorKind::ConnectionAborted.into())),
            }
        }
    }

    /// The next bytes; none where there are no more now.
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

    /// Opens what was written so far; `None` where there is nothing. The future keeps no hold of
    /// what is being read, which only one thread at a time may have.
    fn open(&self) -> impl Future<Output = io::Result<Option<Reading>>> + use<> {
        let (executor, id, wanted) = (Arc::clone(&self.executor), self.id.clone(), self.wanted);
        blocking(move || {
            let output = executor.output(&id, wanted.stream, wanted.from);
            output.map_err(io::Error::other)
        })
    }

    /// Whether nothing is written any more.
    fn has_ended(&self) -> bool {
        let state = self.service.ledger.view().read();
        matches!(
            state.bookings.standing(&self.id),
            None | Some(Standing::Ended(_))
        )
    }
}

fn read_piece(mut reading: Reading) -> io::Result<Piece> {
    let mut piece = vec![0; CHUNK_BYTES];
    let size = reading.read(&mut piece)?;
    piece.truncate(size);
    Ok((Bytes::from(piece), (size > 0).then_some(reading)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("reading what was written panicked")))
}

fn unreadable(id: &BookingId, error: &io::Error) -> Problem {
    tracing::error!(%id, error = chain(error), "{}", log::EXECUTION_UNREADABLE);
    let detail = format!("what {id} wrote cannot be read: {}", chain(error));
    Problem::new(Code::Unavailable, detail)
}
