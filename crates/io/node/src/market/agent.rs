//! The agent of a node: one thread with its own timers, and a handle on it.
//!
//! It samples and clears every second, independently of the rest of the process and of the ledger. Its last view can be read at any time; stopping it, or dropping the handle, restores
//! every original first.

mod act;
mod members;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bursar_units::causes::chain;
use tokio::sync::{broadcast, watch};

use super::{Deed, Error, Options, Resize, Restored, View, record, restore};
use crate::log;
use worker::Worker;

/// Maximum number of waiting commands; each is answered within a clearing.
const COMMANDS_MAX: usize = 16;
/// Changes of limits that are buffered for a slow reader: one clearing of a large node.
pub const RESIZES_MAX: usize = 1_024;

/// Handle of a running agent.
#[derive(Debug)]
pub struct Agent {
    node: String,
    directory: PathBuf,
    process: PathBuf,
    commands: SyncSender<Command>,
    views: watch::Sender<Arc<View>>,
    resizes: broadcast::Sender<Arc<Resize>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Command {
    Restore(Deed, SyncSender<Result<Restored, Error>>),
    Stop(SyncSender<Result<Restored, Error>>),
}

impl Agent {
    /// Starts the agent of this node. Limits that an earlier one left are restored, or adopted with
    /// their originals; the first sample is taken before this returns.
    pub fn start(options: Options) -> Result<Self, Error> {
        let (node, directory) = (options.node.clone(), options.directory.clone());
        let process = options.process.clone();
        let interval = options.interval;
        let mut worker = Worker::open(options)?;
        let views = watch::Sender::new(Arc::new(worker.view()));
        let resizes = worker.resizes.clone();
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let show = views.clone();
        let thread = std::thread::Builder::new()
            .name("market".to_owned())
            .spawn(move || run(&mut worker, interval, &received, &show))
            .map_err(|source| Error::Path {
                doing: "start a thread for",
                path: "the market".into(),
                source,
            })?;
        Ok(Self {
            node,
            directory,
            process,
            commands,
            views,
            resizes,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The last view.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.views.borrow())
    }

    /// The directory of originals and record.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The view at a past time, replayed from the record; `None` if that begins later. Blocks while
    /// it repeats up to an hour of clearings.
    pub fn view_at(&self, at_ms: u64) -> Result<Option<View>, Error> {
        let past = record::read_at(&self.directory, at_ms)?;
        let replayed = past.and_then(|past| Some((past.at_ms, past.replayed?)));
        Ok(replayed.map(|(at_ms, past)| self.view().then(at_ms, past)))
    }

    /// Subscribes to the views.
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.views.subscribe()
    }

    /// Subscribes to the limits that are written and read back. The agent waits for no reader: one
    /// that falls behind by [`RESIZES_MAX`] loses the oldest.
    pub fn resizes(&self) -> broadcast::Receiver<Arc<Resize>> {
        self.resizes.subscribe()
    }

    /// Restores every original and stops acting; the agent still observes. Blocks until that is
    /// done.
    pub fn restore(&self, deed: Deed) -> Result<Restored, Error> {
        match self.request(|reply| Command::Restore(deed, reply)) {
            Err(Error::Stopped) if deed == Deed::Real => self.stop(),
            result => result,
        }
    }

    /// Restores every original and ends the agent. Blocks until that is done; a second call does
    /// nothing.
    pub fn stop(&self) -> Result<Restored, Error> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = thread.take() else {
            return Ok(Restored::default());
        };
        let result = self.request(Command::Stop);
        let _ended = running.join();
        match result {
            // The thread panicked and restored nothing.
            Err(Error::Stopped) => restore(&self.directory, &self.process, Deed::Real),
            result => result,
        }
    }

    fn request(
        &self,
        command: impl FnOnce(SyncSender<Result<Restored, Error>>) -> Command,
    ) -> Result<Restored, Error> {
        let (reply, answer) = sync_channel(1);
        self.commands
            .send(command(reply))
            .map_err(|_| Error::Stopped)?;
        answer.recv().map_err(|_| Error::Stopped)?
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(error = chain(&error), "{}", log::MARKET_NOT_RESTORED);
        }
    }
}

fn run(
    worker: &mut Worker,
    interval: Duration,
    commands: &Receiver<Command>,
    views: &watch::Sender<Arc<View>>,
) {
    let show = |view: View| views.send_replace(Arc::new(view));
    let mut clearing = Timer::new(interval);
    loop {
        match commands.recv_timeout(clearing.left()) {
            Ok(Command::Restore(deed, reply)) => {
                let result = worker.restore(deed);
                // Published first, so that the caller sees the effect. The caller may be gone.
                show(worker.view());
                let _gone = reply.send(result);
            }
            Ok(Command::Stop(reply)) => {
                let result = worker.stop();
                show(worker.view());
                let _gone = reply.send(result);
                return;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let _no_caller = worker.stop();
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if clearing.is_due() {
            worker.skipped(clearing.next());
            worker.sense();
            worker.clear();
            show(worker.view());
        }
    }
}

struct Timer {
    every: Duration,
    at: Instant,
}

impl Timer {
    fn new(every: Duration) -> Self {
        let every = every.max(Duration::from_millis(1));
        Self {
            every,
            at: Instant::now() + every,
        }
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    fn is_due(&self) -> bool {
        self.left().is_zero()
    }

    /// Moves to the next time in the future; returns how many were missed.
    fn next(&mut self) -> u64 {
        let late = Instant::now().saturating_duration_since(self.at);
        let missed = late.as_nanos() / self.every.as_nanos();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.at += self.every.saturating_mul(missed.saturating_add(1));
        u64::from(missed)
    }
}
