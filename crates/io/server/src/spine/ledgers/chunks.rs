//! Copies that are too large for one piece: written on a thread that may block, read as it goes.

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

/// Bytes that are handed over at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that may wait for a slow reader.
const CHUNKS_MAX: usize = 8;

/// A copy on its way.
pub struct Chunks(Receiver<io::Result<Bytes>>);

impl Chunks {
    /// The next piece; `None` at the end. An error means that the copy is not whole.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.0.recv().await
    }
}

impl Service {
    /// Records as JSON lines, under a checkpoint over the last of them. That they arrived is for the
    /// caller to say (L13).
    pub async fn export(
        self: &Arc<Self>,
        caller: &Caller,
        from: Option<u64>,
        to: Option<u64>,
    ) -> Result<Chunks, Problem> {
        caller.require_operate("export the ledger")?;
        self.signed_tree().await?;
        let service = Arc::clone(self);
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(INTEGER_MAX));
        Ok(written(move |out| {
            let reader = (service.readers)().map_err(io::Error::other)?;
            maintain::export(reader.as_ref(), from, to, out).map_err(io::Error::other)?;
            Ok(())
        }))
    }

    /// The whole store in one file.
    pub fn backup(self: &Arc<Self>, caller: &Caller) -> Result<Chunks, Problem> {
        caller.require_operate("copy the whole store")?;
        let Some(file) = self.info.file.clone() else {
            let detail = format!(
                "a store of kind `{}` has no file to copy; export it",
                self.info.store
            );
            return Err(Problem::new(Code::Conflict, detail));
        };
        let name = crate::spine::tokens::random_name("backup")?;
        Ok(written(move |out| {
            let copy = file.with_file_name(name);
            let copied = copy_out(&file, &copy, out);
            if copied.is_err() {
                // It may not have come into being; what is left would only take space.
                let _absent = std::fs::remove_file(&copy);
            }
            copied
        }))
    }
}

/// Copies into a file beside the store, which has no name any more when it is read.
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

/// Runs a writer whose output is read in pieces.
fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Chunks {
    let (send, receive) = channel(CHUNKS_MAX);
    let last = send.clone();
    tokio::spawn(async move {
        let mut out = Out {
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
            // A reader that went away needs no word.
            let _gone = last.send(Err(error)).await;
        }
    });
    Chunks(receive)
}

/// Hands over what is written in pieces.
struct Out {
    send: Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for Out {
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
