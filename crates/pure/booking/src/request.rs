//! Requests, and the ways in which a booking can end.

use bursar_units::{Amount, BookingId, Label, Millis, is_default, vocabulary, whole};
use serde::{Deserialize, Serialize};

use crate::TTL_DEFAULT;
use crate::execution::Order;

/// Number that proves that a grant is still valid, from one counter of the ledger (S5).
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(#[serde(with = "whole")] pub u64);

vocabulary! {
    /// Priority of a request; the lowest level is served first (S3).
    #[derive(Default)]
    pub enum Priority {
        /// 0.
        Urgent = "urgent",
        /// 1.
        High = "high",
        /// 2, the default.
        #[default]
        Normal = "normal",
        /// 3.
        Low = "low",
        /// 4.
        Batch = "batch",
    }
}

impl Priority {
    /// 0 for urgent to 4 for batch.
    pub const fn level(self) -> u64 {
        match self {
            Self::Urgent => 0,
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
            Self::Batch => 4,
        }
    }
}

/// A request for slots under an id. Two requests are the same iff all fields but the fence are
/// (L6).
///
/// This is also the form in commands, events and snapshots.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// Id, chosen by the client.
    pub id: BookingId,
    /// Class: the kind of execution, such as a language.
    pub class: Label,
    /// Tenant that it counts for.
    pub tenant: Label,
    /// Slots. All limits that apply are charged with these and the next three amounts.
    #[serde(with = "whole")]
    pub slots: u64,
    /// CPU in millicores.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub cpu_milli: u64,
    /// Memory in bytes.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub memory_bytes: u64,
    /// Whole GPUs.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub gpus: u64,
    /// Priority.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: Priority,
    /// Length of a grant without renewal; zero for an execution, which has its own times.
    #[serde(default, skip_serializing_if = "is_default", rename = "ttlMs")]
    pub ttl: Millis,
    /// Longest wait; zero refuses at once.
    #[serde(default, skip_serializing_if = "is_default", rename = "waitMs")]
    pub wait: Millis,
    /// Execution that this booking belongs to, if it has another id. Stored only, as are the next
    /// two limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<BookingId>,
    /// CPU limit for the executor, in millicores.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub cpu_limit_milli: Option<u64>,
    /// Memory limit for the executor, in bytes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub memory_limit_bytes: Option<u64>,
    /// Fence of the grant, in events and snapshots; commands have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

/// A request for an execution: a booking without a ttl, and an order (X1).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Submission {
    /// Booking, under the id of the execution.
    pub booking: Request,
    /// Work and times.
    pub order: Order,
}

vocabulary! {
    /// Kind of end of a booking (S6).
    pub enum End {
        /// The holder released it.
        Released = "released",
        /// The caller cancelled it while it waited.
        Cancelled = "cancelled",
        /// The holder did not renew in time.
        Expired = "expired",
        /// The wait was over before a grant.
        WaitOver = "wait-over",
        /// An operator ended it.
        Forced = "forced",
    }
}

vocabulary! {
    /// Outcome that the holder reports with a release.
    pub enum Outcome {
        /// The work succeeded.
        Ok = "ok",
        /// The work failed.
        Failed = "failed",
    }
}

impl Request {
    /// A request for one slot without a wait, with defaults in all other fields.
    pub fn new(id: BookingId, class: Label, tenant: Label) -> Self {
        Self {
            id,
            class,
            tenant,
            slots: 1,
            cpu_milli: 0,
            memory_bytes: 0,
            gpus: 0,
            priority: Priority::default(),
            ttl: TTL_DEFAULT,
            wait: Millis::ZERO,
            execution_id: None,
            cpu_limit_milli: None,
            memory_limit_bytes: None,
            fence: None,
        }
    }

    /// Amount that limits are charged with.
    pub fn amount(&self) -> Amount {
        Amount {
            slots: self.slots,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            gpus: self.gpus,
        }
    }

    /// First field that differs, by its name in the API; the fence does not count.
    pub fn first_difference(&self, other: &Self) -> Option<&'static str> {
        [
            ("class", self.class == other.class),
            ("tenant", self.tenant == other.tenant),
            ("slots", self.slots == other.slots),
            ("cpuMilli", self.cpu_milli == other.cpu_milli),
            ("memoryBytes", self.memory_bytes == other.memory_bytes),
            ("gpus", self.gpus == other.gpus),
            ("priority", self.priority == other.priority),
            ("ttlMs", self.ttl == other.ttl),
            ("waitMs", self.wait == other.wait),
            ("executionId", self.execution_id == other.execution_id),
            (
                "cpuLimitMilli",
                self.cpu_limit_milli == other.cpu_limit_milli,
            ),
            (
                "memoryLimitBytes",
                self.memory_limit_bytes == other.memory_limit_bytes,
            ),
        ]
        .into_iter()
        .find_map(|(field, same)| (!same).then_some(field))
    }
}
