//! The state of all accounts: budgets, family, meters, claims, deadlines and usage.
//!
//! The methods in `fold` change it; they cannot fail, and an impossible argument changes nothing.
//! All other methods read. A decision that frees and takes in one step works on a scratch pad
//! (`pad`), so the state changes only by the events that the plane records.
//!
//! Numbers of owners, envelopes and meters are interned and never determine an order, so a state
//! restored from a snapshot behaves the same.

mod check;
mod claims;
mod deadline;
mod edit;
mod fact;
mod fold;
mod mistakes;
mod near;
mod pad;
mod reads;
mod recall;
mod refit;
mod usage;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bursar_units::{Instant, Label, Millis, vocabulary, whole};
use serde::{Deserialize, Serialize};

use crate::calendar::Window;
use crate::claim::{Demoted, Pool, Promise, RunUid, Terms, Work};
use crate::cover::Dimension;
use crate::family::Family;
use crate::id::{BudgetId, CapId, EnvelopeId, MeterId};
use crate::meter::Meter;
use crate::spec::{Budget, Envelope};

pub use check::Broken;
pub use deadline::{Demotions, PromiseEnd};
pub use edit::Edit;
pub use fact::{ClaimFact, Fact, MeterFact, UnfundedFact, UsageDay, UsageFact, WorkFact};
pub use reads::{About, Condition, ConditionKind, Headroom, MeterView};
pub use usage::{Debit, UsageRow, UsageTotal};
use usage::{Debits, Usage};

/// Admission horizon of a policy that names none (B2).
pub const HORIZON_DEFAULT: Millis = Millis::from_hours(1);
/// Shortest admission horizon. Each claim without a stated length is extended once in a horizon, and
/// each extension is on record, so a shorter one would fill the ledger.
pub const HORIZON_MIN: Millis = Millis::from_secs(1);
/// Longest admission horizon: the longest length of a run.
pub const HORIZON_MAX: Millis = Millis::from_hours(24 * 3_650);

vocabulary! {
    /// Kinds of clock deadlines, in the order in which those of one instant are carried out (R8).
    pub enum Kind {
        /// A window ends or opens (B3).
        WindowEdge = "window-edge",
        /// A promise ends (B2).
        PromiseEnd = "promise-end",
        /// A meter has no uncommitted time left (B2).
        Depletion = "depletion",
        /// GPUs or accrued time have reached 80 or 95 % of a limit.
        Threshold = "threshold",
    }
}

/// Content of an `epochClosed` event: the value of a meter is final, and the next window begins.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EpochClosed {
    /// The meter.
    pub meter: MeterId,
    /// Number of the closed epoch, from 0.
    #[serde(with = "whole")]
    pub epoch: u64,
    /// GPU-milliseconds accrued in it.
    #[serde(with = "whole", rename = "accruedGpuMs")]
    pub accrued: u64,
    /// The next window; absent: none follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Window>,
}

/// Content of a `meterNear` event.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MeterNear {
    /// The meter.
    pub meter: MeterId,
    /// The dimension.
    pub dimension: Dimension,
    /// Percentage of the limit: 80, 95, or 100 for a failed take, extension or claim.
    #[serde(with = "whole")]
    pub percent: u64,
}

/// The state of all accounts.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Admission horizon of the policy.
    horizon: Millis,
    /// Number of the last claim or unfunded claim.
    number: u64,
    /// Time of the last folded event.
    time: Instant,
    budgets: BTreeMap<BudgetId, Arc<Budget>>,
    family: Family,
    envelopes: Vec<EnvelopeState>,
    envelope_index: BTreeMap<EnvelopeId, usize>,
    meters: Vec<Meter>,
    meter_index: BTreeMap<MeterId, usize>,
    /// Caps that name an envelope, declared or not.
    caps: BTreeMap<EnvelopeId, BTreeSet<CapId>>,
    claims: BTreeMap<u64, ClaimState>,
    works: BTreeMap<Work, WorkState>,
    /// Work with unfunded claims.
    unfunded: BTreeSet<Work>,
    deadlines: BTreeSet<(Instant, Kind, u64)>,
    /// Windows that are still to open, by meter.
    openings: BTreeSet<(Instant, usize)>,
    usage: Usage,
    debits: Debits,
}

#[derive(Clone, Debug)]
struct EnvelopeState {
    id: EnvelopeId,
    /// The present declaration; `None` if no budget declares it.
    declared: Option<Declared>,
    /// Its own meter, then its caps by identity.
    meters: Vec<usize>,
    /// Its lending pool, if it has or had one.
    lending: Option<usize>,
}

#[derive(Clone, Debug)]
struct Declared {
    owner: usize,
    owner_name: Label,
    is_paused: bool,
    spec: Arc<Envelope>,
}

#[derive(Clone, Debug)]
struct ClaimState {
    work: Work,
    envelope: usize,
    pool: Pool,
    gpus: u64,
    promise: Promise,
    /// Instant until which its time is debited.
    since: Instant,
    /// Its entry in the set of deadlines.
    due: Option<Instant>,
}

#[derive(Clone, Debug)]
struct WorkState {
    terms: Terms,
    /// Numbers of the claims, oldest first.
    claims: Vec<u64>,
    /// Earliest demotion first.
    unfunded: Vec<UnfundedState>,
}

#[derive(Clone, Debug)]
struct UnfundedState {
    number: u64,
    gpus: u64,
    /// Instant of the demotion.
    since: Instant,
    /// Instant until which its time is debited.
    debited: Instant,
    cause: Option<Demoted>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            horizon: HORIZON_DEFAULT,
            number: 0,
            time: Instant::from_ms(0),
            budgets: BTreeMap::new(),
            family: Family::default(),
            envelopes: Vec::new(),
            envelope_index: BTreeMap::new(),
            meters: Vec::new(),
            meter_index: BTreeMap::new(),
            caps: BTreeMap::new(),
            claims: BTreeMap::new(),
            works: BTreeMap::new(),
            unfunded: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            openings: BTreeSet::new(),
            usage: Usage::default(),
            debits: Debits::default(),
        }
    }
}

impl Accounts {
    /// Whether an envelope is declared and in its window.
    fn is_open(&self, envelope: &EnvelopeState, at: Instant) -> bool {
        let own = envelope.meters.first().and_then(|m| self.meters.get(*m));
        let window = own.and_then(|meter| meter.window);
        envelope.declared.is_some() && window.is_some_and(|window| window.is_open(at))
    }

    /// The meters that a take of this pool is charged to (B1).
    fn charged(&self, envelope: usize, pool: Pool) -> impl Iterator<Item = usize> {
        let envelope = self.envelopes.get(envelope).into_iter();
        envelope.flat_map(move |envelope| {
            let lending = envelope.lending.filter(|_| pool == Pool::Lent);
            envelope.meters.iter().copied().chain(lending)
        })
    }

    fn horizon(&self, envelope: &EnvelopeState) -> Millis {
        let spec = envelope.declared.as_ref().map(|declared| &declared.spec);
        let stated = spec.and_then(|spec| spec.admission_horizon);
        stated.unwrap_or(self.horizon)
    }

    /// The claim of a work on an envelope, other than a hold.
    fn claim_of(&self, work: &Work, envelope: usize, pool: Pool) -> Option<(u64, &ClaimState)> {
        let numbers = &self.works.get(work)?.claims;
        numbers.iter().find_map(|number| {
            let claim = self.claims.get(number)?;
            let is_it = claim.envelope == envelope
                && claim.pool == pool
                && !matches!(claim.promise, Promise::Held { .. });
            is_it.then_some((*number, claim))
        })
    }

    fn envelope(&self, id: &EnvelopeId) -> Option<(usize, &EnvelopeState)> {
        let number = *self.envelope_index.get(id)?;
        Some((number, self.envelopes.get(number)?))
    }

    fn meter_state(&self, id: &MeterId) -> Option<&Meter> {
        self.meters.get(*self.meter_index.get(id)?)
    }

    /// The owner of a run with claims or debits.
    fn owner_of(&self, work: &Work) -> Option<&Label> {
        Some(&self.works.get(work)?.terms.owner)
    }

    /// Forgets the debits of a run that is not remembered any more (L6). Usage stays.
    pub fn forget(&mut self, run: &RunUid) {
        self.debits.forget(run);
    }
}
