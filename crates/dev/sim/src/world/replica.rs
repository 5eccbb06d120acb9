//! One process of the service: the real ledger, stepped stage by stage.
//!
//! ```text
//! build ─► send ─► commit ─► publish        three owners, one batch in flight (L1)
//!                    └─► resolve             after an unknown outcome (L2)
//! ```
//! The stages are those of the program (`bursar_ledger::inline`); only the order of their turns is
//! drawn here, so that a crash fits between any two.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_engine::{State, snapshot};
use bursar_journal::checkpoint::{Checkpoint, Name, SigningKey};
use bursar_journal::hash::Hash;
use bursar_ledger::clock::Clock;
use bursar_ledger::inline::Stages;
use bursar_ledger::intake::{Failure, Outcome};
use bursar_ledger::key;
use bursar_ledger::pipeline::{Ledger, Observe};
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::term::{Begun, Error, Hand, begin};
use bursar_ledger::writer::{Poison, Writer};
use bursar_units::causes::chain;

use super::decided::{self, Decided};
use crate::clock::Machine;
use crate::violation::{Violation, broken};

/// The ledger of every world.
const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";

/// Answers on their way out of the process, with the request each belongs to.
pub(super) type Outbox = Arc<Mutex<Vec<(u64, Result<Vec<Outcome>, Failure>)>>>;

pub(super) struct Process {
    pub(super) ledger: Ledger,
    pub(super) stages: Stages,
    /// Number of the start, over the whole world.
    pub(super) epoch: u64,
    pub(super) outbox: Outbox,
    /// Decisions of the open batch.
    open: Vec<Decided>,
    /// Decisions of the batch in flight.
    in_flight: Vec<Decided>,
}

/// The result of a commit.
pub(super) enum Committed {
    Done,
    Refused,
    Unknown,
}

/// Error of a start.
pub(super) enum StartError {
    /// The store is away; try again.
    Away,
    Broken(Violation),
}

/// A process that has started, with the state and root that it recovered.
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) state: State,
    pub(super) root: Hash,
}

/// Every failure is part of a world, and a poisoned command is returned by the stage.
struct Quiet;

impl Observe for Quiet {
    fn poisoned(&self, _: &Poison) {}

    fn store_failed(&self, _: &bursar_ledger::store::Error) {}

    fn not_leader(&self) {}

    fn store_away(&self, _: &Result<String, bursar_ledger::store::Error>) {}

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
            writer: Writer::new(state.clone(), decided::decide_and_record),
            ..begun
        };
        let (ledger, stages) = Ledger::inline(begun, clock, Arc::new(Quiet));
        let process = Self {
            ledger,
            stages,
            epoch,
            outbox: Outbox::default(),
            open: Vec::new(),
            in_flight: Vec::new(),
        };
        Ok(Started {
            process,
            state,
            root,
        })
    }

    /// Whether another process leads, so that this one must stop.
    pub(super) fn is_over(&self) -> bool {
        self.stages.is_ended()
    }

    /// Whether the outcome of a batch is unknown, or known and not yet published.
    pub(super) fn is_recovering(&self) -> bool {
        !self.stages.is_free() && !self.stages.is_in_flight() && !self.is_over()
    }

    /// Whether the working state holds only committed records.
    pub(super) fn has_nothing_uncommitted(&self) -> bool {
        self.stages.is_free() && self.stages.writer().batch().records.is_empty()
    }

    /// Whether commands wait.
    pub(super) fn has_more(&self) -> bool {
        let (control, work) = self.ledger.waiting();
        !self.is_over() && control + work > 0
    }

    /// Name of the stage that a crash now would hit.
    pub(super) fn stage(&self) -> &'static str {
        if self.stages.is_unknown() {
            "crash: while the outcome is unknown"
        } else if self.stages.is_behind() {
            "crash: after append, before publish"
        } else if self.stages.is_in_flight() {
            "crash: in flight, before append"
        } else if !self.stages.writer().batch().is_empty() {
            "crash: after decide and encode"
        } else {
            "crash: before anything"
        }
    }

    /// The engine's turn: at most `most` commands, and due deadlines.
    pub(super) fn build(&mut self, most: usize, world_ms: u64) -> Result<(), Violation> {
        let built = self.stages.build(most);
        self.open
            .extend(decided::take_decisions(world_ms, self.ledger.now()));
        built.map_err(|poison| broken("deciding never panics", format!("{poison:?}")))
    }

    /// Hands the open batch to the store if the store is free; returns whether it did.
    pub(super) fn send(&mut self) -> bool {
        let sent = self.stages.send();
        if sent {
            self.in_flight = std::mem::take(&mut self.open);
        }
        sent
    }

    /// The store's turn, with the decisions of its batch.
    pub(super) fn commit(&mut self) -> Option<(Committed, Vec<Decided>)> {
        if !self.stages.is_in_flight() {
            return None;
        }
        self.stages.commit();
        let committed = if self.is_over() {
            self.open.clear();
            Committed::Refused
        } else if self.stages.is_unknown() {
            Committed::Unknown
        } else {
            Committed::Done
        };
        Some((committed, std::mem::take(&mut self.in_flight)))
    }

    /// Asks the store for an unknown outcome; returns whether the batch was committed, if known.
    pub(super) fn resolve(&mut self) -> Option<bool> {
        if !self.stages.is_unknown() {
            return None;
        }
        let head = self.stages.head();
        self.stages.resolve();
        let is_known = !self.stages.is_unknown() && !self.is_over();
        is_known.then(|| head < self.stages.head())
    }

    /// The view's turn.
    pub(super) fn publish(&mut self) {
        let was_recovering = self.is_recovering();
        self.stages.publish();
        if was_recovering && !self.is_recovering() {
            // The writer has started over: the decisions of its open batch are gone.
            self.open.clear();
        }
    }
}

fn fatal(error: &dyn std::error::Error) -> StartError {
    StartError::Broken(broken("a start finds what was committed", chain(error)))
}

/// The signing key, which is the same in every world.
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
