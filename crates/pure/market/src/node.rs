//! The state of one node over time: the agent drives it, and it makes all decisions.
//!
//! The agent calls, in this order (times are microseconds of one monotonic clock):
//!
//! ```text
//! once     adopt(pod)             after its original quota was stored durably
//! 1 s      observe(pod, sample)   for every pod: `None` if it could not be read
//!          observe_machine(…)     the whole machine, if unmanaged use is measured
//!          found(pod, quota)      the present quota, at least before anything is written there
//!          clear(now, supply)     estimates, computes the shares, and plans the writes
//!          decreases() ─► for each: begin(write), write it, read it back,
//!                                   and then wrote(pod, quota) or refused(pod)
//!          increases() ─► the same
//! the end  forget(pod)            the agent restores its original
//! ```
//! An observing agent leaves out the writes. Missing data means hold: a pod that cannot be read, was
//! changed by somebody else, or refuses a write keeps its limit and its memory, and is listed with the
//! reason. It reduces the capacity of the others by at most the limit it last had from us, and never
//! their floors. [`crate::simulate`] drives the same node on virtual time.

mod member;
mod plan;
mod unmanaged;

use std::sync::Arc;

use bursar_units::vocabulary;

use crate::act::{Budget, Write};
use crate::bidder::{Bidder, Measured};
use crate::capacity::capacity_milli;
use crate::cgroup::Quota;
use crate::clear::{
    self, Cleared, Divided, Mode, PRICE_MAX_PPM, Placed, Policy, Quantum, Rule, Share, Step, divide,
};
use crate::label::label;
use crate::need;
use crate::params::Params;
use crate::sense::{self, Reading, Sample};
pub use member::Standing;
use member::{Given, LeftAlone, Member};
use plan::Plan;
pub(crate) use plan::Planned;
use unmanaged::Unmanaged;

/// First and longest hold of a pod whose write was refused.
const REFUSED_US_MIN: u64 = 60_000_000;
const REFUSED_US_MAX: u64 = 30 * REFUSED_US_MIN;
/// Tolerance of counted time over the time of the processors, because counters are not read at one
/// moment: twofold, plus the longest period of a quota, whose throttling is counted at its end.
const LATE_TIMES: u64 = 2;
const LATE_US: u64 = 1_000_000;
/// Time after which headroom is judged (M2).
const MINUTE_US: u64 = 60_000_000;

/// Settings of a node's market.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The rule that divides scarce CPU.
    pub policy: Policy,
    /// The step of limits: 1 on plain cgroups, 10 on Kubernetes (M6).
    pub quantum_milli: u64,
    /// W: the number of samples that are remembered, at least one.
    pub windows: usize,
    /// The number of samples in a block of the size, at least one.
    pub size_block: u64,
    /// B: the budget of writes per pod and hour.
    pub writes_per_hour: u64,
    /// Time after a change in which a limit is not changed again, save a decrease that a raise or
    /// capacity needs.
    pub cooldown_us: u64,
    /// The factor by which a raise multiplies a limit at most.
    pub max_step: Option<u64>,
    /// Hold of a pod whose limit somebody else changed.
    pub conflict_us: u64,
    /// The most that unmanaged use takes; `None` for half of the allocatable CPU (M8).
    pub unmanaged_milli_max: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            quantum_milli: 1,
            windows: 10,
            size_block: 300,
            writes_per_hour: 600,
            cooldown_us: 0,
            max_step: None,
            conflict_us: 300_000_000,
            unmanaged_milli_max: None,
        }
    }
}

/// The CPU of the node at a clearing (M8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Supply {
    /// K: the allocatable CPU.
    pub allocatable_milli: u64,
    /// U: the unmanaged use; `None` for the measured one.
    pub unmanaged_milli: Option<u64>,
}

vocabulary! {
    /// Reason why the limit of a pod is held.
    pub enum Held {
        /// Its files could not be read.
        Unreadable = "unreadable",
        /// Somebody else changed its quota, which is its new original.
        Conflict = "conflict",
        /// The kernel refused a write.
        Refused = "refused",
        /// No limit in whole quanta is between its floor and its ceiling.
        TooNarrow = "too-narrow",
        /// Its counters gave no value: it is new, or they were reset.
        Unmeasured = "unmeasured",
    }
}

impl Held {
    /// The explanation for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Unreadable => "its counters cannot be read",
            Self::Conflict => "somebody else changed its limit",
            Self::Refused => "the new limit was not taken",
            Self::TooNarrow => "range too narrow",
            Self::Unmeasured => "its use was not measured yet",
        }
    }
}

/// One clearing: its inputs and results.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Clearing {
    /// Its time.
    pub at_us: u64,
    /// K.
    pub allocatable_milli: u64,
    /// U.
    pub unmanaged_milli: u64,
    /// The limits of held pods.
    pub held_milli: u64,
    /// The result.
    pub cleared: Cleared,
    /// The displayed mode.
    pub label: Mode,
}

/// A node and its pods.
#[derive(Clone, Debug)]
pub struct Node {
    settings: Settings,
    /// Whether limits are written; if not, nothing is planned and there is no budget.
    is_acting: bool,
    /// Total of the processors; a counter that advances faster has jumped.
    processors_milli: u64,
    /// By id.
    pods: Vec<Member>,
    label: Mode,
    last: Option<Totals>,
    budget: Budget,
    plan: Plan,
    unmanaged: Unmanaged,
    /// Whether everybody had the whole need in every clearing of this minute (M2).
    is_minute_whole: bool,
    misses: u64,
    /// Kept between clearings for its memory.
    placed: Placed,
    places: Vec<usize>,
}

/// The last clearing without its pods.
#[derive(Clone, Copy, Debug)]
struct Totals {
    at_us: u64,
    allocatable_milli: u64,
    unmanaged_milli: u64,
    held_milli: u64,
    capacity_milli: u64,
    min_milli: u64,
    need_milli: u64,
    ask_milli: u64,
    mode: Mode,
    step: Step,
    price_ppm: u64,
}

impl Node {
    /// A node without pods.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            is_acting: true,
            processors_milli: u64::MAX,
            pods: Vec::new(),
            label: Mode::default(),
            last: None,
            budget: Budget::new(settings.writes_per_hour),
            plan: Plan::default(),
            unmanaged: Unmanaged::new(settings.windows),
            is_minute_whole: true,
            misses: 0,
            placed: Placed::new(settings.windows),
            places: Vec::new(),
        }
    }

    /// Sets whether limits are written.
    pub fn acts(&mut self, acts: bool) {
        self.is_acting = acts;
    }

    /// Sets the total of the machine's processors.
    pub fn processors(&mut self, milli: u64) {
        self.processors_milli = milli;
    }

    /// Adds a pod, or changes the parameters of a known one. `original` is the quota to restore and
    /// `present` the one in the kernel; they differ after a crash.
    pub fn adopt(&mut self, id: &str, params: Params, original: Quota, present: Quota) {
        match self.place(id) {
            Ok(place) => {
                if let Some(pod) = self.pods.get_mut(place) {
                    pod.set_params(params, &self.settings);
                }
            }
            Err(place) => {
                let pod = Member::new(id.into(), params, (original, present), &self.settings);
                self.pods.insert(place, pod);
                // Planned places have moved.
                self.plan = Plan::default();
            }
        }
    }

    /// Removes a pod.
    pub fn forget(&mut self, id: &str) {
        if let Ok(place) = self.place(id) {
            self.pods.remove(place);
            // Planned places have moved.
            self.plan = Plan::default();
        }
    }

    /// Adds a sample of a pod; `None` if it could not be read.
    pub fn observe(&mut self, id: &str, sample: Option<Sample>) {
        let processors_milli = self.processors_milli;
        let Some(pod) = self.get_mut(id) else {
            return;
        };
        let last = std::mem::replace(&mut pod.sample_last, sample);
        pod.is_unreadable = sample.is_none();
        (pod.used_us, pod.reading) = (None, None);
        let (Some(last), Some(sample)) = (last, sample) else {
            return;
        };
        let Some(reading) = sense::reading(&last, &sample) else {
            return;
        };
        let most_us = most_us(processors_milli, sample.at_us.saturating_sub(last.at_us));
        let used_us = sample.usage_us.saturating_sub(last.usage_us);
        let held_back = sample.throttled_us.zip(last.throttled_us);
        let held_back_us = held_back.map_or(0, |(now, before)| now.saturating_sub(before));
        if used_us.saturating_add(held_back_us) <= most_us {
            (pod.used_us, pod.reading) = (Some(used_us), Some(reading));
        }
    }

    /// Gives the pod at a place its reading, where no counters are read.
    pub(crate) fn put(&mut self, place: usize, reading: Reading) {
        if let Some(pod) = self.pods.get_mut(place) {
            pod.reading = Some(reading);
        }
    }

    /// Gives a pod the state from before a recorded clearing; a new one is added.
    pub fn recall(&mut self, id: &str, bidder: Bidder) {
        self.adopt(id, bidder.params, Quota::NONE, Quota::NONE);
        if let Some(pod) = self.get_mut(id) {
            let quota = Quota {
                quota_us: Some(0),
                ..Quota::NONE
            };
            (pod.present, pod.bidder) = (quota, bidder);
        }
    }

    /// Gives a pod a recorded reading, with the headroom and the limit of that clearing.
    pub fn replay(&mut self, id: &str, reading: Reading, (headroom, limit): (u64, u64)) {
        if let Some(pod) = self.get_mut(id) {
            pod.reading = Some(reading);
            pod.bidder.headroom_permille = headroom;
            pod.bidder.limit_milli = limit;
        }
    }

    /// Adds the use of the whole machine so far, after the pods; `None` if it could not be read.
    pub fn observe_machine(&mut self, at_us: u64, usage_us: Option<u64>) {
        let took_us = self.unmanaged.took_us(at_us);
        for pod in &mut self.pods {
            // Unknown use counts as the limit of the pod, so that it does not count as unmanaged.
            let (sum_us, used_us) = match pod.used_us.take() {
                Some(used_us) => (&mut self.unmanaged.pods_us, used_us),
                None => (
                    &mut self.unmanaged.perhaps_us,
                    need::floor(pod.bidder.limit_milli, took_us, 1_000),
                ),
            };
            *sum_us = sum_us.saturating_add(used_us);
        }
        let most_us = most_us(self.processors_milli, took_us);
        self.unmanaged.take(at_us, usage_us, most_us);
    }

    /// Compares the present quota before anything is written. `true` if somebody else changed it:
    /// then it is the new original, which the caller stores, and the pod is held for a while.
    pub fn found(&mut self, id: &str, quota: Quota, now_us: u64) -> bool {
        let conflict_us = self.settings.conflict_us;
        let Some(pod) = self.get_mut(id) else {
            return false;
        };
        if pod.present == quota {
            return false;
        }
        // Our own write, whose result was not read.
        if pod.attempted == Some(quota) {
            pod.wrote(quota, now_us);
            return false;
        }
        pod.original = quota;
        pod.set_present(quota);
        pod.left_alone = Some(LeftAlone {
            why: Held::Conflict,
            until_us: now_us.saturating_add(conflict_us),
        });
        true
    }

    /// Begins a write; returns the quota to write, in the period of the original.
    pub fn begin(&mut self, write: &Write) -> Option<Quota> {
        let pod = self.get_mut(&write.id)?;
        let quota = Quota::of_milli(write.milli, pod.original.period_us);
        pod.attempted = Some(quota);
        Some(quota)
    }

    /// Ends a successful write with the quota that was read back.
    pub fn wrote(&mut self, id: &str, read_back: Quota, now_us: u64) {
        if let Some(pod) = self.get_mut(id) {
            pod.wrote(read_back, now_us);
        }
    }

    /// Ends a refused write: the pod is held, longer each time. `read_back` is the present quota if
    /// readable, so that a partial write does not count as somebody else's.
    pub fn refused(&mut self, id: &str, read_back: Option<Quota>, now_us: u64) {
        if let Some(pod) = self.get_mut(id) {
            let wait_us = REFUSED_US_MIN.saturating_mul(1 << pod.refusals.min(8));
            pod.refusals = pod.refusals.saturating_add(1);
            pod.set_present(read_back.unwrap_or(pod.present));
            pod.left_alone = Some(LeftAlone {
                why: Held::Refused,
                until_us: now_us.saturating_add(wait_us.min(REFUSED_US_MAX)),
            });
        }
    }

    /// Clears the node: takes the readings into the memories, computes the shares, and plans the writes.
    pub fn clear(&mut self, now_us: u64, supply: Supply) {
        self.judge(now_us);
        let settings = self.settings;
        let quantum = Quantum::new(settings.quantum_milli);
        self.placed.clear();
        self.places.clear();
        let mut held_milli = 0_u64;
        for (place, pod) in self.pods.iter_mut().enumerate() {
            pod.end_of_hold(now_us);
            pod.take(&settings);
            let Some(measured) = pod.measured() else {
                pod.given = None;
                // A new pod takes nothing from the others before it was measured once.
                if !pod.is_new {
                    let milli = pod.agreed_milli.min(pod.bidder.limit_milli);
                    held_milli = held_milli.saturating_add(milli);
                }
                continue;
            };
            self.placed.add_measured(measured, settings.policy, quantum);
            self.places.push(place);
        }
        let unmanaged_milli = supply.unmanaged_milli.unwrap_or_else(|| {
            let most = settings.unmanaged_milli_max;
            let most = most.unwrap_or(supply.allocatable_milli / 2);
            self.unmanaged.milli().min(most)
        });
        // Held pods take surplus, never floors, like unmanaged use.
        let taken_milli = unmanaged_milli.saturating_add(held_milli);
        let floors_milli = quantum.milli(self.placed.min);
        let capacity = capacity_milli(supply.allocatable_milli, taken_milli, floors_milli);
        let rule = Rule {
            policy: settings.policy,
            quantum,
            capacity: quantum.floor(capacity.min(clear::VALUE_MAX)),
            is_measured: true,
        };
        let (pods, places) = (&self.pods, &self.places);
        self.placed.climb(rule.capacity, |at, _, rungs| {
            let pod = places
                .get(at)
                .and_then(|place| pods.get(*place)?.measured());
            if let Some(pod) = pod {
                pod.fill_rungs(quantum, rungs);
            }
        });
        let divided = divide(&rule, &self.placed);
        self.plan.clear();
        let need_milli = self.give(&rule, &divided, now_us);
        let totals = Totals {
            at_us: now_us,
            allocatable_milli: supply.allocatable_milli,
            unmanaged_milli,
            held_milli,
            capacity_milli: quantum.milli(rule.capacity),
            min_milli: floors_milli,
            need_milli,
            ask_milli: quantum.milli(self.placed.ask),
            mode: match divided.step {
                Step::Overload => Mode::Overloaded,
                Step::Rung(_) => Mode::Uncongested,
                Step::Shared(_) => Mode::Congested,
            },
            step: divided.step,
            price_ppm: divided.price_ppm.min(PRICE_MAX_PPM),
        };
        self.last = Some(totals);
        self.label = label(
            (self.label, totals.mode),
            (totals.min_milli, totals.allocatable_milli),
            (totals.ask_milli, totals.capacity_milli),
        );
        if self.is_acting {
            self.budget.refill(self.places.len(), now_us);
            let capacity_milli = totals.capacity_milli;
            self.plan.make(&settings, &mut self.budget, capacity_milli);
        }
    }

    /// Gives each pod its share with the reason, and collects the changes of limits; returns the sum of
    /// the needs.
    fn give(&mut self, rule: &Rule, divided: &Divided, now_us: u64) -> u64 {
        let (windows, cooldown_us) = (self.settings.windows, self.settings.cooldown_us);
        let mut sum = 0_u64;
        for ((at, place), units) in self.places.iter().enumerate().zip(&divided.units) {
            let Some(pod) = self.pods.get_mut(*place) else {
                continue;
            };
            let Some(measured) = pod.measured() else {
                continue;
            };
            let full = |_: &_| {
                let top = self.placed.top(at);
                let top = top.unwrap_or_else(|| measured.rung(windows, rule.quantum));
                (top, measured.estimate.is_stepped)
            };
            let bound_by = divided.bound_by(rule, &self.placed, at, full);
            let need_milli = rule
                .quantum
                .milli(divided.need(&self.placed, at).unwrap_or(*units));
            sum = sum.saturating_add(need_milli);
            let wanted_milli = rule.quantum.milli(*units);
            pod.given = Some(Given {
                need_milli,
                wanted_milli,
                bound_by,
            });
            if self.is_acting {
                let is_cooling = pod.is_cooling(now_us, cooldown_us);
                self.plan.add(*place, pod, wanted_milli, is_cooling);
            }
            pod.is_new = false;
        }
        sum
    }

    /// Judges the headroom of the last minute (M2) when a new one begins. A minute counts if everybody
    /// had the whole need after each of its clearings.
    fn judge(&mut self, now_us: u64) {
        let Some(last) = self.last else { return };
        let is_whole = last.step == Step::Rung(self.settings.windows);
        let is_whole = is_whole && self.pods.iter().all(Member::has_its_need);
        self.is_minute_whole &= is_whole;
        let minute = |at_us: u64| at_us.saturating_sub(1) / MINUTE_US;
        if minute(last.at_us) == minute(now_us) {
            return;
        }
        let is_whole = std::mem::replace(&mut self.is_minute_whole, true);
        for pod in &mut self.pods {
            self.misses += u64::from(pod.judge(is_whole));
        }
    }

    /// The limits to lower after a clearing, in this order.
    pub fn decreases(&self) -> Vec<Write> {
        let falls = self.falls().iter();
        falls.filter_map(|planned| self.write(*planned)).collect()
    }

    /// The limits to raise after the decreases were read back, in this order.
    pub fn increases(&self) -> Vec<Write> {
        let raises = self.raises().into_iter();
        raises.filter_map(|planned| self.write(planned)).collect()
    }

    fn write(&self, planned: Planned) -> Option<Write> {
        let pod = self.pods.get(planned.place)?;
        Some(Write {
            id: pod.id.to_string(),
            milli: planned.milli,
        })
    }

    /// Sets the limit of the pod at a place, where no kernel is written.
    pub(crate) fn set_limit(&mut self, planned: Planned, now_us: u64) {
        if let Some(pod) = self.pods.get_mut(planned.place) {
            pod.wrote(
                Quota::of_milli(planned.milli, pod.original.period_us),
                now_us,
            );
        }
    }

    /// The result of the last clearing.
    pub fn last(&self) -> Option<Clearing> {
        let last = self.last?;
        let shares = self.pods.iter().filter_map(|pod| self.share(pod));
        Some(Clearing {
            at_us: last.at_us,
            allocatable_milli: last.allocatable_milli,
            unmanaged_milli: last.unmanaged_milli,
            held_milli: last.held_milli,
            cleared: Cleared {
                mode: last.mode,
                price_ppm: last.price_ppm,
                capacity_milli: last.capacity_milli,
                min_milli: last.min_milli,
                need_milli: last.need_milli,
                ask_milli: last.ask_milli,
                windows: self.settings.windows,
                step: last.step,
                shares: shares.collect(),
                too_narrow: Vec::new(),
            },
            label: self.label,
        })
    }

    fn share(&self, pod: &Member) -> Option<Share> {
        let given = pod.given?;
        let quantum = Quantum::new(self.settings.quantum_milli);
        let (m, max) = quantum.range(pod.bidder.min_milli(), pod.bidder.max_milli());
        let estimate = pod.estimate.unwrap_or_default();
        let measured = Measured {
            bidder: &pod.bidder,
            estimate: &estimate,
        };
        Some(Share {
            id: Arc::clone(&pod.id),
            min_milli: quantum.milli(m),
            max_milli: quantum.milli(max),
            need_milli: given.need_milli,
            need: None,
            bid: measured.bid(self.settings.policy, quantum),
            allocated_milli: given.wanted_milli,
            bound_by: given.bound_by,
        })
    }

    /// The rung and the bound of the pod at a place, as of the last clearing.
    pub(crate) fn outcome(&self, place: usize) -> Option<(Option<usize>, clear::BoundBy)> {
        let given = self.pods.get(place)?.given?;
        let bound_by = self.plan.left_out(place).unwrap_or(given.bound_by);
        Some((self.last?.step.rung(), bound_by))
    }

    /// The step of the last clearing.
    pub fn step(&self) -> Option<Step> {
        self.last.map(|last| last.step)
    }

    /// The displayed mode.
    pub const fn label(&self) -> Mode {
        self.label
    }

    /// The price of the last clearing.
    pub fn price_ppm(&self) -> u64 {
        self.last.map_or(0, |last| last.price_ppm)
    }

    /// The sum of the limits.
    pub fn limits_milli(&self) -> u64 {
        let limits = self.pods.iter().map(|pod| pod.bidder.limit_milli);
        limits.fold(0, u64::saturating_add)
    }

    /// Number of minutes in which a pod was throttled although it had its whole need (M2).
    pub const fn misses(&self) -> u64 {
        self.misses
    }

    /// The state of the pods, by id.
    pub fn standings(&self) -> impl Iterator<Item = Standing> {
        let pods = self.pods.iter().enumerate();
        pods.map(|(place, pod)| pod.standing(self.plan.left_out(place)))
    }

    /// Excess of the sum of limits over the shared and held CPU. Not zero only after an adoption, a
    /// fall of capacity, or somebody else's change.
    pub fn over_milli(&self) -> u64 {
        let known = self.pods.iter().filter(|pod| !pod.is_new);
        let limits = known.map(|pod| pod.bidder.limit_milli);
        let sum = limits.fold(0_u64, u64::saturating_add);
        let held = self.last.as_ref().map_or(0, |last| last.held_milli);
        sum.saturating_sub(self.capacity_milli().saturating_add(held))
    }

    fn capacity_milli(&self) -> u64 {
        self.last.map_or(0, |last| last.capacity_milli)
    }

    /// The place of a pod, or the place to insert it.
    fn place(&self, id: &str) -> Result<usize, usize> {
        self.pods.binary_search_by(|pod| (*pod.id).cmp(id))
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut Member> {
        let place = self.place(id).ok()?;
        self.pods.get_mut(place)
    }
}

/// Upper bound of counted time; a counter that advances more has jumped.
fn most_us(processors_milli: u64, took_us: u64) -> u64 {
    let counted_us = took_us.saturating_mul(LATE_TIMES).saturating_add(LATE_US);
    need::floor(counted_us, processors_milli, 1_000)
}
