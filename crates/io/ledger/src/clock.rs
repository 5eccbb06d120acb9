//! The time of the ledger. It never goes back, and it shows when the process was away (L5).
//!
//! ```text
//! now  = base + monotonic clock since the term began
//! base = max(wall clock, last recorded time)
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant as Monotonic, SystemTime, UNIX_EPOCH};

use bursar_units::{Instant, Millis};

/// The most that the wall clock may drift from the time of the ledger; more is a jump.
const JUMP: Millis = Millis::from_secs(5);

/// The two clocks of a machine.
pub trait Clock: Send + Sync {
    /// Reads the wall clock.
    fn wall(&self) -> Instant;

    /// Time since a fixed point; nobody can set this clock.
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
    /// Whether the wall clock has jumped since the last reading.
    pub jumped: bool,
}

/// The time of one term.
#[derive(Debug)]
pub struct TermClock {
    base: Instant,
    /// Reading of the monotonic clock at `base`.
    since: Millis,
    /// Wall clock minus `now`, at the start or the last jump.
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

    /// Reads both clocks. After a jump of the wall clock forward the time of the ledger jumps too;
    /// after a jump back it continues.
    pub fn look(&mut self, clock: &dyn Clock) -> Moment {
        let (wall, mut now) = (clock.wall(), self.now(clock));
        let drift_ms = ahead_ms(wall, now) - self.offset_ms;
        let jumped = drift_ms.unsigned_abs() > u128::from(JUMP.ms());
        if jumped {
            now = now.max(wall);
            (self.base, self.since) = (now, clock.monotonic());
            self.offset_ms = ahead_ms(wall, now);
        }
        Moment { now, wall, jumped }
    }
}

fn ahead_ms(wall: Instant, ours: Instant) -> i128 {
    i128::from(wall.ms()) - i128::from(ours.ms())
}
