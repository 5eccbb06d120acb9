//! Time as the ledger lives it: never back, and honest about its own absence (L5).
//!
//! ```text
//! now  = base + monotonic clock since the term began
//! base = max(wall clock, last recorded time)
//! ```

use std::time::{Instant as Monotonic, SystemTime, UNIX_EPOCH};

use bursar_units::{Instant, Millis};

/// How far the wall clock may drift from ours before it counts as a jump.
const JUMP: Millis = Millis::from_secs(5);

/// The two clocks of a machine.
pub trait Clock: Send + Sync {
    /// What the wall clock says.
    fn wall(&self) -> Instant;

    /// Time since some fixed point, that no one sets.
    fn monotonic(&self) -> Millis;
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct MachineClock {
    start: Monotonic,
}

/// One look at the clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// The time now, as the ledger lives it.
    pub now: Instant,
    /// What the wall clock says.
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
    /// What the wall clock was ahead (or behind) when it was last believed.
    offset_ms: i128,
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

    /// Looks at the clocks.
    pub fn look(&mut self, clock: &dyn Clock) -> Moment {
        let jumped = self.jump(clock).is_some();
        Moment {
            now: self.now(clock),
            wall: clock.wall(),
            jumped,
        }
    }

    /// The wall clock's word, if it has jumped since it was last believed: forward, and time
    /// leaps with it; back, and time goes on from where it was.
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
