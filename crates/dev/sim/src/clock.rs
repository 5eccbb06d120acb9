//! The clocks of a simulated machine: set, suspended and stepped at will.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bursar_ledger::clock::Clock;
use bursar_units::{Instant, Millis};

/// What every wall clock shows when a world begins.
pub const BEGINNING_MS: u64 = 1_794_823_200_000;

/// A machine's two clocks. Clones are the same machine.
#[derive(Clone, Debug, Default)]
pub struct Machine(Arc<Hands>);

#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
struct Hands {
    /// The time of the world, which no machine knows.
    world_ms: AtomicU64,
    /// How far the wall clock is ahead of the world.
    ahead_ms: AtomicI64,
    /// How long the machine has slept, its monotonic clock with it.
    asleep_ms: AtomicU64,
}

impl Machine {
    /// Lets the time of the world be that.
    pub fn set_world(&self, world_ms: u64) {
        self.0.world_ms.store(world_ms, Ordering::Relaxed);
    }

    /// Somebody sets the wall clock.
    pub fn step_wall(&self, by_ms: i64) {
        self.0.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// The machine sleeps: its monotonic clock stands still, the wall clock goes on.
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
