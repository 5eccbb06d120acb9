//! A node on virtual time: what the market would have done with a load.
//!
//! The estimator, clearing, budget and writes are those of the agent ([`crate::node`]); only the kernel
//! is simulated. A second is ten alike periods of 100 ms: a pod that wants more than its limit is
//! throttled in each of them, uses its limit, and counts want − limit as throttled time. Example: a
//! want of 600m at a limit of 55m gives u = 55, s = 545 and q = 1000. What a limit holds back is lost,
//! or waits. A pod begins without a quota, so the first clearing writes every limit.

use std::sync::Arc;

use crate::cgroup::Quota;
use crate::clear::BoundBy;
use crate::node::{Node, Planned, Settings, Supply};
use crate::params::Params;
use crate::sense::{Reading, Throttled};

/// Periods in a second.
const PERIODS: u64 = 10;
const SECOND_US: u64 = 1_000_000;

/// What happens to work that a limit holds back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Work {
    /// It is lost.
    #[default]
    Lost,
    /// It waits, and is done when the limit allows it.
    Waits,
}

/// A simulated node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct World {
    /// The shared capacity, which stands still.
    pub capacity_milli: u64,
    /// Settings of the market.
    pub settings: Settings,
    /// What happens to work that is held back.
    pub work: Work,
    /// Number of simulated seconds.
    pub seconds: u64,
    /// The pods, by id.
    pub pods: Vec<(Arc<str>, Params)>,
}

/// A limit that was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Change {
    /// Place of the pod in the world.
    pub pod: usize,
    /// The new limit.
    pub limit_milli: u64,
    /// w; `None` for shares and overload.
    pub rung: Option<usize>,
    /// The bound that decided.
    pub bound_by: BoundBy,
}

/// One pod in one second.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PodSecond {
    /// The new work of this second.
    pub want_milli: u64,
    /// The work that was done.
    pub used_milli: u64,
    /// The limit in this second; `None` without a quota.
    pub limit_milli: Option<u64>,
    /// The work that its limit held back: it is lost, or waits.
    pub held_back_milli: u64,
}

/// One second of the node.
#[derive(Clone, Copy, Debug)]
pub struct Second<'a> {
    /// Its number, from 1.
    pub second: u64,
    /// What each pod wanted and used, in the order of the world.
    pub pods: &'a [PodSecond],
    /// The limits that were written at its end, by pod.
    pub changes: &'a [Change],
    /// The node after it.
    pub node: &'a Node,
}

/// The sums of a simulation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Work that was lost, or still waits in the end, in milliseconds of a core.
    pub lost_milli_seconds: u64,
    /// Pods × seconds in which a limit held a pod back.
    pub throttled_seconds: u64,
    /// Number of limits written.
    pub writes: u64,
}

/// Plays a load: `want` gives the new work of a pod in a second, from 1 on, in millicores; `each` sees
/// every second.
pub fn simulate(
    world: &World,
    mut want: impl FnMut(u64, usize) -> u64,
    mut each: impl FnMut(Second<'_>),
) -> Totals {
    let mut plant = Plant::new(world);
    for second in 1..=world.seconds {
        plant.play(second, &mut want);
        plant.clear(second);
        each(Second {
            second,
            pods: &plant.pods,
            changes: &plant.changes,
            node: &plant.node,
        });
    }
    plant.totals
}

/// The simulated machine.
struct Plant {
    node: Node,
    supply: Supply,
    work: Work,
    /// The place in the world of each pod of the node, which has them by id.
    order: Vec<usize>,
    pods: Vec<PodSecond>,
    limits: Vec<Option<u64>>,
    changes: Vec<Change>,
    totals: Totals,
}

impl Plant {
    fn new(world: &World) -> Self {
        let mut order: Vec<usize> = (0..world.pods.len()).collect();
        let id = |place: &usize| world.pods.get(*place).map(|(id, _)| id);
        order.sort_by(|a, b| id(a).cmp(&id(b)));
        let mut node = Node::new(world.settings);
        for (id, params) in order.iter().filter_map(|place| world.pods.get(*place)) {
            node.adopt(id, *params, Quota::NONE, Quota::NONE);
        }
        Self {
            node,
            supply: Supply {
                allocatable_milli: world.capacity_milli,
                unmanaged_milli: Some(0),
            },
            work: world.work,
            order,
            pods: vec![PodSecond::default(); world.pods.len()],
            limits: vec![None; world.pods.len()],
            changes: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Uses CPU for a second and reads the counters.
    fn play(&mut self, second: u64, want: &mut impl FnMut(u64, usize) -> u64) {
        for (place, at) in self.order.iter().enumerate() {
            let (Some(pod), Some(limit)) = (self.pods.get_mut(*at), self.limits.get(*at)) else {
                continue;
            };
            let waiting_milli = match self.work {
                Work::Lost => 0,
                Work::Waits => pod.held_back_milli,
            };
            *pod = PodSecond::new(want(second, *at), waiting_milli, *limit);
            let lost = &mut self.totals.lost_milli_seconds;
            *lost = lost.saturating_sub(waiting_milli);
            *lost = lost.saturating_add(pod.held_back_milli);
            self.totals.throttled_seconds += u64::from(pod.held_back_milli > 0);
            self.node.put(place, pod.reading());
        }
    }

    /// Clears and writes.
    fn clear(&mut self, second: u64) {
        let now_us = second.saturating_mul(SECOND_US);
        self.node.clear(now_us, self.supply);
        self.changes.clear();
        let falls = self.node.falls().to_vec();
        self.write(&falls, now_us);
        let raises = self.node.raises();
        self.write(&raises, now_us);
        self.changes.sort_unstable_by_key(|change| change.pod);
    }

    fn write(&mut self, writes: &[Planned], now_us: u64) {
        for planned in writes {
            self.node.set_limit(*planned, now_us);
            self.totals.writes += 1;
            let (Some(at), Some((rung, bound_by))) = (
                self.order.get(planned.place),
                self.node.outcome(planned.place),
            ) else {
                continue;
            };
            if let Some(limit) = self.limits.get_mut(*at) {
                *limit = Some(planned.milli);
            }
            self.changes.push(Change {
                pod: *at,
                limit_milli: planned.milli,
                rung,
                bound_by,
            });
        }
    }
}

impl PodSecond {
    fn new(want_milli: u64, waiting_milli: u64, limit_milli: Option<u64>) -> Self {
        let wanted = want_milli.saturating_add(waiting_milli);
        let used_milli = limit_milli.map_or(wanted, |limit| limit.min(wanted));
        Self {
            want_milli,
            used_milli,
            limit_milli,
            held_back_milli: wanted - used_milli,
        }
    }

    /// The counters of this second.
    fn reading(&self) -> Reading {
        let periods = if self.limit_milli.is_some() {
            PERIODS
        } else {
            0
        };
        let is_throttled = self.held_back_milli > 0;
        Reading {
            used_milli: self.used_milli,
            throttled: Some(Throttled {
                milli: self.held_back_milli,
                periods,
                throttled_periods: if is_throttled { periods } else { 0 },
            }),
        }
    }
}
