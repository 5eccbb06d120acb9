//! Output streams: results go to stdout, messages to stderr.

use std::io::{self, Read, Write};

use rustix::termios::tcgetwinsize;

use crate::failure::{Failure, Stop};
use crate::layout::WIDTH;

/// Narrower terminals are ignored: words would not fit, so the terminal breaks the lines.
const WIDTH_MIN: usize = 60;

/// Stdout, stderr and stdin of a command.
pub(crate) enum Console {
    Process,
    /// Output in the order written, for scenarios.
    Kept(Vec<(Stream, String)>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stream {
    /// Results, to stdout.
    Data,
    /// Hints, warnings, errors and progress, to stderr.
    Words,
}

impl Console {
    /// Writes results. A closed pipe ends the command with success.
    pub(crate) fn data(&mut self, text: &str) -> Result<(), Stop> {
        self.raw(Stream::Data, text.as_bytes())
    }

    /// Writes bytes without escaping them.
    pub(crate) fn raw(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Stop> {
        let written = match (self, stream) {
            (Self::Process, Stream::Data) => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            (Self::Process, Stream::Words) => io::stderr().lock().write_all(bytes),
            (Self::Kept(kept), _) => {
                kept.push((stream, String::from_utf8_lossy(bytes).into_owned()));
                Ok(())
            }
        };
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::Pipe,
            _ => Failure::unavailable(format!("cannot write to stdout: {error}")).into(),
        })
    }

    /// Maximum width of a line of results: [`WIDTH`], or the terminal's width if it is smaller.
    pub(crate) fn columns(&self) -> usize {
        let window = match self {
            Self::Process => tcgetwinsize(io::stdout()).ok(),
            Self::Kept(_) => None,
        };
        let columns = window.map(|window| usize::from(window.ws_col));
        columns
            .filter(|columns| (WIDTH_MIN..WIDTH).contains(columns))
            .unwrap_or(WIDTH)
    }

    /// Writes a message. A failed write is ignored: the command's result does not depend on it.
    pub(crate) fn words(&mut self, text: &str) {
        let _unread = self.raw(Stream::Words, text.as_bytes());
    }

    /// Stdin up to one byte over the size limit of files.
    pub(crate) fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if matches!(self, Self::Process) {
            let limit = u64::try_from(bursar_client::object::FILE_BYTES_MAX).unwrap_or(u64::MAX);
            io::stdin()
                .lock()
                .take(limit.saturating_add(1))
                .read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    pub(crate) fn read_line(&self) -> io::Result<String> {
        let mut line = String::new();
        if matches!(self, Self::Process) {
            io::stdin().read_line(&mut line)?;
        }
        Ok(line)
    }
}
