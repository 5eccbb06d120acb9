//! The engine's side of the pipeline: batch, tick, decide, apply, encode (L1, steps 2–6).
//!
//! The writer owns the working state, which runs ahead of what is committed. Nothing it says
//! leaves the process before the batch that holds it is durable; renewals that are good are the
//! one exception (S7). It is a plain object that is stepped: threads, the scenario runner and
//! the simulator drive the same code.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use bursar_engine::booking::Reply as BookingReply;
use bursar_engine::codec::{Encoded, Record, encode};
use bursar_engine::{Answer, Command, Events, Refusal, State, spine};
use bursar_units::{BookingId, Instant, Label, Millis};

use crate::clock::Moment;
use crate::intake::{Failure, Intake, Outcome, Reply, Submission};

/// The most commands of one batch (L1).
pub const BATCH_COMMANDS_MAX: usize = 4_096;
/// The most bytes of one batch (L1).
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// A deadline processed later than this means that we were away, and nobody's fault (L5).
const ABSENCE: Millis = Millis::from_secs(5);
/// Who asks for what time itself and the program do.
pub const SELF: &str = "bursar";

/// How commands are decided: the engine, or a broken one in tests of panics.
pub type Decide = fn(&mut State, Instant, &Command, &mut Events) -> Result<Answer, Refusal>;

/// Until when holders have shown life; read by whoever shows a booking.
pub type Evidence = Arc<Mutex<BTreeMap<BookingId, Instant>>>;

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
        let room = self.room().min(most);
        // Deadlines that did not fit come first in the next batch.
        if room == 0 || self.is_due(moment.now) {
            return Ok(());
        }
        let mut submissions = intake.take(room).into_iter();
        while let Some(submission) = submissions.next() {
            if let Err(poison) = self.take(submission) {
                for left in submissions {
                    (left.reply)(Err(Failure::OutcomeUnknown));
                }
                return Err(poison);
            }
            if self.batch.is_full() {
                intake.put_back(submissions.collect());
                return Ok(());
            }
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
        let now = moment.now.max(self.working.time);
        self.now = Some(now);
        let was_away = self
            .next_deadline()
            .is_some_and(|deadline| deadline.after(ABSENCE) <= now)
            && !self.working.bookings.is_unsettled();
        if moment.jumped || was_away {
            self.own_command(spine::Command::Resume { wall: moment.wall })?;
        }
        while self.is_due(now) && !self.batch.is_full() {
            let renewed = self.renewals_due(now);
            self.own_command(spine::Command::Tick { renewed })?;
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
        self.now = Some(now.max(self.working.time));
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
    fn take(&mut self, submission: Submission) -> Result<(), Poison> {
        let Submission {
            by,
            commands,
            reply,
        } = submission;
        self.batch.commands += commands.len();
        let mut outcomes = Vec::with_capacity(commands.len());
        let mut evidence_only = true;
        for command in commands {
            match self.settle_first().and_then(|()| self.one(&by, command)) {
                Ok(outcome) => {
                    evidence_only &= matches!(
                        outcome.result,
                        Ok(Answer::Booking(BookingReply::Renewed { .. }))
                    );
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

    /// Grants that did not fit the last record come before any other command (L9).
    fn settle_first(&mut self) -> Result<(), Poison> {
        while self.working.bookings.is_unsettled() {
            self.own_command(spine::Command::Tick {
                renewed: Vec::new(),
            })?;
        }
        Ok(())
    }

    fn one(&mut self, by: &Label, command: Command) -> Result<Outcome, Poison> {
        let now = self.now.unwrap_or(self.working.time);
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
        if let (Some(id), Ok(Answer::Booking(BookingReply::Renewed { expires }))) =
            (command.booking_id(), &result)
        {
            self.note_renewal(id, *expires);
        }
        let events = if events.is_empty() {
            Arc::default()
        } else {
            self.record(by, now, command, events)?
        };
        Ok(Outcome {
            record: self.working.head.saturating_sub(1),
            time: now,
            result,
            events,
        })
    }

    fn record(
        &mut self,
        by: &Label,
        time: Instant,
        command: Command,
        events: Events,
    ) -> Result<Arc<Events>, Poison> {
        let seq = self.working.head;
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
        self.working.head += 1;
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

    fn renewals_due(&self, now: Instant) -> Vec<(BookingId, Instant)> {
        let evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        if evidence.is_empty() {
            return Vec::new();
        }
        self.working
            .bookings
            .due(now)
            .take(bursar_engine::booking::STEPS_PER_RECORD_MAX)
            .filter_map(|deadline| Some((deadline.id.clone(), *evidence.get(&deadline.id)?)))
            .collect()
    }

    fn note_renewal(&self, id: &BookingId, expires: Instant) {
        let mut evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        let until = evidence.entry(id.clone()).or_default();
        *until = expires.max(*until);
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}
