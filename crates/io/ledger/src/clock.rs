//! The time of the ledger: it never goes back, and it shows when the process was away (L5).
//!
//! ```text
//! now  = base + monotonic clock since the term began
//! base = max(wall clock, last recorded time)
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant as Monotonic, SystemTime, UNIX_EPOCH};

use bursar_units::{Instant, Millis};

/// The most that the wall clock may drift from ours; more is a jump.
const JUMP: Millis = Millis::from_secs(5);

/// The two clocks of a machine.
pub trait Clock: Send + Sync {
    /// Reads the wall clock.
    fn wall(&self) -> Instant;

    /// Time since a fixed point, which nobody can set.
    fn monotonic(&self) -> Millis;
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct MachineClock {
    start: Monotonic,
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// The time of the ledger.
    pub now: Instant,
    /// The wall clock.
    pub wall: Instant,
    /// Whether the wall clock has jumped since the last look.
    pub jumped: bool,
}

/// The time of one term.
#[derive(Debug)]
pub struct TermClock {
    base: Instant,
    /// The monotonic clock at `base`.
    since: Millis,
    /// How far the wall clock was ahead of ours (or behind) at the start or the last jump.
    offset_ms: i128,
}

/// The clock of a term, shared by its stages and handles.
pub(crate) struct SharedTermClock {
    clock: Arc<dyn Clock>,
    term: Mutex<TermClock>,
}

impl SharedTermClock {
    pub(crate) fn new(clock: Arc<dyn Clock>, term: TermClock) -> Self {
        Self {
            clock,
            term: Mutex::new(term),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.term().now(self.clock.as_ref())
    }

    pub(crate) fn look(&self) -> Moment {
        self.term().look(self.clock.as_ref())
    }

    fn term(&self) -> MutexGuard<'_, TermClock> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MachineClock {
    fn default() -> Self {
        Self {
            start: Monotonic::now(),
        }
    }
}

impl Clock for MachineClock {
    fn wall(&self) -> Instant {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Instant::from_ms(u64::try_from(since.as_millis()).unwrap_or(bursar_units::INTEGER_MAX))
    }

    fn monotonic(&self) -> Millis {
        Millis::from_ms(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl TermClock {
    /// Begins a term after a record of time `last`.
    pub fn begin(clock: &dyn Clock, last: Instant) -> Self {
        let (wall, since) = (clock.wall(), clock.monotonic());
        let base = wall.max(last);
        Self {
            base,
            since,
            offset_ms: ahead_ms(wall, base),
        }
    }

    /// The time now. It never goes back.
    pub fn now(&self, clock: &dyn Clock) -> Instant {
        let elapsed = clock.monotonic().ms().saturating_sub(self.since.ms());
        self.base.after(Millis::from_ms(elapsed))
    }

    /// Reads both clocks.
    pub fn look(&mut self, clock: &dyn Clock) -> Moment {
        let jumped = self.jump(clock).is_some();
        Moment {
            now: self.now(clock),
            wall: clock.wall(),
            jumped,
        }
    }

    /// The wall clock, if it has jumped since the start or the last jump. After a jump forward the
    /// time of the ledger jumps too; after a jump back it goes on from where it was.
    pub fn jump(&mut self, clock: &dyn Clock) -> Option<Instant> {
        let (wall, now) = (clock.wall(), self.now(clock));
        let offset_ms = ahead_ms(wall, now);
        if (offset_ms - self.offset_ms).unsigned_abs() <= u128::from(JUMP.ms()) {
            return None;
        }
        self.since = clock.monotonic();
        self.base = now.max(wall);
        self.offset_ms = ahead_ms(wall, self.base);
        Some(wall)
    }
}

fn ahead_ms(wall: Instant, ours: Instant) -> i128 {
    i128::from(wall.ms()) - i128::from(ours.ms())
}
