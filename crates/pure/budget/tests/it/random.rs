//! Random worlds against the naive implementation.

use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::accounts::HORIZON_DEFAULT;
use bursar_budget::cover::{Borrowing, Group, Reason, Request, RowState};
use bursar_budget::spec::{OnExhaustion, Renew, Sharing};
use bursar_budget::{Budget, Class, Demoted, Envelope, EnvelopeId, Kind};
use bursar_units::{Instant, Label, Millis};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::world::*;

/// Each owner has at most two parents, which stand before it; so the edges make no cycle.
const OWNERS: [&str; 7] = ["org", "a", "b", "a1", "a2", "a11", "lab"];
const PARENTS: [&[&str]; 7] = [&[], &["org"], &["org"], &["a"], &["a", "b"], &["a1"], &[]];

#[derive(Clone, Debug)]
enum Op {
    Start {
        owner: usize,
        gpus: u64,
        hours: u64,
        pod: Option<u64>,
        ask: u64,
    },
    Close {
        run: usize,
        gpus: u64,
    },
    Set {
        owner: usize,
        shape: u64,
    },
    Drop {
        owner: usize,
    },
    Rotate {
        owner: usize,
    },
    Advance {
        ms: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..OWNERS.len(), 1..9_u64, 0..4_u64, prop::option::of(1..4_u64), any::<u64>())
            .prop_map(|(owner, gpus, hours, pod, ask)| Op::Start { owner, gpus, hours, pod, ask }),
        2 => (0..20_usize, 1..9_u64).prop_map(|(run, gpus)| Op::Close { run, gpus }),
        2 => (0..OWNERS.len(), any::<u64>()).prop_map(|(owner, shape)| Op::Set { owner, shape }),
        1 => (0..OWNERS.len()).prop_map(|owner| Op::Drop { owner }),
        1 => (0..OWNERS.len()).prop_map(|owner| Op::Rotate { owner }),
        4 => (1..3 * HOUR).prop_map(|ms| Op::Advance { ms }),
    ]
}

/// Numbers out of one number.
struct Dice(u64);

impl Dice {
    fn pick(&mut self, sides: u64) -> usize {
        usize::try_from(self.roll(sides)).unwrap()
    }

    fn roll(&mut self, sides: u64) -> u64 {
        let value = self.0 % sides;
        self.0 = (self.0 / sides)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        value
    }
}

/// An instant up to three hours before or after another.
fn near(dice: &mut Dice, now: Instant) -> Instant {
    now.before(Millis::from_hours(3))
        .after(Millis::from_ms(dice.roll(6 * HOUR)))
}

/// A window that begins or ends near an instant, or both, or neither.
fn window(dice: &mut Dice, now: Instant) -> (Option<Instant>, Option<Instant>, Option<Renew>) {
    let start = (dice.roll(4) == 0).then(|| near(dice, now));
    let from = start.unwrap_or(now).max(now);
    let end = (dice.roll(3) == 0).then(|| from.after(Millis::from_ms(1 + dice.roll(6 * HOUR))));
    let renew = [None, Some(Renew::Day)][dice.pick(2)].filter(|_| end.is_some());
    (start, end, renew)
}

/// The budget of an owner; `shape` chooses its numbers. `before` is the present one.
fn shaped(owner: usize, shape: u64, now: Instant, before: Option<&Budget>) -> Budget {
    let mut dice = Dice(shape);
    let mut list = Vec::new();
    for name in ["x", "y"].iter().take(1 + dice.pick(2)) {
        let mut e = envelope(name, 1 + dice.roll(12));
        e.flavor = label(["h100", "h100", "h100", "h100", "a100"][dice.pick(5)]);
        e.gpu_hours_max = [None, Some(dice.roll(30))][dice.pick(2)];
        e.selector = selector(["", "us/west", "us/east"][dice.pick(3)]);
        e.sharing = [Sharing::Family, Sharing::Family, Sharing::None][dice.pick(3)];
        e.on_exhaustion = [OnExhaustion::Demote, OnExhaustion::End][dice.pick(2)];
        (e.start, e.end, e.renew) = window(&mut dice, now);
        let old = before.and_then(|budget| budget.envelopes.iter().find(|old| old.name == e.name));
        if let Some(end) = old.and_then(|old| old.end)
            && dice.roll(4) == 0
        {
            // A window that does not overlap the old one.
            let start = end.after(Millis::from_hours(1));
            let end = start
                .max(now)
                .after(Millis::from_ms(1 + dice.roll(3 * HOUR)));
            (e.start, e.end, e.renew) = (Some(start), Some(end), None);
        }
        if dice.roll(2) == 0 {
            e.lending = lends(&[["a*", "*", "lab"][dice.pick(3)]], Some(1 + dice.roll(6)));
            if let Some(lending) = &mut e.lending {
                lending.gpu_hours_max = [None, Some(dice.roll(7))][dice.pick(2)];
            }
        }
        if dice.roll(2) == 0 {
            e.admission_horizon = Some(Millis::from_ms(60_000 * (1 + dice.roll(50))));
        }
        list.push(e);
    }
    let other = dice.pick(OWNERS.len() as u64);
    let owned_by = if dice.roll(10) == 0 { other } else { owner };
    let (mut name, mut parents) = (OWNERS[owned_by], PARENTS[owned_by].to_vec());
    if dice.roll(10) == 0 {
        // Other parents, still before it.
        parents = OWNERS[..owned_by]
            .iter()
            .take(dice.pick(3))
            .copied()
            .collect();
    }
    if owner == 0 {
        (name, parents) = ("org", Vec::new());
    }
    let mut budget = budget(OWNERS[owner], name, &parents, list);
    budget.paused = dice.roll(8) == 0;
    if owner <= 1 {
        let mut all = cap(
            "all",
            &["org/b/x", "a/b/x", "a1/b/x"],
            [None, Some(3 + dice.roll(15))][dice.pick(2)],
        );
        all.gpu_hours_max = [None, Some(dice.roll(40))][dice.pick(2)];
        if dice.roll(2) == 0 {
            (all.start, all.end, all.renew) = window(&mut dice, now);
        }
        budget.aggregate_caps = vec![all];
    }
    budget
}

fn asked(owner: usize, gpus: u64, hours: u64, ask: u64, now: Instant) -> Request {
    let mut dice = Dice(ask);
    let mut request = request(OWNERS[owner], gpus);
    request.flavor = label(["h100", "h100", "h100", "h100", "a100"][dice.pick(5)]);
    request.duration = (0 < hours).then(|| Millis::from_ms(hours * HOUR / 2));
    request.groups[0].place = place(["us/west", "us/east"][dice.pick(2)]);
    request.hard_end =
        (dice.roll(4) == 0).then(|| now.after(Millis::from_ms(1 + dice.roll(4 * HOUR))));
    request.borrowing = Borrowing {
        allow: dice.roll(4) != 0,
        gpus_max: (dice.roll(2) == 0).then(|| dice.roll(6)),
        sponsors: [vec![], vec![label("lab")], vec![label("b"), label("lab")]][dice.pick(3)]
            .clone(),
    };
    if dice.roll(3) == 0 {
        let place = place(["us/west", "us/east"][dice.pick(2)]);
        let gpus = 1 + dice.roll(4);
        request.groups.push(Group { place, gpus });
    }
    request
}

/// Everything that both implementations say about the present state.
fn compare(world: &World) {
    let (now, naive) = (world.now, &world.naive);
    for budget in world.accounts.budgets() {
        for view in world.accounts.meters(now, &budget.id()) {
            let meter = &view.meter;
            assert_eq!(view.gpus_used, naive.gpus(meter), "GPUs of {meter}");
            assert_eq!(
                u128::from(view.accrued_gpu_ms),
                naive.accrued(meter, now),
                "accrued of {meter}"
            );
            assert_eq!(
                u128::from(view.committed_gpu_ms),
                naive.committed(meter, now),
                "committed of {meter}"
            );
            assert_eq!(view.window, naive.window(meter), "window of {meter}");
            assert_eq!((view.gpus_limit, view.limit_gpu_ms), naive.limits(meter));
            let used = view.gpus_limit.is_none_or(|limit| view.gpus_used <= limit);
            let within = view
                .limit_gpu_ms
                .is_none_or(|limit| view.gpus_used == 0 || view.committed_gpu_ms <= limit);
            assert!(used && within, "{meter} is over its limit: {view:?}");
        }
    }
    for (number, owner) in OWNERS.iter().enumerate() {
        let request = asked(number, 7, number as u64 % 3, now.ms() + number as u64, now);
        let plan = world.accounts.plan(now, &request);
        let (rows, expected) = naive.trace(now, &request, HORIZON_DEFAULT);
        let plan = plan.map(|plan| plan.lines).map_err(|f| (f.reason, f.short));
        assert_eq!(plan, expected, "plan of {owner}");
        let mut wider = request.clone();
        wider.groups[0].gpus = [7, 19][number % 2];
        let could = world.accounts.could_ever_cover(now, &wider).is_ok();
        assert_eq!(could, naive.could_ever_cover(now, &wider), "{wider:?}");
        let trace = world.accounts.trace(now, &request);
        let outcome = trace.outcome.map(|plan| plan.lines);
        assert_eq!(outcome.map_err(|f| (f.reason, f.short)), expected);
        assert_eq!(trace.rows, rows, "rows of {owner}");
    }
    let funded: u64 = naive.claims.iter().map(|claim| claim.gpus).sum();
    let unfunded: u64 = naive.unfunded.iter().map(|claim| claim.1).sum();
    let counted: u64 = world
        .order
        .iter()
        .map(|work| world.accounts.gpus(work))
        .sum();
    assert_eq!(counted, funded + unfunded);
    let usage: u128 = world
        .accounts
        .usage(now)
        .map(|row| u128::from(row.gpu_ms))
        .sum();
    for (row, total) in by_key(world).into_iter().zip(
        world
            .accounts
            .usage_totals(now)
            .filter(|total| 0 < total.gpu_ms),
    ) {
        assert_eq!(
            row,
            (total.owner, total.envelope, total.class, total.gpu_ms)
        );
    }
    let debits = world
        .order
        .iter()
        .flat_map(|work| world.accounts.debits(now, &work.run));
    let debits: u128 = debits.map(|debit| u128::from(debit.gpu_ms)).sum();
    assert_eq!(
        (usage, debits),
        (naive.total(now), naive.total(now)),
        "conservation"
    );
    world.accounts.check(now).unwrap();
}

/// The usage rows of all days, added by owner, envelope and class.
fn by_key(world: &World) -> Vec<(Label, Option<EnvelopeId>, Class, u64)> {
    let mut sums: BTreeMap<_, u64> = BTreeMap::new();
    for row in world.accounts.usage(world.now) {
        *sums
            .entry((row.owner, row.envelope, row.class))
            .or_default() += row.gpu_ms;
    }
    let sums = sums.into_iter();
    sums.map(|((owner, envelope, class), sum)| (owner, envelope, class, sum))
        .collect()
}

/// The deadlines of both implementations agree.
fn compare_deadlines(world: &World) {
    let naive = &world.naive;
    let next = |kind| world.accounts.next_deadline_of(kind);
    assert_eq!(next(Kind::PromiseEnd), naive.next_promise_end());
    assert_eq!(next(Kind::Depletion), naive.depletion(world.now));
}

fn play(world: &mut World, op: &Op, mut each: impl FnMut(&mut World)) {
    match op {
        Op::Start {
            owner,
            gpus,
            hours,
            pod,
            ask,
        } => {
            let request = asked(*owner, *gpus, *hours, *ask, world.now);
            let name = format!("run-{}", world.order.len());
            let _ = world.start(&name, request, *pod);
        }
        Op::Close { run, gpus } => {
            if let Some(work) = world.order.get(*run).cloned() {
                let gpus = (*gpus).min(world.accounts.gpus(&work));
                if 0 < gpus {
                    world.close(work.run.as_str(), gpus);
                }
            }
        }
        Op::Set { owner, shape } => {
            let id = shaped(*owner, 0, world.now, None).id();
            let budget = shaped(*owner, *shape, world.now, world.accounts.budget(&id));
            world.set(&budget);
        }
        Op::Drop { owner } => world.remove(&shaped(*owner, 0, world.now, None).id()),
        Op::Rotate { owner } => world.rotate(
            &shaped(*owner, 0, world.now, None)
                .id()
                .envelope(&envelope("x", 1).name),
        ),
        Op::Advance { ms } => {
            world.advance(world.now.after(Millis::from_ms(*ms)));
        }
    }
    each(world);
}

fn world() -> World {
    let mut world = World::new(
        &(0..OWNERS.len())
            .map(|owner| shaped(owner, owner as u64 * 7_919, at(0), None))
            .collect::<Vec<_>>(),
    );
    world.advance(at(HOUR));
    world
}

#[test]
fn the_random_worlds_have_everything() {
    let mut runner = TestRunner::deterministic();
    let ops = prop::collection::vec(op(), 24..48);
    let mut seen = BTreeSet::new();
    for _ in 0..400 {
        let mut world = world();
        for op in ops.new_tree(&mut runner).unwrap().current() {
            play(&mut world, &op, |_| {});
        }
        seen.append(&mut world.seen);
    }
    let others = [
        "recall of two",
        "partial refit",
        "join",
        "two meters deplete",
        "a cap before its window",
        "a cap after its window",
        "a lending pool depletes",
    ];
    let words = Reason::WORDS.into_iter().chain(Demoted::WORDS);
    let words = words.chain(RowState::WORDS);
    let missing: Vec<&str> = words
        .chain(others)
        .filter(|word| !seen.contains(word))
        .collect();
    assert_eq!(missing, [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_accounts_say_what_the_naive_implementation_says(ops in prop::collection::vec(op(), 1..24)) {
        let mut world = world();
        for op in &ops {
            play(&mut world, op, |world| {
                compare(world);
                compare_deadlines(world);
            });
        }
    }

    #[test]
    fn crashes_between_any_two_deadlines_change_no_money(ops in prop::collection::vec(op(), 1..24)) {
        let mut prompt = world();
        let mut late = [world(), world(), world()];
        for op in &ops {
            play(&mut prompt, op, |_| {});
            for (world, late_ms) in late.iter_mut().zip([1, 6_000, 2 * HOUR]) {
                if let Op::Advance { ms } = op {
                    let end = world.now.after(Millis::from_ms(*ms));
                    while let Some((due, _)) = world.accounts.next_deadline() && due.after(Millis::from_ms(late_ms)) < end {
                        world.advance(due.after(Millis::from_ms(late_ms)));
                        world.crash();
                    }
                    world.advance(end);
                } else {
                    play(world, op, |_| {});
                }
                world.crash();
            }
        }
        for world in &late {
            prop_assert_eq!(&world.log, &prompt.log);
        }
    }

    #[test]
    fn the_order_of_declaration_changes_nothing(shapes in prop::collection::vec(any::<u64>(), OWNERS.len()), ask in any::<u64>()) {
        let budgets: Vec<Budget> = (0..OWNERS.len()).map(|owner| shaped(owner, shapes[owner], at(0), None)).collect();
        let forth = World::new(&budgets);
        let back = World::new(&budgets.into_iter().rev().collect::<Vec<_>>());
        for owner in 0..OWNERS.len() {
            let request = asked(owner, 9, 1, ask, at(0));
            prop_assert_eq!(forth.accounts.trace(at(0), &request), back.accounts.trace(at(0), &request));
        }
    }

    #[test]
    fn greedy_is_best_for_nested_and_disjoint_caps(
        gpus in prop::collection::vec(1_u64..5, 4), caps in prop::collection::vec(1_u64..9, 3), nested in any::<bool>(),
        in_hours in any::<bool>(), used in 0_u64..5, pool in 1_u64..5,
    ) {
        // a has two envelopes, its sibling shares one, and another one lends from a pool. Their parent
        // has the caps.
        let names = ["a/b/w", "a/b/x", "b/b/y", "lab/b/z"];
        let mut list: Vec<Envelope> = ["w", "x", "y", "z"].iter().zip(&gpus).map(|(name, gpus)| envelope(name, *gpus)).collect();
        let (mut lender, shared) = (list.pop().unwrap(), list.pop().unwrap());
        lender.sharing = Sharing::None;
        lender.lending = lends(&["a"], Some(pool).filter(|_| !in_hours));
        if let Some(lending) = &mut lender.lending {
            lending.gpu_hours_max = Some(pool).filter(|_| in_hours);
        }
        let mut parent = budget("p", "p", &[], vec![]);
        let sets: [&[usize]; 3] = if nested { [&[0, 1], &[0, 1, 2], &[0, 1, 2, 3]] } else { [&[0, 1], &[2, 3], &[0, 1, 2, 3]] };
        for (number, (set, limit)) in sets.iter().zip(&caps).enumerate() {
            let members: Vec<&str> = set.iter().map(|e| names[*e]).collect();
            let mut cap = cap(&format!("c{number}"), &members, Some(*limit));
            if in_hours {
                (cap.concurrency_max, cap.gpu_hours_max) = (None, Some(*limit));
            }
            parent.aggregate_caps.push(cap);
        }
        let mut world = World::new(&[
            parent,
            budget("a", "a", &["p"], list),
            budget("b", "b", &["p"], vec![shared]),
            budget("lab", "lab", &["p"], vec![lender]),
        ]);
        let mut asked = request("a", used);
        (asked.borrowing.allow, asked.borrowing.sponsors) = (true, vec![label("lab")]);
        asked.duration = Some(Millis::from_hours(1));
        let before = world.start("A", asked.clone(), None).map_or(Vec::new(), |plan| plan.takes);
        let before = names.map(|name| {
            let of_name = before.iter().filter(|take| take.envelope.as_str() == name);
            of_name.map(|take| take.gpus).sum::<u64>()
        });
        let mut best: u64 = 0;
        for choice in 0..625_u64 {
            let more = [choice % 5, choice / 5 % 5, choice / 25 % 5, choice / 125];
            let takes: Vec<u64> = more.iter().zip(before).map(|(more, before)| more + before).collect();
            let fits = takes.iter().zip(&gpus).all(|(take, limit)| take <= limit)
                && takes[3] <= pool
                && sets.iter().zip(&caps).all(|(set, limit)| set.iter().map(|e| takes[*e]).sum::<u64>() <= *limit);
            if fits {
                best = best.max(more.iter().sum());
            }
        }
        for width in 1..20 {
            asked.groups[0].gpus = width;
            let found = world.accounts.plan(at(0), &asked).map_or_else(|failure| failure.found, |_| width);
            prop_assert_eq!(found, width.min(best));
        }
    }
}

#[test]
fn greedy_may_find_less_under_crossing_caps() {
    let list = ["w", "x", "y"].map(|name| envelope(name, 1)).to_vec();
    let mut only = budget("a", "a", &[], list);
    only.aggregate_caps = vec![
        cap("one", &["a/b/w", "a/b/x"], Some(1)),
        cap("two", &["a/b/w", "a/b/y"], Some(1)),
    ];
    let failure = World::new(&[only])
        .accounts
        .plan(at(0), &request("a", 2))
        .unwrap_err();
    assert_eq!(failure.found, 1, "x and y would be two");
}
