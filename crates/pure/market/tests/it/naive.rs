//! A second implementation of the whole loop (M1, M2, M4, M5, M6, M8), written from the rules alone:
//! slow, obvious, and without code of the crate. The golden trajectories are its own tests.

/// Price where not one millicore above the minimums is left.
const PRICE_MAX_PPM: u128 = 1_000_000_000_000;
const PPM: u128 = 1_000_000;
/// Cost of a write, in parts of the pool.
const WRITE: u64 = 3_600;

/// Settings of the loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// W: the number of samples in a pod's memory.
    pub(crate) memory: usize,
    /// Number of samples in a block of the size.
    pub(crate) block: usize,
    /// B: writes per pod and hour.
    pub(crate) writes_per_hour: u64,
    pub(crate) quantum: u64,
    /// Seconds without a second change of a pod.
    pub(crate) cooldown: Option<u64>,
    /// Factor of a raise.
    pub(crate) max_step: Option<u64>,
    /// Whether scarce CPU is shared by weight and not by size.
    pub(crate) by_weight: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory: 10,
            block: 300,
            writes_per_hour: 600,
            quantum: 1,
            cooldown: None,
            max_step: None,
            by_weight: false,
        }
    }
}

/// Counters of one second: differences to the second before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Counted {
    pub(crate) usage_us: u64,
    /// Throttled time, periods and throttled periods, if the kernel counts them.
    pub(crate) throttled: Option<[u64; 3]>,
}

/// The estimate of a pod after a sample (M1).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) u: u64,
    pub(crate) ask: u64,
    pub(crate) size: u64,
    pub(crate) firm: u64,
    pub(crate) is_stepped: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// Minimum and maximum as written.
    bounds: (u64, u64),
    /// The same in whole quanta.
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) weight: u64,
    /// The quota, if it has one.
    pub(crate) limit: Option<u64>,
    /// Whether it took part in a clearing.
    is_known: bool,
    /// All samples of u.
    used: Vec<u64>,
    /// The same, behind what was not known at first.
    memory: Vec<u64>,
    pub(crate) headroom: u64,
    /// Periods and throttled periods of the running minute.
    minute: [u64; 2],
    is_minute_whole: bool,
    unmet: u64,
    changed_at: Option<u64>,
    pub(crate) estimate: Option<Estimate>,
}

/// Result of one second; pods in the order of their ids, without held ones up to `bound_by`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Second {
    /// The places of the pods that are not held.
    pub(crate) active: Vec<usize>,
    /// w, or none for shares and overload.
    pub(crate) rung: Option<usize>,
    pub(crate) is_overloaded: bool,
    /// C, in whole quanta.
    pub(crate) capacity: u64,
    pub(crate) price_ppm: u128,
    /// The whole need: x(w), or v(0) where asks exceed the node.
    pub(crate) needs: Vec<u64>,
    /// The result of the clearing.
    pub(crate) targets: Vec<u64>,
    pub(crate) bound_by: Vec<&'static str>,
    /// Pod, old and new limit, in order.
    pub(crate) writes: Vec<(usize, u64, u64)>,
    /// Limits after the act.
    pub(crate) limits: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) settings: Settings,
    pub(crate) pods: Vec<Pod>,
    /// In parts of 1/3600 writes.
    pool: Option<u64>,
    second: u64,
    is_minute_whole: bool,
}

/// C (M8).
pub(crate) fn capacity(allocatable: u64, unmanaged: u64, minimums: u64) -> u64 {
    let surplus = allocatable.saturating_sub(unmanaged);
    surplus.max(minimums.min(allocatable))
}

fn floor_to(milli: u64, quantum: u64) -> u64 {
    milli / quantum * quantum
}

fn ceil_to(milli: u64, quantum: u64) -> u64 {
    milli.div_ceil(quantum) * quantum
}

impl Pod {
    /// A pod with its bounds as written and the quota that it has.
    pub(crate) fn new(
        settings: &Settings,
        bounds: (u64, u64),
        weight: u64,
        limit: Option<u64>,
    ) -> Self {
        let bounds = (bounds.0.min(bounds.1), bounds.1);
        let (min, max) = (
            ceil_to(bounds.0, settings.quantum),
            floor_to(bounds.1, settings.quantum),
        );
        assert!(min <= max, "the range is too narrow");
        Self {
            bounds,
            min,
            max,
            weight,
            limit,
            is_known: false,
            used: Vec::new(),
            memory: vec![limit.unwrap_or(bounds.1); settings.memory],
            headroom: 100,
            minute: [0; 2],
            is_minute_whole: true,
            unmet: 0,
            changed_at: None,
            estimate: None,
        }
    }

    pub(crate) fn effective(&self) -> u64 {
        self.limit.unwrap_or(self.bounds.1)
    }

    /// Ask, size, firm use (M1).
    fn observe(&mut self, settings: &Settings, counted: Option<Counted>) {
        self.estimate = None;
        let Some(counted) = counted else {
            return;
        };
        let u = counted.usage_us / 1_000;
        self.used.push(u);
        self.memory.push(u);
        let size = self.size(settings);
        let (ask, is_stepped) = match counted.throttled {
            None if 10 * u >= 9 * self.effective() => (u * 13 / 10, false),
            None => (u, false),
            Some([us, ..]) => {
                let s = us / 1_000;
                let twice = 2 * u.max(self.bounds.0);
                let most = (u + s).min(size.max(twice));
                (most.max(u), size <= twice && twice < u + s)
            }
        };
        let last = &self.used[self.used.len().saturating_sub(5)..];
        let mean = last.iter().sum::<u64>() / u64::try_from(last.len()).unwrap();
        self.unmet = if ask > self.effective() {
            self.unmet + ask - u
        } else {
            0
        };
        if let Some([_, periods, throttled]) = counted.throttled {
            self.minute[0] += periods;
            self.minute[1] += throttled;
        } else {
            self.is_minute_whole = false;
        }
        self.estimate = Some(Estimate {
            u,
            ask,
            size,
            firm: ask.max(mean.min(2 * u)),
            is_stepped,
        });
    }

    /// N(D) (M1).
    pub(crate) fn need(&self, demand: u64) -> u64 {
        let (m, max) = (u128::from(self.bounds.0), u128::from(self.bounds.1));
        let above = u128::from(demand).saturating_sub(m);
        let d = if m == max {
            0
        } else {
            (above * PPM).div_ceil(max - m).min(PPM)
        };
        let raw = m + (max - m) * d / PPM;
        let more = raw * (PPM * u128::from(self.headroom) + 150 * d) / 1_000_000_000;
        u64::try_from(max.min(raw + more)).unwrap()
    }

    /// v(0), v(1) … v(W).
    fn wholes(&self, settings: &Settings) -> Vec<u64> {
        let Some(estimate) = &self.estimate else {
            return vec![self.effective(); settings.memory + 1];
        };
        let whole = |w: usize| {
            let v = if w == 0 {
                estimate.firm.clamp(self.min, self.max)
            } else {
                let last = &self.memory[self.memory.len() - w..];
                self.need(estimate.firm.max(*last.iter().max().unwrap()))
            };
            ceil_to(v, settings.quantum).clamp(self.min, self.max)
        };
        (0..=settings.memory).map(whole).collect()
    }

    /// x(0), x(1) … x(W).
    fn rungs(&self, settings: &Settings) -> Vec<u64> {
        let wholes = self.wholes(settings);
        let Some(estimate) = &self.estimate else {
            return wholes;
        };
        let kept = ceil_to(self.effective().max(self.bounds.0), settings.quantum);
        let asks = estimate.ask > self.effective();
        let x = |v: u64| if asks { v } else { v.min(kept) };
        wholes.into_iter().map(x).collect()
    }

    /// S: the largest u in the present and the previous block, 0 before the first sample.
    fn size(&self, settings: &Settings) -> u64 {
        let present = self.used.len().saturating_sub(1) / settings.block;
        let blocks = self.used.chunks(settings.block);
        let both = blocks.skip(present.saturating_sub(1)).flatten();
        both.copied().max().unwrap_or(0)
    }
}

impl Loop {
    pub(crate) fn new(settings: Settings, pods: Vec<Pod>) -> Self {
        Self {
            settings,
            pods,
            pool: None,
            second: 0,
            is_minute_whole: true,
        }
    }

    /// One second: estimate, clear, act (M5). `counted` is in the order of the pods. A held pod keeps
    /// its limit, which takes surplus like unmanaged use, once it took part.
    pub(crate) fn clear(&mut self, supply: (u64, u64), counted: &[Option<Counted>]) -> Second {
        let settings = self.settings;
        self.second += 1;
        for (pod, counted) in self.pods.iter_mut().zip(counted) {
            pod.observe(&settings, *counted);
        }
        let places = 0..self.pods.len();
        let (active, held): (Vec<usize>, Vec<usize>) =
            places.partition(|place| self.pods[*place].estimate.is_some());
        let held = held.into_iter().map(|place| &self.pods[place]);
        let held: u64 = held.filter(|pod| pod.is_known).map(Pod::effective).sum();
        let minimums = active.iter().map(|place| self.pods[*place].min).sum();
        let capacity = capacity(supply.0, supply.1 + held, minimums);
        let capacity = floor_to(capacity, settings.quantum);
        let mut second = self.divide(active, capacity);
        self.act(capacity, &mut second);
        for place in &second.active {
            self.pods[*place].is_known = true;
        }
        self.judge(&second);
        second.limits = self.pods.iter().map(Pod::effective).collect();
        second
    }

    /// Overload, the highest rung that fits, or shares.
    fn divide(&self, active: Vec<usize>, capacity: u64) -> Second {
        let pods: Vec<&Pod> = active.iter().map(|place| &self.pods[*place]).collect();
        let top = self.settings.memory;
        let mins: Vec<u64> = pods.iter().map(|pod| pod.min).collect();
        let wholes: Vec<Vec<u64>> = pods.iter().map(|pod| pod.wholes(&self.settings)).collect();
        let rungs: Vec<Vec<u64>> = pods.iter().map(|pod| pod.rungs(&self.settings)).collect();
        let of = |w: usize| rungs.iter().map(|x| x[w]).collect::<Vec<u64>>();
        let asked: Vec<u64> = wholes.iter().map(|v| v[0]).collect();
        let floors: u64 = mins.iter().sum();
        let is_overloaded = floors > capacity;
        let fits = |w: &usize| of(*w).iter().sum::<u64>() <= capacity;
        let rung = (0..=top).rev().find(fits).filter(|_| !is_overloaded);
        let (targets, needs, price_ppm) = if is_overloaded {
            (
                overload(&mins, capacity, self.settings.quantum),
                asked.clone(),
                PRICE_MAX_PPM,
            )
        } else if let Some(w) = rung {
            let forgotten = u128::try_from(top - w).unwrap();
            let of_all = u128::try_from(top).unwrap();
            (of(w), of(w), PPM * forgotten / of_all)
        } else {
            let bid = |pod: &&Pod| {
                let size = pod.size(&self.settings).max(pod.min);
                if self.settings.by_weight {
                    pod.weight.max(1)
                } else {
                    size
                }
            };
            let bids: Vec<u64> = pods.iter().map(bid).collect();
            let targets = shares(&mins, &asked, &bids, capacity, self.settings.quantum);
            let claims = u128::from(asked.iter().sum::<u64>().saturating_sub(floors));
            let price = (PPM * claims).checked_div(u128::from(capacity - floors));
            let price = price.map_or(PRICE_MAX_PPM, |ppm| ppm.clamp(PPM, PRICE_MAX_PPM));
            (targets, asked.clone(), price)
        };
        let survival = |min: u64| min.min(ceil_to(10, self.settings.quantum));
        let reason = |place: usize| {
            let (pod, x) = (pods[place], targets[place]);
            let is_stepped = pod
                .estimate
                .as_ref()
                .is_some_and(|estimate| estimate.is_stepped);
            match rung {
                None if is_overloaded && x == pod.min => "min",
                None if is_overloaded && x <= survival(pod.min) => "survival",
                None if is_overloaded => "share",
                None if x < asked[place] => "share",
                _ if x == pod.max => "max",
                _ if x == pod.min => "min",
                _ if x < rungs[place][top] => "memory",
                _ if is_stepped => "step",
                _ => "need",
            }
        };
        Second {
            rung,
            is_overloaded,
            capacity,
            price_ppm,
            needs,
            bound_by: (0..pods.len()).map(reason).collect(),
            targets,
            active,
            writes: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// Whether a change is too small to be written.
    fn is_small(&self, place: usize, to: u64) -> bool {
        let from = self.pods[place].effective();
        let change = from.abs_diff(to);
        change == 0 || change < from.min(10) || 20 * change < from
    }

    fn is_cooling(&self, place: usize) -> bool {
        let changed = self.pods[place].changed_at.zip(self.settings.cooldown);
        changed.is_some_and(|(at, cooldown)| self.second < at + cooldown)
    }

    /// Few writes, in an order that never exceeds the node (M5).
    fn act(&mut self, capacity: u64, second: &mut Second) {
        let settings = self.settings;
        let count = u64::try_from(second.active.len()).unwrap();
        if count == 0 {
            return;
        }
        let budget = settings.writes_per_hour;
        let most = (60 * count * budget).max(8 * WRITE);
        let refilled = self.pool.map_or(most, |pool| pool + count * budget);
        let mut pool = refilled.min(most);
        // The kernel has no limit of 0.
        let targets: Vec<u64> = second.targets.iter().map(|x| (*x).max(1)).collect();
        let active = second.active.clone();
        let mut act = Act {
            market: self,
            active: &active,
            targets: &targets,
            second,
        };
        let is_over = act.sum() > capacity;
        for at in act.falling() {
            let pod = &act.market.pods[active[at]];
            let joins = pod.limit.is_none() || !pod.is_known && !act.is_small(at, targets[at]);
            if is_over || joins {
                act.write(at, targets[at]);
            }
        }
        for at in act.rising() {
            let from = act.limit(at);
            if act.is_small(at, targets[at]) {
                continue;
            }
            if act.is_cooling(at) {
                act.leave_out(at, "cooldown");
                continue;
            }
            let mut wanted = targets[at];
            if let Some(factor) = settings.max_step
                && from.max(1) * factor < wanted
            {
                wanted = floor_to(from.max(1) * factor, settings.quantum).max(from);
                act.leave_out(at, "max-step");
            }
            if act.is_small(at, wanted) {
                continue;
            }
            let joins = !act.market.pods[active[at]].is_known;
            if !joins && (budget == 0 || pool < WRITE) {
                act.leave_out(at, "budget");
                continue;
            }
            for giver in act.falling() {
                if act.sum() + wanted - from <= capacity || budget == 0 || pool < 2 * WRITE {
                    break;
                }
                pool -= WRITE;
                act.write(giver, targets[giver]);
            }
            let most = from + capacity.saturating_sub(act.sum());
            let to = if wanted <= most {
                wanted
            } else {
                // Without a giver it lacks the 1m that a pod has whose share is 0.
                if !act.falling().is_empty() {
                    act.leave_out(at, "budget");
                }
                floor_to(most, settings.quantum)
            };
            if to > from && !act.is_small(at, to) {
                pool -= if joins { 0 } else { WRITE };
                act.write(at, to);
            }
        }
        for at in act.falling() {
            if act.is_small(at, targets[at]) {
                continue;
            }
            if act.is_cooling(at) {
                act.leave_out(at, "cooldown");
            } else if budget == 0 || 2 * pool < most {
                act.leave_out(at, "budget");
            } else {
                pool -= WRITE;
                act.write(at, targets[at]);
            }
        }
        self.pool = Some(pool);
    }

    /// Adaptive headroom (M2): judged if everybody had the whole need after every clearing.
    fn judge(&mut self, second: &Second) {
        let has_need = |(place, need): (&usize, &u64)| {
            self.pods[*place].effective() >= *need || self.is_small(*place, *need)
        };
        let is_satisfied = second.active.iter().zip(&second.needs).all(has_need);
        self.is_minute_whole &= second.rung == Some(self.settings.memory) && is_satisfied;
        for pod in &mut self.pods {
            pod.is_minute_whole &= pod.estimate.is_some();
        }
        if !self.second.is_multiple_of(60) {
            return;
        }
        let is_whole = std::mem::replace(&mut self.is_minute_whole, true);
        for pod in &mut self.pods {
            let [periods, throttled] = std::mem::take(&mut pod.minute);
            let q = (1_000 * throttled).checked_div(periods).unwrap_or(0);
            if std::mem::replace(&mut pod.is_minute_whole, true) && is_whole {
                pod.headroom = if q >= 300 {
                    (pod.headroom + 50).min(500)
                } else {
                    (pod.headroom - 10).max(100)
                };
            }
        }
    }
}

/// The writes of one second; pods by their place among those that are not held.
struct Act<'a> {
    market: &'a mut Loop,
    active: &'a [usize],
    targets: &'a [u64],
    second: &'a mut Second,
}

impl Act<'_> {
    fn limit(&self, at: usize) -> u64 {
        self.market.pods[self.active[at]].effective()
    }

    fn sum(&self) -> u64 {
        (0..self.active.len()).map(|at| self.limit(at)).sum()
    }

    fn is_small(&self, at: usize, to: u64) -> bool {
        self.market.is_small(self.active[at], to)
    }

    fn is_cooling(&self, at: usize) -> bool {
        self.market.is_cooling(self.active[at])
    }

    /// The first reason counts.
    fn leave_out(&mut self, at: usize, reason: &'static str) {
        let known = &mut self.second.bound_by[at];
        if !["budget", "cooldown", "max-step"].contains(known) {
            *known = reason;
        }
    }

    fn write(&mut self, at: usize, to: u64) {
        let place = self.active[at];
        let now = self.market.second;
        let pod = &mut self.market.pods[place];
        let from = pod.effective();
        pod.limit = Some(to);
        // A first limit equal to the maximum changes nothing.
        if from != to {
            pod.changed_at = Some(now);
        }
        self.second.writes.push((place, from, to));
    }

    /// The pods with a limit above their target or without one, the largest decrease first.
    fn falling(&self) -> Vec<usize> {
        let fall = |at: usize| self.limit(at).saturating_sub(self.targets[at]);
        let falls = |at: &usize| {
            let has_none = self.market.pods[self.active[*at]].limit.is_none();
            fall(*at) > 0 || has_none && self.limit(*at) == self.targets[*at]
        };
        let mut all: Vec<usize> = (0..self.active.len()).filter(falls).collect();
        all.sort_by_key(|at| std::cmp::Reverse(fall(*at)));
        all
    }

    /// The pods with a limit below their target, in the order of unmet work.
    fn rising(&self) -> Vec<usize> {
        let rises = |at: &usize| self.limit(*at) < self.targets[*at];
        let mut all: Vec<usize> = (0..self.active.len()).filter(rises).collect();
        all.sort_by_key(|at| std::cmp::Reverse(self.market.pods[self.active[*at]].unmet));
        all
    }
}

/// Whole quanta by the largest remainder, then in order. Pod i has `parts[i] / of` quanta exactly.
fn rounded(parts: &[u128], of: u128, quanta: u128) -> Vec<u128> {
    let mut whole: Vec<u128> = parts.iter().map(|part| part / of).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(parts[*place] % of));
    let left = quanta - whole.iter().sum::<u128>();
    for place in order.into_iter().take(usize::try_from(left).unwrap()) {
        whole[place] += 1;
    }
    whole
}

/// min + t·bid for one t, at most `high`: whoever exceeds it is capped, and the rest is shared again.
fn shares(min: &[u64], high: &[u64], bids: &[u64], capacity: u64, quantum: u64) -> Vec<u64> {
    let units = |all: &[u64]| {
        all.iter()
            .map(|one| u128::from(one / quantum))
            .collect::<Vec<_>>()
    };
    let (min, capacity) = (units(min), u128::from(capacity / quantum));
    let high: Vec<u128> = units(high)
        .iter()
        .zip(&min)
        .map(|(a, b)| *a.max(b))
        .collect();
    let bids: Vec<u128> = bids.iter().map(|bid| u128::from(*bid)).collect();
    let places = 0..min.len();
    let mut capped = vec![false; min.len()];
    let parts = loop {
        let fixed = |place: usize| {
            if capped[place] {
                high[place]
            } else {
                min[place]
            }
        };
        let left = capacity - places.clone().map(fixed).sum::<u128>();
        let of: u128 = places
            .clone()
            .filter(|place| !capped[*place])
            .map(|place| bids[place])
            .sum();
        if of == 0 {
            let whole = places.map(fixed);
            return whole
                .map(|one| u64::try_from(one).unwrap() * quantum)
                .collect();
        }
        let part = |place: usize| {
            let t = if capped[place] { 0 } else { bids[place] * left };
            fixed(place) * of + t
        };
        let over: Vec<usize> = places
            .clone()
            .filter(|place| part(*place) > high[*place] * of)
            .collect();
        if over.is_empty() {
            break (places.map(part).collect::<Vec<_>>(), of);
        }
        for place in over {
            capped[place] = true;
        }
    };
    let whole = rounded(&parts.0, parts.1, capacity);
    whole
        .into_iter()
        .map(|one| u64::try_from(one).unwrap() * quantum)
        .collect()
}

/// The minimums exceed the node (M4): all shrink by one factor, but not below a = min(10, m); if not
/// even those fit, all get the same, at most a.
fn overload(min: &[u64], capacity: u64, quantum: u64) -> Vec<u64> {
    let survival: Vec<u64> = min
        .iter()
        .map(|min| (*min).min(ceil_to(10, quantum)))
        .collect();
    if survival.iter().sum::<u64>() > capacity {
        let (zero, one) = (vec![0; min.len()], vec![1; min.len()]);
        return shares(&zero, &survival, &one, capacity, quantum);
    }
    let units = |milli: u64| u128::from(milli / quantum);
    let places = 0..min.len();
    let mut at_floor = vec![false; min.len()];
    loop {
        let floors: u128 = places
            .clone()
            .filter(|place| at_floor[*place])
            .map(|place| units(survival[place]))
            .sum();
        let left = units(capacity) - floors;
        let of: u128 = places
            .clone()
            .filter(|place| !at_floor[*place])
            .map(|place| units(min[place]))
            .sum();
        let part = |place: usize| {
            if at_floor[place] {
                units(survival[place]) * of
            } else {
                units(min[place]) * left
            }
        };
        let below =
            |place: &usize| !at_floor[*place] && part(*place) < units(survival[*place]) * of;
        let below: Vec<usize> = places.clone().filter(below).collect();
        if below.is_empty() {
            let parts: Vec<u128> = places.map(part).collect();
            let whole = rounded(&parts, of, units(capacity));
            return whole
                .into_iter()
                .map(|one| u64::try_from(one).unwrap() * quantum)
                .collect();
        }
        for place in below {
            at_floor[place] = true;
        }
    }
}

/// Counters of a second of ten equal periods: work above the limit is held back.
pub(crate) fn plant(pod: &Pod, want: u64) -> Counted {
    let Some(limit) = pod.limit else {
        return Counted {
            usage_us: want * 1_000,
            throttled: Some([0; 3]),
        };
    };
    let used = want.min(limit);
    let throttled = if used < want { 10 } else { 0 };
    Counted {
        usage_us: used * 1_000,
        throttled: Some([(want - used) * 1_000, 10, throttled]),
    }
}

/// Runs a load on a machine and returns (second, rung, limits) of every second with a write.
fn trajectory(
    capacity: u64,
    bounds: &[(u64, u64)],
    seconds: u64,
    want: impl Fn(usize, u64) -> u64,
) -> Vec<(u64, Option<usize>, Vec<u64>)> {
    let settings = Settings::default();
    let pod = |bounds: &(u64, u64)| Pod::new(&settings, *bounds, 1, None);
    let mut market = Loop::new(settings, bounds.iter().map(pod).collect());
    let mut changes = Vec::new();
    for second in 1..=seconds {
        let pods = market.pods.iter().enumerate();
        let counted: Vec<Option<Counted>> = pods
            .map(|(place, pod)| Some(plant(pod, want(place, second))))
            .collect();
        let seen = market.clear((capacity, 0), &counted);
        if !seen.writes.is_empty() {
            changes.push((second, seen.rung, seen.limits));
        }
    }
    changes
}

/// The changes of one pod.
fn alone(bounds: (u64, u64), seconds: u64, want: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
    let changes = trajectory(4_000, &[bounds], seconds, |_, second| want(second));
    changes
        .into_iter()
        .map(|(second, _, limits)| (second, limits[0]))
        .collect()
}

#[test]
fn a_step_to_a_new_size_takes_one_doubling_per_second() {
    let want = |second: u64| match second {
        0..15 => 0,
        15..23 => 640,
        _ => 120,
    };
    let expected = [
        (1, 1_000),
        (10, 110),
        (15, 246),
        (16, 573),
        (17, 761),
        (32, 132),
    ];
    assert_eq!(alone((100, 1_000), 600, want), expected);
}

#[test]
fn a_second_burst_of_a_known_size_takes_one_second() {
    let want = |second: u64| match second {
        15..=18 | 41..=43 => 600,
        _ => 0,
    };
    let expected = [
        (1, 1_000),
        (10, 55),
        (15, 122),
        (16, 275),
        (17, 648),
        (28, 55),
        (41, 712),
    ];
    assert_eq!(alone((50, 1_000), 52, want), expected);
}

#[test]
fn asks_above_the_node_are_shared_by_size() {
    let want = |place: usize, second: u64| match (place, second) {
        (0, _) => 200,
        (1, 0..5) => 100,
        (1, _) => 500,
        (_, 0..5) => 600,
        _ => 700,
    };
    let expected = [
        (1, Some(0), vec![200, 100, 600]),
        (5, None, vec![200, 150, 650]),
        (6, None, vec![200, 181, 619]),
        (7, None, vec![200, 202, 598]),
        (8, None, vec![200, 216, 584]),
    ];
    assert_eq!(trajectory(1_000, &[(50, 1_000); 3], 200, want), expected);
}

#[test]
fn a_constant_load_is_written_once() {
    let want = |place: usize, _| [800, 130][place];
    let expected = [(1, Some(1), vec![924, 143])];
    assert_eq!(trajectory(3_000, &[(100, 2_000); 2], 600, want), expected);
}

/// Estimate and need after a whole second throttled at want 600, with this use before.
fn throttled_at_600(before: u64) -> (Estimate, u64) {
    let settings = Settings::default();
    let mut pod = Pod::new(&settings, (50, 1_000), 1, Some(55));
    for u in [before, 0, 0, 0, 0, 0] {
        let usage_us = u * 1_000;
        pod.observe(
            &settings,
            Some(Counted {
                usage_us,
                throttled: Some([0, 10, 0]),
            }),
        );
    }
    pod.observe(&settings, Some(plant(&pod, 600)));
    let estimate = pod.estimate.clone().unwrap();
    let need = pod.need(estimate.firm);
    (estimate, need)
}

#[test]
fn the_worked_example_holds() {
    let (known, need) = throttled_at_600(600);
    assert_eq!((known.u, known.size, known.ask, need), (55, 600, 600, 712));
    assert!(!known.is_stepped);
    let (new, need) = throttled_at_600(0);
    assert_eq!((new.u, new.size, new.ask, need), (55, 55, 110, 122));
    assert!(new.is_stepped);
}

#[test]
fn needs_of_the_seed_hold() {
    let pod = Pod::new(&Settings::default(), (100, 1_000), 1, None);
    let needs = [0, 325, 550, 775, 1_000].map(|demand| pod.need(demand));
    assert_eq!(needs, [110, 369, 646, 939, 1_000]);
}

#[test]
fn the_survival_floor_holds_in_overload() {
    // θ = 1000/2050 alone would leave each small pod less than its 1m.
    let mins = [vec![1; 50], vec![2_000]].concat();
    let shares = overload(&mins, 1_000, 1);
    assert_eq!((shares[0], shares[49], shares[50]), (1, 1, 950));
    assert_eq!(overload(&[400, 200], 300, 1), [200, 100]);
    assert_eq!(overload(&[400, 12, 200], 300, 1), [193, 10, 97]);
    assert_eq!(overload(&[400, 5, 200], 20, 1), [8, 5, 7]);
}

#[test]
fn unmanaged_load_takes_surplus_and_never_floors() {
    assert_eq!(capacity(4_000, 1_000, 500), 3_000);
    assert_eq!(capacity(4_000, 3_800, 500), 500);
    assert_eq!(capacity(400, 300, 500), 400);
}
