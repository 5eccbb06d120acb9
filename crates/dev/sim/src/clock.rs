//! The clocks of a simulated machine, which can be set, suspended and stepped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bursar_ledger::clock::Clock;
use bursar_units::{Instant, Millis};

/// Wall-clock time at the start of every world.
pub const BEGINNING_MS: u64 = 1_794_823_200_000;

/// The two clocks of a machine. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Machine(Arc<Offsets>);

#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
struct Offsets {
    /// True time of the world, which no machine can read.
    world_ms: AtomicU64,
    /// Offset of the wall clock from the world.
    ahead_ms: AtomicI64,
    /// Total suspended time, during which the monotonic clock stands still.
    asleep_ms: AtomicU64,
}

impl Machine {
    /// Sets the time of the world.
    pub fn set_world(&self, world_ms: u64) {
        self.0.world_ms.store(world_ms, Ordering::Relaxed);
    }

    /// Steps the wall clock.
    pub fn step_wall(&self, by_ms: i64) {
        self.0.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Suspends the machine: its monotonic clock stands still, the wall clock continues.
    pub fn sleep(&self, length_ms: u64) {
        self.0.asleep_ms.fetch_add(length_ms, Ordering::Relaxed);
    }
}

impl Clock for Machine {
    fn wall(&self) -> Instant {
        let world = BEGINNING_MS + self.0.world_ms.load(Ordering::Relaxed);
        let wall = world.saturating_add_signed(self.0.ahead_ms.load(Ordering::Relaxed));
        Instant::from_ms(wall)
    }

    fn monotonic(&self) -> Millis {
        let world = self.0.world_ms.load(Ordering::Relaxed);
        let asleep = self.0.asleep_ms.load(Ordering::Relaxed);
        Millis::from_ms(world.saturating_sub(asleep))
    }
}
