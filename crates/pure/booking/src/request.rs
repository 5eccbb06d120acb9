//! What is asked for, and how it can end.

use bursar_units::{Amount, BookingId, Label, Millis, is_default, vocabulary, whole};
use serde::{Deserialize, Serialize};

use crate::TTL_DEFAULT;
use crate::execution::Order;

/// The number that proves a booking is still yours: one counter for the whole ledger (S5).
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(#[serde(with = "whole")] pub u64);

vocabulary! {
    /// How urgent a request is; the least is served first (S3).
    #[derive(Default)]
    pub enum Priority {
        /// 0.
        Urgent = "urgent",
        /// 1.
        High = "high",
        /// 2, what a request that names none gets.
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

/// A request for slots under a booking's id. Two requests are the same iff all of it is (L6).
///
/// This is also its form in the journal: commands, events and snapshots hold it so.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// The client's name for it.
    pub id: BookingId,
    /// What kind of execution it is; the seed's language.
    pub class: Label,
    /// Whom it counts for.
    pub tenant: Label,
    /// Units of admission. Every applicable limit is charged these and the three amounts that follow.
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
    /// How urgent it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: Priority,
    /// How long a grant lasts without renewal; zero for an execution, which has its own times.
    #[serde(default, skip_serializing_if = "is_default", rename = "ttlMs")]
    pub ttl: Millis,
    /// How long it may wait; zero refuses at once.
    #[serde(default, skip_serializing_if = "is_default", rename = "waitMs")]
    pub wait: Millis,
    /// The execution this booking belongs to, where it is not the booking's own id. Stored and
    /// charged to nothing, as are the two limits that follow.
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
    /// The fence that it was granted under: in events and snapshots. A request has none when it
    /// comes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

/// A request for an execution: a booking without a ttl, and what is run under it (X1).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Submission {
    /// The booking, of the execution's own id.
    pub booking: Request,
    /// What is run, and its times.
    pub order: Order,
}

vocabulary! {
    /// How a booking ended (S6).
    pub enum End {
        /// The holder gave it back.
        Released = "released",
        /// The caller gave up while it waited.
        Cancelled = "cancelled",
        /// The holder did not renew in time.
        Expired = "expired",
        /// The wait that was asked for went by without a grant.
        WaitOver = "wait-over",
        /// An operator took it back.
        Forced = "forced",
    }
}

vocabulary! {
    /// What the holder says of its work when it gives the slot back.
    pub enum Outcome {
        /// It went well.
        Ok = "ok",
        /// It did not.
        Failed = "failed",
    }
}

impl Request {
    /// A request for one slot: no wait, and all else as in a request that does not name it.
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

    /// What is charged to every applicable limit.
    pub fn amount(&self) -> Amount {
        Amount {
            slots: self.slots,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            gpus: self.gpus,
        }
    }

    /// The first field in which two requests differ, by its name in the API. The fence is no part
    /// of what was asked.
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
