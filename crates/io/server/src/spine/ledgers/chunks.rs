//! Exports and backups: written on a blocking thread and sent in chunks.

use std::io::{self, Read as _, Write};
use std::path::Path;
use std::sync::Arc;

use bursar_client::{Code, Problem};
use bursar_ledger::maintain;
use bursar_units::INTEGER_MAX;
use bursar_units::causes::chain;
use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::caller::Caller;
use crate::log;
use crate::service::Service;

const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that may wait for a slow client.
const CHUNKS_MAX: usize = 8;

pub(crate) struct Chunks(Receiver<io::Result<Bytes>>);

impl Chunks {
    /// Waits for the next chunk; `None` at the end. After an error the copy is incomplete.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.0.recv().await
    }
}

impl Service {
    /// Exports records as JSON lines that end with a checkpoint. The caller confirms the receipt
    /// with [`Service::exported`] (L13).
    pub(crate) async fn export(
        self: &Arc<Self>,
        caller: &Caller,
        from: Option<u64>,
        to: Option<u64>,
    ) -> Result<Chunks, Problem> {
        caller.require_operate("export the ledger")?;
        self.signed_tree().await?;
        let service = Arc::clone(self);
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(INTEGER_MAX));
        Ok(chunks_of(move |out| {
            let reader = (service.readers)().map_err(io::Error::other)?;
            maintain::export(reader.as_ref(), from, to, out).map_err(io::Error::other)?;
            Ok(())
        }))
    }

    pub(crate) fn backup(self: &Arc<Self>, caller: &Caller) -> Result<Chunks, Problem> {
        caller.require_operate("copy the whole store")?;
        let Some(file) = self.info.file.clone() else {
            let detail = format!(
                "a store of kind `{}` has no file to copy; use `bursar ledger export`",
                self.info.store
            );
            return Err(Problem::new(Code::Conflict, detail));
        };
        let name = crate::spine::tokens::random_name("backup")?;
        Ok(chunks_of(move |out| {
            let copy = file.with_file_name(name);
            let copied = copy_out(&file, &copy, out);
            if copied.is_err() {
                // A partial copy would only take space; it may not exist.
                let _absent = std::fs::remove_file(&copy);
            }
            copied
        }))
    }
}

/// Copies the store to a file beside it, which is unlinked before it is sent.
fn copy_out(file: &Path, copy: &Path, out: &mut dyn Write) -> io::Result<()> {
    maintain::backup(file, copy).map_err(io::Error::other)?;
    let mut reading = std::fs::File::open(copy)?;
    std::fs::remove_file(copy)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match reading.read(&mut chunk)? {
            0 => return out.flush(),
            read => out.write_all(chunk.get(..read).unwrap_or_default())?,
        }
    }
}

/// Runs `write` on a blocking thread and returns its output in chunks.
fn chunks_of(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Chunks {
    let (send, receive) = channel(CHUNKS_MAX);
    let last = send.clone();
    tokio::spawn(async move {
        let mut out = ChunkWriter {
            send,
            buffer: Vec::with_capacity(CHUNK_BYTES),
        };
        let done = tokio::task::spawn_blocking(move || {
            write(&mut out)?;
            out.flush()
        });
        let done = done.await;
        let done = done.unwrap_or_else(|_| Err(io::Error::other("writing the copy panicked")));
        if let Err(error) = done {
            tracing::warn!(error = chain(&error), "{}", log::COPY_FAILED);
            // This fails only if the client has gone.
            let _gone = last.send(Err(error)).await;
        }
    });
    Chunks(receive)
}

struct ChunkWriter {
    send: Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        self.send
            .blocking_send(Ok(chunk))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}
