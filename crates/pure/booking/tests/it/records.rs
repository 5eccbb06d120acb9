//! Ticks, full records and snapshots: when and in how many pieces changes nothing (L1, L9, L12).

use std::collections::BTreeMap;

use bursar_booking::decide::Events;
use bursar_booking::execution::Order;
use bursar_booking::fact::Fact;
use bursar_booking::{Bookings, Event, Fence, Request, STEPS_PER_RECORD_MAX};
use bursar_units::{BookingId, Millis};
use proptest::prelude::*;

use crate::make::{
    Asked, Desk, LEVEL, Reply, at, decided, execution, id, order, release, request, sized,
    slots_limit, tick, ticked, with_order,
};

/// Many bookings that wait behind one holder of all slots.
fn crowd(count: usize) -> (Desk, u64) {
    crowd_of(count, plain)
}

fn plain(class: &str, tenant: &str) -> Asked {
    request(class, tenant).into()
}

fn crowd_of(count: usize, asked_of: fn(&str, &str) -> Asked) -> (Desk, u64) {
    let size = u64::try_from(count).unwrap();
    let mut desk = Desk::with_limits(&[("default", slots_limit("each", "", size))]);
    let fence = desk.hold(0, "all", &sized(request("python", "a"), size));
    for number in 0..count {
        let tenant = ["a", "b", "c"][number % 3];
        desk.fill(1, &format!("w{number:04}"), &asked_of("python", tenant));
    }
    (desk, fence)
}

#[test]
fn a_record_grants_at_most_256_and_the_rest_goes_on_before_anything_else() {
    let (mut desk, fence) = crowd(600);
    let mut records = Vec::new();
    let mut record = |desk: &mut Desk, ends: bool| {
        let before = desk.log.len();
        if ends {
            desk.release(7, "all", fence).unwrap();
        } else {
            desk.tick_once(9_000);
        }
        let new: Vec<_> = desk.log.split_off(before);
        assert!(
            new.iter().all(|(when, _)| *when == at(7)),
            "all of it happens when it was freed"
        );
        records.push(
            new.iter()
                .filter(|(_, e)| matches!(e, Event::Granted { .. }))
                .count(),
        );
    };
    record(&mut desk, true);
    assert!(desk.bookings.is_unsettled());
    // A new request is not granted in between: waiting bookings come first.
    let late = Request {
        wait: Millis::ZERO,
        ..request("python", "late")
    };
    assert!(desk.reserve(8, "late", &late).is_err());
    record(&mut desk, false);
    assert!(desk.bookings.is_unsettled());
    record(&mut desk, false);
    assert!(!desk.bookings.is_unsettled());
    assert_eq!(records, [256, 256, 88]);
    assert_eq!(desk.live(), (600, 0));
}

/// Method: three holders of 200 slots each expire one after another; one tick sees all of it.
#[test]
fn a_tick_grants_at_most_256_a_record_over_all_its_deadlines() {
    let mut desk = Desk::with_limits(&[("default", slots_limit("each", "", 600))]);
    for number in 0..3 {
        desk.hold(
            number,
            &format!("h{number}"),
            &sized(request("python", "a"), 200),
        );
    }
    for number in 0..600 {
        let asked = Request {
            ttl: Millis::from_hours(1),
            ..request("python", "b")
        };
        desk.fill(5, &format!("w{number}"), &asked);
    }
    while desk.live().1 > 0 {
        let before = desk.log.len();
        desk.tick_once(100_000);
        let grants = desk.log[before..]
            .iter()
            .filter(|(_, e)| matches!(e, Event::Granted { .. }));
        assert!((1..=STEPS_PER_RECORD_MAX).contains(&grants.count()));
    }
    let times: Vec<u64> = desk
        .log
        .iter()
        .filter(|(_, e)| matches!(e, Event::Granted { .. }))
        .map(|(t, _)| t.ms())
        .collect();
    let expected: Vec<u64> = [60_000, 60_001, 60_002]
        .iter()
        .flat_map(|t| [*t; 200])
        .collect();
    assert_eq!(times, expected);
}

#[test]
fn a_record_holds_at_most_256_deadlines() {
    let mut desk = Desk::with_limits(&[("default", slots_limit("each", "", 1_000))]);
    for number in 0..600 {
        desk.fill(0, &format!("h{number}"), &request("python", "a"));
    }
    let mut sizes = Vec::new();
    while desk.live().0 > 0 {
        let before = desk.log.len();
        desk.tick_once(60_000);
        sizes.push(desk.log.len() - before);
    }
    assert_eq!(sizes, [256, 256, 88]);
}

/// Method: the same bookings and the same evidence of life, ticked once or in any steps, also in
/// the middle of a crowd that one record cannot hold.
#[test]
fn any_pattern_of_ticks_gives_the_same_state() {
    let times = || {
        prop::collection::vec(
            (0..4_usize, 1..5_u64, 1_000..90_000_u64, 1..90_000_u64),
            1..25,
        )
    };
    let renewals = prop::collection::btree_map(0..25_usize, 0..200_000_u64, 0..12);
    let ticks = prop::collection::vec(0..200_000_u64, 0..20);
    let config = ProptestConfig {
        failure_persistence: None,
        cases: 200,
        ..ProptestConfig::default()
    };
    proptest!(config, |(asked in times(), renewals in renewals, mut ticks in ticks, crowd_size in prop_oneof![4 => Just(0), 1 => 300..320_usize])| {
        let (mut start, _) = crowd(crowd_size.max(6));
        for (number, (tenant, slots, ttl, wait)) in asked.into_iter().enumerate() {
            let asked = Request {
                ttl: Millis::from_ms(ttl),
                wait: Millis::from_ms(wait),
                ..sized(request("python", ["a", "b", "c", "d"][tenant]), slots)
            };
            // Every third one is an execution that is never started.
            let asked = if number % 3 == 0 {
                let start_timeout = Millis::from_ms(ttl);
                with_order(asked, Order { start_timeout, ..order() })
            } else {
                Asked::from(asked)
            };
            start.fill(2, &format!("r{number:02}"), &asked);
        }
        let until: BTreeMap<BookingId, u64> =
            renewals.into_iter().map(|(n, until)| (id(&format!("r{n:02}")), until)).collect();
        let run = |ticks: &[u64]| {
            let mut bookings = start.bookings.clone();
            for now in ticks {
                while bookings.is_unsettled() || bookings.due(at(*now)).next().is_some() {
                    let renewed = |id: &BookingId| until.get(id).copied().map(at);
                    tick(&mut bookings, *now, renewed, &mut Events::new(at(*now), 0));
                }
            }
            bursar_booking::invariants::check(&bookings).unwrap();
            bookings.facts(LEVEL).collect::<Vec<Fact>>()
        };
        ticks.sort_unstable();
        ticks.push(200_000);
        prop_assert_eq!(run(&ticks), run(&[200_000]));
    });
}

/// A pump that ran out of its record goes on at its own time after a restart, too, but never in
/// a time in which the engine was away.
#[test]
fn a_state_written_down_between_two_records_of_a_pump_goes_on_the_same() {
    let plain: fn(&str, &str) -> Asked = plain;
    for (asked_of, resumed) in [
        (plain, None),
        (plain, Some(5_000_000)),
        (execution, None),
        (execution, Some(3_000_000)),
    ] {
        let (mut desk, fence) = crowd_of(300, asked_of);
        desk.release(7, "all", fence).unwrap();
        if let Some(when) = resumed {
            desk.bookings.resume(at(when));
        }
        let mut restored = read_back(&desk.bookings, LEVEL);
        assert!(restored.facts(LEVEL).eq(desk.bookings.facts(LEVEL)));
        let of_level_1 = read_back(&desk.bookings, 1);
        assert!(of_level_1.facts(LEVEL).eq(desk.bookings.facts(LEVEL)));
        let grant = ticked(&mut restored, 6_000_000)
            .into_iter()
            .find(|(_, event)| matches!(event, Event::Granted { .. }))
            .unwrap();
        assert_eq!(grant.0, at(resumed.unwrap_or(7)));
        desk.tick_once(6_000_000);
        assert!(
            restored.facts(LEVEL).eq(desk.bookings.facts(LEVEL)),
            "and behaves the same"
        );
    }
}

/// A snapshot of level 1 holds that the pump must go on, not when: that follows from its last grant.
/// So a record that has no grant left must not begin another pump.
#[test]
fn a_record_full_of_grants_leaves_the_next_deadline_to_the_next_record() {
    let mut desk = Desk::with_limits(&[("default", slots_limit("each", "", 266))]);
    desk.hold(0, "large", &sized(request("python", "a"), 256));
    desk.hold(1, "small", &sized(request("python", "a"), 10));
    for number in 0..300 {
        let asked = Request {
            ttl: Millis::from_hours(1),
            ..request("python", "b")
        };
        desk.fill(5, &format!("w{number}"), &asked);
    }
    desk.tick_once(70_000);
    let mut restored = read_back(&desk.bookings, LEVEL);
    let here = ticked(&mut desk.bookings, 70_000);
    assert_eq!(ticked(&mut restored, 70_000), here);
    let grants = here
        .iter()
        .filter(|(_, event)| matches!(event, Event::Granted { .. }));
    assert!(grants.clone().count() == 10 && grants.clone().all(|(when, _)| *when == at(60_001)));
}

#[test]
fn a_sketch_decides_as_the_whole_does() {
    let (desk, fence) = crowd(20);
    let mut sketch = desk.bookings.sketch(&[id("all")]);
    let mut whole = desk.bookings.clone();
    let command = release(id("all"), Fence(fence));
    let planned = decided(&mut sketch, 9, &command);
    let done = decided(&mut whole, 9, &command);
    assert_eq!(planned, done);
    assert_eq!((done.0, done.1.len()), (Ok(Reply::Ended), 21));
}

/// The state of a snapshot as that level writes it.
fn read_back(bookings: &Bookings, level: u64) -> Bookings {
    let mut restored = Bookings::blank();
    for fact in bookings.facts(level) {
        restored.restore(fact);
    }
    restored
}
