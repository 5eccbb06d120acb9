//! Copies the output of a program to a file up to a limit, then reads and drops the rest.
//!
//! The program is never blocked for long, even if the file cannot be written: a full disk loses
//! output, not executions. An empty stream has no file.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::StreamCounts;

pub(crate) const KEPT_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Last line of a truncated stream.
pub(crate) const MARKER: &str = "\nbursar: more than 10 MiB were written; the rest is not kept\n";
/// Small, because every running execution has this buffer.
pub(super) const BUFFER_SIZE: usize = 16 * 1024;
/// Bytes read from a pipe after the program's processes are dead: a process that was passed the
/// pipe could write for ever.
const PENDING_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct StreamCopy {
    pipe: Option<PipeReader>,
    path: PathBuf,
    file: Option<File>,
    is_broken: bool,
    written: StreamCounts,
}

impl StreamCopy {
    pub(super) fn new(pipe: PipeReader, path: PathBuf) -> Self {
        Self {
            pipe: Some(pipe),
            path,
            file: None,
            is_broken: false,
            written: StreamCounts::default(),
        }
    }

    pub(super) fn pipe(&self) -> Option<&PipeReader> {
        self.pipe.as_ref()
    }

    pub(super) fn step(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        match pipe.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(size) if 0 < size => self.keep(buffer.get(..size).unwrap_or_default()),
            _ => self.pipe = None,
        }
    }

    /// Copies the rest after all writers are gone.
    pub(super) fn finish(&mut self, buffer: &mut [u8]) -> StreamCounts {
        for _ in 0..PENDING_BYTES_MAX / BUFFER_SIZE {
            let Some(pipe) = &self.pipe else { break };
            if !is_ready(pipe) {
                break;
            }
            self.step(buffer);
        }
        self.pipe = None;
        self.written
    }

    /// Appends a line of our own.
    pub(super) fn note(&mut self, line: &str) {
        self.append(line.as_bytes());
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT_BYTES_MAX - self.written.bytes_kept;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let kept = bytes.get(..room).unwrap_or(bytes);
        if !kept.is_empty() {
            self.append(kept);
        }
        let count = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let dropped = count(bytes) - count(kept);
        if 0 < dropped && self.written.bytes_dropped == 0 {
            self.append(MARKER.as_bytes());
        }
        if self.is_broken {
            self.written.bytes_dropped += count(kept);
        } else {
            self.written.bytes_kept += count(kept);
        }
        self.written.bytes_dropped += dropped;
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.is_broken {
            return;
        }
        let result = match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => File::create_new(&self.path).and_then(|file| {
                let file = self.file.insert(file);
                file.write_all(bytes)
            }),
        };
        // Most likely the disk is full. A gap in the output would mislead, so it ends here.
        self.is_broken = result.is_err();
    }
}

fn is_ready(pipe: &PipeReader) -> bool {
    let pipe = pipe.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| 0 < ready)
}
