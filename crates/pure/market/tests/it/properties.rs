//! Properties of clearings, on a hundred thousand random markets.

use bursar_market::clear::{BoundBy, Cleared, Market, Mode, Pod, Policy, Step, Want, clear};
use bursar_market::kernel::{Claim, Level, solve};

use crate::oracle::{Fraction, Participant, expected, share_times, whole};
use crate::random::{Random, market};

fn shares(cleared: &Cleared) -> Vec<u64> {
    let shares = cleared.shares.iter();
    shares.map(|share| share.allocated_milli).collect()
}

fn wide(numbers: &[u64]) -> Vec<u128> {
    numbers.iter().copied().map(u128::from).collect()
}

/// Method: `clear` against the oracle, which follows the formulas one by one; then the invariants.
#[test]
fn a_hundred_thousand_random_markets_match_the_formulas() {
    let mut random = Random(10);
    for round in 0..100_000_u64 {
        let (count, size) = match round {
            0..99_000 => (random.below(13), random.pick(&[3, 30, 300])),
            99_000..99_900 => (random.below(40), 1_000),
            _ => (random.below(301), 1_000),
        };
        let market = market(&mut random, count, size);
        let cleared = clear(&market);
        let expected = expected(&market);
        assert_eq!(expected.mode, cleared.mode, "{market:?}");
        assert_eq!(expected.shares, wide(&shares(&cleared)), "{market:?}");
        let needs: Vec<u64> = cleared
            .shares
            .iter()
            .map(|share| share.need_milli)
            .collect();
        assert_eq!(expected.needs, wide(&needs), "{market:?}");
        assert_eq!(expected.price_ppm, cleared.price_ppm.into(), "{market:?}");
        check_invariants(&market, &cleared);
    }
}

fn check_invariants(market: &Market, cleared: &Cleared) {
    let sum: u64 = shares(cleared).iter().sum();
    assert!(sum <= market.capacity_milli, "INV-2 {market:?}");
    let survival: u64 = cleared
        .shares
        .iter()
        .map(|share| share.min_milli.min(10))
        .sum();
    for share in &cleared.shares {
        let got = share.allocated_milli;
        if cleared.mode != Mode::Overloaded {
            let range = share.min_milli..=share.max_milli;
            assert!(range.contains(&got), "INV-1 {share:?} {market:?}");
        } else if survival <= cleared.capacity_milli && market.quantum_milli == 1 {
            let range = share.min_milli.min(10)..=share.min_milli;
            assert!(
                range.contains(&got),
                "INV-1 in overload {share:?} {market:?}"
            );
        } else {
            assert!(
                got <= share.min_milli,
                "INV-1 in overload {share:?} {market:?}"
            );
        }
    }
    for share in &cleared.shares {
        let is_so = match share.bound_by {
            BoundBy::Need => share.allocated_milli == share.need_milli,
            BoundBy::Min => share.allocated_milli == share.min_milli,
            BoundBy::Max => share.allocated_milli == share.max_milli,
            BoundBy::Survival => cleared.mode == Mode::Overloaded,
            BoundBy::Share => cleared.step.rung().is_none(),
            // Only a measured pod has these.
            BoundBy::Memory
            | BoundBy::Step
            | BoundBy::Budget
            | BoundBy::Cooldown
            | BoundBy::MaxStep => false,
        };
        assert!(is_so, "{share:?} {market:?}");
    }
    if market.policy == Policy::FullCapacity {
        return;
    }
    if cleared.mode == Mode::Uncongested {
        let has_need = cleared
            .shares
            .iter()
            .all(|share| share.allocated_milli == share.need_milli);
        assert!(has_need && cleared.price_ppm == 0, "INV-3 {market:?}");
    }
    if cleared.mode == Mode::Congested && market.policy == Policy::Proportional {
        let quantum = u128::from(market.quantum_milli.max(1));
        let claims: u128 = u128::from(cleared.need_milli - cleared.min_milli);
        let there: u128 = u128::from(cleared.capacity_milli - cleared.min_milli);
        for share in &cleared.shares {
            let claim = u128::from(share.need_milli - share.min_milli);
            let got = u128::from(share.allocated_milli - share.min_milli);
            let apart = (got * claims).abs_diff(claim * there);
            assert!(apart < claims * quantum, "INV-4 {share:?} {market:?}");
        }
    }
}

/// Method: Σ clamp(o + b·t) must be exactly C, and each whole share less than one away.
#[test]
fn the_common_t_is_exact_and_whole_shares_are_less_than_one_away() {
    let mut random = Random(20);
    for round in 0..20_000_u64 {
        let size = random.pick(&[4, 50, 1_000_000_000]);
        let bid = random.pick(&[3, 1_000, 1_000_000_000_000_000]);
        let count = if round % 500 == 0 {
            300
        } else {
            1 + random.below(12)
        };
        let claims: Vec<Claim> = (0..count)
            .map(|_| {
                let offset = random.below(size);
                let lo = offset + random.below(size) * random.below(2);
                let hi = lo + random.below(size);
                let bid = random.below(bid + 1);
                Claim {
                    offset,
                    lo,
                    hi,
                    bid,
                }
            })
            .collect();
        let participants: Vec<Participant> = claims
            .iter()
            .map(|claim| Participant {
                o: claim.offset.into(),
                lo: claim.lo.into(),
                hi: claim.hi.into(),
                b: claim.bid.into(),
            })
            .collect();
        let least: u64 = claims.iter().map(|claim| claim.lo).sum();
        let most: u64 = claims.iter().map(|claim| claim.hi).sum();
        let capacity = least + random.below(most - least + 2);
        let solution = solve(&claims, capacity);
        let (exact, _) = whole(&participants, capacity.into());
        assert_eq!(exact, wide(&solution.shares), "{claims:?} {capacity}");
        let Level::At {
            numerator,
            denominator,
        } = solution.level
        else {
            let full = |claim: &Claim| if claim.bid > 0 { claim.hi } else { claim.lo };
            assert_eq!(solution.shares, claims.iter().map(full).collect::<Vec<_>>());
            continue;
        };
        let t = Fraction(numerator.into(), denominator);
        let exact: Vec<u128> = participants
            .iter()
            .map(|one| share_times(*one, t))
            .collect();
        assert_eq!(
            exact.iter().sum::<u128>(),
            u128::from(capacity) * t.1,
            "{claims:?}"
        );
        assert_eq!(solution.shares.iter().sum::<u64>(), capacity, "{claims:?}");
        for (share, exact) in solution.shares.iter().zip(exact) {
            assert!(
                (u128::from(*share) * t.1).abs_diff(exact) < t.1,
                "{claims:?} {capacity}"
            );
        }
        // With more capacity t does not fall, so no rational share falls, and their sum is C.
        if let Level::At {
            numerator,
            denominator,
        } = solve(&claims, capacity + 1).level
        {
            let more = Fraction(numerator.into(), denominator);
            assert!(t.cmp(more).is_le(), "{claims:?} {capacity}");
        }
    }
}

/// Method: C rises by one from 0 to more than all ceilings. Each rational share rises by at most one
/// and none falls, so a whole share moves by −1 to 2, and the sum by at most one.
#[test]
fn shares_are_continuous_in_capacity_through_all_modes() {
    let mut random = Random(30);
    let mut has_fallen = false;
    for _ in 0..300 {
        let mut market = market(&mut random, 6, 20);
        market.quantum_milli = 1;
        let mut before: Option<Vec<u64>> = None;
        for capacity in 0..500 {
            market.capacity_milli = capacity;
            let after = shares(&clear(&market));
            if let Some(before) = before {
                let rose = after.iter().sum::<u64>().checked_sub(before.iter().sum());
                assert!(rose.is_some_and(|rose| rose <= 1), "{market:?}");
                for (before, after) in before.iter().zip(&after) {
                    assert!(*before <= after + 1 && *after <= before + 2, "{market:?}");
                    has_fallen |= after < before;
                }
            }
            before = Some(after);
        }
    }
    // Whole shares within one of the exact ones cannot be monotone.
    assert!(has_fallen, "these worlds have no Alabama paradox");
}

/// Method: at the border the rules of both sides give the same shares.
#[test]
fn both_sides_of_a_border_agree_on_it() {
    let mut random = Random(35);
    for _ in 0..5_000 {
        let mut market = market(&mut random, 8, 100);
        market.quantum_milli = 1;
        let seen = clear(&market);
        market.capacity_milli = seen.min_milli;
        let at_floors = clear(&market);
        for share in &at_floors.shares {
            assert_eq!(share.allocated_milli, share.min_milli, "{market:?}");
        }
        if market.policy != Policy::FullCapacity {
            market.capacity_milli = seen.need_milli;
            for share in &clear(&market).shares {
                assert_eq!(share.allocated_milli, share.need_milli, "{market:?}");
            }
        }
    }
}

/// Method: the same market in another order, with all weights scaled, and with one more pod with a
/// ceiling of zero.
#[test]
fn order_scale_and_an_empty_pod_change_nothing() {
    let mut random = Random(40);
    for _ in 0..10_000 {
        let count = random.below(13);
        let market = market(&mut random, count, 100);
        let cleared = clear(&market);
        let mut shuffled = market.clone();
        random.shuffle(&mut shuffled.pods);
        assert_eq!(cleared, clear(&shuffled), "INV-5");
        let mut scaled = market.clone();
        for pod in &mut scaled.pods {
            // Weighted Nash treats a weight of zero as one, which does not scale.
            pod.weight = pod.weight.max(1);
        }
        let plain = shares(&clear(&scaled));
        for pod in &mut scaled.pods {
            pod.weight *= 17;
        }
        assert_eq!(plain, shares(&clear(&scaled)), "{market:?}");
        let mut larger = market.clone();
        let weight = random.pick(&[0, 1, 1_000_000]);
        larger.pods.push(empty("zz", weight));
        let mut with_it = shares(&clear(&larger));
        assert_eq!(with_it.pop(), Some(0));
        assert_eq!(shares(&cleared), with_it, "{larger:?}");
    }
}

fn empty(id: &str, weight: u64) -> Pod {
    Pod {
        id: id.into(),
        min_milli: 0,
        max_milli: 0,
        weight,
        want: Want::Demand(1_000_000),
        headroom_permille: 100,
    }
}

/// Method: (x − m)/b against the t of the clearing: equal for a pod between its bounds (to less than a
/// unit of x), no larger for a capped one, no smaller for one at its lower bound.
#[test]
fn shares_above_the_floor_are_in_proportion_to_bids() {
    let mut random = Random(50);
    let mut checked = 0;
    for _ in 0..20_000 {
        let mut market = market(&mut random, 8, 300);
        market.quantum_milli = 1;
        for pod in &mut market.pods {
            pod.weight = pod.weight.max(1);
        }
        let cleared = clear(&market);
        let Step::Shared(Level::At {
            numerator,
            denominator,
        }) = cleared.step
        else {
            continue;
        };
        // If pods without a bid were served too, t is theirs.
        if cleared.shares.iter().any(|share| share.bid == 0) {
            continue;
        }
        checked += 1;
        for share in &cleared.shares {
            let above = u128::from(share.allocated_milli - share.min_milli) * denominator;
            let fair = u128::from(share.bid) * u128::from(numerator);
            let is_capped =
                share.bound_by == BoundBy::Max || share.allocated_milli == share.need_milli;
            assert!(above < fair + denominator, "{share:?} {market:?}");
            assert!(
                is_capped || fair < above + denominator,
                "{share:?} {market:?}"
            );
        }
    }
    assert!(1_000 < checked, "only {checked} worlds were shared");
}

/// Method: any numbers give a result within capacity and ceilings.
#[test]
fn absurd_numbers_are_cut_and_never_panic() {
    let mut random = Random(60);
    let absurd = [
        0,
        1,
        10,
        1_000,
        999_999_999,
        1_000_000_000,
        1 << 40,
        u64::MAX - 1,
        u64::MAX,
    ];
    for _ in 0..20_000 {
        let pods = (0..random.below(6))
            .map(|number| Pod {
                id: format!("p{number}").into(),
                min_milli: random.pick(&absurd),
                max_milli: random.pick(&absurd),
                weight: random.pick(&absurd),
                want: if random.once_in(2) {
                    Want::Need(random.pick(&absurd))
                } else {
                    Want::Demand(random.pick(&absurd))
                },
                headroom_permille: random.pick(&absurd),
            })
            .collect();
        let market = Market {
            capacity_milli: random.pick(&absurd),
            policy: random.pick(&Policy::ALL),
            quantum_milli: random.pick(&absurd),
            pods,
        };
        let cleared = clear(&market);
        assert_eq!(
            expected(&market).shares,
            wide(&shares(&cleared)),
            "{market:?}"
        );
        check_invariants(&market, &cleared);
    }
    for _ in 0..2_000 {
        let claims: Vec<Claim> = (0..5)
            .map(|_| Claim {
                offset: random.pick(&absurd),
                lo: random.pick(&absurd),
                hi: random.pick(&absurd),
                bid: random.pick(&absurd),
            })
            .collect();
        assert_eq!(solve(&claims, random.pick(&absurd)).shares.len(), 5);
    }
}

/// Method: a hundred thousand pods with maximum values.
#[test]
fn the_largest_market_is_exact() {
    let pods = |count: u64, max_milli| {
        (0..count).map(move |number| Pod {
            id: format!("p{number:06}").into(),
            min_milli: 1,
            max_milli,
            weight: 1_000_000_000 - number,
            want: Want::Demand(1_000_000 - number),
            headroom_permille: 500,
        })
    };
    for policy in Policy::ALL {
        let market = Market {
            capacity_milli: 1_000_000_000,
            policy,
            quantum_milli: 1,
            pods: pods(100_000, 1_000_000_000).collect(),
        };
        let cleared = clear(&market);
        assert_eq!(shares(&cleared).iter().sum::<u64>(), 1_000_000_000);
        assert_eq!(cleared.mode, Mode::Congested);
    }
}
