//! The policy: one recorded object, made from `[resolver]` of the server's file.
//!
//! Budgets need a part of it; the rest belongs to promises and cuts, which later versions bring, and
//! stands on record already. [`Policy::not_yet`] names the first value that this version cannot honour.

use bursar_units::{Millis, vocabulary, whole};
use serde::{Deserialize, Serialize};

vocabulary! {
    /// Use of the resolver.
    pub enum Mode {
        /// Cuts nobody.
        Off = "off",
        /// Plans and records cuts, and carries none out.
        Observe = "observe",
        /// Cuts.
        Enforce = "enforce",
    }
}

vocabulary! {
    /// Source of entropy for draws.
    pub enum Entropy {
        /// A chain of the operator.
        Own = "self",
        /// A chain of another person.
        Notary = "notary",
        /// A public beacon.
        Drand = "drand",
    }
}

vocabulary! {
    /// First stage of a draw.
    pub enum Stage1 {
        /// Every owner with a ticket has the same chance.
        Uniform = "uniform",
    }
}

/// The policy.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// Use of the resolver.
    pub mode: Mode,
    /// Wait after which a run may ask for cuts.
    #[serde(rename = "patienceMs")]
    pub patience: Millis,
    /// Time for which an incarnation is safe from a draw.
    #[serde(rename = "minRuntimeMs")]
    pub min_runtime: Millis,
    /// Longest time to checkpoint.
    #[serde(rename = "maxGraceMs")]
    pub grace_max: Millis,
    /// Longest time from the leases to the running processes.
    #[serde(rename = "startTimeoutMs")]
    pub start_timeout: Millis,
    /// Longest time from the lock to the publication of a draw.
    #[serde(rename = "freezeMaxMs")]
    pub freeze_max: Millis,
    /// Longest wait for entropy.
    #[serde(rename = "entropyWaitMs")]
    pub entropy_wait: Millis,
    /// Source of entropy.
    pub entropy: Entropy,
    /// Promise to a run that states no duration (B2).
    #[serde(rename = "admissionHorizonMs")]
    pub admission_horizon: Millis,
    /// Time that a forecast looks ahead.
    #[serde(rename = "forecastHorizonMs")]
    pub forecast_horizon: Millis,
    /// Replays behind published odds.
    #[serde(with = "whole")]
    pub trials: u64,
    /// Most waiting runs of one owner.
    #[serde(with = "whole")]
    pub pending_max: u64,
    /// First stage of a draw.
    pub stage1: Stage1,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            patience: Millis::from_hours(1),
            min_runtime: Millis::from_secs(30 * 60),
            grace_max: Millis::from_secs(10 * 60),
            start_timeout: Millis::from_secs(2 * 60),
            freeze_max: Millis::from_secs(120),
            entropy_wait: Millis::from_secs(60),
            entropy: Entropy::Own,
            admission_horizon: Millis::from_hours(1),
            forecast_horizon: Millis::from_hours(30 * 24),
            trials: 1_024,
            pending_max: 1_000,
            stage1: Stage1::Uniform,
        }
    }
}

impl Policy {
    /// Name of the first field that must not be zero and is.
    pub fn zero(&self) -> Option<&'static str> {
        let lengths = [
            ("admissionHorizon", self.admission_horizon),
            ("startTimeout", self.start_timeout),
            ("forecastHorizon", self.forecast_horizon),
        ];
        let zero = lengths
            .into_iter()
            .find(|(_, length)| *length == Millis::ZERO);
        let zero = zero.map(|(field, _)| field);
        zero.or((self.pending_max == 0).then_some("pendingMax"))
    }

    /// Name of the first field whose value needs a later version.
    pub fn not_yet(&self) -> Option<&'static str> {
        (self.mode != Mode::Off).then_some("mode")
    }
}
