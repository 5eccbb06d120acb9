//! How a shim learns that its server is gone, killed or not: one pipe for all of them, of which
//! only the server has the end to write to. Nothing is ever written.

use std::io::{self, PipeReader, PipeWriter, pipe};
use std::os::fd::OwnedFd;

/// That a server is there.
#[derive(Debug)]
pub(super) struct Presence {
    told: PipeReader,
    kept: Option<PipeWriter>,
}

impl Presence {
    pub(super) fn new() -> io::Result<Self> {
        let (told, kept) = pipe()?;
        Ok(Self {
            told,
            kept: Some(kept),
        })
    }

    /// What a shim gets.
    pub(super) fn told(&self) -> io::Result<OwnedFd> {
        Ok(self.told.try_clone()?.into())
    }

    /// Says to all shims that the server is gone.
    pub(super) fn end(&mut self) {
        self.kept = None;
    }
}
