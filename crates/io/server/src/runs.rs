//! Simulates the processes of runs as the ledger wants them (X2).
//!
//! A process starts when its leases open, and ends when its run said: at the opening of the leases
//! plus `expectedDuration`. One that is told to stop is gone at its deadline. Nothing real is started,
//! so a process needs no care while the server is away: its end is an instant of the ledger's time.
//!
//! [`Simulated`] is the machine, which survives a crash of the server. An [`Attendant`] serves one
//! term: it reads all runs at its start, then the changes of each commit, and reports starts and ends
//! as commands. It keeps one agenda of what comes next. Nothing is decided here.

mod simulated;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::Event;
use bursar_engine::cluster::budget::RunUid;
use bursar_engine::cluster::{Clusters, Command, Exit, Wanted};
use bursar_ledger::intake::Submission;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::view::Published;
use bursar_ledger::writer::{Fact, own_principal};
use bursar_units::{Instant, Millis};
use futures_util::FutureExt as _;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;

pub use simulated::Simulated;

use crate::log;

/// The most runs that are reported together: within the bound of one principal (L4), with their
/// starts and ends.
const REPORTED_MAX: usize = 256;
/// First pause before results are sent again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Reports the simulated processes of all runs to the ledger, for one term.
pub struct Attendant {
    ledger: Ledger,
    machine: Arc<Simulated>,
    stream: broadcast::Receiver<Published>,
    /// Changes by hand.
    told: watch::Receiver<u64>,
    /// Runs with something to report, now or later.
    processes: BTreeMap<RunUid, Processes>,
    /// The same by the instant of the next report.
    agenda: BTreeSet<Entry>,
}

/// The processes of an incarnation, as far as they are not reported.
#[derive(Debug)]
struct Processes {
    incarnation: u64,
    /// Instant of the start, if it is not on record.
    start: Option<Instant>,
    end: Option<(Instant, Exit)>,
}

/// Instant of the next report about a run; at one instant by submission.
type Entry = (Instant, (u64, u64), RunUid);

/// The facts about an incarnation that its processes follow from.
pub(crate) struct Incarnation<'a> {
    pub(crate) uid: &'a RunUid,
    pub(crate) number: u64,
    pub(crate) opened: Instant,
    pub(crate) expected: Option<Millis>,
    pub(crate) is_running: bool,
    /// Instant at which it is killed, if it is being stopped.
    pub(crate) stop: Option<Instant>,
}

impl Attendant {
    /// An attendant of the runs of a ledger.
    pub fn new(ledger: Ledger, machine: Arc<Simulated>) -> Self {
        // Subscribed before the state is read, so that no change is missed.
        let stream = ledger.view().stream();
        let told = machine.told();
        let mut attendant = Self {
            ledger,
            machine,
            stream,
            told,
            processes: BTreeMap::new(),
            agenda: BTreeSet::new(),
        };
        attendant.take_all();
        attendant
    }

    /// Reports until it is dropped. The next attendant reports what has ended meanwhile.
    pub async fn run(self) {
        if AssertUnwindSafe(self.attend())
            .catch_unwind()
            .await
            .is_err()
        {
            // Without reports, leases would leak unnoticed: end here. The next start reads all again.
            tracing::error!("{}", log::RUNNER_PANICKED);
            std::process::abort();
        }
    }

    async fn attend(mut self) {
        let mut pause = PAUSE;
        loop {
            self.take_changes();
            let (entries, commands) = self.due();
            if commands.is_empty() {
                if self.rest().await.is_none() {
                    return;
                }
                continue;
            }
            let results = commands.len();
            match self.ledger.submit(own_principal(), commands).await {
                Ok(_) => {
                    self.strike(&entries);
                    pause = PAUSE;
                }
                Err(failure) => {
                    tracing::warn!(%failure, results, "{}", log::RUN_RESULTS_NOT_TAKEN);
                    tokio::time::sleep(pause).await;
                    pause = PAUSE_MAX.min(pause * 2);
                }
            }
        }
    }

    /// Pushes the results that are due and returns the instant of the next: for a ledger without
    /// threads, whose driver calls this before each step.
    pub fn report(&mut self) -> Option<Instant> {
        self.take_changes();
        let (entries, commands) = self.due();
        if !commands.is_empty() {
            self.strike(&entries);
            let machine = Arc::clone(&self.machine);
            self.ledger.push(Submission {
                by: own_principal(),
                commands,
                reply: Box::new(move |taken| {
                    if taken.is_err() {
                        // All is read and reported again.
                        machine.tell();
                    }
                }),
            });
        }
        self.agenda.first().map(|(at, ..)| *at)
    }

    /// Resolves when there may be something to report; `None` at the end of the term.
    async fn rest(&mut self) -> Option<()> {
        let next = self.agenda.first().map(|(at, ..)| *at);
        let wait = next.map(|at| Duration::from_millis(at.since(self.ledger.now()).ms().max(1)));
        tokio::select! {
            biased;
            published = self.stream.recv() => match published {
                Ok(facts) => self.take(&facts),
                Err(RecvError::Lagged(_)) => self.take_all(),
                Err(RecvError::Closed) => return None,
            },
            // The machine lives as long as its attendant, so this does not fail.
            told = self.told.changed() => if told.is_ok() { self.take_all() },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
        Some(())
    }

    /// Takes the changes of all commits since the last call, and those by hand.
    fn take_changes(&mut self) {
        if self.told.has_changed().unwrap_or(false) {
            self.told.mark_unchanged();
            self.take_all();
        }
        loop {
            match self.stream.try_recv() {
                Ok(facts) => self.take(&facts),
                Err(TryRecvError::Lagged(_)) => self.take_all(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn take_all(&mut self) {
        self.processes.clear();
        self.agenda.clear();
        let ledger = self.ledger.clone();
        let state = ledger.view().read();
        // The pods of an incarnation start and end together.
        for wanted in state.clusters.wanted() {
            if !self.processes.contains_key(&wanted.id.uid) {
                self.enter_wanted(&wanted);
            }
        }
    }

    fn take(&mut self, facts: &[Fact]) {
        let ledger = self.ledger.clone();
        let state = ledger.view().read();
        for uid in &touched(facts) {
            self.take_one(&state.clusters, uid);
        }
    }

    fn take_one(&mut self, clusters: &Clusters, uid: &RunUid) {
        let before = self.processes.remove(uid);
        if let Some(entry) = before.and_then(|before| before.entry(uid)) {
            self.agenda.remove(&entry);
        }
        // The pods of an incarnation start and end together.
        if let Some(wanted) = clusters.wanted_of(uid).next() {
            self.enter_wanted(&wanted);
        }
    }

    fn enter_wanted(&mut self, wanted: &Wanted<'_>) {
        self.enter(&Incarnation {
            uid: &wanted.id.uid,
            number: wanted.id.incarnation,
            opened: wanted.opened,
            expected: wanted.run.expected_duration,
            is_running: wanted.is_running,
            stop: wanted.stop,
        });
    }

    fn enter(&mut self, of: &Incarnation<'_>) {
        let is_starting = !of.is_running && of.stop.is_none();
        let processes = Processes {
            incarnation: of.number,
            start: is_starting.then_some(of.opened),
            end: self.machine.end_of(of),
        };
        if let Some(entry) = processes.entry(of.uid) {
            self.agenda.insert(entry);
        }
        self.processes.insert(of.uid.clone(), processes);
    }

    /// The results that are due, by time and submission, and their entries in the agenda.
    fn due(&self) -> (Vec<Entry>, Vec<bursar_engine::Command>) {
        let now = self.ledger.now();
        let due = self.agenda.iter().take_while(|(at, ..)| *at <= now);
        let entries: Vec<Entry> = due.take(REPORTED_MAX).cloned().collect();
        let reports = entries.iter().filter_map(|(_, _, uid)| {
            let processes = self.processes.get(uid);
            processes.map(|processes| processes.due(uid, now))
        });
        let commands = reports.flatten().map(Into::into).collect();
        (entries, commands)
    }

    /// Removes what was reported. What its records change is entered again.
    fn strike(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.agenda.remove(entry);
        }
    }
}

impl Processes {
    fn entry(&self, uid: &RunUid) -> Option<Entry> {
        let end = self.end.as_ref().map(|(at, _)| *at);
        Some((self.start.or(end)?, submission(uid), uid.clone()))
    }

    fn due(&self, uid: &RunUid, now: Instant) -> impl Iterator<Item = Command> {
        let incarnation = self.incarnation;
        let start = self.start.map(|_| Command::RunStarted {
            uid: uid.clone(),
            incarnation,
        });
        let end = self.end.as_ref().filter(|(at, _)| *at <= now);
        let end = end.map(|(_, exit)| Command::RunExited {
            uid: uid.clone(),
            incarnation,
            pods: Vec::new(),
            exit: exit.clone(),
        });
        start.into_iter().chain(end)
    }
}

/// The place of a run in the order of submission: `run-RECORD`, `run-RECORD.N` (L6).
fn submission(uid: &RunUid) -> (u64, u64) {
    let name = uid.as_str();
    let place = name.strip_prefix("run-").unwrap_or(name);
    let (record, number) = place.split_once('.').unwrap_or((place, "0"));
    let read = |text: &str| text.parse().unwrap_or(u64::MAX);
    (read(record), read(number))
}

/// Runs that records are about.
fn touched(facts: &[Fact]) -> BTreeSet<RunUid> {
    let events = facts.iter().flat_map(|fact| fact.events.iter());
    let runs = events.filter_map(|event| match event {
        Event::Cluster(event) => Some(event.who()?.uid),
        _ => None,
    });
    runs.collect()
}
