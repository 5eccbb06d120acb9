//! The state of all accounts (signatures; bodies follow in the next commits).

use std::collections::BTreeSet;

use bursar_units::{Instant, Label, Millis, is_default, vocabulary, whole};
use serde::{Deserialize, Serialize};

use crate::claim::*;
use crate::cover::*;
use crate::id::*;
use crate::spec::*;

vocabulary! {
    /// Kinds of clock deadlines, in the order in which those of one instant are carried out (R8).
    pub enum Kind {
        /// A window ends or opens (B3).
        WindowEdge = "window-edge",
        /// A promise ends (B2).
        PromiseEnd = "promise-end",
        /// A meter has no uncommitted time left (B2).
        Depletion = "depletion",
        /// Accrued time reaches 80 or 95 % of a limit.
        Threshold = "threshold",
    }
}

/// `epochClosed`: content of the event.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EpochClosed {
    pub meter: MeterId,
    #[serde(with = "whole")]
    pub epoch: u64,
    #[serde(with = "whole", rename = "accruedGpuMs")]
    pub accrued: u64,
    /// The next window; absent: none follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Window>,
}

/// A window [start, end).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Window {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Instant>,
}

/// `meterNear`: content of the event.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MeterNear {
    pub meter: MeterId,
    pub dimension: Dimension,
    /// 80, 95 or 100.
    #[serde(with = "whole")]
    pub percent: u64,
}

/// Fate of a claim at its promise end.
pub enum PromiseEnd {
    Extended(ClaimLine),
    Overruns(ClaimLine),
    Demoted(Demotion),
}

impl Accounts {
    // ---- fold: none of these can fail; an impossible argument changes nothing ----
    pub fn set_horizon(&mut self, horizon: Millis); // policy
    pub fn set_budget(&mut self, at: Instant, budget: &Budget);
    pub fn drop_budget(&mut self, at: Instant, budget: &BudgetId);
    pub fn close_epoch(&mut self, at: Instant, closed: &EpochClosed);
    /// Take: opens or widens claims. Refund: the same, and the GPUs leave the unfunded claim `of`.
    /// Extension, Overrun: the claim's E and state. The plane calls it for each `runFunded`.
    pub fn fund(
        &mut self,
        at: Instant,
        work: &Work,
        terms: &Terms,
        cause: Funded,
        of: Option<u64>,
        lines: &[ClaimLine],
    );
    /// The GPUs of the lines become unfunded claims. The plane calls it for each `runDemoted`.
    pub fn demote(&mut self, at: Instant, work: &Work, cause: Demoted, lines: &[ClaimLine]);
    /// GPUs that start without a payer (allowUnfunded).
    pub fn open_unfunded(&mut self, at: Instant, work: &Work, terms: &Terms, gpus: u64);
    /// GPUs closed: they leave unfunded claims first (newest first), then the newest funded.
    pub fn close(&mut self, at: Instant, work: &Work, gpus: u64);
    /// A hold (runHeld / runHoldDropped / its leases open).
    pub fn hold(
        &mut self,
        at: Instant,
        work: &Work,
        terms: &Terms,
        duration: Millis,
        takes: &[Take],
    );
    pub fn drop_hold(&mut self, at: Instant, work: &Work);
    /// maxDuration was edited.
    pub fn set_hard_end(&mut self, at: Instant, run: &RunUid, hard_end: Option<Instant>);
    pub fn note_near(&mut self, at: Instant, near: &MeterNear);
    /// The run's debits are forgotten (retention).
    pub fn forget(&mut self, run: &RunUid);

    // ---- decisions ----
    /// Mistakes of budgets to set (and drop) together, that need the other budgets: cycles, caps.
    pub fn mistakes(&self, set: &[&Budget], dropped: &[&BudgetId]) -> Vec<(BudgetId, Mistake)>;
    pub fn plan(&self, now: Instant, request: &Request) -> Result<Plan, Failure>;
    /// The same with recall (B6): for a run that takes GPUs or a hold in this record.
    pub fn plan_recalling(&self, now: Instant, request: &Request) -> Result<Plan, Failure>;
    pub fn trace(&self, now: Instant, request: &Request) -> Trace;
    /// On empty meters, now or at the start of any envelope's next window (never-fits).
    pub fn could_ever_cover(&self, now: Instant, request: &Request) -> Result<(), Failure>;
    /// Elastic refund: the largest number of whole pods of the claim that cover pays for.
    pub fn plan_pods(&self, now: Instant, request: &Request, pod_gpus: u64) -> Option<Plan>;

    /// Deadlines: the plane carries out those of one (instant, kind) together, then refunds.
    pub fn next_deadline(&self) -> Option<(Instant, Kind)>;
    pub fn edges(&self, at: Instant) -> Vec<EpochClosed>; // by identity; apply all, then refit(closed meters)
    pub fn promise_ends(&self, at: Instant) -> Vec<ClaimId>; // keep order
    pub fn promise_end(&self, at: Instant, claim: &ClaimId) -> Option<PromiseEnd>; // decide one, apply, next
    pub fn depletions(&self, at: Instant) -> Vec<Demotion>; // of all meters depleted at `at`
    pub fn thresholds(&self, at: Instant) -> Vec<MeterNear>; // hours at 80, 95; and GPUs crossed by the last takes

    /// The epochs that setting this budget closes (disjoint window), and the meters to refit after it.
    pub fn edit(&self, at: Instant, budget: &Budget) -> (Vec<EpochClosed>, BTreeSet<MeterId>);
    pub fn removal(&self, budget: &BudgetId) -> BTreeSet<MeterId>;
    pub fn rotate(&self, at: Instant, envelope: &EnvelopeId) -> Vec<EpochClosed>; // envelope and its lending pool
    pub fn refit(&self, at: Instant, meters: &BTreeSet<MeterId>) -> Vec<Demotion>;
    /// Failed takes: the `meterNear` 100 events that are owed.
    pub fn exhausted(&self, failed: &[(MeterId, Dimension)]) -> Vec<MeterNear>;

    // ---- reads ----
    pub fn budget(&self, id: &BudgetId) -> Option<&Budget>;
    pub fn budgets(&self) -> impl Iterator<Item = &Budget>;
    pub fn claims(&self, work: &Work) -> Vec<Claim>; // oldest first
    pub fn unfunded(&self, work: &Work) -> Vec<Unfunded>; // earliest first
    pub fn unfunded_work(&self) -> impl Iterator<Item = &Work>; // for refunding
    pub fn meter(&self, now: Instant, id: &MeterId) -> Option<MeterView>;
    pub fn meters(&self, now: Instant, budget: &BudgetId) -> Vec<MeterView>;
    pub fn conditions(&self, now: Instant, budget: &BudgetId) -> Vec<Condition>;
    pub fn usage(&self, now: Instant) -> impl Iterator<Item = UsageRow>; // owner, envelope?, class, day, gpu_ms
    pub fn debits(&self, now: Instant, run: &RunUid) -> Vec<Debit>; // envelope?, class, epoch, gpu_ms
    pub fn facts(&self) -> impl Iterator<Item = Fact>;
    pub fn restore(&mut self, fact: Fact);
    pub fn check(&self, now: Instant) -> Result<(), Broken>;
}
