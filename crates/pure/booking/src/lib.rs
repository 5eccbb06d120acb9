//! Slots that always come back: limits, the waiting room, turns, fences and ends (design 40).
//!
//! [`Bookings`] is the state of the plane. It changes only through [`Bookings::apply`], which
//! cannot fail; what should happen is decided by the functions of [`decide`], which apply each
//! event as they go, so a grant sees the grant before it. Reading is `&self` everywhere else.
//!
//! Deliberately absent: clocks (every call is told the time), identities of callers (the edge
//! knows who may act for whom), and holders' names in refusals (the edge adds those the caller
//! may see).

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

/// How long a waiting booking must wait to be treated as one priority higher (S3).
pub const AGEING_STEP: Millis = Millis::from_secs(60);
/// After how many passes a large request is due (S4).
pub const PASSES_UNTIL_DUE: u32 = 100;
/// How long an ended booking is remembered (L6).
pub const REMEMBERED: Millis = Millis::from_hours(24);
/// How many ended bookings are remembered at most (L6).
pub const REMEMBERED_MAX: usize = 1_000_000;
/// The shortest time a grant may be asked for without renewal (S7).
pub const TTL_MIN: Millis = Millis::from_secs(1);
/// The longest time a grant may be asked for without renewal (S7).
pub const TTL_MAX: Millis = Millis::from_hours(24);
/// What a request that names no ttl gets (S7).
pub const TTL_DEFAULT: Millis = Millis::from_secs(60);
/// An estimate rests on at most this many of the last ends of a class (S8).
pub const ESTIMATE_RESTS_ON_MAX: usize = 200;
/// An estimate is given only if it rests on at least this many (S8).
pub const ESTIMATE_RESTS_ON_MIN: usize = 20;
