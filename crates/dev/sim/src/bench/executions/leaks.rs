//! Search for leaked slots: many executions, some of which are cancelled, some time out, and some run
//! when the server crashes.
//!
//! Runs on virtual time from one seed, over the ledger's own pipeline and a store in memory. A crash
//! drops ledger and runner between two steps. Uncommitted changes are lost, and clients repeat
//! unanswered requests under the same id. The machine on which executions run survives the crash, or,
//! depending on the seed, is switched off with it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bursar_booking::decide::{Change, Refusal as Refused};
use bursar_booking::execution::Verdict;
use bursar_booking::{Command, Submission};
use bursar_engine::{Refusal, State, spine};
use bursar_journal::checkpoint::{Checkpoint, Name, SigningKey};
use bursar_journal::hash::Hash;
use bursar_ledger::clock::Clock;
use bursar_ledger::key;
use bursar_ledger::pipeline::{Ledger, Observe};
use bursar_ledger::store::memory::{Fault, MemoryStore};
use bursar_ledger::store::{self, Store as _};
use bursar_ledger::term::{Hand, begin};
use bursar_ledger::writer::Poison;
use bursar_node::executor::Executor;
use bursar_node::null::Null;
use bursar_server::runner::Runner;
use bursar_units::{BookingId, Instant, Millis};
use tokio::task::JoinHandle;

use super::super::table::grouped;
use super::super::world::{CLASS, TENANT, label, limit, tenants};
use super::records::{self, LedgerHistory};
use super::{Job, Progress, work};
use crate::clock::BEGINNING_MS;
use crate::rng::Rng;

/// Slots of the limit.
const SLOTS: u64 = 256;
/// Maximum number of outstanding executions.
const OUTSTANDING: usize = 1_024;
/// Maximum number of executions in one submission.
const BATCH: usize = 256;
/// Cancelled executions per thousand, and also those that time out: 5 % each.
const TROUBLED_PER_MILLE: u64 = 50;
/// Average number of submissions between two crashes of the server.
const CRASH_AFTER: u64 = 1_000;
/// One crash in this many is a crash of the machine.
const REBOOT_ONCE_IN: u64 = 8;
/// Pause between two batches, in virtual time.
const PAUSE: Duration = Duration::from_millis(100);
/// Virtual time without any change after which the run fails: longer than any execution, stop or retry.
const STILL_MAX: Duration = Duration::from_hours(2);
const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";

pub(super) struct Measurement {
    /// Slots held at the end, and executions that did not end exactly once.
    pub(super) leaked: u64,
    pub(super) detail: String,
}

/// Runs `count` executions; the same seed gives the same run.
pub(super) fn measure(count: u64, seed: u64) -> anyhow::Result<Measurement> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("cannot start a runtime")?;
    runtime.block_on(async {
        let mut scenario = Scenario::begin(count, seed)?;
        scenario.run().await?;
        scenario.result()
    })
}

/// Planned end of an execution.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It ends by itself.
    Left,
    /// It is cancelled this many milliseconds after its submission.
    Cancelled(u64),
    /// It exceeds its maximum run time.
    Overdue,
}

/// Hashes of the programs that are run.
struct Works {
    quick: Hash,
    failing: Hash,
    short: Hash,
    endless: Hash,
}

/// A running server.
struct Server {
    ledger: Ledger,
    tasks: [JoinHandle<()>; 2],
    /// Committed state at the start; the next start folds only later records, as from a snapshot.
    snapshot: State,
}

struct Scenario {
    count: u64,
    rng: Rng,
    clock: Arc<dyn Clock>,
    store: MemoryStore,
    machine: Arc<Null>,
    works: Works,
    server: Server,
    made: u64,
    /// Submissions without an answer.
    unanswered: VecDeque<Submission>,
    /// Planned cancels with their times.
    cancels: BTreeSet<(Instant, BookingId)>,
    next_crash: u64,
    crashes: u64,
    reboots: u64,
    /// Executions that held a slot when the server crashed.
    hit: BTreeSet<BookingId>,
    /// Those of them whose machine crashed too: only these may be lost.
    rebooted: BTreeSet<BookingId>,
}

/// The runtime's clock, in virtual time.
struct RuntimeClock(tokio::time::Instant);

/// Ignores store failures, which are part of the run.
struct Quiet;

impl Scenario {
    fn begin(count: u64, seed: u64) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        let (store, machine) = (MemoryStore::new(), Arc::new(Null::default()));
        let works = Works::keep(&machine)?;
        let server = Server::begin(&store, State::default(), &clock, &machine)?;
        Ok(Self {
            count,
            rng: Rng::new(seed),
            clock,
            store,
            machine,
            works,
            server,
            made: 0,
            unanswered: VecDeque::new(),
            cancels: BTreeSet::new(),
            next_crash: CRASH_AFTER,
            crashes: 0,
            reboots: 0,
            hit: BTreeSet::new(),
            rebooted: BTreeSet::new(),
        })
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        self.declare().await?;
        let mut progress = Progress::new("executions", self.count);
        loop {
            let (held, queued, ended) = self.server.ledger.view().read().bookings.counts();
            progress.at(u64::try_from(ended)?);
            let is_over = self.made == self.count && self.unanswered.is_empty();
            if is_over && held + queued == 0 {
                return Ok(());
            }
            let room = OUTSTANDING.saturating_sub(held + queued);
            self.submit(room.min(BATCH)).await?;
            self.cancel().await?;
            if self.next_crash <= self.made {
                self.crash().await?;
            }
            self.wait().await?;
        }
    }

    async fn declare(&mut self) -> anyhow::Result<()> {
        let changes: Vec<Change> = vec![limit(CLASS, SLOTS)?, tenants(SLOTS)];
        let by = label("operator")?;
        let change = spine::Command::change(changes);
        let answered = self.server.ledger.submit(by, vec![change.into()]);
        for outcome in answered.await? {
            outcome.result?;
        }
        Ok(())
    }

    /// Submits new executions and repeats unanswered ones. Each stays in the list until it is answered.
    async fn submit(&mut self, room: usize) -> anyhow::Result<()> {
        while self.unanswered.len() < room && self.made < self.count {
            let made = self.make()?;
            self.unanswered.push_back(made);
        }
        let batch: Vec<_> = self.unanswered.iter().take(room).cloned().collect();
        if batch.is_empty() {
            return Ok(());
        }
        // As the server does with each submission, because unused works are deleted after a while.
        Works::keep(&self.machine)?;
        let commands = batch.iter().cloned().map(Command::Submit).collect();
        let is_cut = self.next_crash <= self.made && self.rng.once_in(2);
        let Some(results) = self.send(commands, is_cut).await? else {
            return Ok(());
        };
        for (submission, result) in batch.iter().zip(results) {
            result.with_context(|| format!("{} was refused", submission.booking.id))?;
        }
        self.unanswered.drain(..batch.len());
        Ok(())
    }

    /// Sends commands and waits for the answers; `None` if the connection is cut before.
    async fn send(
        &mut self,
        commands: Vec<Command>,
        is_cut: bool,
    ) -> anyhow::Result<Option<Vec<Result<(), Refusal>>>> {
        let cut_after = is_cut.then(|| self.rng.below(4));
        let commands = commands.into_iter().map(Into::into).collect();
        let answer = self.server.ledger.submit(label("caller")?, commands);
        let answer = tokio::select! {
            biased;
            answer = answer => answer.ok(),
            () = cut(cut_after) => None,
        };
        let result = |outcome: bursar_ledger::intake::Outcome| outcome.result.map(drop);
        Ok(answer.map(|outcomes| outcomes.into_iter().map(result).collect()))
    }

    fn make(&mut self) -> anyhow::Result<Submission> {
        let id = BookingId::new(&format!("execution-{}", self.made))?;
        self.made += 1;
        let fate = match self.rng.below(1_000) {
            kind if kind < TROUBLED_PER_MILLE => Fate::Cancelled(self.rng.below(200)),
            kind if kind < 2 * TROUBLED_PER_MILLE => Fate::Overdue,
            _ => Fate::Left,
        };
        let work = match fate {
            Fate::Left => match self.rng.below(10) {
                0 => self.works.failing,
                1 | 2 => self.works.short,
                _ => self.works.quick,
            },
            Fate::Cancelled(_) if self.rng.once_in(4) => self.works.short,
            Fate::Cancelled(_) | Fate::Overdue => self.works.endless,
        };
        if let Fate::Cancelled(after_ms) = fate {
            let due = self.now().after(Millis::from_ms(after_ms));
            self.cancels.insert((due, id.clone()));
        }
        let mut submission = Job::new(TENANT, CLASS, work)?.submission(id);
        if fate == Fate::Overdue {
            submission.order.max_time = Millis::from_ms(self.rng.between(1_000, 3_000));
        }
        Ok(submission)
    }

    /// Sends the cancels that are due; unanswered ones are sent again.
    async fn cancel(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        let due: Vec<_> = self
            .cancels
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(BATCH)
            .cloned()
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let cancel = |(_, id): &(Instant, BookingId)| Command::Cancel { id: id.clone() };
        let is_cut = self.next_crash <= self.made && self.rng.once_in(2);
        let Some(results) = self.send(due.iter().map(cancel).collect(), is_cut).await? else {
            return Ok(());
        };
        for (key, result) in due.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    self.cancels.remove(&key);
                }
                // Its submission is not answered yet.
                Err(Refusal::Booking(Refused::NotFound)) => {}
                Err(refusal) => bail!("the cancel of {} was refused: {refusal}", key.1),
            }
        }
        Ok(())
    }

    /// Crashes the server, sometimes in the middle of a commit or with its machine, and starts another.
    async fn crash(&mut self) -> anyhow::Result<()> {
        match self.rng.below(3) {
            0 => self.store.inject(Fault::CommitThenError),
            1 => self.store.inject(Fault::Error),
            _ => {}
        }
        turns(self.rng.below(16)).await;
        let holding: Vec<BookingId> = {
            let state = self.server.ledger.view().read();
            state
                .bookings
                .all_wanted()
                .map(|(id, _)| id.clone())
                .collect()
        };
        for task in &mut self.server.tasks {
            task.abort();
            // An aborted task returns an error.
            let _aborted = task.await;
        }
        if self.rng.once_in(REBOOT_ONCE_IN) {
            self.machine = Arc::new(Null::default());
            // The works are on the disk of the machine, which survives.
            Works::keep(&self.machine)?;
            self.reboots += 1;
            self.rebooted.extend(holding.iter().cloned());
        }
        self.hit.extend(holding);
        // A fault that has not occurred yet hits the start, which is then repeated.
        let start = self.server.snapshot.clone();
        let begin = |start| Server::begin(&self.store, start, &self.clock, &self.machine);
        self.server = begin(start.clone()).or_else(|_| begin(start))?;
        self.crashes += 1;
        self.next_crash += self.rng.between(CRASH_AFTER / 2, CRASH_AFTER * 3 / 2);
        Ok(())
    }

    /// Waits until the ledger changes or a cancel is due.
    async fn wait(&mut self) -> anyhow::Result<()> {
        let live = {
            let (held, queued, _) = self.server.ledger.view().read().bookings.counts();
            held + queued
        };
        let has_more = self.made < self.count || !self.unanswered.is_empty();
        if has_more && live < OUTSTANDING {
            tokio::time::sleep(PAUSE).await;
            return Ok(());
        }
        let due = self.cancels.first().map(|(at, _)| *at);
        let due = due.map_or(STILL_MAX, |at| {
            Duration::from_millis(at.since(self.now()).ms() + 1)
        });
        let mut head = self.server.ledger.view().head();
        let waited = tokio::time::timeout(due, head.changed()).await;
        if waited.is_err() && due == STILL_MAX {
            bail!("no record for {STILL_MAX:?} of virtual time, although work is left");
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        self.clock.wall()
    }

    /// Result, counted from the records.
    fn result(&self) -> anyhow::Result<Measurement> {
        let history = records::read(self.store.reader()?.as_ref())?;
        if history.executions.len() != usize::try_from(self.count)? {
            bail!("{} executions are recorded", history.executions.len());
        }
        self.check_lost(&history)?;
        let count = |verdict| grouped(history.ended(verdict));
        Ok(Measurement {
            leaked: history.leaked(),
            detail: format!(
                "virtual time; {} crashes hit {} at work, {} of them took the machine too; \
                 {} completed, {} failed, {} cancelled, {} timed out, {} lost; at most {} of {} slots",
                self.crashes,
                grouped(u64::try_from(self.hit.len())?),
                self.reboots,
                count(Verdict::Completed),
                count(Verdict::Failed),
                count(Verdict::Cancelled),
                count(Verdict::TimedOut),
                count(Verdict::Lost),
                history.held_max,
                SLOTS,
            ),
        })
    }

    /// Checks that only executions whose machine crashed were lost, and that no limit was exceeded.
    fn check_lost(&self, history: &LedgerHistory) -> anyhow::Result<()> {
        let lost = history.executions.iter().find(|(id, execution)| {
            execution.verdict == Some(Verdict::Lost) && !self.rebooted.contains(*id)
        });
        if let Some((id, _)) = lost {
            bail!("{id} was lost although its machine did not crash");
        }
        if SLOTS < history.held_max {
            bail!("{} of {SLOTS} slots were held", history.held_max);
        }
        Ok(())
    }
}

impl Server {
    fn begin(
        store: &MemoryStore,
        start: State,
        clock: &Arc<dyn Clock>,
        machine: &Arc<Null>,
    ) -> anyhow::Result<Self> {
        let begun = begin(
            Box::new(store.clone()),
            start,
            clock,
            || LEDGER.to_owned(),
            hand,
            |_, _| {},
        )?;
        let snapshot = begun.writer.working().clone();
        let (ledger, pipeline) = Ledger::inline(begun, Arc::clone(clock), Arc::new(Quiet));
        let executor: Arc<dyn Executor> = Arc::<Null>::clone(machine);
        let runner = Runner::new(ledger.clone(), executor, Arc::default());
        Ok(Self {
            ledger,
            tasks: [tokio::spawn(pipeline.run()), tokio::spawn(runner.run())],
            snapshot,
        })
    }
}

impl Works {
    fn keep(machine: &Null) -> anyhow::Result<Self> {
        Ok(Self {
            quick: machine.keep(&work("true", &[]))?,
            failing: machine.keep(&work("false", &[]))?,
            short: machine.keep(&work("sleep", &["0.05"]))?,
            endless: machine.keep(&work("sleep", &["86400"]))?,
        })
    }
}

impl Clock for RuntimeClock {
    fn wall(&self) -> Instant {
        Instant::from_ms(BEGINNING_MS).after(self.monotonic())
    }

    fn monotonic(&self) -> Millis {
        Millis::from_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl Observe for Quiet {
    fn poisoned(&self, poison: &Poison) {
        eprintln!("a command was poisoned: {}", poison.message);
    }

    fn store_failed(&self, _: &store::Error) {}

    fn not_leader(&self) {}

    fn store_away(&self, _: &Result<String, store::Error>) {}

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}

    fn invariant_broken(&self, _: &bursar_engine::invariants::Broken) {}
}

/// Resolves when the connection is cut; never for `None`.
async fn cut(after: Option<u64>) {
    match after {
        Some(count) => turns(count).await,
        None => std::future::pending().await,
    }
}

/// Yields to the other tasks that many times.
async fn turns(count: u64) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

fn hand(ledger: &str, generation: u64) -> Result<Hand, key::Error> {
    let name = Name::ledger(ledger, generation).map_err(|source| key::Error::Form {
        path: "memory".to_owned(),
        line: 1,
        source,
    })?;
    let key = SigningKey::from_seed(name, [7; 32]);
    Ok(Hand {
        verifiers: vec![key.verifier()],
        sign: Box::new(move |size, root| {
            let origin = key.name().clone();
            Ok(Checkpoint { origin, size, root }.sign([&key]))
        }),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    #[test]
    fn nothing_leaks_in_a_small_run() {
        let measured = super::measure(5_000, 3).unwrap();
        assert_eq!(measured.leaked, 0, "{}", measured.detail);
        for required in ["crashes hit", "cancelled", "timed out"] {
            let is_none = measured.detail.contains(&format!(" 0 {required}"));
            assert!(!is_none, "{}", measured.detail);
        }
    }
}
