//! An executor without processes: it simulates programs in the time of the runtime.
//!
//! Benches, scenarios and the replay of traces use it, also on virtual time. `sleep` runs for the
//! seconds in its first argument, `false` exits with 1, every other program exits at once with 0.
//! It stores nothing: an execution that it has not started itself is lost. It reports cgroup
//! isolation. Output and limits are deliberately absent.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_journal::hash::{Hash, sha256};
use bursar_units::BookingId;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::executor::{Begun, Doing, Error, Executor, Job, Left, Life, Output, Stream, Work};

/// The shortest time that a work stays: the booking that needs it may not be committed yet.
const UNNEEDED_TIME_MIN: Duration = Duration::from_mins(10);

/// The executor that runs nothing.
#[derive(Debug, Default)]
pub struct Null {
    /// Stored works, each with the time when it was stored.
    plays: Mutex<BTreeMap<Hash, (Play, Instant)>>,
    runs: Mutex<BTreeMap<BookingId, Arc<Run>>>,
}

/// Simulated course of a work.
#[derive(Clone, Copy, Debug)]
struct Play {
    takes: Duration,
    code: i32,
}

/// One execution. Its end is fixed at its start, unless it is stopped before.
#[derive(Debug)]
struct Run {
    due: Instant,
    code: i32,
    note: String,
    stopped: watch::Sender<Option<Exit>>,
}

impl Null {
    fn run(&self, id: &BookingId) -> Option<Arc<Run>> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.get(id).cloned()
    }

    fn begin(&self, id: &BookingId, job: &Job) -> Begun {
        let plays = self.plays.lock().unwrap_or_else(PoisonError::into_inner);
        let play = plays.get(&job.work).copied();
        drop(plays);
        let Some((play, _)) = play else {
            let reason = "what it runs is no longer kept".to_owned();
            return Begun::Gone(Exit::NotStarted(reason));
        };
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs
            .entry(id.clone())
            .or_insert_with(|| Arc::new(Run::of(play, job.note.clone())));
        match &*run.stopped.borrow() {
            Some(exit) => Begun::Gone(exit.clone()),
            None => Begun::Running(Isolation::Cgroup),
        }
    }

    fn end(&self, id: &BookingId) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = runs.get(id) else {
            runs.insert(id.clone(), Arc::new(Run::never()));
            return;
        };
        if Instant::now() < run.due {
            run.stopped.send_if_modified(|stopped| {
                let is_first = stopped.is_none();
                stopped.get_or_insert(Exit::Signal(SIGTERM));
                is_first
            });
        }
    }
}

impl Run {
    fn of(play: Play, note: String) -> Self {
        Self {
            due: Instant::now() + play.takes,
            code: play.code,
            note,
            stopped: watch::Sender::new(None),
        }
    }

    fn never() -> Self {
        let reason = "stopped before it started".to_owned();
        Self {
            due: Instant::now(),
            code: 0,
            note: String::new(),
            stopped: watch::Sender::new(Some(Exit::NotStarted(reason))),
        }
    }

    async fn ended(&self) -> Exit {
        let mut stopped = self.stopped.subscribe();
        tokio::select! {
            biased;
            Ok(exit) = stopped.wait_for(Option::is_some) => exit.clone().unwrap_or(Exit::Lost),
            () = tokio::time::sleep_until(self.due) => Exit::Code(self.code),
        }
    }
}

impl Executor for Null {
    fn digest(&self, work: &Work) -> Hash {
        // Nothing leaves this process, so the hash needs no salt.
        let json = serde_json::to_vec(work).unwrap_or_default();
        sha256(&json)
    }

    fn keep(&self, work: &Work) -> Result<Hash, Error> {
        let digest = self.digest(work);
        let mut plays = self.plays.lock().unwrap_or_else(PoisonError::into_inner);
        plays.insert(digest, (play(work), Instant::now()));
        Ok(digest)
    }

    fn start<'a>(&'a self, id: &'a BookingId, job: &'a Job) -> Doing<'a, Begun> {
        Box::pin(async move { self.begin(id, job) })
    }

    fn exit<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Exit> {
        Box::pin(async move {
            match self.run(id) {
                Some(run) => run.ended().await,
                None => Exit::Lost,
            }
        })
    }

    fn stop<'a>(&'a self, id: &'a BookingId, _grace: Duration) -> Doing<'a, Result<(), Error>> {
        Box::pin(async move {
            self.end(id);
            Ok(())
        })
    }

    fn list(&self) -> Doing<'_, Result<Vec<BookingId>, Error>> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(Ok(runs.keys().cloned().collect())))
    }

    fn life<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Result<Life, Error>> {
        let lives = |run: &Arc<Run>| run.stopped.borrow().is_none() && Instant::now() < run.due;
        let run = self.run(id).filter(lives);
        let life = run.map_or(Life::Nothing, |run| Life::Running {
            note: run.note.clone(),
            isolation: Isolation::Cgroup,
            has_shim: true,
        });
        Box::pin(ready(Ok(life)))
    }

    fn clean<'a>(&'a self, id: &'a BookingId, _left: Left) -> Doing<'a, Result<(), Error>> {
        self.end(id);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.remove(id);
        Box::pin(ready(Ok(())))
    }

    fn forget(&self, needed: BTreeSet<Hash>) -> Doing<'_, Result<(), Error>> {
        let mut plays = self.plays.lock().unwrap_or_else(PoisonError::into_inner);
        plays.retain(|digest, (_, kept)| {
            kept.elapsed() < UNNEEDED_TIME_MIN || needed.contains(digest)
        });
        Box::pin(ready(Ok(())))
    }

    fn output(&self, _: &BookingId, _: Stream, _: u64) -> Result<Option<Output>, Error> {
        Ok(None)
    }
}

const SIGTERM: i32 = 15;

fn play(work: &Work) -> Play {
    let name = work.command.rsplit('/').next().unwrap_or_default();
    let seconds = work.args.first().map_or("", String::as_str);
    Play {
        takes: match name {
            "sleep" => duration(seconds),
            _ => Duration::ZERO,
        },
        code: i32::from(name == "false"),
    }
}

/// Parses seconds with up to nine decimals, as `sleep` takes them; invalid numbers count as zero.
fn duration(seconds: &str) -> Duration {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    let part: String = part.chars().chain("000000000".chars()).take(9).collect();
    let whole = whole.parse().unwrap_or(0);
    Duration::from_secs(whole).saturating_add(Duration::from_nanos(part.parse().unwrap_or(0)))
}
