//! Where results and words go: data to stdout, words to stderr, and nothing else anywhere.

use std::io::{self, Read, Write};

use rustix::termios::tcgetwinsize;

use crate::failure::{Failure, Stop};
use crate::layout::WIDTH;

/// A terminal with fewer columns breaks lines as it likes.
const WIDTH_MIN: usize = 60;

/// The two streams that a command writes, and the one that it reads.
pub(crate) enum Console {
    /// The process's own.
    Process,
    /// Kept, in the order written: for scenarios.
    Kept(Vec<(Stream, String)>),
}

/// Which stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stream {
    /// Results.
    Data,
    /// Hints, warnings, errors, progress.
    Words,
}

impl Console {
    /// Writes results. A reader that went away ends the command well.
    pub(crate) fn data(&mut self, text: &str) -> Result<(), Stop> {
        self.raw(Stream::Data, text.as_bytes())
    }

    /// Writes what somebody else wrote, as it is.
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

    /// How long a line of results may be: no longer than everywhere, and no longer than the
    /// terminal, if that is one which words fit in.
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

    /// Writes words. That nobody reads them changes nothing.
    pub(crate) fn words(&mut self, text: &str) {
        match self {
            Self::Process => {
                let _unread = io::stderr().lock().write_all(text.as_bytes());
            }
            Self::Kept(kept) => kept.push((Stream::Words, text.to_owned())),
        }
    }

    /// All of stdin.
    pub(crate) fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if matches!(self, Self::Process) {
            let most = u64::try_from(bursar_client::object::FILE_BYTES_MAX).unwrap_or(u64::MAX);
            io::stdin()
                .lock()
                .take(most.saturating_add(1))
                .read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// One line of stdin: the answer to a question.
    pub(crate) fn read_line(&self) -> io::Result<String> {
        let mut line = String::new();
        if matches!(self, Self::Process) {
            io::stdin().read_line(&mut line)?;
        }
        Ok(line)
    }
}
