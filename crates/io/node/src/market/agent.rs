//! The agent of a node: one thread with its own timers, and a handle on it.
//!
//! It looks every second and clears every five, whatever the rest of the process does, and goes on
//! when the ledger is away. What it saw last is there to be read at any time; stopping it, or
//! dropping the handle, puts every original back first.

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

/// How many commands may wait; each is answered within a clearing.
const COMMANDS_MAX: usize = 16;
/// How many changes of limits are kept for a reader that is slow: all of a large node's clearing.
pub const RESIZES_MAX: usize = 1_024;

/// An agent that is at work.
#[derive(Debug)]
pub struct Agent {
    node: String,
    directory: PathBuf,
    process: PathBuf,
    commands: SyncSender<Command>,
    /// What was seen last.
    shown: watch::Sender<Arc<View>>,
    resizes: broadcast::Sender<Arc<Resize>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Command {
    Restore(Deed, SyncSender<Result<Restored, Error>>),
    Stop(SyncSender<Result<Restored, Error>>),
}

impl Agent {
    /// Starts the agent of this node. What an earlier one left behind is put back, or adopted with
    /// its original; the first look is taken before this returns.
    pub fn start(options: Options) -> Result<Self, Error> {
        let (node, directory) = (options.node.clone(), options.directory.clone());
        let process = options.process.clone();
        let every = (options.sense, options.clear);
        let mut worker = Worker::open(options)?;
        let shown = watch::Sender::new(Arc::new(worker.view()));
        let resizes = worker.resizes.clone();
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let show = shown.clone();
        let thread = std::thread::Builder::new()
            .name("market".to_owned())
            .spawn(move || run(&mut worker, every, &received, &show))
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
            shown,
            resizes,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What it saw last.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shown.borrow())
    }

    /// Where originals and record are kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it told at a time, played back from its record; `None` where that begins later. Blocks,
    /// and clears up to an hour again.
    pub fn view_at(&self, at_ms: u64) -> Result<Option<View>, Error> {
        let past = record::read_at(&self.directory, at_ms)?;
        Ok(past.map(|past| self.view().then(past)))
    }

    /// What it sees from now on.
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.shown.subscribe()
    }

    /// Every limit from now on that was written and read back. The agent waits for nobody: a
    /// reader that falls behind by [`RESIZES_MAX`] loses the oldest.
    pub fn resizes(&self) -> broadcast::Receiver<Arc<Resize>> {
        self.resizes.subscribe()
    }

    /// Puts back every limit that users wrote and stops acting; it still observes. Blocks until
    /// that is done.
    pub fn restore(&self, deed: Deed) -> Result<Restored, Error> {
        match self.ask(|reply| Command::Restore(deed, reply)) {
            Err(Error::Stopped) if deed == Deed::Real => self.stop(),
            told => told,
        }
    }

    /// Puts back every limit that users wrote and ends the agent. Blocks until that is done,
    /// whoever asked first; a second time there is nothing left to do.
    pub fn stop(&self) -> Result<Restored, Error> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = thread.take() else {
            return Ok(Restored::default());
        };
        let told = self.ask(Command::Stop);
        let _ended = running.join();
        match told {
            // It broke down, and left everything as it was.
            Err(Error::Stopped) => restore(&self.directory, &self.process, Deed::Real),
            told => told,
        }
    }

    fn ask(
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

/// Looks and clears in time until it is told to stop.
fn run(
    worker: &mut Worker,
    (sense, clear): (Duration, Duration),
    commands: &Receiver<Command>,
    shown: &watch::Sender<Arc<View>>,
) {
    let show = |view: View| shown.send_replace(Arc::new(view));
    let mut look = Timer::new(sense);
    let mut divide = Timer::new(clear);
    loop {
        match commands.recv_timeout(look.left().min(divide.left())) {
            Ok(Command::Restore(deed, reply)) => {
                let told = worker.restore(deed);
                // Shown first: whoever is answered sees what it asked for. It may be gone.
                show(worker.view());
                let _gone = reply.send(told);
            }
            Ok(Command::Stop(reply)) => {
                let told = worker.stop();
                show(worker.view());
                let _gone = reply.send(told);
                return;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let _nobody = worker.stop();
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if look.is_due() {
            worker.skipped(look.next());
            // Nobody waits for the next clearing to be seen.
            if worker.sense() {
                let view = View::clone(&shown.borrow());
                show(worker.with_use(view));
            }
        }
        if divide.is_due() {
            worker.skipped(divide.next());
            worker.clear();
            show(worker.view());
        }
    }
}

/// Something that is due again and again.
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

    /// Goes on to the next time that lies ahead; how many were missed.
    fn next(&mut self) -> u64 {
        let late = Instant::now().saturating_duration_since(self.at);
        let missed = late.as_nanos() / self.every.as_nanos();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.at += self.every.saturating_mul(missed.saturating_add(1));
        u64::from(missed)
    }
}
