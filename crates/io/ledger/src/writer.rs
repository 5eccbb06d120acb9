//! The engine's side of the pipeline: batch, tick, decide, apply, encode (L1, steps 2–6).
//!
//! The writer owns the working state, which is ahead of the committed state. Answers leave the
//! process when their batch is durable; only an accepted renewal is answered at once (S7).

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use bursar_engine::codec::{Encoded, Record, encode};
use bursar_engine::{Answer, Class, Command, Events, Reference, Refusal, State, life, spine};
use bursar_units::{Instant, Label, Millis};

use crate::clock::Moment;
use crate::intake::{Failure, Intake, Outcome, Reply, Submission};

/// The most commands of one batch (L1).
const BATCH_COMMANDS_MAX: usize = 4_096;
/// The most bytes of one batch (L1).
const BATCH_BYTES_MAX: usize = 4 << 20;
/// A deadline that is processed later than this shows that the process was away (L5).
const ABSENCE: Millis = Millis::from_secs(5);
/// Principal of ticks and of the server's own commands.
pub const SELF: &str = "bursar";

/// Decision function: the engine's, or one that panics in tests.
pub type Decide = fn(&mut State, Instant, &Command, &mut Events) -> Result<Answer, Refusal>;

/// Time until which each object is known to be alive, where that is later than recorded (S7).
pub type Evidence = Arc<Mutex<BTreeMap<Reference, Instant>>>;

/// A record on its way to the view.
#[derive(Clone, Debug)]
pub struct Fact {
    /// Number of the record.
    pub seq: u64,
    /// Time of the decision.
    pub time: Instant,
    /// Events of the record.
    pub events: Arc<Events>,
}

/// Records that are committed together.
#[derive(Default)]
pub struct Batch {
    /// Records as they are stored.
    pub records: Vec<Encoded>,
    /// The same records for the view.
    pub facts: Vec<Fact>,
    /// Answers to all submissions of the batch, refusals too.
    pub(crate) pending: Vec<(Reply, Vec<Outcome>)>,
    bytes: usize,
    commands: usize,
}

/// A command whose deciding panicked.
#[derive(Clone, Debug)]
pub struct Poison {
    /// Principal of the command.
    pub by: Label,
    /// The command itself.
    pub command: Box<Command>,
    /// Time of the decision.
    pub time: Instant,
    /// Message of the panic.
    pub message: String,
}

/// The engine with its working state and the open batch.
pub struct Writer {
    working: State,
    decide: Decide,
    evidence: Evidence,
    batch: Batch,
    /// Time of the open batch.
    now: Option<Instant>,
    /// Wall clock for the `Resume` that is owed after an absence.
    absence: Option<Instant>,
}

impl Batch {
    /// Whether there is nothing to commit and nobody to answer.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.pending.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.commands >= BATCH_COMMANDS_MAX || self.bytes >= BATCH_BYTES_MAX
    }

    /// Answers all callers with the failure. The records stay.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        for (reply, _) in self.pending.drain(..) {
            reply(Err(failure.clone()));
        }
    }
}

impl Writer {
    /// A writer that continues from a committed state.
    pub fn new(state: State, decide: Decide) -> Self {
        Self {
            working: state,
            decide,
            evidence: Evidence::default(),
            batch: Batch::default(),
            now: None,
            absence: None,
        }
    }

    /// The working state.
    pub fn working(&self) -> &State {
        &self.working
    }

    pub(crate) fn evidence(&self) -> Evidence {
        Arc::clone(&self.evidence)
    }

    /// The open batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Decides waiting submissions, at most `most` commands, and due deadlines, as far as the open
    /// batch has room (L1, steps 2–6). After a poisoned command the writer must be reset.
    ///
    /// The order at one instant: deadlines before it, results of executors, deadlines at it, the
    /// other commands (L1). A batch that is built in several calls keeps this order within each.
    pub fn build(&mut self, moment: &Moment, intake: &Intake, most: usize) -> Result<(), Poison> {
        let deadline = self.working.next_deadline();
        let is_due = deadline.is_some_and(|deadline| deadline <= moment.now);
        if intake.is_empty() && !is_due && !moment.jumped {
            return Ok(());
        }
        self.open(moment)?;
        if self.absence.is_some() {
            return Ok(());
        }
        let now = self.now.unwrap_or(moment.now);
        let taken = if self.batch.is_full() || most == 0 {
            Vec::new()
        } else {
            intake.take(most.min(BATCH_COMMANDS_MAX - self.batch.commands))
        };
        let (mut results, mut others): (VecDeque<_>, VecDeque<_>) =
            taken.into_iter().partition(Submission::is_result);
        let mut built = Ok(());
        if !results.is_empty() {
            built = self.take_after(now.before(Millis::from_ms(1)), &mut results);
        }
        if built.is_ok() && results.is_empty() {
            built = self.take_after(now, &mut others);
        }
        // Also after a poisoned command: no submission behind it was begun.
        intake.put_back(results.into_iter().chain(others).collect());
        built
    }

    /// Processes deadlines up to `until`, then decides submissions while the batch has room.
    fn take_after(
        &mut self,
        until: Instant,
        submissions: &mut VecDeque<Submission>,
    ) -> Result<(), Poison> {
        self.tick(until)?;
        while !self.batch.is_full()
            && !self.working.is_due(until)
            && let Some(submission) = submissions.pop_front()
        {
            self.take(until, submission)?;
        }
        Ok(())
    }

    /// Opens a batch if none is open. After a jump of the clock, and if a deadline was missed by
    /// [`ABSENCE`], `Resume` comes first: no patience deadline passes while the process is away (L5).
    fn open(&mut self, moment: &Moment) -> Result<(), Poison> {
        if self.now.is_none() || moment.jumped {
            let now = moment.now.max(self.working.spine.time);
            self.now = Some(now);
            if moment.jumped || self.working.missed(now, ABSENCE) {
                self.absence = Some(moment.wall);
            }
        }
        self.resume()
    }

    /// Restarts patience deadlines after an absence. Clock deadlines before now come first (L5); those
    /// of now wait for the results of executors (R8). After a long absence the deadlines fill several
    /// batches: `Resume` stays owed until the last one.
    fn resume(&mut self) -> Result<(), Poison> {
        let Some(wall) = self.absence else {
            return Ok(());
        };
        let now = self.now.unwrap_or(self.working.spine.time);
        let until = Some(now.before(Millis::from_ms(1)));
        let mut before = None;
        while self.working.clock_is_due(now) && before != Some(self.working.spine.head) {
            if self.batch.is_full() {
                return Ok(());
            }
            before = Some(self.working.spine.head);
            self.own_command(spine::Command::Tick {
                renewed: Vec::new(),
                until,
                class: Some(Class::Clock),
            })?;
        }
        self.absence = None;
        self.own_command(spine::Command::Resume { wall })
    }

    /// Processes deadlines up to `until`, as far as the open batch has room.
    fn tick(&mut self, until: Instant) -> Result<(), Poison> {
        let now = self.now.unwrap_or(until);
        while (self.working.owes() || self.working.is_due(until)) && !self.batch.is_full() {
            let tick = {
                let evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
                let until = (until < now).then_some(until);
                let alive_until = |object: &Reference| evidence.get(object).copied();
                self.working.tick(now, until, alive_until)
            };
            self.own_command(tick)?;
        }
        Ok(())
    }

    /// Opens a batch with the first commands of a term, before any deadline; `Resume` is owed.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        wall: Instant,
        commands: impl Iterator<Item = spine::Command>,
    ) -> Result<(), Poison> {
        self.now = Some(now.max(self.working.spine.time));
        for command in commands {
            self.own_command(command)?;
        }
        self.absence = Some(wall);
        self.resume()
    }

    /// Goes on with the first records of a term in a new batch; whether the term has begun.
    pub(crate) fn go_on(&mut self, now: Instant) -> Result<bool, Poison> {
        if self.absence.is_none() {
            return Ok(true);
        }
        self.now = Some(now.max(self.working.spine.time));
        self.resume().map(|()| false)
    }

    /// Decides a submission in the open batch. An accepted renewal is answered here (S7).
    fn take(&mut self, until: Instant, submission: Submission) -> Result<(), Poison> {
        let count = submission.commands.len();
        self.batch.commands += count;
        let mut outcomes = Vec::with_capacity(count);
        let mut evidence_only = true;
        for command in submission.commands {
            let settled = self.settle_first(until);
            match settled.and_then(|()| self.one(&submission.by, command)) {
                Ok((outcome, shows_life)) => {
                    evidence_only &= shows_life;
                    outcomes.push(outcome);
                }
                Err(poison) => {
                    (submission.reply)(Err(Failure::Internal));
                    return Err(poison);
                }
            }
        }
        if evidence_only {
            (submission.reply)(Ok(outcomes));
        } else {
            self.batch.pending.push((submission.reply, outcomes));
        }
        Ok(())
    }

    /// Decides a command of the server itself; nobody gets an answer.
    fn own_command(&mut self, command: spine::Command) -> Result<(), Poison> {
        self.one(&own_principal(), command.into()).map(drop)
    }

    /// Closes the open batch; `None` if it is empty.
    pub fn close(&mut self) -> Option<Batch> {
        self.now = None;
        let batch = std::mem::take(&mut self.batch);
        (!batch.is_empty()).then_some(batch)
    }

    /// Starts over from a committed state. Callers of the open batch get `failure`.
    pub(crate) fn reset(&mut self, state: State, failure: &Failure) {
        self.now = None;
        self.absence = None;
        std::mem::take(&mut self.batch).fail(failure);
        self.working = state;
    }

    /// Records grants that did not fit the last record: they come before any other command (L9).
    /// Deadlines after `until` do not come with them.
    fn settle_first(&mut self, until: Instant) -> Result<(), Poison> {
        while self.working.owes() {
            let now = self.now.unwrap_or(until);
            self.own_command(spine::Command::Tick {
                renewed: Vec::new(),
                until: (until < now).then_some(until),
                class: None,
            })?;
        }
        Ok(())
    }

    /// Decides a command and makes its record; returns whether it only showed life (S7).
    fn one(&mut self, by: &Label, command: Command) -> Result<(Outcome, bool), Poison> {
        let now = self.now.unwrap_or(self.working.spine.time);
        let mut events = Events::new();
        let decided = catch_unwind(AssertUnwindSafe(|| {
            (self.decide)(&mut self.working, now, &command, &mut events)
        }));
        let result = decided.map_err(|panic| Poison {
            by: by.clone(),
            command: Box::new(command.clone()),
            time: now,
            message: panic_message(panic.as_ref()),
        })?;
        let answer = result.as_ref().ok();
        let life = answer.and_then(|answer| life(&command, answer));
        let shows_life = life.is_some();
        if let Some((object, until)) = life {
            let mut evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
            let known = evidence.entry(object).or_default();
            *known = until.max(*known);
        }
        let events = if events.is_empty() {
            Arc::default()
        } else {
            self.record(by, now, command, events)?
        };
        let outcome = Outcome {
            record: self.working.spine.head.saturating_sub(1),
            time: now,
            result,
            events,
        };
        Ok((outcome, shows_life))
    }

    fn record(
        &mut self,
        by: &Label,
        time: Instant,
        command: Command,
        events: Events,
    ) -> Result<Arc<Events>, Poison> {
        let seq = self.working.spine.head;
        let record = Record {
            seq,
            time,
            by: by.clone(),
            command,
            events,
        };
        let encoded = encode(&record).map_err(|error| Poison {
            by: by.clone(),
            command: Box::new(record.command.clone()),
            time,
            message: error.to_string(),
        })?;
        self.working.spine.head += 1;
        let blobs = encoded.blobs.iter().map(|blob| blob.bytes.len());
        self.batch.bytes += encoded.bytes.len() + blobs.sum::<usize>();
        self.batch.records.push(encoded);
        let events = Arc::new(record.events);
        self.batch.facts.push(Fact {
            seq,
            time,
            events: Arc::clone(&events),
        });
        Ok(events)
    }
}

/// Principal of ticks and of the server's own commands: [`SELF`].
#[expect(clippy::expect_used, reason = "a constant that is a label")]
pub fn own_principal() -> Label {
    Label::new(SELF).expect("the program's own name is a label")
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}
