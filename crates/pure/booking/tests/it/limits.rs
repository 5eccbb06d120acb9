//! Choice of limits, refusals by limits, and changes of limits (S1).

use bursar_booking::decide::{Change, missing_shipped};
use bursar_booking::{Bound, Limit, LimitUse, Refusal, Request};
use bursar_plane::{Inventory, Node, Plane as _};
use bursar_units::{Amount, Dimension, Millis};

use crate::make::{Desk, LEVEL, Reply, at_once, name, request, sized, slots_limit, unbounded};

#[test]
fn an_unknown_class_is_limited_to_a_hundred_slots() {
    let mut desk = Desk::new();
    for number in 0..100 {
        desk.hold(0, &format!("b{number}"), &request("never-heard-of", "a"));
    }
    let limits = over(desk.reserve(0, "more", &at_once("never-heard-of", "b")));
    assert_eq!((limits[0].name.as_str(), limits[0].size), ("default", 100));
    desk.hold(0, "other", &request("another", "a"));
}

#[test]
fn a_named_value_beats_each_and_class_by_tenant_goes_both_class_tenant_each() {
    // Every limit has another size, so the size identifies it.
    let scopes = [
        (("python", "ann"), 11),
        (("python", "each"), 12),
        (("each", "ann"), 13),
        (("each", "each"), 14),
        (("python", ""), 21),
        (("each", ""), 22),
        (("", "ann"), 31),
        (("", "each"), 32),
        (("", ""), 41),
    ];
    let applied = |class: &str, tenant: &str, without: &[u64]| -> Vec<u64> {
        let mut desk = Desk::new();
        for ((class, tenant), size) in scopes.iter().filter(|(_, size)| !without.contains(size)) {
            let text = if *size == 22 {
                "default".to_owned()
            } else {
                format!("limit-{size}")
            };
            desk.set(0, &[(&text, slots_limit(class, tenant, *size))])
                .unwrap();
        }
        let uses = desk.bookings.limits_for(&request(class, tenant));
        uses.iter().map(|limit| limit.size).collect()
    };
    assert_eq!(applied("python", "ann", &[]), [41, 31, 21, 11]);
    assert_eq!(applied("python", "ann", &[11]), [41, 31, 21, 12]);
    assert_eq!(applied("python", "ann", &[11, 12]), [41, 31, 21, 13]);
    assert_eq!(applied("python", "ann", &[11, 12, 13]), [41, 31, 21, 14]);
    assert_eq!(applied("python", "bob", &[]), [41, 32, 21, 12]);
    assert_eq!(applied("java", "ann", &[]), [41, 31, 22, 13]);
    assert_eq!(applied("java", "bob", &[41]), [32, 22, 14]);
}

#[test]
fn a_refusal_lists_every_binding_limit_headline_first() {
    let mut desk = Desk::with_limits(&[
        ("pair", slots_limit("python", "ann", 2)),
        ("python", slots_limit("python", "", 2)),
        ("ann", slots_limit("", "ann", 2)),
        (
            "all",
            Limit {
                gpus: Some(1),
                ..slots_limit("", "", 2)
            },
        ),
        ("roomy", slots_limit("", "each", 50)),
    ]);
    desk.hold(0, "a", &sized(request("python", "ann"), 2));
    desk.reserve(0, "b", &request("python", "ann")).unwrap();
    let asked = Request {
        gpus: 1,
        ..at_once("python", "ann")
    };
    let limits = over(desk.reserve(0, "c", &asked));
    let names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["all", "ann", "python", "pair"]);
    let headline = LimitUse {
        name: name("all"),
        dimension: Dimension::Slots,
        size: 2,
        in_use: 2,
        waiting: 1,
    };
    assert_eq!(limits[0], headline);
}

/// Method: the amount held adds up to 2⁶⁴, which would be zero in 64 bits.
#[test]
fn however_much_is_held_is_counted_exactly() {
    let mut desk = Desk::new();
    let large = Request {
        memory_bytes: 1 << 63,
        ..at_once("python", "ann")
    };
    desk.hold(0, "a", &large);
    let fence = desk.hold(0, "b", &large);
    let bound = Limit {
        memory: Some(Bound::Exactly((1 << 63) + 1)),
        ..unbounded("", "")
    };
    desk.set(0, &[("all", bound)]).unwrap();
    let small = Request {
        memory_bytes: 1,
        ..large.clone()
    };
    let limits = over(desk.reserve(0, "c", &small));
    assert_eq!(limits[0].in_use, u64::MAX, "shown as the largest number");
    desk.release(0, "b", fence).unwrap();
    desk.hold(0, "c", &small);
    assert_eq!(over(desk.reserve(0, "d", &small)).len(), 1);
}

#[test]
fn what_can_never_fit_is_refused_with_the_limits_and_their_use_and_never_queued() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 4))]);
    desk.hold(0, "a", &request("python", "a"));
    let Err(Refusal::NeverFits { limits }) =
        desk.reserve(0, "b", &sized(request("python", "a"), 5))
    else {
        panic!("five never fit four")
    };
    let expected = LimitUse {
        name: name("all"),
        dimension: Dimension::Slots,
        size: 4,
        in_use: 1,
        waiting: 0,
    };
    assert_eq!(limits, [expected]);
    assert_eq!(desk.live(), (1, 0));
    assert_eq!(
        desk.reserve(0, "c", &sized(request("python", "a"), 4)),
        Ok(Reply::Queued)
    );
}

#[test]
fn lowering_a_limit_evicts_nobody_and_grants_nothing_until_use_falls_below_it() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 4))]);
    let fences: Vec<u64> = (0..4)
        .map(|n| desk.hold(0, &format!("h{n}"), &request("python", "a")))
        .collect();
    desk.reserve(0, "waiter", &request("python", "b")).unwrap();
    desk.set(1, &[("all", slots_limit("", "", 2))]).unwrap();
    assert_eq!(desk.live(), (4, 1));
    let over = bursar_booking::invariants::over_limit(&desk.bookings);
    assert_eq!((over.len(), over[0].size, over[0].in_use), (1, 2, 4));
    for (n, live) in [(0, (3, 1)), (1, (2, 1)), (2, (2, 0))] {
        desk.release(2, &format!("h{n}"), fences[n]).unwrap();
        assert_eq!(desk.live(), live);
    }
    assert!(desk.fence_of("waiter").is_some());
    assert_eq!(bursar_booking::invariants::over_limit(&desk.bookings), []);
}

#[test]
fn a_limit_of_zero_pauses_and_raising_it_grants_in_the_same_record() {
    let mut desk = Desk::with_limits(&[("python", slots_limit("python", "", 0))]);
    assert_eq!(
        over(desk.reserve(0, "now", &at_once("python", "a")))[0].size,
        0
    );
    assert_eq!(
        desk.reserve(0, "later", &request("python", "a")),
        Ok(Reply::Queued)
    );
    desk.hold(0, "elsewhere", &request("java", "a"));
    let recorded = desk.log.len();
    desk.set(1, &[("python", slots_limit("python", "", 1))])
        .unwrap();
    assert!(desk.fence_of("later").is_some());
    assert_eq!(desk.log.len(), recorded + 2, "the change and the grant");
}

#[test]
fn percentages_follow_the_inventory_and_round_down() {
    let limit = Limit {
        cpu: Some(Bound::Percent(80)),
        ..unbounded("", "")
    };
    let mut desk = Desk::with_limits(&[("all", limit)]);
    let cpu = |cpu_milli| Request {
        cpu_milli,
        ..request("python", "a")
    };
    assert_eq!(
        desk.reserve(0, "a", &cpu(1)),
        Ok(Reply::Queued),
        "80% of nothing is a pause"
    );
    let mut machine = |cpu_milli| {
        let capacity = Amount {
            cpu_milli,
            ..Amount::default()
        };
        let mut inventory = Inventory::default();
        inventory.set(Node::new(name("n1"), &capacity));
        desk.bookings.take_inventory(&inventory);
        desk.change(1, &[]).unwrap();
        desk.bookings.limit("all").unwrap().bounds.cpu_milli
    };
    assert_eq!(machine(1_999), Some(1_599));
    assert!(
        desk.fence_of("a").is_some(),
        "a machine that joins lets in who fits it"
    );
    assert_eq!(
        desk.reserve(2, "b", &cpu(1_598)).unwrap(),
        Reply::Granted(bursar_booking::Fence(2))
    );
    assert_eq!(desk.reserve(2, "c", &cpu(1)), Ok(Reply::Queued));
}

#[test]
fn the_shipped_limit_can_be_changed_but_not_dropped_or_moved() {
    let mut desk = Desk::new();
    desk.set(0, &[("default", slots_limit("each", "", 7))])
        .unwrap();
    for limit in [
        slots_limit("", "", 7),
        slots_limit("python", "", 7),
        slots_limit("each", "each", 7),
    ] {
        assert_eq!(
            desk.set(0, &[("default", limit)]),
            Err(Refusal::ShippedStays {
                name: name("default")
            })
        );
    }
    let drop = Change::DropLimit {
        name: name("default"),
    };
    assert_eq!(
        desk.change(0, &[drop]),
        Err(Refusal::ShippedStays {
            name: name("default")
        })
    );
    assert_eq!(desk.bookings.limit("default").unwrap().limit.slots, Some(7));
}

#[test]
fn a_change_is_made_whole_or_not_at_all_and_limits_may_trade_their_scopes() {
    let mut desk = Desk::with_limits(&[
        ("a", slots_limit("java", "", 1)),
        ("b", slots_limit("python", "", 2)),
    ]);
    let before: Vec<_> = desk.bookings.facts(LEVEL).collect();
    let same = desk.set(
        0,
        &[
            ("c", slots_limit("perl", "", 1)),
            ("d", slots_limit("python", "", 9)),
        ],
    );
    assert_eq!(
        same,
        Err(Refusal::SameScopes {
            name: name("d"),
            other: name("b")
        })
    );
    assert!(
        desk.bookings.facts(LEVEL).eq(before),
        "nothing of a refused change is made"
    );

    let size = |desk: &Desk, class: &str| desk.bookings.limits_for(&request(class, "x"))[0].size;
    desk.set(
        0,
        &[
            ("a", slots_limit("python", "", 1)),
            ("b", slots_limit("java", "", 2)),
        ],
    )
    .unwrap();
    assert_eq!((size(&desk, "python"), size(&desk, "java")), (1, 2));
    // The scope changes to another limit's and back, within one command.
    desk.set(
        0,
        &[
            ("a", slots_limit("java", "", 3)),
            ("a", slots_limit("python", "", 4)),
        ],
    )
    .unwrap();
    assert_eq!((size(&desk, "python"), size(&desk, "java")), (4, 2));
}

#[test]
fn a_change_without_effect_has_no_event() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 4))]);
    let recorded = desk.log.len();
    assert_eq!(desk.set(9, &[("all", slots_limit("", "", 4))]), Ok(()));
    assert_eq!(desk.log.len(), recorded);
}

#[test]
fn a_queue_has_an_end_and_waits_and_ttls_have_bounds_that_name_their_limit() {
    let strict = Limit {
        queue_max: 1,
        wait_max: Millis::from_secs(100),
        ttl_max: Millis::from_secs(90),
        ..slots_limit("python", "", 1)
    };
    let mut desk = Desk::with_limits(&[("python", strict)]);
    let short = Request {
        wait: Millis::from_secs(100),
        ..request("python", "a")
    };
    desk.hold(0, "a", &short);
    assert_eq!(desk.reserve(0, "b", &short), Ok(Reply::Queued));
    let full = Refusal::QueueFull {
        limit: name("python"),
        max: 1,
    };
    assert_eq!(desk.reserve(0, "c", &short), Err(full));
    let bounds = |field, min_ms, max_ms, limit| {
        Err(Refusal::TimeOutOfBounds {
            field,
            min_ms,
            max_ms,
            limit,
        })
    };
    let ours = || Some(name("python"));
    assert_eq!(
        desk.reserve(0, "d", &request("python", "a")),
        bounds("waitMs", 0, 100_000, ours())
    );
    let long = Request {
        ttl: Millis::from_secs(91),
        ..short.clone()
    };
    assert_eq!(
        desk.reserve(0, "e", &long),
        bounds("ttlMs", 1_000, 90_000, ours())
    );
    let day = Request {
        ttl: Millis::from_ms(86_400_001),
        ..request("java", "a")
    };
    assert_eq!(
        desk.reserve(0, "f", &day),
        bounds("ttlMs", 1_000, 86_400_000, None)
    );
    let none = sized(short, 0);
    assert_eq!(desk.reserve(0, "g", &none), Err(Refusal::Slots));
}

/// After the release of any amount that was held without a limit the counter is zero.
#[test]
fn counters_come_back_from_amounts_beyond_what_can_be_counted() {
    let mut desk = Desk::new();
    let huge = Request {
        memory_bytes: u64::MAX / 2 + 7,
        ..request("python", "a")
    };
    let fences: Vec<u64> = (0..3)
        .map(|n| desk.hold(0, &format!("h{n}"), &huge))
        .collect();
    for (n, fence) in fences.into_iter().enumerate() {
        desk.release(1, &format!("h{n}"), fence).unwrap();
    }
    let limit = Limit {
        memory: Some(Bound::Exactly(5)),
        ..unbounded("python", "")
    };
    desk.set(2, &[("memory", limit)]).unwrap();
    let five = Request {
        memory_bytes: 5,
        ..at_once("python", "a")
    };
    desk.hold(3, "five", &five);
    assert!(desk.reserve(3, "six", &five).is_err());
}

fn over(answer: Result<Reply, Refusal>) -> Vec<LimitUse> {
    match answer {
        Err(Refusal::OverLimit { limits }) => limits,
        other => panic!("a full limit was to refuse, not {other:?}"),
    }
}

/// Method: sets the limits that a ledger from before level 1 lacks, then changes, moves and drops them.
#[test]
fn the_limit_on_each_tenant_ships_once_and_stays() {
    let mut desk = Desk::new();
    let shipped = missing_shipped(&desk.bookings);
    desk.change(0, &shipped).unwrap();
    let tenants = &desk.bookings.limit("tenants").unwrap().limit;
    assert_eq!(
        (tenants.slots, tenants.tenant_queue_max),
        (Some(1_000), Some(1_000))
    );
    let default = &desk.bookings.limit("default").unwrap().limit;
    assert_eq!(
        (default.slots, default.tenant_queue_max),
        (Some(100), Some(1_000))
    );
    assert_eq!(missing_shipped(&desk.bookings), []);

    desk.set(0, &[("tenants", slots_limit("", "each", 7))])
        .unwrap();
    let stays = Err(Refusal::ShippedStays {
        name: name("tenants"),
    });
    assert_eq!(
        desk.set(0, &[("tenants", slots_limit("", "acme", 7))]),
        stays
    );
    let drop = Change::DropLimit {
        name: name("tenants"),
    };
    assert_eq!(desk.change(0, &[drop]), stays);
}

#[test]
fn an_operators_own_limit_on_each_tenant_takes_the_place_of_the_shipped_one() {
    let mut desk = Desk::new();
    let shipped = missing_shipped(&desk.bookings);
    desk.change(0, &shipped).unwrap();
    desk.set(0, &[("fair", slots_limit("", "each", 7))])
        .unwrap();
    assert!(desk.bookings.limit("tenants").is_none());
    assert_eq!(desk.bookings.limit("fair").unwrap().limit.slots, Some(7));
    // It comes back when the other is dropped, so that every tenant has a bound.
    let drop = Change::DropLimit { name: name("fair") };
    desk.change(0, &[drop]).unwrap();
    assert_eq!(
        desk.bookings.limit("tenants").unwrap().limit.slots,
        Some(1_000)
    );

    // A changed shipped limit belongs to the operator: two of one scope are refused.
    let mut desk = Desk::new();
    desk.change(0, &shipped).unwrap();
    desk.set(0, &[("tenants", slots_limit("", "each", 9))])
        .unwrap();
    let refused = desk.set(0, &[("fair", slots_limit("", "each", 7))]);
    assert!(matches!(refused, Err(Refusal::SameScopes { .. })));
    assert_eq!(desk.bookings.limit("tenants").unwrap().limit.slots, Some(9));
}

#[test]
fn nothing_ships_over_what_an_operator_declared() {
    for (taken, limit) in [
        ("fair", slots_limit("", "each", 7)),
        ("tenants", slots_limit("python", "", 7)),
    ] {
        let mut desk = Desk::new();
        desk.set(
            0,
            &[(taken, limit), ("default", slots_limit("each", "", 7))],
        )
        .unwrap();
        assert_eq!(missing_shipped(&desk.bookings), [], "{taken}");
        let drop = Change::DropLimit { name: name(taken) };
        let dropped = desk.change(0, &[drop]);
        // A limit of that name with another scope belongs to the operator.
        assert_eq!(dropped, Ok(()), "{taken}");
    }
}

#[test]
fn one_tenant_fills_its_share_of_a_queue_and_no_more() {
    let mut desk = Desk::new();
    let limit = Limit {
        tenant_queue_max: Some(2),
        queue_max: 3,
        ..slots_limit("python", "", 1)
    };
    desk.set(0, &[("python", limit)]).unwrap();
    desk.reserve(0, "held", &waiting("acme")).unwrap();
    desk.reserve(0, "first", &waiting("acme")).unwrap();
    desk.reserve(0, "second", &waiting("acme")).unwrap();
    let share_full = Refusal::TenantQueueFull {
        limit: name("python"),
        max: 2,
    };
    assert_eq!(desk.reserve(0, "third", &waiting("acme")), Err(share_full));
    assert_eq!(
        desk.reserve(0, "other", &waiting("zeta")),
        Ok(Reply::Queued)
    );
    let full = Refusal::QueueFull {
        limit: name("python"),
        max: 3,
    };
    assert_eq!(desk.reserve(0, "late", &waiting("beta")), Err(full));
}

fn waiting(tenant: &str) -> Request {
    Request {
        wait: Millis::from_secs(100),
        ..request("python", tenant)
    }
}
