//! Bookings and executions: limits, the waiting room, turns, fences and ends.
//!
//! [`Bookings`] is the state of the plane. It changes only through [`Bookings::apply`], which
//! cannot fail. The functions of [`decide`] choose the events and apply each at once, so that a
//! grant takes the one before it into account. All other functions only read.
//!
//! Deliberately absent: clocks (the time is an argument), identities of callers (the server checks
//! permissions), and names of holders in refusals (the server adds those that the caller may see).

pub mod archive;
pub mod book;
pub mod command;
pub mod decide;
pub mod event;
pub mod execution;
pub mod fact;
pub mod invariants;
pub mod limit;
mod names;
mod plane;
pub mod position;
pub mod request;
pub mod room;
pub mod sentence;
mod settle;
mod shown;
pub mod words;

pub use archive::Ended;
pub use book::{Bookings, ClassUse, Deadline, Granted, Standing};
pub use bursar_plane::STEPS_PER_RECORD_MAX;
pub use command::Command;
pub use decide::{Refusal, Reply};
pub use event::{Brief, Event};
pub use limit::{Bound, Limit, LimitUse, Scope};
pub use request::{End, Fence, Outcome, Priority, Request, Submission};
pub use shown::Shown;

use bursar_units::Millis;

/// Wait that raises a booking by one priority (S3).
pub const AGEING_STEP: Millis = Millis::from_secs(60);
/// Number of passes after which a large request is due (S4).
pub const PASSES_UNTIL_DUE: u32 = 100;
/// Time for which an ended booking is remembered (L6).
pub const REMEMBERED: Millis = Millis::from_hours(24);
/// Most ended bookings that are remembered (L6).
pub const REMEMBERED_MAX: usize = 1_000_000;
/// Shortest ttl (S7).
pub const TTL_MIN: Millis = Millis::from_secs(1);
/// Longest ttl (S7).
pub const TTL_MAX: Millis = Millis::from_hours(24);
/// Ttl of a request that names none (S7).
pub const TTL_DEFAULT: Millis = Millis::from_secs(60);
/// The most characters of a remark on a booking.
pub const NOTE_LENGTH_MAX: usize = 200;
/// Most ends of a class that an estimate rests on (S8).
pub const ESTIMATE_RESTS_ON_MAX: usize = 200;
/// Fewest ends of a class that an estimate rests on (S8).
pub const ESTIMATE_RESTS_ON_MIN: usize = 20;
