//! Tells shims that their server is gone: one pipe for all of them, whose write end only the server
//! has. Nothing is ever written; the kernel closes the pipe when the server ends or is killed.

use std::io::{self, PipeReader, PipeWriter, pipe};
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub(super) struct Presence {
    reader: PipeReader,
    writer: Option<PipeWriter>,
}

impl Presence {
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = pipe()?;
        Ok(Self {
            reader,
            writer: Some(writer),
        })
    }

    /// The end that a shim inherits.
    pub(super) fn reader(&self) -> io::Result<OwnedFd> {
        Ok(self.reader.try_clone()?.into())
    }

    /// Signals to all shims that the server is gone.
    pub(super) fn end(&mut self) {
        self.writer = None;
    }
}
