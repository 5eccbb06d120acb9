//! Decisions of the ledger: commands in, events out, and the state as a fold over events.
//!
//! [`decide::decide`] answers a command and applies its events to the state. [`State::apply`]
//! applies an event and cannot fail. All other functions read `&State`. Server, dry run,
//! explanation, scenario, simulator and verifier call the same functions. There is no IO, clock,
//! randomness, float or hash order here: times and ids are arguments.

pub mod codec;
pub mod command;
pub mod decide;
pub mod event;
pub mod explain;
pub mod invariants;
mod planes;
pub mod snapshot;
pub mod spine;
pub mod state;
pub mod subject;
pub mod summary;
pub mod tally;
pub mod token;
pub mod words;

pub use command::{Change, Command, first_fence};
pub use decide::{Answer, Refusal, decide, life, plan};
pub use event::{Event, Events, dated};
pub use state::{FORMAT, LEVEL, State};

pub use bursar_booking as booking;
pub use bursar_cluster as cluster;
pub use bursar_market::ledger as market;
pub use bursar_plane::{Class, Inventory, Kind, Lane, Node, Reference, inventory, reference};
