//! The engine's side of the pipeline: batch, tick, decide, apply, encode (L1, steps 2–6).
//!
//! The writer owns the working state, which runs ahead of what is committed. Nothing it says
//! leaves the process before the batch that holds it is durable; renewals that are good are the
//! one exception (S7). It is a plain object that is stepped: threads, the scenario runner and
//! the simulator drive the same code.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use bursar_engine::codec::{Encoded, Record, encode};
use bursar_engine::{Answer, Class, Command, Events, Reference, Refusal, State, life, spine};
use bursar_units::{Instant, Label, Millis};

use crate::clock::Moment;
use crate::intake::{Failure, Intake, Outcome, Reply, Submission};

/// The most commands of one batch (L1).
pub const BATCH_COMMANDS_MAX: usize = 4_096;
/// The most bytes of one batch (L1).
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// A deadline processed later than this means that we were away, and nobody's fault (L5).
const ABSENCE: Millis = Millis::from_secs(5);
/// Principal of ticks and of the server's own commands.
pub const SELF: &str = "bursar";

/// How commands are decided: the engine, or a broken one in tests of panics.
pub type Decide = fn(&mut State, Instant, &Command, &mut Events) -> Result<Answer, Refusal>;

/// Until when objects have shown life beyond what is recorded (S7).
pub type Evidence = Arc<Mutex<BTreeMap<Reference, Instant>>>;

/// A record on its way to the view.
#[derive(Clone, Debug)]
pub struct Fact {
    /// Its number.
    pub seq: u64,
    /// When it was decided.
    pub time: Instant,
    /// What followed.
    pub events: Arc<Events>,
}

/// Answers that leave when their batch is durable.
pub struct Pending {
    /// Whom to tell.
    pub reply: Reply,
    /// What.
    pub outcomes: Vec<Outcome>,
}

/// What is committed in one go.
#[derive(Default)]
pub struct Batch {
    /// Records as they are stored.
    pub records: Vec<Encoded>,
    /// The same records as the view takes them.
    pub facts: Vec<Fact>,
    /// Answers to all commands of the batch, refusals too.
    pub pending: Vec<Pending>,
    bytes: usize,
    commands: usize,
}

/// A command whose deciding panicked.
#[derive(Clone, Debug)]
pub struct Poison {
    /// Who asked.
    pub by: Label,
    /// What.
    pub command: Box<Command>,
    /// When.
    pub time: Instant,
    /// What the panic said.
    pub message: String,
}

/// The engine at work.
pub struct Writer {
    working: State,
    decide: Decide,
    evidence: Evidence,
    own: Label,
    batch: Batch,
    /// The time of the open batch.
    now: Option<Instant>,
}

impl Batch {
    /// Whether there is anything to commit or to tell.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.pending.is_empty()
    }

    /// Whether it may take more.
    pub fn is_full(&self) -> bool {
        self.commands >= BATCH_COMMANDS_MAX || self.bytes >= BATCH_BYTES_MAX
    }

    /// Tells everyone in it the same.
    pub fn fail(mut self, failure: &Failure) {
        self.fail_pending(failure);
    }

    /// Tells everyone in it the same, and keeps the records.
    pub fn fail_pending(&mut self, failure: &Failure) {
        for pending in self.pending.drain(..) {
            (pending.reply)(Err(failure.clone()));
        }
    }
}

impl Writer {
    /// A writer that goes on from a committed state.
    pub fn new(state: State, decide: Decide) -> Self {
        #[expect(clippy::expect_used, reason = "a constant that is a label")]
        let own = Label::new(SELF).expect("the program's own name is a label");
        Self {
            working: state,
            decide,
            evidence: Evidence::default(),
            own,
            batch: Batch::default(),
            now: None,
        }
    }

    /// The working state.
    pub fn working(&self) -> &State {
        &self.working
    }

    /// Until when holders have shown life.
    pub fn evidence(&self) -> Evidence {
        Arc::clone(&self.evidence)
    }

    /// The open batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// When time itself changes something next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.working.next_deadline()
    }

    /// Decides what waits and what time itself asks for, as far as the open batch has room and
    /// for at most `most` commands (L1, steps 2–6). After a poisoned command the writer must be
    /// reset.
    pub fn build(&mut self, moment: &Moment, intake: &Intake, most: usize) -> Result<(), Poison> {
        if intake.is_empty() && !self.is_due(moment.now) && !moment.jumped {
            return Ok(());
        }
        self.open(moment)?;
        let now = self.now.unwrap_or(moment.now);
        let room = self.room().min(most);
        let taken = if room == 0 {
            Vec::new()
        } else {
            intake.take(room)
        };
        let (mut results, mut others): (VecDeque<_>, VecDeque<_>) =
            taken.into_iter().partition(Submission::is_result);
        let built = self.build_at(now, &mut results, &mut others);
        let left = results.into_iter().chain(others);
        // Also after a poisoned command: nothing of those behind it was begun.
        intake.put_back(left.collect());
        built
    }

    /// Decides at one instant: deadlines before it, results of executors, deadlines at it, the other
    /// commands (L1). Submissions that have no room stay in the lists. A batch that is built in
    /// several calls keeps this order within each.
    fn build_at(
        &mut self,
        now: Instant,
        results: &mut VecDeque<Submission>,
        others: &mut VecDeque<Submission>,
    ) -> Result<(), Poison> {
        if !results.is_empty() {
            self.take_after(now, now.before(Millis::from_ms(1)), results)?;
        }
        if results.is_empty() {
            self.take_after(now, now, others)?;
        }
        Ok(())
    }

    /// Processes deadlines up to `until`, then decides submissions while the batch has room.
    fn take_after(
        &mut self,
        now: Instant,
        until: Instant,
        submissions: &mut VecDeque<Submission>,
    ) -> Result<(), Poison> {
        self.tick(now, until)?;
        while !self.batch.is_full()
            && !self.working.is_due(until)
            && let Some(submission) = submissions.pop_front()
        {
            self.take(until, submission)?;
        }
        Ok(())
    }

    /// Opens a batch, if none is open, and lets time have its say first. After a jump of the
    /// clock, and where a deadline was missed by much, `Resume` comes before any deadline: no
    /// deadline falls into our own absence (L5).
    fn open(&mut self, moment: &Moment) -> Result<(), Poison> {
        if self.now.is_some() && !moment.jumped {
            return Ok(());
        }
        let now = moment.now.max(self.working.spine.time);
        self.now = Some(now);
        if moment.jumped || self.working.missed(now, ABSENCE) {
            self.resume(moment.wall)?;
        }
        Ok(())
    }

    /// Begins to count patience anew after an absence. Clock deadlines before now have happened and
    /// come first (L5).
    pub(crate) fn resume(&mut self, wall: Instant) -> Result<(), Poison> {
        let now = self.now.unwrap_or(self.working.spine.time);
        let mut before = None;
        while self.working.clock_is_due(now) && before != Some(self.working.spine.head) {
            before = Some(self.working.spine.head);
            self.own_command(spine::Command::Tick {
                renewed: Vec::new(),
                until: None,
                class: Some(Class::Clock),
            })?;
        }
        self.own_command(spine::Command::Resume { wall })
    }

    /// Processes deadlines up to `until`, as far as the open batch has room.
    fn tick(&mut self, now: Instant, until: Instant) -> Result<(), Poison> {
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

    fn is_due(&self, now: Instant) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Opens a batch with commands of the program itself, before time has its say: the first
    /// records of a term.
    pub fn open_with(
        &mut self,
        now: Instant,
        commands: impl Iterator<Item = spine::Command>,
    ) -> Result<(), Poison> {
        self.now = Some(now.max(self.working.spine.time));
        for command in commands {
            self.own_command(command)?;
        }
        Ok(())
    }

    /// How many more commands the open batch may take.
    fn room(&self) -> usize {
        if self.batch.is_full() {
            0
        } else {
            BATCH_COMMANDS_MAX - self.batch.commands
        }
    }

    /// Decides a submission in the open batch. A good renewal is answered here.
    fn take(&mut self, until: Instant, submission: Submission) -> Result<(), Poison> {
        let Submission {
            by,
            commands,
            reply,
        } = submission;
        self.batch.commands += commands.len();
        let mut outcomes = Vec::with_capacity(commands.len());
        let mut evidence_only = true;
        for command in commands {
            match self
                .settle_first(until)
                .and_then(|()| self.one(&by, command))
            {
                Ok((outcome, shows_life)) => {
                    evidence_only &= shows_life;
                    outcomes.push(outcome);
                }
                Err(poison) => {
                    reply(Err(Failure::Internal));
                    return Err(poison);
                }
            }
        }
        if evidence_only {
            reply(Ok(outcomes));
        } else {
            self.batch.pending.push(Pending { reply, outcomes });
        }
        Ok(())
    }

    /// A command of the program itself; nobody is told.
    pub fn own_command(&mut self, command: spine::Command) -> Result<(), Poison> {
        let own = self.own.clone();
        self.one(&own, command.into()).map(drop)
    }

    /// Closes the open batch; `None` if there is nothing in it.
    pub fn close(&mut self) -> Option<Batch> {
        self.now = None;
        let batch = std::mem::take(&mut self.batch);
        (!batch.is_empty()).then_some(batch)
    }

    /// Starts over from a committed state. Whoever was in the open batch is told `failure`.
    pub fn reset(&mut self, state: State, failure: &Failure) {
        self.now = None;
        std::mem::take(&mut self.batch).fail(failure);
        self.working = state;
    }

    /// Grants that did not fit the last record come before any other command (L9), and deadlines
    /// after `until` do not come with them.
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

    /// Decides a command and makes its record. Says whether it only showed life (S7).
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
            self.note_life(object, until);
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
        self.batch.bytes += encoded.bytes.len();
        self.batch.bytes += encoded
            .blobs
            .iter()
            .map(|blob| blob.bytes.len())
            .sum::<usize>();
        self.batch.records.push(encoded);
        let events = Arc::new(record.events);
        self.batch.facts.push(Fact {
            seq,
            time,
            events: Arc::clone(&events),
        });
        Ok(events)
    }

    fn note_life(&self, object: Reference, until: Instant) {
        let mut evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        let known = evidence.entry(object).or_default();
        *known = until.max(*known);
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}
