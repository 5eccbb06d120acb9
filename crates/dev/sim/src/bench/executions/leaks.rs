//! Whether a slot is ever lost: many executions, of which some are cancelled, some run out of time
//! and some are under way when the server crashes.
//!
//! It runs on virtual time and from one seed, over the ledger's own pipeline and a store in memory.
//! A crash drops ledger and runner between two steps; whatever was not committed is gone, and
//! whoever had no answer asks again under the same id. The machine on which executions run
//! outlives the crash, or by the seed is switched off with it.

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
use super::records::{self, Said};
use super::{Job, Progress, work};
use crate::clock::BEGINNING_MS;
use crate::rng::Rng;

/// Slots of the one limit.
const SLOTS: u64 = 256;
/// Executions that may be outstanding at any time.
const OUTSTANDING: usize = 1_024;
/// Executions submitted in one go, at most.
const BATCH: usize = 256;
/// How many of a thousand are cancelled, and as many run out of time: 5 % each.
const TROUBLED_PER_MILLE: u64 = 50;
/// About how many are submitted between two crashes of the server.
const CRASH_AFTER: u64 = 1_000;
/// One crash in so many takes the machine with it.
const REBOOT_ONCE_IN: u64 = 8;
/// How long whoever submits pauses between two batches, on virtual time.
const PAUSE: Duration = Duration::from_millis(100);
/// How long, on virtual time, nothing may happen: longer than any execution, stop or retry.
const STILL_MAX: Duration = Duration::from_hours(2);
const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";

/// What was seen.
pub(super) struct Seen {
    /// Slots held at the end, and executions that did not end exactly once.
    pub(super) leaked: u64,
    pub(super) detail: String,
}

/// Runs that many executions; the same seed gives the same run.
pub(super) fn measure(count: u64, seed: u64) -> anyhow::Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("cannot start a runtime")?;
    runtime.block_on(async {
        let mut story = Story::begin(count, seed)?;
        story.run().await?;
        story.tell()
    })
}

/// What is planned for an execution.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It ends by itself.
    Left,
    /// It is cancelled that many milliseconds after it was submitted.
    Cancelled(u64),
    /// It runs for as long as it may.
    Overdue,
}

/// What can be run.
struct Works {
    quick: Hash,
    failing: Hash,
    short: Hash,
    endless: Hash,
}

/// A server that is up.
struct Life {
    ledger: Ledger,
    tasks: [JoinHandle<()>; 2],
    /// What was committed when it began: the next start folds only what came after, as from a
    /// snapshot.
    snapshot: State,
}

struct Story {
    count: u64,
    rng: Rng,
    clock: Arc<dyn Clock>,
    store: MemoryStore,
    machine: Arc<Null>,
    works: Works,
    life: Life,
    made: u64,
    /// Made, and without an answer yet.
    unsure: VecDeque<Submission>,
    /// To be cancelled, by when.
    cancels: BTreeSet<(Instant, BookingId)>,
    next_crash: u64,
    crashes: u64,
    reboots: u64,
    /// Executions that held a slot when the server crashed.
    hit: BTreeSet<BookingId>,
    /// Those of them whose machine went away too: only these may be lost.
    rebooted: BTreeSet<BookingId>,
}

/// The runtime's clock, which virtual time drives.
struct RuntimeClock(tokio::time::Instant);

/// A defect ends the run; everything else is part of it.
struct Quiet;

impl Story {
    fn begin(count: u64, seed: u64) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        let (store, machine) = (MemoryStore::new(), Arc::new(Null::default()));
        let works = Works::keep(&machine)?;
        let life = Life::begin(&store, State::default(), &clock, &machine)?;
        Ok(Self {
            count,
            rng: Rng::new(seed),
            clock,
            store,
            machine,
            works,
            life,
            made: 0,
            unsure: VecDeque::new(),
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
            let (held, queued, ended) = self.life.ledger.view().read().bookings.counts();
            progress.at(u64::try_from(ended)?);
            let is_over = self.made == self.count && self.unsure.is_empty();
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
        let answered = self.life.ledger.submit(by, vec![change.into()]);
        for outcome in answered.await? {
            outcome.result?;
        }
        Ok(())
    }

    /// Submits those that had no answer, and new ones. Whatever happens to the answer, each stays
    /// on the list until one came.
    async fn submit(&mut self, room: usize) -> anyhow::Result<()> {
        while self.unsure.len() < room && self.made < self.count {
            let made = self.make()?;
            self.unsure.push_back(made);
        }
        let asked: Vec<_> = self.unsure.iter().take(room).cloned().collect();
        if asked.is_empty() {
            return Ok(());
        }
        // As the server does with each submission: what nobody needs is forgotten after a while.
        Works::keep(&self.machine)?;
        let commands = asked.iter().cloned().map(Command::Submit).collect();
        let is_cut = self.next_crash <= self.made && self.rng.once_in(2);
        let Some(results) = self.ask(commands, is_cut).await? else {
            return Ok(());
        };
        for (submission, result) in asked.iter().zip(results) {
            result.with_context(|| format!("{} was refused", submission.booking.id))?;
        }
        self.unsure.drain(..asked.len());
        Ok(())
    }

    /// Asks, and waits for the answer unless the asker is cut off before; `None` without one.
    async fn ask(
        &mut self,
        commands: Vec<Command>,
        is_cut: bool,
    ) -> anyhow::Result<Option<Vec<Result<(), Refusal>>>> {
        let patience = is_cut.then(|| self.rng.below(4));
        let commands = commands.into_iter().map(Into::into).collect();
        let answer = self.life.ledger.submit(label("caller")?, commands);
        let answer = tokio::select! {
            biased;
            answer = answer => answer.ok(),
            () = cut(patience) => None,
        };
        let word = |outcome: bursar_ledger::intake::Outcome| outcome.result.map(drop);
        Ok(answer.map(|outcomes| outcomes.into_iter().map(word).collect()))
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

    /// Sends the cancels that are due; one without an answer is sent again.
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
        let Some(results) = self.ask(due.iter().map(cancel).collect(), is_cut).await? else {
            return Ok(());
        };
        for (key, result) in due.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    self.cancels.remove(&key);
                }
                // Its own submission is still on its way.
                Err(Refusal::Booking(Refused::NotFound)) => {}
                Err(refusal) => bail!("the cancel of {} was refused: {refusal}", key.1),
            }
        }
        Ok(())
    }

    /// The server goes away without a word, by the seed with its machine or in the middle of a
    /// commit, and another one begins.
    async fn crash(&mut self) -> anyhow::Result<()> {
        match self.rng.below(3) {
            0 => self.store.inject(Fault::CommitThenError),
            1 => self.store.inject(Fault::Error),
            _ => {}
        }
        turns(self.rng.below(16)).await;
        let holding: Vec<BookingId> = {
            let state = self.life.ledger.view().read();
            state
                .bookings
                .all_wanted()
                .map(|(id, _)| id.clone())
                .collect()
        };
        for task in &mut self.life.tasks {
            task.abort();
            // It was told to end.
            let _ended = task.await;
        }
        if self.rng.once_in(REBOOT_ONCE_IN) {
            self.machine = Arc::new(Null::default());
            // What is to be run is on the disk of the machine, which comes back with it.
            Works::keep(&self.machine)?;
            self.reboots += 1;
            self.rebooted.extend(holding.iter().cloned());
        }
        self.hit.extend(holding);
        // A fault that nobody has met yet is met by the start, which is then tried again.
        let start = self.life.snapshot.clone();
        let begin = |start| Life::begin(&self.store, start, &self.clock, &self.machine);
        self.life = begin(start.clone()).or_else(|_| begin(start))?;
        self.crashes += 1;
        self.next_crash += self.rng.between(CRASH_AFTER / 2, CRASH_AFTER * 3 / 2);
        Ok(())
    }

    /// Waits until something happens or is due.
    async fn wait(&mut self) -> anyhow::Result<()> {
        let live = {
            let (held, queued, _) = self.life.ledger.view().read().bookings.counts();
            held + queued
        };
        let has_more = self.made < self.count || !self.unsure.is_empty();
        if has_more && live < OUTSTANDING {
            tokio::time::sleep(PAUSE).await;
            return Ok(());
        }
        let due = self.cancels.first().map(|(at, _)| *at);
        let due = due.map_or(STILL_MAX, |at| {
            Duration::from_millis(at.since(self.now()).ms() + 1)
        });
        let mut head = self.life.ledger.view().head();
        let waited = tokio::time::timeout(due, head.changed()).await;
        if waited.is_err() && due == STILL_MAX {
            bail!("nothing happens any more");
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        self.clock.wall()
    }

    /// What the records say in the end.
    fn tell(&self) -> anyhow::Result<Seen> {
        let said = records::read(self.store.reader()?.as_ref())?;
        if said.executions.len() != usize::try_from(self.count)? {
            bail!("{} executions are on record", said.executions.len());
        }
        self.check_lost(&said)?;
        let count = |verdict| grouped(said.ended(verdict));
        Ok(Seen {
            leaked: said.leaked(),
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
                said.held_max,
                SLOTS,
            ),
        })
    }

    /// Only an execution whose machine went away may be lost, and never are more slots held than
    /// there are.
    fn check_lost(&self, said: &Said) -> anyhow::Result<()> {
        let lost = said
            .executions
            .iter()
            .find(|(id, told)| told.verdict == Some(Verdict::Lost) && !self.rebooted.contains(*id));
        if let Some((id, _)) = lost {
            bail!("{id} was lost although its machine was there all the time");
        }
        if SLOTS < said.held_max {
            bail!("{} of {SLOTS} slots were held", said.held_max);
        }
        Ok(())
    }
}

impl Life {
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

/// Resolves when the line is cut, if it is.
async fn cut(patience: Option<u64>) {
    match patience {
        Some(count) => turns(count).await,
        None => std::future::pending().await,
    }
}

/// Lets all others have that many turns.
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
        let seen = super::measure(5_000, 3).unwrap();
        assert_eq!(seen.leaked, 0, "{}", seen.detail);
        for seen_too in ["crashes hit", "cancelled", "timed out"] {
            let is_none = seen.detail.contains(&format!(" 0 {seen_too}"));
            assert!(!is_none, "{}", seen.detail);
        }
    }
}
