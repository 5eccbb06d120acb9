//! The use of everything that is not managed: that of the machine less that of our pods (M8).

use crate::clear::VALUE_MAX;
use crate::ladder::Memory;
use crate::need;

#[derive(Clone, Debug)]
pub(super) struct Unmanaged {
    /// The time and value of the last reading.
    last: Option<(u64, u64)>,
    /// Use of our pods that the machine's counter does not include yet: they are not read at one
    /// moment.
    pub(super) pods_us: u64,
    /// Maximum use of pods that could not be read, until the machine is read.
    pub(super) perhaps_us: u64,
    memory: Memory,
}

impl Unmanaged {
    pub(super) fn new(windows: usize) -> Self {
        Self {
            last: None,
            pods_us: 0,
            perhaps_us: 0,
            memory: Memory::filled(windows, 0),
        }
    }

    /// Time since the last reading.
    pub(super) fn took_us(&self, at_us: u64) -> u64 {
        self.last
            .map_or(0, |(last_us, _)| at_us.saturating_sub(last_us))
    }

    /// Takes a reading; one that advances by more than `most_us` has jumped.
    pub(super) fn take(&mut self, at_us: u64, usage_us: Option<u64>, most_us: u64) {
        let perhaps_us = std::mem::take(&mut self.perhaps_us);
        let took_us = self.took_us(at_us);
        let Some(usage_us) = usage_us else {
            return;
        };
        let last = self.last.replace((at_us, usage_us));
        // Starts over at the first reading, and after the counter went back or jumped.
        let passed = last.and_then(|(_, last)| usage_us.checked_sub(last));
        let passed = passed.filter(|passed| *passed <= most_us && 0 < took_us);
        let Some(passed) = passed else {
            self.pods_us = 0;
            return;
        };
        let ours_us = self.pods_us.saturating_add(perhaps_us);
        let others_us = passed.saturating_sub(ours_us);
        self.pods_us = self.pods_us.saturating_sub(passed);
        let milli = need::floor(others_us, 1_000, took_us);
        self.memory.take(milli.min(VALUE_MAX));
    }

    /// U: the largest use of the last W readings; 0 before anything was measured.
    pub(super) fn milli(&self) -> u64 {
        self.memory.peak_max()
    }
}
