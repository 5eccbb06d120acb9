//! The cluster: runs on GPUs, their leases, and the envelopes that pay for them.
//!
//! [`Clusters`] is the state, a fold over [`Event`]s; [`bursar_budget::Accounts`] in it has the money.
//! Commands and deadlines decide; a pass (R7) refunds and starts. Occupancy and payment are two
//! facts (A1): leases belong to this crate, claims to the accounts.
//!
//! Runs have a fixed width. The queue is plain: waiting runs are tried in queue order (R2), and the
//! first that is placed and covered starts, also in front of an earlier run that cannot start. There
//! are no promises to waiting runs, no cuts, no spares and no requeues; fields of runs that need them
//! are refused by name. A run whose processes cannot be started ends.

pub mod clusters;
pub mod command;
mod deadline;
mod decide;
pub mod event;
pub mod explain;
pub mod fact;
pub mod invariants;
pub mod nodes;
mod pass;
mod plane;
pub mod policy;
mod queue;
pub mod refusal;
pub mod run;
mod sentence;
pub mod shown;
pub mod wanted;

pub use bursar_budget as budget;
pub use clusters::{Clusters, REMEMBERED_MAX};
pub use command::{Change, Command, Exit};
pub use event::{Event, Outcome, Pod, Reason};
pub use policy::Policy;
pub use refusal::Refusal;
pub use run::{Edit, Funding, Run, Who};
pub use shown::{End, Lease, Listed, PaidPod, Payer, Reply, Shown, Stage};
pub use wanted::{ProcessId, Wanted};
