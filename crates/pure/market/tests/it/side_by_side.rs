//! The node beside the naive loop (`naive`), on a hundred thousand random worlds.
//!
//! Method: one simulated kernel gives both the same counters, some of which are missing, go back or are
//! absent. After every second, rung, price, shares, reasons, writes and limits are compared, and the
//! invariants of the seed are checked on the values of the naive loop (INV-1 to INV-4) and on a second
//! node that got the pods in another order (INV-5).

use bursar_market::cgroup::Quota;
use bursar_market::clear::{Policy, Share};
use bursar_market::node::{Node, Settings, Supply};
use bursar_market::params::Params;
use bursar_market::sense::Sample;

use crate::naive::{self, Counted, Loop, Second, plant};
use crate::random::Random;

const WORLDS: u64 = 100_000;
const SECOND_US: u64 = 1_000_000;

struct World {
    settings: Settings,
    pods: Vec<(String, Params, Option<u64>)>,
    seconds: u64,
    supply: (u64, u64),
}

fn world(random: &mut Random) -> World {
    let quantum_milli = random.pick(&[1, 1, 10]);
    let size = random.pick(&[30, 200, 1_000]);
    let pods = (0..=random.below(6)).map(|number| {
        let min_milli = random.below(size);
        let range = random.pick(&[0, 1, size / 4, size, 6 * size]);
        let mut max_milli = (min_milli + range).max(1);
        if max_milli / quantum_milli < min_milli.div_ceil(quantum_milli) {
            // Too narrow: it would not be managed.
            max_milli = max_milli.next_multiple_of(quantum_milli);
        }
        let weight = random.pick(&[0, 1, 3, 100]);
        let limit = random.once_in(5).then(|| 1 + random.below(2 * size));
        let params = Params {
            min_milli,
            max_milli,
            weight,
        };
        (format!("p{number}"), params, limit)
    });
    let pods: Vec<(String, Params, Option<u64>)> = pods.collect();
    let sum = |of: fn(&Params) -> u64| pods.iter().map(|pod| of(&pod.1)).sum::<u64>();
    let (floors, ceilings) = (
        sum(|params| params.min_milli),
        sum(|params| params.max_milli),
    );
    let node = match random.below(8) {
        0 => random.below(floors + 1),
        1 => floors + random.below(20),
        _ => floors + random.below(ceilings - floors + 100),
    };
    World {
        settings: Settings {
            policy: random.pick(&[
                Policy::Proportional,
                Policy::Proportional,
                Policy::WeightedNash,
            ]),
            quantum_milli,
            windows: random.pick(&[1, 2, 4, 10]),
            size_block: random.pick(&[1, 2, 5, 300]),
            writes_per_hour: random.pick(&[0, 1, 60, 600, 600, 1_000_000]),
            cooldown_us: random.pick(&[0, 0, SECOND_US, 4 * SECOND_US]),
            max_step: random.pick(&[None, None, Some(1), Some(2), Some(4)]),
            ..Settings::default()
        },
        seconds: match random.below(400) {
            0 => 130,
            1..20 => 40,
            _ => 5 + random.below(10),
        },
        supply: (node, random.pick(&[0, 0, 0, node / 3])),
        pods,
    }
}

/// A pod of the simulated kernel.
struct Cgroup {
    sample: Sample,
    /// The sample before, if it was read.
    read: Option<Sample>,
    want: u64,
    has_throttling: bool,
}

/// The node under test: it gets counters and gives writes.
struct Tested {
    node: Node,
    ids: Vec<String>,
}

impl Tested {
    fn new(world: &World, order: &[usize]) -> Self {
        let mut node = Node::new(world.settings);
        for place in order {
            let (id, params, limit) = &world.pods[*place];
            let quota = limit.map_or(Quota::NONE, |milli| Quota::of_milli(milli, 100_000));
            node.adopt(id, *params, quota, quota);
        }
        let ids = world.pods.iter().map(|pod| pod.0.clone()).collect();
        Self { node, ids }
    }

    /// Clears, writes, and returns the writes.
    fn clear(
        &mut self,
        second: u64,
        (allocatable_milli, unmanaged): (u64, u64),
    ) -> Vec<(usize, u64)> {
        let now_us = second * SECOND_US;
        let supply = Supply {
            allocatable_milli,
            unmanaged_milli: Some(unmanaged),
        };
        self.node.clear(now_us, supply);
        let mut writes = Vec::new();
        for plan in [Node::decreases, Node::increases] {
            for write in plan(&self.node) {
                let quota = self.node.begin(&write).unwrap();
                self.node.wrote(&write.id, quota, now_us);
                let place = self.ids.iter().position(|id| **id == write.id).unwrap();
                writes.push((place, write.milli));
            }
        }
        writes
    }
}

fn naive(world: &World) -> Loop {
    let Settings {
        windows,
        size_block,
        writes_per_hour,
        quantum_milli,
        cooldown_us,
        max_step,
        policy,
        ..
    } = world.settings;
    let settings = naive::Settings {
        memory: windows,
        block: usize::try_from(size_block).unwrap(),
        writes_per_hour,
        quantum: quantum_milli,
        cooldown: Some(cooldown_us / SECOND_US),
        max_step,
        by_weight: policy == Policy::WeightedNash,
    };
    let pod = |(_, params, limit): &(String, Params, Option<u64>)| {
        let bounds = (params.min_milli, params.max_milli);
        naive::Pod::new(&settings, bounds, params.weight, *limit)
    };
    Loop::new(settings, world.pods.iter().map(pod).collect())
}

#[test]
fn the_node_does_what_the_naive_loop_does() {
    let mut random = Random(120);
    let mut counts = [0_u64; 6];
    for number in 0..WORLDS {
        let world = world(&mut random);
        let seed = random.next();
        play(&world, &mut Random(seed), &mut counts, number);
    }
    // Each branch of the rule was taken often: rung W, a lower rung, shares, overload, held, writes.
    assert!(counts.iter().all(|count| 20_000 < *count), "{counts:?}");
}

fn play(world: &World, random: &mut Random, counts: &mut [u64; 6], number: u64) {
    let mut order: Vec<usize> = (0..world.pods.len()).collect();
    let mut tested = Tested::new(world, &order);
    random.shuffle(&mut order);
    let mut turned = Tested::new(world, &order);
    let mut market = naive(world);
    let has_throttling = !random.once_in(6);
    let mut cgroups: Vec<Cgroup> = world
        .pods
        .iter()
        .map(|_| Cgroup {
            sample: Sample {
                throttled_us: has_throttling.then_some(0),
                periods: has_throttling.then_some(0),
                throttled_periods: has_throttling.then_some(0),
                ..Sample::default()
            },
            read: None,
            want: 0,
            has_throttling,
        })
        .collect();
    let mut supply = world.supply;
    for second in 0..=world.seconds {
        let counted = count(world, second, &market, &mut cgroups, random);
        for (place, cgroup) in cgroups.iter().enumerate() {
            for tested in [&mut tested, &mut turned] {
                tested.node.observe(&world.pods[place].0, cgroup.read);
            }
        }
        if second == 0 {
            continue;
        }
        if random.once_in(12) {
            supply.0 = supply.0 * random.pick(&[50, 90, 110, 200]) / 100;
        }
        let before = market.pods.iter().map(naive::Pod::effective).sum::<u64>();
        let expected = market.clear(supply, &counted);
        let writes = tested.clear(second, supply);
        assert_eq!(
            writes,
            turned.clear(second, supply),
            "INV-5, world {number}"
        );
        let say = || {
            let last = tested.node.last();
            format!("world {number}, second {second}: {last:?} {expected:?}")
        };
        compare(
            world.settings.quantum_milli,
            &tested,
            &expected,
            &writes,
            &say,
        );
        check(&market, &expected, before, &say);
        let top = Some(world.settings.windows);
        counts[0] += u64::from(expected.rung == top);
        counts[1] += u64::from(expected.rung.is_some() && expected.rung != top);
        counts[2] += u64::from(expected.rung.is_none() && !expected.is_overloaded);
        counts[3] += u64::from(expected.is_overloaded);
        counts[4] += u64::from(expected.active.len() < world.pods.len());
        counts[5] += u64::from(!writes.is_empty());
    }
}

/// A second of the simulated kernel.
fn count(
    world: &World,
    second: u64,
    market: &Loop,
    cgroups: &mut [Cgroup],
    random: &mut Random,
) -> Vec<Option<Counted>> {
    let mut all = Vec::new();
    for ((cgroup, pod), (_, params, _)) in cgroups.iter_mut().zip(&market.pods).zip(&world.pods) {
        let before = cgroup.read.take();
        if second > 0 {
            if random.once_in(3) {
                cgroup.want = random.pick(&[
                    0,
                    1,
                    params.min_milli,
                    params.max_milli / 2,
                    params.max_milli,
                    2 * params.max_milli,
                ]);
            }
            let mut counted = plant(pod, cgroup.want);
            // Sometimes only a part of the periods is throttled.
            if let Some([us, periods, throttled]) = &mut counted.throttled
                && random.once_in(4)
            {
                *us = *us * random.below(11) / 10;
                *throttled = (*throttled).min(random.below(*periods + 1));
            }
            let add = |counter: &mut Option<u64>, more| *counter = counter.map(|had| had + more);
            let sample = &mut cgroup.sample;
            let [us, periods, throttled] = counted.throttled.unwrap();
            sample.at_us = second * SECOND_US;
            sample.usage_us += counted.usage_us;
            add(&mut sample.throttled_us, us);
            add(&mut sample.periods, periods);
            add(&mut sample.throttled_periods, throttled);
            if random.once_in(150) {
                sample.usage_us = 0;
            }
        }
        cgroup.read = (!random.once_in(60)).then_some(cgroup.sample);
        all.push(
            before
                .zip(cgroup.read)
                .and_then(|(before, after)| difference(before, after, cgroup.has_throttling)),
        );
    }
    all
}

/// The counters of a second; none where one went back.
fn difference(before: Sample, after: Sample, has_throttling: bool) -> Option<Counted> {
    let passed = |of: fn(&Sample) -> Option<u64>| Some(of(&after)? - of(&before)?);
    let throttled = || {
        Some([
            passed(|sample| sample.throttled_us)?,
            passed(|sample| sample.periods)?,
            passed(|sample| sample.throttled_periods)?,
        ])
    };
    Some(Counted {
        usage_us: after.usage_us.checked_sub(before.usage_us)?,
        throttled: if has_throttling { throttled() } else { None },
    })
}

fn compare(
    quantum_milli: u64,
    tested: &Tested,
    expected: &Second,
    writes: &[(usize, u64)],
    say: &impl Fn() -> String,
) {
    let last = tested.node.last().unwrap();
    assert_eq!(last.cleared.step.rung(), expected.rung, "rung, {}", say());
    assert_eq!(
        u128::from(last.cleared.price_ppm),
        expected.price_ppm,
        "price, {}",
        say()
    );
    let of = |of: fn(&Share) -> u64| last.cleared.shares.iter().map(of).collect::<Vec<u64>>();
    assert_eq!(
        of(|share| share.allocated_milli),
        expected.targets,
        "shares, {}",
        say()
    );
    assert_eq!(
        of(|share| share.need_milli),
        expected.needs,
        "needs, {}",
        say()
    );
    // The node lowers limits before it raises any.
    let (falls, raises): (Vec<_>, Vec<_>) =
        expected.writes.iter().partition(|(_, from, to)| to <= from);
    let ordered = falls
        .into_iter()
        .chain(raises)
        .map(|(place, _, to)| (place, to));
    assert_eq!(writes, ordered.collect::<Vec<_>>(), "writes, {}", say());
    let standings: Vec<_> = tested.node.standings().collect();
    let limits: Vec<u64> = standings.iter().map(|pod| pod.bidder.limit_milli).collect();
    assert_eq!(limits, expected.limits, "limits, {}", say());
    for ((share, place), bound_by) in last
        .cleared
        .shares
        .iter()
        .zip(&expected.active)
        .zip(&expected.bound_by)
    {
        let seen = standings[*place].left_out.unwrap_or(share.bound_by);
        assert_eq!(seen.word(), *bound_by, "reason of {}, {}", share.id, say());
    }
    if expected.rung.is_some() || expected.is_overloaded {
        return;
    }
    // INV-4: (x − m)/b is equal among the uncapped, to less than a quantum, and no larger for others.
    let shares = &last.cleared.shares;
    let above = |share: &Share| u128::from(share.allocated_milli - share.min_milli);
    let quantum = u128::from(quantum_milli);
    for uncapped in shares
        .iter()
        .filter(|one| one.allocated_milli < one.need_milli)
    {
        for other in shares {
            let (b, b_other) = (u128::from(uncapped.bid), u128::from(other.bid));
            let most = (above(uncapped) + quantum) * b_other + quantum * b;
            assert!(above(other) * b <= most, "INV-4, {}", say());
        }
    }
}

fn check(market: &Loop, second: &Second, before: u64, say: &impl Fn() -> String) {
    let pods: Vec<&naive::Pod> = second
        .active
        .iter()
        .map(|place| &market.pods[*place])
        .collect();
    let capacity = second.capacity;
    assert!(
        second.targets.iter().sum::<u64>() <= capacity,
        "INV-2, {}",
        say()
    );
    let after = second.limits.iter().sum::<u64>();
    let held = after - pods.iter().map(|pod| pod.effective()).sum::<u64>();
    // One more for each pod whose share is 0: the kernel has no such limit.
    let zeros = second.targets.iter().filter(|target| **target == 0).count();
    let most = before.max(capacity + held + u64::try_from(zeros).unwrap());
    assert!(
        after <= most,
        "INV-2 of limits, {before} {after}, {}",
        say()
    );
    for ((pod, x), need) in pods.iter().zip(&second.targets).zip(&second.needs) {
        let range = if second.is_overloaded {
            0..=pod.min
        } else {
            pod.min..=pod.max
        };
        assert!(range.contains(x), "INV-1, {}", say());
        assert!(second.rung.is_none() || x == need, "INV-3, {}", say());
        assert!(second.is_overloaded || x <= need, "INV-4, {}", say());
    }
}
