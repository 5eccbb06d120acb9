//! The memory of a pod: its recent peaks, its size, and its mean use (M1).
//!
//! P(w) is the largest use of the last w samples. A new sample u gives P'(1) = u and
//! P'(w) = max(u, P(w − 1)), so the peaks of all windows cost one pass. Example: after uses of 5, 9
//! and 4, P(1) = 4, P(2) = 9 and P(3) = 9; a use of 6 gives 6, 6 and 9.

/// Number of samples in the mean of use.
pub(crate) const RECENT: usize = 5;

/// P(w) for w = 1…W. Begins filled with the present limit: unknown use counts as used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Memory {
    /// P(w) at place w − 1.
    peaks: Box<[u64]>,
}

/// S: the largest use in the present and the previous block of samples.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Size {
    /// Samples in the present block.
    pub count: u64,
    /// The largest use in the present block.
    pub present_milli: u64,
    /// The largest use in the previous block.
    pub previous_milli: u64,
}

/// The last five uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Recent {
    /// The newest first; zero where there is none yet.
    pub used_milli: [u64; RECENT],
    /// Number of values, at most five.
    pub count: u64,
}

impl Memory {
    /// A memory of `windows` samples, at least one, all of them `milli`.
    pub fn filled(windows: usize, milli: u64) -> Self {
        Self {
            peaks: vec![milli; windows.max(1)].into(),
        }
    }

    /// A stored memory; `None` if it is empty.
    pub fn of_peaks(peaks: Vec<u64>) -> Option<Self> {
        (!peaks.is_empty()).then(|| Self {
            peaks: peaks.into(),
        })
    }

    /// P(1)…P(W).
    pub fn peaks(&self) -> &[u64] {
        &self.peaks
    }

    /// Adds a sample.
    pub fn take(&mut self, used_milli: u64) {
        let mut before = 0;
        for peak in &mut self.peaks {
            before = std::mem::replace(peak, used_milli.max(before));
        }
    }

    /// P(w); P(W) for a larger w.
    pub fn peak(&self, window: usize) -> u64 {
        let place = window.min(self.peaks.len()).saturating_sub(1);
        self.peaks.get(place).copied().unwrap_or(0)
    }

    /// P(W).
    pub fn peak_max(&self) -> u64 {
        self.peak(self.peaks.len())
    }
}

impl Size {
    /// Adds a sample; `block` is the number of samples in a block, at least one.
    pub fn take(&mut self, used_milli: u64, block: u64) {
        if block.max(1) <= self.count {
            self.previous_milli = std::mem::take(&mut self.present_milli);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.present_milli = self.present_milli.max(used_milli);
    }

    /// S.
    pub fn milli(&self) -> u64 {
        self.present_milli.max(self.previous_milli)
    }
}

impl Recent {
    /// Adds a sample.
    pub fn take(&mut self, used_milli: u64) {
        let [first, second, third, fourth, _] = self.used_milli;
        self.used_milli = [used_milli, first, second, third, fourth];
        self.count = self.count.saturating_add(1).min(5);
    }

    /// The mean, rounded down.
    pub fn mean_floor(&self) -> u64 {
        let used = self.used_milli.iter();
        let sum = used.fold(0_u64, |sum, milli| sum.saturating_add(*milli));
        match self.count {
            0 => 0,
            5 => sum / 5,
            count => sum / count,
        }
    }
}
