//! What a program writes: copied to a file up to a bound, then read and dropped.
//!
//! The writer is never blocked for long, whatever becomes of the file: a disk that is full loses
//! output, not executions. A stream to which nothing is written makes no file.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Written;

/// How much of each stream is kept.
pub(crate) const KEPT_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// What follows where more was written.
pub(crate) const MARKER: &str = "\nbursar: more than 10 MiB were written; the rest is not kept\n";
/// How much is read at once: small, because every running execution has this buffer.
const BUFFER_SIZE: usize = 16 * 1024;
/// How much may still be in a pipe when all who wrote to it are dead. Somebody else who got hold
/// of it might write for ever.
const PENDING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One stream.
#[derive(Debug)]
pub(super) struct Copy {
    pipe: Option<PipeReader>,
    path: PathBuf,
    file: Option<File>,
    is_broken: bool,
    written: Written,
}

impl Copy {
    pub(super) fn new(pipe: PipeReader, path: PathBuf) -> Self {
        Self {
            pipe: Some(pipe),
            path,
            file: None,
            is_broken: false,
            written: Written::default(),
        }
    }

    /// The pipe, until it is closed.
    pub(super) fn pipe(&self) -> Option<&PipeReader> {
        self.pipe.as_ref()
    }

    /// Copies what a pipe that is ready holds.
    pub(super) fn step(&mut self, buffer: &mut Buffer) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        match pipe.read(&mut buffer.0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(size) if 0 < size => self.keep(buffer.0.get(..size).unwrap_or_default()),
            _ => self.pipe = None,
        }
    }

    /// Copies what is left when everybody who wrote is gone.
    pub(super) fn finish(&mut self, buffer: &mut Buffer) -> Written {
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

    /// Adds a line of ours.
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
        // Most likely the disk is full. A hole in the middle would mislead, so it ends here.
        self.is_broken = result.is_err();
    }
}

/// Where bytes are on their way; one for both streams.
#[derive(Debug)]
pub(super) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(super) fn new() -> Self {
        Self(vec![0; BUFFER_SIZE].into_boxed_slice())
    }
}

fn is_ready(pipe: &PipeReader) -> bool {
    let pipe = pipe.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| 0 < ready)
}
