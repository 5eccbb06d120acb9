//! Budgets: who may use how many GPUs, for how long, and who pays.
//!
//! [`Accounts`] is the state: declared budgets, the family of their owners, meters, claims and usage.
//! It changes only through methods that cannot fail, which a plane calls from its fold. All other
//! functions read: they decide covers, promise ends, depletions, window edges, refits and recalls,
//! and return the content of the events that a plane records. [`placement`] chooses nodes.
//!
//! Use is a step function of time. A meter keeps the accrued GPU-milliseconds, its width and the
//! instant of the last change, so rectangles are exact and nothing is sampled (B1).
//!
//! Deliberately absent: runs with their lives, queues and leases (the plane has them), clocks (the
//! time is an argument), records and sentences.

pub mod accounts;
pub mod calendar;
pub mod claim;
pub mod cover;
mod family;
pub mod id;
pub mod meter;
pub mod place;
pub mod placement;
pub mod spec;

pub use accounts::{Accounts, EpochClosed, Kind, MeterNear};
pub use calendar::Window;
pub use claim::{
    Claim, ClaimId, ClaimLine, Class, Demoted, Demotion, Funded, Pool, Promise, RunUid, Take, Terms,
    Unfunded, Work,
};
pub use id::{BudgetId, CapId, EnvelopeId, MeterId};
pub use place::{Place, Selector};
pub use spec::{AggregateCap, Budget, Envelope, Lending, Mistake, Pattern, Renew, Wrong};
