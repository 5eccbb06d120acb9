//! The one place that decides: commands in, events out, state as their fold (design 50).
//!
//! [`decide::decide`] answers a command and applies its events to the state it is given;
//! [`State::apply`] folds an event and cannot fail; everything else reads `&State`. Server, dry
//! run, explanation, scenario, simulator and verifier all call these same functions. There is
//! no IO, clock, randomness, float or hash order here: time and ids arrive as data.

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
pub use bursar_market::ledger as market;
pub use bursar_plane::{Class, Inventory, Kind, Lane, Node, Reference, reference};
