//! The state of one node over time: the agent drives it, and it makes all decisions.
//!
//! The agent calls, in this order (times are microseconds of one monotonic clock):
//!
//! ```text
//! once     adopt(pod)             after its original quota was stored durably
//! 1 s      observe(pod, sample)   for every pod: `None` if it could not be read
//!          observe_machine(…)     the whole machine, if unmanaged use is measured
//! 5 s      found(pod, quota)      the present quota, before anything is written
//!          clear(now, supply)     computes the shares
//!          decreases() ─► for each: begin(write), write it, read it back,
//!                                   and then wrote(pod, quota) or refused(pod)
//!          increases() ─► the same
//! the end  forget(pod)            the agent restores its original
//! ```
//! An observing agent calls `acts(false)` and leaves out the writes. Missing data means hold: a pod
//! that cannot be read, was changed by somebody else, or refuses a write keeps its limit and is listed
//! with the reason. It reduces the capacity of the others by at most the limit it last had from us,
//! and never their floors.

use std::collections::BTreeMap;
use std::sync::Arc;

use bursar_units::vocabulary;

use crate::act::{self, Move, Write};
use crate::capacity::capacity_milli;
use crate::cgroup::Quota;
use crate::clear::{self, Cleared, Market, Mode, Pod, Policy, Step, Want};
use crate::label::label;
use crate::need::{self, HEADROOM_MIN_PERMILLE};
use crate::params::Params;
use crate::sense::{Estimator, Sample, Shown, Window};

/// First and longest hold of a pod whose write was refused.
const REFUSED_US_MIN: u64 = 60_000_000;
const REFUSED_US_MAX: u64 = 30 * REFUSED_US_MIN;
/// Tolerance of counted time over the time of the processors, because counters are not read at one
/// moment: twofold, plus the longest period of a quota, whose throttling is counted at its end.
const LATE_TIMES: u64 = 2;
const LATE_US: u64 = 1_000_000;

/// Settings of a node's market.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The rule that divides scarce CPU.
    pub policy: Policy,
    /// The step of limits: 1 on plain cgroups, 10 on Kubernetes (M6).
    pub quantum_milli: u64,
    /// Settings of the demand measurement.
    pub window: Window,
    /// Time after a change during which a limit may not shrink.
    pub cooldown_us: u64,
    /// Hold of a pod whose limit somebody else changed.
    pub conflict_us: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            quantum_milli: 1,
            window: Window::default(),
            cooldown_us: 30_000_000,
            conflict_us: 300_000_000,
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
    /// The input: [`clear::clear`] of it gives `cleared` again.
    pub market: Market,
    /// The result.
    pub cleared: Cleared,
    /// The displayed mode.
    pub label: Mode,
}

/// The state of one pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Standing {
    /// The pod.
    pub id: String,
    /// Its floor, ceiling and weight.
    pub params: Params,
    /// The quota to restore.
    pub original: Quota,
    /// Its limit, as read back; its ceiling without a quota.
    pub limit_milli: u64,
    /// Its recent use.
    pub used_milli: Option<u64>,
    /// The share of throttled periods between the last two clearings, in permille, if known.
    pub throttled_permille: Option<u64>,
    /// Its measured demand.
    pub shown: Shown,
    /// Its headroom.
    pub headroom_permille: u64,
    /// Time of our last change of its limit.
    pub changed_us: Option<u64>,
    /// Time of our last change that was not forced by lack of room, which begins a cooldown.
    pub cooling_us: Option<u64>,
    /// The reason why it is held.
    pub held: Option<Held>,
}

/// A node and its pods.
#[derive(Clone, Debug)]
pub struct Node {
    settings: Settings,
    /// Whether guards apply. Not for an observing agent: its limits never move, so guards would
    /// hide the final shares.
    is_guarded: bool,
    /// Total of the processors; a counter that advances faster has jumped.
    processors_milli: u64,
    pods: BTreeMap<Arc<str>, Member>,
    label: Mode,
    last: Option<Clearing>,
    unmanaged: Unmanaged,
}

#[derive(Clone, Debug)]
struct Member {
    params: Params,
    original: Quota,
    /// The quota that was read last.
    present: Quota,
    /// The limit it last had from us or came with: the capacity it takes while it is held.
    agreed_milli: u64,
    changed_us: Option<u64>,
    cooling_us: Option<u64>,
    /// The quota we last began to write: if the kernel has it, nobody else wrote it.
    attempted: Option<Quota>,
    estimator: Estimator,
    sample_last: Option<Sample>,
    /// Use between its last two samples, until the machine is read.
    used_us: Option<u64>,
    is_unreadable: bool,
    headroom_permille: u64,
    throttled_permille: Option<u64>,
    /// Need and share from the last clearing.
    given: Option<Given>,
    left_alone: Option<LeftAlone>,
    /// Number of refused writes in a row.
    refusals: u32,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    /// `None` if nothing was measured: then throttling does not affect headroom.
    need_milli: Option<u64>,
    wanted_milli: u64,
}

#[derive(Clone, Copy, Debug)]
struct LeftAlone {
    why: Held,
    until_us: u64,
}

/// The unmanaged use: that of the machine less that of our pods.
#[derive(Clone, Debug, Default)]
struct Unmanaged {
    at_us_last: Option<u64>,
    machine_us_last: Option<u64>,
    /// Use of our pods that the machine's counter does not include yet: they are not read at one
    /// moment.
    pods_us: u64,
    /// Maximum use of pods that could not be read, until the machine is read.
    perhaps_us: u64,
    counter_us: u64,
    estimator: Estimator,
}

impl Node {
    /// A node without pods.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            is_guarded: true,
            processors_milli: u64::MAX,
            pods: BTreeMap::new(),
            label: Mode::default(),
            last: None,
            unmanaged: Unmanaged::default(),
        }
    }

    /// Sets whether limits are written. If not, a clearing gives the final shares, without guards.
    pub fn acts(&mut self, acts: bool) {
        self.is_guarded = acts;
    }

    /// Sets the total of the machine's processors.
    pub fn processors(&mut self, milli: u64) {
        self.processors_milli = milli;
    }

    /// Adds a pod, or changes the parameters of a known one. `original` is the quota to restore and
    /// `present` the one in the kernel; they differ after a crash.
    pub fn adopt(&mut self, id: &str, params: Params, original: Quota, present: Quota) {
        if let Some(pod) = self.pods.get_mut(id) {
            pod.params = params;
            return;
        }
        let mut pod = Member {
            params,
            original,
            present,
            agreed_milli: 0,
            changed_us: None,
            cooling_us: None,
            attempted: None,
            estimator: Estimator::default(),
            sample_last: None,
            used_us: None,
            is_unreadable: false,
            headroom_permille: HEADROOM_MIN_PERMILLE,
            throttled_permille: None,
            given: None,
            left_alone: None,
            refusals: 0,
        };
        pod.agreed_milli = pod.limit_milli();
        self.pods.insert(id.into(), pod);
    }

    /// Removes a pod.
    pub fn forget(&mut self, id: &str) {
        self.pods.remove(id);
    }

    /// Adds a sample of a pod; `None` if it could not be read.
    pub fn observe(&mut self, id: &str, sample: Option<Sample>) {
        let Some(pod) = self.pods.get_mut(id) else {
            return;
        };
        pod.is_unreadable = sample.is_none();
        let last = std::mem::replace(&mut pod.sample_last, sample);
        let Some(sample) = sample else {
            pod.used_us = None;
            return pod.estimator.miss();
        };
        pod.used_us = last.and_then(|last| {
            let most_us = most_us(self.processors_milli, sample.at_us.checked_sub(last.at_us)?);
            let used_us = sample.usage_us.checked_sub(last.usage_us)?;
            let held_back = sample.throttled_us.zip(last.throttled_us);
            let held_back_us = held_back.map_or(0, |(now, before)| now.saturating_sub(before));
            let has_jumped = most_us < used_us.saturating_add(held_back_us);
            (!has_jumped).then_some(used_us)
        });
        if pod.used_us.is_none() {
            pod.estimator.miss();
        }
        pod.estimator.take(sample, &self.settings.window);
    }

    /// Adds the use of the whole machine so far, after the pods; `None` if it could not be read.
    pub fn observe_machine(&mut self, at_us: u64, usage_us: Option<u64>) {
        let took_us = self.unmanaged.took_us(at_us);
        for pod in self.pods.values_mut() {
            // Unknown use counts as the limit of the pod, so that it does not count as unmanaged.
            let (sum_us, used_us) = match pod.used_us.take() {
                Some(used_us) => (&mut self.unmanaged.pods_us, used_us),
                None => (
                    &mut self.unmanaged.perhaps_us,
                    need::floor(pod.limit_milli(), took_us, 1_000),
                ),
            };
            *sum_us = sum_us.saturating_add(used_us);
        }
        let most_us = most_us(self.processors_milli, took_us);
        self.unmanaged
            .take(at_us, usage_us, most_us, &self.settings.window);
    }

    /// Compares the present quota before anything is written. `true` if somebody else changed it:
    /// then it is the new original, which the caller stores, and the pod is held for a while.
    pub fn found(&mut self, id: &str, quota: Quota, now_us: u64) -> bool {
        let Some(pod) = self.pods.get_mut(id) else {
            return false;
        };
        if pod.present == quota {
            return false;
        }
        // Our own write, whose result was not read.
        if pod.attempted == Some(quota) {
            self.wrote(id, quota, now_us);
            return false;
        }
        (pod.present, pod.original) = (quota, quota);
        pod.left_alone = Some(LeftAlone {
            why: Held::Conflict,
            until_us: now_us.saturating_add(self.settings.conflict_us),
        });
        true
    }

    /// Begins a write; returns the quota to write, in the period of the original.
    pub fn begin(&mut self, write: &Write) -> Option<Quota> {
        let pod = self.pods.get_mut(write.id.as_str())?;
        let quota = Quota::of_milli(write.milli, pod.original.period_us);
        pod.attempted = Some(quota);
        Some(quota)
    }

    /// Ends a successful write with the quota that was read back.
    pub fn wrote(&mut self, id: &str, read_back: Quota, now_us: u64) {
        let step = self.last.as_ref().map(|last| last.cleared.step);
        let is_forced = matches!(step, Some(Step::GuardsYield | Step::Overload));
        if let Some(pod) = self.pods.get_mut(id) {
            let before_milli = pod.limit_milli();
            pod.present = read_back;
            pod.attempted = None;
            pod.agreed_milli = pod.limit_milli();
            // A first limit equal to the ceiling is no change.
            if pod.agreed_milli != before_milli {
                pod.changed_us = Some(now_us);
            }
            // A decrease forced by lack of room begins no cooldown: while capacity keeps falling,
            // limits would keep their old proportions for ever.
            if pod.agreed_milli != before_milli && !(is_forced && pod.agreed_milli < before_milli) {
                pod.cooling_us = Some(now_us);
            }
            pod.refusals = 0;
        }
    }

    /// Ends a refused write: the pod is held, longer each time. `read_back` is the present quota if
    /// readable, so that a partial write does not count as somebody else's.
    pub fn refused(&mut self, id: &str, read_back: Option<Quota>, now_us: u64) {
        if let Some(pod) = self.pods.get_mut(id) {
            let wait_us = REFUSED_US_MIN.saturating_mul(1 << pod.refusals.min(8));
            pod.refusals = pod.refusals.saturating_add(1);
            pod.present = read_back.unwrap_or(pod.present);
            pod.left_alone = Some(LeftAlone {
                why: Held::Refused,
                until_us: now_us.saturating_add(wait_us.min(REFUSED_US_MAX)),
            });
        }
    }

    /// Clears the node.
    pub fn clear(&mut self, now_us: u64, supply: Supply) -> &Clearing {
        let settings = self.settings;
        let mut pods = Vec::with_capacity(self.pods.len());
        let (mut held_milli, mut floors_milli) = (0_u64, 0_u64);
        for (id, pod) in &mut self.pods {
            pod.end_of_hold(now_us);
            if pod.held(settings.quantum_milli).is_some() {
                pod.given = None;
                held_milli = held_milli.saturating_add(pod.agreed_milli.min(pod.limit_milli()));
                continue;
            }
            pod.adapt();
            let kept_milli = clear::quantised_up(pod.floor_milli(), settings.quantum_milli);
            floors_milli = floors_milli.saturating_add(kept_milli);
            pods.push(pod.claim(id, &settings, now_us, self.is_guarded));
        }
        let unmanaged_milli = supply
            .unmanaged_milli
            .unwrap_or_else(|| self.unmanaged.milli(&settings.window));
        // Held pods take surplus, never floors, like unmanaged use.
        let taken_milli = unmanaged_milli.saturating_add(held_milli);
        let market = Market {
            capacity_milli: capacity_milli(supply.allocatable_milli, taken_milli, floors_milli),
            policy: settings.policy,
            quantum_milli: settings.quantum_milli,
            pods,
        };
        let cleared = clear::clear(&market);
        for share in &cleared.shares {
            if let Some(pod) = self.pods.get_mut(&share.id) {
                let is_measured = pod.estimator.shown(&settings.window) != Shown::Nothing;
                pod.given = Some(Given {
                    need_milli: is_measured.then_some(share.need_milli),
                    wanted_milli: share.allocated_milli,
                });
            }
        }
        self.label = label(self.label, &cleared, supply.allocatable_milli);
        self.last.insert(Clearing {
            at_us: now_us,
            allocatable_milli: supply.allocatable_milli,
            unmanaged_milli,
            held_milli,
            market,
            cleared,
            label: self.label,
        })
    }

    /// The limits to lower after a clearing, in this order.
    pub fn decreases(&self) -> Vec<Write> {
        act::decreases(&self.moves(), self.capacity_milli())
    }

    /// The limits to raise after the decreases were read back, in this order.
    pub fn increases(&self) -> Vec<Write> {
        act::increases(
            &self.moves(),
            self.capacity_milli(),
            self.settings.quantum_milli,
        )
    }

    /// The last clearing.
    pub fn last(&self) -> Option<&Clearing> {
        self.last.as_ref()
    }

    /// The state of the pods, by id.
    pub fn standings(&self) -> impl Iterator<Item = Standing> {
        self.pods.iter().map(|(id, pod)| Standing {
            id: id.to_string(),
            params: pod.params,
            original: pod.original,
            limit_milli: pod.limit_milli(),
            used_milli: pod.estimator.used_milli(&self.settings.window),
            throttled_permille: pod.throttled_permille,
            shown: pod.estimator.shown(&self.settings.window),
            headroom_permille: pod.headroom_permille,
            changed_us: pod.changed_us,
            cooling_us: pod.cooling_us,
            held: pod.held(self.settings.quantum_milli),
        })
    }

    /// Excess of the sum of limits over the shared and held CPU. Not zero only after an adoption, a
    /// fall of capacity, or somebody else's change.
    pub fn over_milli(&self) -> u64 {
        let limits = self.pods.values().map(Member::limit_milli);
        let sum = limits.fold(0_u64, u64::saturating_add);
        let held = self.last.as_ref().map_or(0, |last| last.held_milli);
        sum.saturating_sub(self.capacity_milli().saturating_add(held))
    }

    fn capacity_milli(&self) -> u64 {
        let last = self.last.as_ref();
        last.map_or(0, |last| last.cleared.capacity_milli)
    }

    /// Present and wanted limit of every pod in the last clearing. A pod held since then keeps its
    /// limit.
    fn moves(&self) -> Vec<Move> {
        let is_held = |pod: &Member| pod.held(self.settings.quantum_milli).is_some();
        self.pods
            .iter()
            .filter_map(|(id, pod)| {
                let given = pod.given?;
                let effective_milli = pod.limit_milli();
                let is_held = is_held(pod);
                Some(Move {
                    id: id.to_string(),
                    effective_milli,
                    wanted_milli: if is_held {
                        effective_milli
                    } else {
                        // The kernel has no limit of 0.
                        given.wanted_milli.max(1)
                    },
                    is_unlimited: pod.present.quota_us.is_none() && !is_held,
                })
            })
            .collect()
    }
}

impl Member {
    /// Its limit; without a quota its ceiling.
    fn limit_milli(&self) -> u64 {
        self.present.milli_ceil().unwrap_or(self.params.max_milli)
    }

    fn floor_milli(&self) -> u64 {
        self.params.min_milli.min(self.params.max_milli)
    }

    fn held(&self, quantum_milli: u64) -> Option<Held> {
        if let Some(left_alone) = self.left_alone {
            return Some(left_alone.why);
        }
        if self.is_unreadable {
            return Some(Held::Unreadable);
        }
        let Params {
            min_milli,
            max_milli,
            ..
        } = self.params;
        clear::is_too_narrow(min_milli, max_milli, quantum_milli).then_some(Held::TooNarrow)
    }

    fn end_of_hold(&mut self, now_us: u64) {
        if self
            .left_alone
            .is_some_and(|left_alone| left_alone.until_us <= now_us)
        {
            self.left_alone = None;
            self.agreed_milli = self.limit_milli();
        }
    }

    /// Adapts its headroom to the throttling since the last clearing (M2).
    fn adapt(&mut self) {
        let limit_milli = self.limit_milli();
        let has_its_need = self.given.is_some_and(|given| {
            // A difference too small for a write counts as given.
            let is_lacking = act::is_worth_it(limit_milli, given.wanted_milli);
            let has_milli = if is_lacking {
                limit_milli
            } else {
                limit_milli.max(given.wanted_milli)
            };
            given
                .need_milli
                .is_some_and(|need_milli| need_milli <= has_milli)
        });
        self.throttled_permille = self.estimator.throttled_permille();
        self.headroom_permille = need::next_headroom(
            self.headroom_permille,
            self.throttled_permille,
            has_its_need,
        );
        self.estimator.cleared();
    }

    fn claim(&self, id: &Arc<str>, settings: &Settings, now_us: u64, is_guarded: bool) -> Pod {
        let (min_milli, max_milli) = (self.floor_milli(), self.params.max_milli);
        let want = match self.estimator.shown(&settings.window) {
            Shown::Nothing => Want::Need(self.limit_milli()),
            Shown::Demand { milli } => Want::Demand(need::demand_ppm(min_milli, max_milli, milli)),
            Shown::Use { milli } => Want::Need(need::need_by_use(min_milli, max_milli, milli)),
        };
        let is_recent = |changed_us: u64| now_us.saturating_sub(changed_us) < settings.cooldown_us;
        Pod {
            id: Arc::clone(id),
            min_milli,
            max_milli,
            weight: self.params.weight,
            want,
            headroom_permille: self.headroom_permille,
            current_milli: is_guarded.then(|| self.limit_milli()),
            cooling: self.cooling_us.is_some_and(is_recent),
        }
    }
}

impl Unmanaged {
    fn took_us(&self, at_us: u64) -> u64 {
        let last_us = self.at_us_last.unwrap_or(at_us);
        at_us.saturating_sub(last_us)
    }

    fn take(&mut self, at_us: u64, usage_us: Option<u64>, most_us: u64, window: &Window) {
        self.at_us_last = Some(at_us);
        let perhaps_us = std::mem::take(&mut self.perhaps_us);
        let Some(usage_us) = usage_us else {
            return self.estimator.miss();
        };
        let last = self.machine_us_last.replace(usage_us);
        // Starts over at the first reading, and after the counter went back or jumped.
        let passed = last.and_then(|last| usage_us.checked_sub(last));
        let passed = passed.filter(|passed| *passed <= most_us);
        let ours_us = self.pods_us.saturating_add(perhaps_us);
        let others_us = passed.map_or(0, |passed| passed.saturating_sub(ours_us));
        self.pods_us = passed.map_or(0, |passed| self.pods_us.saturating_sub(passed));
        self.counter_us = self.counter_us.saturating_add(others_us);
        let sample = Sample {
            at_us,
            usage_us: self.counter_us,
            throttled_us: None,
            periods: None,
            throttled_periods: None,
        };
        self.estimator.take(sample, window);
    }

    /// The maximum in the window; 0 before anything was measured.
    fn milli(&self, window: &Window) -> u64 {
        match self.estimator.shown(window) {
            Shown::Nothing => 0,
            Shown::Demand { milli } | Shown::Use { milli } => milli,
        }
    }
}

/// Upper bound of counted time; a counter that advances more has jumped.
fn most_us(processors_milli: u64, took_us: u64) -> u64 {
    let counted_us = took_us.saturating_mul(LATE_TIMES).saturating_add(LATE_US);
    need::floor(counted_us, processors_milli, 1_000)
}
