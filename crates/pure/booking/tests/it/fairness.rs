//! Order of grants: turns, weights, priorities, ageing, and the shield (S2–S4).

use std::collections::{BTreeMap, BTreeSet};

use bursar_booking::{Command, Event, Fence, Limit, Priority, Refusal, Request};
use bursar_units::Millis;
use proptest::prelude::*;

use crate::make::{
    Desk, Reply, at_once, decided, grant, id, release, request, sized, slots_limit, unbounded,
};

const OTHERS: [&str; 3] = ["ann", "bob", "cyd"];

/// Method: four slots, jobs of a second. Three tenants bring eight jobs each every ten seconds,
/// which makes them wait even when they are alone; then a fourth asks a thousand times as often.
#[test]
fn a_flood_of_a_thousand_to_one_at_most_doubles_what_the_others_wait() {
    let solo = p99(waits_of_others(0));
    let flooded = p99(waits_of_others(1_000));
    assert!(solo >= 4_000, "alone they wait for each other: {solo} ms");
    assert!(
        flooded <= 2 * solo,
        "{flooded} ms beside a flood, {solo} ms alone"
    );
}

/// |g₁/w₁ − g₂/w₂| ≤ (1/w₁ + 1/w₂)·max slots, times w₁·w₂ to stay in integers.
///
/// Method: one GPU, so that one job runs at a time and order alone decides.
#[test]
fn two_backlogged_tenants_share_by_weight() {
    let weight = 1..=1_000_u64;
    let slots = || prop::collection::vec(1..=8_u64, 100);
    let config = ProptestConfig {
        failure_persistence: None,
        cases: 40,
        ..ProptestConfig::default()
    };
    proptest!(config, |(w1 in weight.clone(), w2 in weight, first in slots(), second in slots())| {
        let weighted = |tenant, weight| Limit {
            weight: Some(weight),
            ..unbounded("", tenant)
        };
        let one_gpu = Limit { gpus: Some(1), ..unbounded("", "") };
        let mut desk = Desk::with_limits(&[
            ("ann", weighted("ann", w1)),
            ("bob", weighted("bob", w2)),
            ("one", one_gpu),
        ]);
        let fence = desk.hold(0, "start", &Request {
            gpus: 1,
            ..request("python", "other")
        });
        let mut fence = Fence(fence);
        for (tenant, sizes) in [("ann", &first), ("bob", &second)] {
            for (number, slots) in sizes.iter().enumerate() {
                let asked = Request { slots: *slots, gpus: 1, ..request("python", tenant) };
                desk.fill(0, &format!("{tenant}-{number}"), &asked);
            }
        }
        let (mut got, mut served, mut holder) = ([0_u64; 2], [0; 2], id("start"));
        while served.iter().all(|served| *served < 99) {
            let (answer, mut events) = decided(&mut desk.bookings, 1, &release(holder, fence));
            answer.unwrap();
            let Some((_, Event::Granted { id, fence: next, .. })) = events.pop() else {
                panic!("one ends, one is granted")
            };
            (holder, fence) = (id, next);
            let who = usize::from(holder.as_str().starts_with("bob"));
            got[who] += [&first, &second][who][served[who]];
            served[who] += 1;
            let apart = (got[0] * w2).abs_diff(got[1] * w1);
            prop_assert!(apart <= (w1 + w2) * 8, "{got:?} with weights {w1} and {w2}");
        }
    });
}

#[test]
fn a_tenant_that_was_away_does_not_make_up_for_it() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    // Ann alone uses ten turns; bob comes later and must not get ten in a row.
    let mut fence = desk.hold(0, "a0", &request("python", "ann"));
    for number in 1..=20 {
        desk.reserve(1, &format!("a{number}"), &request("python", "ann"))
            .unwrap();
    }
    for number in 0..10 {
        desk.release(2, &format!("a{number}"), fence).unwrap();
        fence = desk.fence_of(&format!("a{}", number + 1)).unwrap();
    }
    for number in 0..5 {
        desk.reserve(3, &format!("b{number}"), &request("python", "bob"))
            .unwrap();
    }
    let mut holder = "a10".to_owned();
    for _ in 0..6 {
        desk.release(4, &holder, fence).unwrap();
        holder = desk.grants().last().unwrap().clone();
        fence = desk.fence_of(&holder).unwrap();
    }
    let tail: Vec<String> = desk.grants().split_off(11);
    assert_eq!(tail, ["b0", "a11", "b1", "a12", "b2", "a13"]);
}

#[test]
fn a_newcomer_that_would_fit_does_not_pass_those_of_its_own_lane() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 2))]);
    desk.hold(0, "one", &request("python", "a"));
    desk.reserve(0, "two", &sized(request("python", "a"), 2))
        .unwrap();
    let Err(Refusal::OthersFirst { limits }) = desk.reserve(0, "barge", &at_once("python", "a"))
    else {
        panic!("first in, first out")
    };
    assert_eq!(
        (limits[0].name.as_str(), limits[0].in_use, limits[0].waiting),
        ("all", 1, 1)
    );
    assert_eq!(
        desk.reserve(0, "waits", &request("python", "a")),
        Ok(Reply::Queued)
    );
}

#[test]
fn the_urgent_come_first_and_a_minute_of_waiting_is_worth_one_step() {
    let order = |later: u64| {
        let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
        let day = Request {
            ttl: Millis::from_hours(24),
            ..request("python", "a")
        };
        let fence = desk.hold(0, "holder", &day);
        let with = |priority| Request {
            priority,
            ..request("python", "a")
        };
        desk.reserve(0, "low", &with(Priority::Low)).unwrap();
        desk.reserve(later, "high", &with(Priority::High)).unwrap();
        desk.release(later, "holder", fence).unwrap();
        desk.grants().pop().unwrap()
    };
    assert_eq!(order(1), "high");
    assert_eq!(
        order(119_999),
        "high",
        "after one whole minute low is normal"
    );
    assert_eq!(
        order(120_000),
        "low",
        "after two it is high, and first by its turn and order"
    );
}

/// The worked example of `settle.rs`.
#[test]
fn a_large_request_is_granted_after_a_hundred_passes_have_made_it_due() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 4))]);
    let long = |request| Request {
        ttl: Millis::from_hours(2),
        ..request
    };
    let small = long(Request {
        priority: Priority::Low,
        ..at_once("python", "small")
    });
    let holder = desk.hold(0, "holder", &small);
    let big = sized(
        long(Request {
            wait: Millis::from_hours(2),
            ..request("python", "big")
        }),
        4,
    );
    desk.reserve(0, "big", &big).unwrap();
    for number in 0..100 {
        let text = format!("s{number}");
        let fence = desk.hold(1, &text, &small);
        desk.release(1, &text, fence).unwrap();
    }
    let answer = desk.reserve(2, "s100", &small);
    assert!(
        matches!(answer, Err(Refusal::OthersFirst { .. })),
        "{answer:?}"
    );
    desk.release(3, "holder", holder).unwrap();
    assert!(desk.fence_of("big").is_some());
}

/// A due head keeps its share of its own tenant's limit, too. Otherwise a small request of the same
/// tenant in another class would make it lack that limit, and it would shield nobody any more.
#[test]
fn a_grant_at_once_leaves_nobody_grantable() {
    let mut desk = Desk::with_limits(&[
        ("python", slots_limit("python", "", 4)),
        ("big", slots_limit("", "big", 4)),
    ]);
    let low = |class, tenant| Request {
        priority: Priority::Low,
        ttl: Millis::from_hours(2),
        ..at_once(class, tenant)
    };
    desk.hold(0, "holder", &low("python", "small"));
    desk.reserve(0, "due", &sized(request("python", "big"), 4))
        .unwrap();
    for number in 0..100 {
        let text = format!("s{number}");
        let fence = desk.hold(1, &text, &low("python", "small"));
        desk.release(1, &text, fence).unwrap();
    }
    desk.reserve(2, "held-back", &request("python", "small"))
        .unwrap();
    let answer = desk.reserve(2, "own", &low("java", "big"));
    assert!(
        matches!(answer, Err(Refusal::OthersFirst { .. })),
        "{answer:?}"
    );
    assert_eq!(desk.live(), (1, 2));
}

/// A due head whose limit was lowered below it, or paused, would otherwise stop all others.
#[test]
fn a_due_head_that_can_never_fit_holds_nobody_back() {
    let mut desk = Desk::with_limits(&[
        ("all", slots_limit("", "", 4)),
        ("python", slots_limit("python", "", 4)),
    ]);
    let low = |class| Request {
        priority: Priority::Low,
        ..at_once(class, "small")
    };
    desk.hold(0, "holder", &low("java"));
    desk.reserve(0, "due", &sized(request("python", "big"), 4))
        .unwrap();
    for number in 0..100 {
        let text = format!("s{number}");
        let fence = desk.hold(1, &text, &low("java"));
        desk.release(1, &text, fence).unwrap();
    }
    desk.reserve(2, "waits", &request("java", "small")).unwrap();
    assert_eq!(desk.live(), (1, 2), "it is shielded");
    desk.set(3, &[("python", slots_limit("python", "", 0))])
        .unwrap();
    assert_eq!(desk.live(), (2, 1), "a paused class shields nothing");
}

/// Milliseconds that the jobs of the others waited.
fn waits_of_others(flood_per_job: u64) -> Vec<u64> {
    let own = Limit {
        queue_max: 500,
        ..unbounded("", "each")
    };
    let mut bookings = Desk::with_limits(&[("all", slots_limit("", "", 4)), ("own", own)]).bookings;
    let mut asked = BTreeMap::new();
    let mut ends: BTreeSet<(u64, String, u64)> = BTreeSet::new();
    let mut waits = Vec::new();
    for now in (0..40_000).step_by(100) {
        let mut events = Vec::new();
        while let Some((end, text, fence)) = ends.pop_first() {
            if now < end {
                ends.insert((end, text, fence));
                break;
            }
            let (answer, happened) = decided(&mut bookings, now, &release(id(&text), Fence(fence)));
            answer.unwrap();
            events.extend(happened);
        }
        if now % 10_000 == 0 && now < 30_000 {
            let mut ask = |text: String, tenant: &str| {
                let command = Command::Reserve(Request {
                    id: id(&text),
                    ..request("python", tenant)
                });
                let (answer, happened) = decided(&mut bookings, now, &command);
                events.extend(happened);
                if answer.is_ok() {
                    asked.insert(text, now);
                }
            };
            for number in 0..24 * flood_per_job {
                ask(format!("flood-{now}-{number}"), "flood");
            }
            for number in 0..8 {
                for tenant in OTHERS {
                    ask(format!("{tenant}-{now}-{number}"), tenant);
                }
            }
        }
        for (when, event) in events {
            let Some((id, fence)) = grant(&event) else {
                continue;
            };
            ends.insert((when.ms() + 1_000, id.to_string(), fence.0));
            if !id.as_str().starts_with("flood") {
                waits.push(now - asked[id.as_str()]);
            }
        }
    }
    assert_eq!(waits.len(), 72, "all of the others' jobs were served");
    waits
}

fn p99(mut waits: Vec<u64>) -> u64 {
    waits.sort_unstable();
    let index_ceil = (waits.len() * 99).div_ceil(100);
    waits[index_ceil - 1]
}
