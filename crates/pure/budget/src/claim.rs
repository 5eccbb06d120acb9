//! Takes and claims: who pays for how many GPUs of a run, and until when (A1, B2).

use bursar_units::{Instant, Label, Millis, is_default, vocabulary, whole};
use serde::{Deserialize, Serialize};

use crate::id::EnvelopeId;

/// The identity of a run. It compares as UTF-8 bytes.
pub type RunUid = Label;

vocabulary! {
    /// Right by which an envelope pays (D4).
    pub enum Pool {
        /// The run's owner owns the envelope.
        Own = "own",
        /// A relative of the run's owner owns the envelope and shares it.
        Family = "family",
        /// The envelope lends to the run's owner.
        Lent = "lent",
    }
}

vocabulary! {
    /// Class of GPU time as usage shows it (A1).
    pub enum Class {
        /// Paid from pool `own`.
        Owned = "Owned",
        /// Paid from pool `family`.
        Shared = "Shared",
        /// Paid from pool `lent`.
        Borrowed = "Borrowed",
        /// Paid by nobody.
        Unfunded = "Unfunded",
    }
}

vocabulary! {
    /// Cause of a change in favour of a claim.
    pub enum Funded {
        /// GPUs were started, and the take pays for them.
        Take = "take",
        /// A demoted claim found payers again (B5).
        Refund = "refund",
        /// A promise ended and was made anew (B2).
        Extension = "extension",
        /// A promise ended; the claim goes on from uncommitted time (B2).
        Overrun = "overrun",
    }
}

vocabulary! {
    /// Cause of a demotion.
    pub enum Demoted {
        /// A promise ended, and the envelope does not permit the claim any more (B2).
        PromiseEnd = "promise-end",
        /// A meter has no uncommitted time left (B2).
        Depletion = "depletion",
        /// A limit fell, a window ended, or members joined a cap (B4).
        Refit = "refit",
        /// The owner of the envelope needs it (B6).
        Recall = "recall",
    }
}

/// GPUs that an envelope pays for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Take {
    /// The envelope.
    pub envelope: EnvelopeId,
    /// Right by which it pays.
    pub pool: Pool,
    /// Number of GPUs.
    #[serde(with = "whole")]
    pub gpus: u64,
}

/// A line of a `runFunded` or `runDemoted` event: one claim with a width and a promise end.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimLine {
    /// The envelope.
    pub envelope: EnvelopeId,
    /// Right by which it pays.
    pub pool: Pool,
    /// GPUs that are taken or demoted; the whole width for an extension or an overrun.
    #[serde(with = "whole")]
    pub gpus: u64,
    /// Promise end E.
    pub until: Instant,
}

/// One incarnation of a run.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Work {
    /// The run.
    pub run: RunUid,
    /// Its incarnation, from 0.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub incarnation: u64,
}

/// The identity of a claim (A1).
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimId {
    /// Work that is paid for.
    pub work: Work,
    /// The envelope.
    pub envelope: EnvelopeId,
    /// Right by which it pays.
    pub pool: Pool,
}

/// Facts about an incarnation that its claims need.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Terms {
    /// Owner of the run.
    pub owner: Label,
    /// GPUs of a pod of an elastic run, whose claims are cut pod by pod; `None` for a fixed run,
    /// whose claims go whole (B4, B5).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub pod_gpus: Option<u64>,
    /// Instant beyond which nothing is promised to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_end: Option<Instant>,
}

/// State of a promise (B2).
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Promise {
    /// Paid until this instant in any case.
    Until(Instant),
    /// The promise ended at this instant; the claim is paid from uncommitted time.
    Overruns(Instant),
    /// A hold: it encumbers its width for a length of time and accrues nothing.
    Held {
        /// Start of the hold.
        since: Instant,
        /// Encumbered length D.
        #[serde(rename = "durationMs")]
        duration: Millis,
    },
}

/// A funded claim as others read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claim {
    /// Its identity.
    pub id: ClaimId,
    /// Owner of the run.
    pub owner: Label,
    /// Number in the order of funding: the later part of the keep order (B4).
    pub number: u64,
    /// Number of GPUs.
    pub gpus: u64,
    /// State of the promise.
    pub promise: Promise,
    /// Instant at which the promise ends, if this needs a decision (B2).
    pub ends: Option<Instant>,
}

/// A demoted or never funded claim as others read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unfunded {
    /// Its work.
    pub work: Work,
    /// Number in the order of demotion.
    pub number: u64,
    /// Number of GPUs.
    pub gpus: u64,
    /// Instant of the demotion.
    pub since: Instant,
    /// Cause of the demotion; `None` for work that started unfunded.
    pub cause: Option<Demoted>,
}

/// A claim that has to be demoted, in full or in part.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Demotion {
    /// Work that loses the payer.
    pub work: Work,
    /// The claim; `gpus` is the part that is demoted.
    pub line: ClaimLine,
    /// Cause.
    pub cause: Demoted,
    /// Whether the work ends if refunding at this instant does not fund it (B2).
    pub ends: bool,
}

impl Pool {
    /// Class of the time that it pays for.
    pub const fn class(self) -> Class {
        match self {
            Self::Own => Class::Owned,
            Self::Family => Class::Shared,
            Self::Lent => Class::Borrowed,
        }
    }

    /// Position in the keep order: Own, Lent, Family (B4).
    pub const fn keep(self) -> u8 {
        match self {
            Self::Own => 0,
            Self::Lent => 1,
            Self::Family => 2,
        }
    }
}

impl Class {
    /// The pool that pays; `None` for unfunded time.
    pub const fn pool(self) -> Option<Pool> {
        match self {
            Self::Owned => Some(Pool::Own),
            Self::Shared => Some(Pool::Family),
            Self::Borrowed => Some(Pool::Lent),
            Self::Unfunded => None,
        }
    }
}

impl Promise {
    /// The instant E; a hold has none.
    pub const fn until(self) -> Option<Instant> {
        match self {
            Self::Until(end) | Self::Overruns(end) => Some(end),
            Self::Held { .. } => None,
        }
    }
}

impl ClaimLine {
    /// The take that it records.
    pub fn take(&self) -> Take {
        Take {
            envelope: self.envelope.clone(),
            pool: self.pool,
            gpus: self.gpus,
        }
    }
}
