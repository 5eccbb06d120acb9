//! A measured pod: what it asks for, and what it gets on each rung of the ladder (M1).
//!
//! ```text
//! ask   a = max(u, min(u + s, max(S, 2·max(u, m))))
//! firm  f = max(a, min(ū, 2u))
//! v(0) = clamp(f, m, M),  v(w) = N(max(f, P(w)))
//! x(w) = v(w) if it asks (a > limit), else min(v(w), max(limit, m))
//! ```
//! Example: m = 50, M = 1000, limit 55, S = 600, throttled for a whole second while it wants 600m:
//! u = 55, s = 545, so a = 600 and N = 712. With S = 55 the ask is 2u = 110, and N = 122.
//! Nobody is raised who does not ask, and x(w) never falls with w.

use crate::clear::{Policy, Quantum, VALUE_MAX};
use crate::ladder::{Memory, Recent, Size};
use crate::need::{self, HEADROOM_MIN_PERMILLE};
use crate::params::Params;
use crate::sense::Reading;

/// The ask where the kernel counts no throttling: use plus 30 %, if use is near the limit.
const FALLBACK_PERMILLE: u64 = 1_300;

/// A pod with its memory, between two clearings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bidder {
    /// Floor, ceiling and weight.
    pub params: Params,
    /// h: its headroom in permille.
    pub headroom_permille: u64,
    /// Its limit; its ceiling without a quota.
    pub limit_milli: u64,
    /// P(w).
    pub memory: Memory,
    /// S.
    pub size: Size,
    /// For ū.
    pub recent: Recent,
    /// Σ (a − u) over the samples in which it asked without a break: it orders raises.
    pub unmet_milli: u64,
}

/// The estimate from one reading.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Estimate {
    /// u and throttling.
    pub reading: Reading,
    /// S, this use included.
    pub size_milli: u64,
    /// a.
    pub ask_milli: u64,
    /// f.
    pub firm_milli: u64,
    /// Whether 2u bound the ask.
    pub is_stepped: bool,
    /// Whether it asks for more than its limit.
    pub asks: bool,
}

/// The claim of a measured pod, in whole quanta.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured<'a> {
    pub(crate) bidder: &'a Bidder,
    pub(crate) estimate: &'a Estimate,
}

impl Bidder {
    /// A pod whose use is not known: its memory is filled with its limit.
    pub fn new(params: Params, limit_milli: u64, windows: usize) -> Self {
        Self {
            params,
            headroom_permille: HEADROOM_MIN_PERMILLE,
            limit_milli,
            memory: Memory::filled(windows, limit_milli.min(VALUE_MAX)),
            size: Size::default(),
            recent: Recent::default(),
            unmet_milli: 0,
        }
    }

    /// m, at most M.
    pub fn min_milli(&self) -> u64 {
        self.params.min_milli.min(self.max_milli())
    }

    /// M.
    pub fn max_milli(&self) -> u64 {
        self.params.max_milli.min(VALUE_MAX)
    }

    /// Takes a reading into the memory and estimates the ask.
    pub fn take(&mut self, reading: Reading, size_block: u64) -> Estimate {
        let used = reading.used_milli.min(VALUE_MAX);
        self.memory.take(used);
        self.size.take(used, size_block);
        self.recent.take(used);
        let size_milli = self.size.milli();
        let (ask_milli, is_stepped) = self.ask(&reading, used, size_milli);
        let asks = self.limit_milli < ask_milli;
        self.unmet_milli = if asks {
            self.unmet_milli.saturating_add(ask_milli - used)
        } else {
            0
        };
        Estimate {
            reading,
            size_milli,
            ask_milli,
            firm_milli: ask_milli.max(self.recent.mean_floor().min(2 * used)),
            is_stepped,
            asks,
        }
    }

    fn ask(&self, reading: &Reading, used: u64, size_milli: u64) -> (u64, bool) {
        let Some(throttled) = reading.throttled else {
            let is_near = u128::from(self.limit_milli) * 9 <= u128::from(used) * 10;
            let more = need::floor(used, FALLBACK_PERMILLE, 1_000);
            return (if is_near { more } else { used }, false);
        };
        let wanted = used.saturating_add(throttled.milli.min(VALUE_MAX));
        let twice = 2 * used.max(self.min_milli());
        let most = size_milli.max(twice);
        let is_stepped = size_milli <= twice && twice < wanted;
        (wanted.min(most).max(used), is_stepped)
    }
}

impl Measured<'_> {
    /// v(0), in quanta.
    pub(crate) fn firm(&self, quantum: Quantum) -> u64 {
        let (m, max) = self.range(quantum);
        quantum.ceil(self.estimate.firm_milli).clamp(m, max)
    }

    /// x(w), in quanta.
    pub(crate) fn rung(&self, window: usize, quantum: Quantum) -> u64 {
        let wish = if window == 0 {
            self.firm(quantum)
        } else {
            self.need(self.demand_milli(window), quantum)
        };
        wish.min(self.most(quantum))
    }

    /// Fills in x(0)…x(W), in quanta. Peaks repeat, and a rung at its upper bound stays there, so that
    /// few needs are computed: their divisions are slow.
    pub(crate) fn fill_rungs(&self, quantum: Quantum, rungs: &mut [u64]) {
        let most = self.most(quantum);
        rungs.fill(most);
        let (mut rung, mut demand_last) = (self.rung(0, quantum), None);
        for (window, place) in rungs.iter_mut().enumerate() {
            let demand = self.demand_milli(window);
            if window > 0 && demand_last != Some(demand) {
                demand_last = Some(demand);
                rung = self.need(demand, quantum).min(most);
                if rung == most {
                    return;
                }
            }
            *place = rung;
        }
    }

    /// The upper bound of every rung, in quanta: nobody is raised who does not ask.
    fn most(&self, quantum: Quantum) -> u64 {
        let bidder = self.bidder;
        let (_, max) = self.range(quantum);
        if self.estimate.asks {
            return max;
        }
        max.min(quantum.ceil(bidder.limit_milli.max(bidder.min_milli())))
    }

    /// max(f, P(w)) for w ≥ 1.
    fn demand_milli(&self, window: usize) -> u64 {
        let peak = self.bidder.memory.peak(window);
        self.estimate.firm_milli.max(peak)
    }

    /// N(D), in quanta.
    fn need(&self, demand_milli: u64, quantum: Quantum) -> u64 {
        let bidder = self.bidder;
        let (min, max) = (bidder.min_milli(), bidder.max_milli());
        let ppm = need::demand_ppm(min, max, demand_milli);
        let need = need::need(min, max, ppm, bidder.headroom_permille);
        let (m, max) = self.range(quantum);
        quantum.ceil(need.milli).clamp(m, max)
    }

    /// m and M, in quanta.
    pub(crate) fn range(&self, quantum: Quantum) -> (u64, u64) {
        quantum.range(self.bidder.min_milli(), self.bidder.max_milli())
    }

    /// b: its size, its weight, or w·d in parts per million.
    pub(crate) fn bid(&self, policy: Policy, quantum: Quantum) -> u64 {
        let weight = self.bidder.params.weight.min(VALUE_MAX);
        match policy {
            Policy::Proportional => {
                let (m, _) = self.range(quantum);
                self.estimate.size_milli.max(quantum.milli(m))
            }
            Policy::WeightedNash => weight.max(1),
            Policy::FullCapacity => weight * self.demand_ppm(),
        }
    }

    /// d of its firm ask, in parts per million.
    fn demand_ppm(&self) -> u64 {
        need::demand_ppm(
            self.bidder.min_milli(),
            self.bidder.max_milli(),
            self.estimate.firm_milli,
        )
    }
}
