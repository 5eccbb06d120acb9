//! One process of the service: the real writer, committer and view, stepped stage by stage.
//!
//! ```text
//! build ─► send ─► commit ─► publish        three owners, one batch in flight (L1)
//!                    └─► resolve             after an unknown outcome (L2)
//! ```
//! It does what the threads of `bursar_ledger::pipeline` do, one stage at a time, so that a crash
//! fits between any two. [`Shape::Whole`] is the pipeline's own task, stepped as scenarios step it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_engine::{State, snapshot};
use bursar_journal::checkpoint::{Checkpoint, Name, SigningKey};
use bursar_journal::hash::Hash;
use bursar_ledger::clock::{Clock, TermClock};
use bursar_ledger::committer::{Commit, Committer, Reopened};
use bursar_ledger::intake::{Failure, Intake, Outcome, Submission};
use bursar_ledger::key;
use bursar_ledger::pipeline::{InlineTask, Ledger, Observe};
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::term::{Begun, Error, Hand, begin};
use bursar_ledger::view::View;
use bursar_ledger::writer::{Batch, Fact, Poison, Writer};
use bursar_units::Instant;
use bursar_units::causes::chain;

use super::decided::{self, Decided};
use crate::clock::Machine;
use crate::violation::{Violation, broken};

/// The ledger of every world.
const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";

/// Answers on their way out of the process, with the request each belongs to.
pub(super) type Outbox = Arc<Mutex<Vec<(u64, Result<Vec<Outcome>, Failure>)>>>;

/// A process.
pub(super) struct Process {
    pub(super) shape: Shape,
    /// Which start of the world it is of.
    pub(super) epoch: u64,
    pub(super) outbox: Outbox,
}

/// How it is stepped.
pub(super) enum Shape {
    /// Stage by stage.
    Staged(Box<Staged>),
    /// All stages of a step at once, by the pipeline's own code.
    Whole(Box<Whole>),
}

/// The three owners and what is between them.
pub(super) struct Staged {
    machine: Machine,
    intake: Arc<Intake>,
    pub(super) writer: Writer,
    committer: Committer,
    view: Arc<View>,
    time: TermClock,
    /// Decisions of the open batch.
    open: Vec<Decided>,
    /// The batch that the store has, with its decisions.
    in_flight: Option<(Batch, Vec<Decided>)>,
    /// Batches that are durable and not yet published.
    durable: VecDeque<Durable>,
    /// A batch of which the store could not say whether it is there.
    unknown: Option<Batch>,
    is_over: bool,
}

enum Durable {
    Told(Batch),
    CaughtUp(Vec<Fact>),
}

/// The pipeline's own task.
pub(super) struct Whole {
    ledger: Ledger,
    task: InlineTask,
    seen: Arc<Seen>,
}

/// What the task reported.
#[derive(Default)]
struct Seen {
    is_over: Mutex<bool>,
    poison: Mutex<Option<String>>,
}

/// What a commit came to.
pub(super) enum Committed {
    Done,
    Refused,
    Unknown,
}

/// Why a process could not start.
pub(super) enum StartError {
    /// The store is away; try again.
    Away,
    /// A promise is broken.
    Broken(Violation),
}

/// What a start brought to light.
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) state: State,
    pub(super) root: Hash,
}

impl Observe for Seen {
    fn poisoned(&self, poison: &Poison) {
        set(&self.poison, Some(format!("{poison:?}")));
    }

    fn store_failed(&self, _: &bursar_ledger::store::Error) {}

    fn not_leader(&self) {
        set(&self.is_over, true);
    }

    fn store_away(&self, _: &Result<String, bursar_ledger::store::Error>) {
        set(&self.is_over, true);
    }

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}

    #[expect(clippy::panic, reason = "a broken invariant ends the run")]
    fn invariant_broken(&self, broken: &bursar_engine::invariants::Broken) {
        panic!("{broken}");
    }
}

impl Process {
    /// Begins a term, as the program does.
    pub(super) fn start(
        store: &MemoryStore,
        machine: &Machine,
        snapshot_text: Option<&str>,
        is_whole: bool,
        epoch: u64,
    ) -> Result<Started, StartError> {
        let start = match snapshot_text {
            None => State::default(),
            Some(text) => snapshot::read(text).map_err(|error| fatal(&error))?,
        };
        let clock: Arc<dyn Clock> = Arc::new(machine.clone());
        let begun = begin(
            Box::new(store.clone()),
            start,
            &clock,
            || LEDGER.to_owned(),
            hand,
            |_, _| {},
        );
        let begun = match begun {
            Ok(begun) => begun,
            Err(Error::Store(_) | Error::NotLeader) => return Err(StartError::Away),
            Err(error) => return Err(fatal(&error)),
        };
        let state = begun.writer.working().clone();
        let root = begun.committer.builder().root();
        let begun = Begun {
            writer: Writer::new(state.clone(), decided::overheard),
            ..begun
        };
        let shape = if is_whole {
            Shape::Whole(Box::new(Whole::new(begun, machine)))
        } else {
            Shape::Staged(Box::new(Staged::new(begun, machine)))
        };
        let process = Self {
            shape,
            epoch,
            outbox: Outbox::default(),
        };
        Ok(Started {
            process,
            state,
            root,
        })
    }

    /// Takes a request in.
    pub(super) fn push(&self, submission: Submission) {
        match &self.shape {
            Shape::Staged(staged) => staged.intake.push(submission),
            Shape::Whole(whole) => whole.ledger.push(submission),
        }
    }

    pub(super) fn view(&self) -> &View {
        match &self.shape {
            Shape::Staged(staged) => &staged.view,
            Shape::Whole(whole) => whole.ledger.view(),
        }
    }

    /// What time it is for this process.
    pub(super) fn now(&self) -> Instant {
        match &self.shape {
            Shape::Staged(staged) => staged.time.now(&staged.machine),
            Shape::Whole(whole) => whole.ledger.now(),
        }
    }

    /// Whether another leads, so that this one must stop.
    pub(super) fn is_over(&self) -> bool {
        match &self.shape {
            Shape::Staged(staged) => staged.is_over,
            Shape::Whole(whole) => *whole
                .seen
                .is_over
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// When time itself wants a step.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match &self.shape {
            Shape::Staged(staged) => staged.writer.next_deadline(),
            Shape::Whole(whole) => whole.ledger.view().read().next_deadline(),
        }
    }

    /// Lets only what gives back in, or everything again.
    pub(super) fn set_disk_low(&self, is_low: bool) {
        if let Shape::Staged(staged) = &self.shape {
            staged.intake.set_disk_low(is_low);
        }
    }

    /// Where the next crash would hit, in words.
    pub(super) fn stage(&self) -> &'static str {
        match &self.shape {
            Shape::Whole(_) => "crash: between whole steps",
            Shape::Staged(staged) => staged.stage(),
        }
    }
}

impl Staged {
    fn new(begun: Begun, machine: &Machine) -> Self {
        let Begun {
            writer,
            committer,
            time,
            ..
        } = begun;
        let state = writer.working().clone();
        Self {
            machine: machine.clone(),
            intake: Arc::default(),
            time,
            view: Arc::new(View::new(state, writer.evidence())),
            writer,
            committer,
            open: Vec::new(),
            in_flight: None,
            durable: VecDeque::new(),
            unknown: None,
            is_over: false,
        }
    }

    fn stage(&self) -> &'static str {
        if self.unknown.is_some() {
            "crash: while the outcome is unknown"
        } else if !self.durable.is_empty() {
            "crash: after append, before publish"
        } else if self.in_flight.is_some() {
            "crash: in flight, before append"
        } else if !self.writer.batch().is_empty() {
            "crash: after decide and encode"
        } else {
            "crash: before anything"
        }
    }

    /// The engine's turn: takes at most `most` commands, and what time asks for.
    pub(super) fn build(&mut self, most: usize, world_ms: u64) -> Result<(), Violation> {
        if self.is_over {
            return Ok(());
        }
        let moment = self.time.look(&self.machine);
        let built = self.writer.build(&moment, &self.intake, most);
        self.open.extend(decided::heard(world_ms, moment.now));
        built.map_err(|poison| broken("deciding never panics", format!("{poison:?}")))
    }

    /// Whether the store could take the open batch.
    pub(super) fn can_send(&self) -> bool {
        self.in_flight.is_none() && self.unknown.is_none() && !self.is_over
    }

    /// Hands the open batch to the store; whether there was anything.
    pub(super) fn send(&mut self) -> bool {
        if !self.can_send() {
            return false;
        }
        let Some(batch) = self.writer.close() else {
            return false;
        };
        self.in_flight = Some((batch, std::mem::take(&mut self.open)));
        true
    }

    /// The decisions of the batch that the store has.
    pub(super) fn in_flight(&self) -> &[Decided] {
        self.in_flight
            .as_ref()
            .map_or(&[], |(_, decisions)| decisions)
    }

    /// Whether something waits to be decided.
    pub(super) fn has_more(&self) -> bool {
        let (control, work) = self.intake.waiting();
        !self.is_over && control + work > 0
    }

    /// Whether the working state holds only what is committed.
    pub(super) fn has_nothing_uncommitted(&self) -> bool {
        self.in_flight.is_none() && self.unknown.is_none() && self.writer.batch().records.is_empty()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The store's turn.
    pub(super) fn commit(&mut self) -> Option<Committed> {
        let (mut batch, _) = self.in_flight.take()?;
        match self.committer.commit(&mut batch) {
            Commit::Done => {
                self.durable.push_back(Durable::Told(batch));
                Some(Committed::Done)
            }
            Commit::Refused => {
                batch.fail(&Failure::NotLeader);
                self.step_down();
                Some(Committed::Refused)
            }
            // A store in memory has no files that could be taken away.
            Commit::Unknown(_) | Commit::Away => {
                batch.fail_pending(&Failure::OutcomeUnknown);
                self.intake.refuse(Some(&Failure::Unavailable));
                self.unknown = Some(batch);
                Some(Committed::Unknown)
            }
        }
    }

    /// After an unknown outcome: whether the batch was committed, if the store could say.
    pub(super) fn resolve(&mut self) -> Option<bool> {
        let batch = self.unknown.take()?;
        match self.committer.reopen(&batch) {
            Ok(Reopened::Replaced) => {
                self.step_down();
                None
            }
            Ok(found) => {
                let is_committed = found == Reopened::Committed;
                if is_committed {
                    self.durable.push_back(Durable::CaughtUp(batch.facts));
                }
                while self.publish() {}
                self.start_over(&Failure::OutcomeUnknown);
                self.intake.refuse(None);
                Some(is_committed)
            }
            Err(_) => {
                self.unknown = Some(batch);
                None
            }
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.unknown.is_some()
    }

    /// The view's turn; whether there was anything to publish.
    pub(super) fn publish(&mut self) -> bool {
        match self.durable.pop_front() {
            None => return false,
            Some(Durable::Told(batch)) => self.view.publish(batch),
            Some(Durable::CaughtUp(facts)) => self.view.catch_up(facts),
        }
        true
    }

    /// Signs what is committed.
    pub(super) fn checkpoint(&mut self) {
        // A store that is away or full keeps no checkpoint now; the next one covers more.
        let _away = self.committer.checkpoint();
    }

    fn start_over(&mut self, failure: &Failure) {
        let state = self.view.read().clone();
        self.writer.reset(state, failure);
        self.open.clear();
    }

    fn step_down(&mut self) {
        while self.publish() {}
        self.start_over(&Failure::NotLeader);
        self.intake.refuse(Some(&Failure::NotLeader));
        self.is_over = true;
    }
}

impl Whole {
    fn new(begun: Begun, machine: &Machine) -> Self {
        let seen = Arc::new(Seen::default());
        let observe: Arc<dyn Observe> = Arc::<Seen>::clone(&seen);
        let (ledger, task) = Ledger::inline(begun, Arc::new(machine.clone()), observe);
        Self { ledger, task, seen }
    }

    /// One whole step; what was decided in it.
    pub(super) fn step(&mut self, world_ms: u64) -> Result<Vec<Decided>, Violation> {
        self.task.step();
        let poison = self
            .seen
            .poison
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match poison {
            Some(poison) => Err(broken("deciding never panics", poison)),
            None => Ok(decided::heard(world_ms, self.ledger.now())),
        }
    }
}

fn set<T>(place: &Mutex<T>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = value;
}

fn fatal(error: &dyn std::error::Error) -> StartError {
    StartError::Broken(broken("a start finds what was committed", chain(error)))
}

/// Who signs: the same key in every world.
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
