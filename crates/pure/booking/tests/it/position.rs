//! Position of a waiting booking: the bookings ahead, the reason, and the estimate (S8).

use bursar_booking::position::{Position, Reason};
use bursar_booking::{Limit, Priority, Refusal, Request};
use bursar_units::{Dimension, Millis};

use crate::make::{Desk, at, at_once, id, label, request, sized, slots_limit, unbounded};

fn position(desk: &Desk, now: u64, text: &str) -> Position {
    desk.bookings.position(at(now), &id(text)).unwrap()
}

#[test]
fn ahead_counts_those_that_will_be_served_before_and_they_are() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    let mut fence = desk.hold(0, "holder", &request("python", "a"));
    let with = |tenant, priority| Request {
        priority,
        ..request("python", tenant)
    };
    for (text, asked) in [
        ("a1", with("a", Priority::Normal)),
        ("a2", with("a", Priority::Normal)),
        ("a3", with("a", Priority::Normal)),
        ("b1", with("b", Priority::Normal)),
        ("b2", with("b", Priority::Normal)),
        ("c1", with("c", Priority::High)),
    ] {
        desk.reserve(1, text, &asked).unwrap();
    }
    // Ann has had a turn already; bob and cyd start at the virtual time.
    let order = ["c1", "b1", "a1", "b2", "a2", "a3"];
    let mut holder = "holder".to_owned();
    for (served, next) in order.iter().enumerate() {
        for (place, text) in order.iter().enumerate().skip(served) {
            let ahead = u64::try_from(place - served).unwrap();
            assert_eq!(
                position(&desk, 2, text).ahead,
                ahead,
                "{text} after {served} were served"
            );
        }
        desk.release(2, &holder, fence).unwrap();
        fence = desk.fence_of(next).unwrap();
        holder = (*next).to_owned();
    }
    assert_eq!(
        desk.bookings.position(at(2), &id("a3")),
        None,
        "who holds does not wait"
    );
}

#[test]
fn an_estimate_needs_twenty_ends_and_says_what_it_rests_on() {
    let mut desk = Desk::with_limits(&[("python", slots_limit("python", "", 2))]);
    let run = |desk: &mut Desk, number: u64, held: u64| {
        let text = format!("run-{number}");
        let fence = desk.hold(number * 1_000, &text, &request("python", "a"));
        desk.release(number * 1_000 + held, &text, fence).unwrap();
    };
    let asked = |desk: &mut Desk| {
        desk.hold(50_000, "x", &request("python", "a"));
        desk.hold(50_000, "y", &request("python", "a"));
        desk.reserve(50_000, "first", &request("python", "a"))
            .unwrap();
        desk.reserve(50_000, "second", &request("python", "a"))
            .unwrap();
    };
    let mut few = desk.clone();
    (0..19).for_each(|number| run(&mut few, number, 300));
    asked(&mut few);
    assert_eq!(position(&few, 50_000, "first").estimate, None);
    assert_eq!(few.bookings.next_free(&label("python")), None);

    // Twenty runs of 300 ms but one of 301: ⌈6,001·2 / (20·2)⌉ = 301 for the second in line.
    (0..19).for_each(|number| run(&mut desk, number, 300));
    run(&mut desk, 19, 301);
    asked(&mut desk);
    let estimate = |text| {
        position(&desk, 50_000, text)
            .estimate
            .map(|e| (e.ms, e.rests_on))
    };
    assert_eq!(estimate("first"), Some((151, 20)));
    assert_eq!(estimate("second"), Some((301, 20)));
    let next = desk.bookings.next_free(&label("python")).unwrap();
    assert_eq!((next.ms, next.rests_on), (151, 20));
}

#[test]
fn an_estimate_rests_on_the_last_two_hundred_ends() {
    let mut desk = Desk::with_limits(&[("python", slots_limit("python", "", 1))]);
    for number in 0..230 {
        let text = format!("run-{number}");
        let held = if number < 30 { 900 } else { 100 };
        let fence = desk.hold(number * 1_000, &text, &request("python", "a"));
        desk.release(number * 1_000 + held, &text, fence).unwrap();
    }
    desk.hold(500_000, "x", &request("python", "a"));
    desk.reserve(500_000, "w", &request("python", "a")).unwrap();
    let estimate = position(&desk, 500_000, "w").estimate.unwrap();
    assert_eq!((estimate.ms, estimate.rests_on), (100, 200));
}

#[test]
fn the_reason_is_the_limit_or_the_order_and_a_pause_has_no_estimate() {
    let mut desk = Desk::with_limits(&[
        ("all", slots_limit("", "", 4)),
        ("java", slots_limit("java", "", 0)),
    ]);
    for number in 0..20 {
        let text = format!("run-{number}");
        let fence = desk.hold(number, &text, &request("python", "a"));
        desk.release(number, &text, fence).unwrap();
    }
    let low = Request {
        priority: Priority::Low,
        ttl: Millis::from_hours(1),
        ..at_once("python", "a")
    };
    desk.hold(100, "holder", &low);
    desk.reserve(100, "big", &sized(request("python", "b"), 4))
        .unwrap();
    desk.reserve(100, "behind", &request("python", "b"))
        .unwrap();
    desk.reserve(100, "paused", &request("java", "a")).unwrap();
    let told = |desk: &Desk, text| {
        let position = position(desk, 100, text);
        (position.reason, position.limits[0].name.to_string())
    };
    assert_eq!(told(&desk, "big"), (Reason::LimitFull, "all".to_owned()));
    assert_eq!(
        told(&desk, "behind"),
        (Reason::QueueOrder, "all".to_owned())
    );
    assert_eq!(
        told(&desk, "paused"),
        (Reason::LimitPaused, "java".to_owned())
    );
    assert_eq!(position(&desk, 100, "paused").estimate, None);
    for number in 0..100 {
        let text = format!("pass-{number}");
        let fence = desk.hold(100, &text, &low);
        desk.release(100, &text, fence).unwrap();
    }
    desk.reserve(100, "small", &request("python", "c")).unwrap();
    assert_eq!(told(&desk, "small"), (Reason::Shielded, "all".to_owned()));
}

/// A refusal by order names a limit even if no shared limit bounds slots.
#[test]
fn a_refusal_by_order_always_names_a_limit() {
    let first_named = |limits: &[(&str, Limit)]| {
        let mut desk = Desk::with_limits(limits);
        desk.set(0, &[("default", unbounded("each", ""))]).unwrap();
        let gpus = |gpus, request| Request { gpus, ..request };
        desk.hold(0, "one", &gpus(1, request("python", "a")));
        desk.reserve(0, "two", &gpus(2, request("python", "a")))
            .unwrap();
        match desk.reserve(0, "barge", &gpus(1, at_once("python", "a"))) {
            Err(Refusal::OthersFirst { limits }) => {
                (limits[0].name.to_string(), limits[0].dimension)
            }
            other => panic!("{other:?}"),
        }
    };
    let two = |tenant| Limit {
        gpus: Some(2),
        ..unbounded("", tenant)
    };
    assert_eq!(
        first_named(&[("all", two(""))]),
        ("all".to_owned(), Dimension::Gpus)
    );
    assert_eq!(
        first_named(&[("own", two("a"))]),
        ("own".to_owned(), Dimension::Gpus)
    );
}

#[test]
fn a_limit_counts_only_those_it_holds_up() {
    let mut desk = Desk::with_limits(&[
        ("all", slots_limit("", "", 10)),
        ("python", slots_limit("python", "", 1)),
        ("tenant", slots_limit("", "each", 5)),
    ]);
    desk.hold(0, "holder", &request("python", "a"));
    desk.reserve(7, "first", &request("python", "a")).unwrap();
    desk.reserve(9, "second", &request("python", "b")).unwrap();
    let held_up = desk.bookings.held_up();
    let names: Vec<&str> = held_up
        .keys()
        .map(bursar_units::ObjectName::as_str)
        .collect();
    assert_eq!(names, ["python"], "the others have room");
    assert_eq!(
        (held_up["python"].bookings, held_up["python"].since),
        (2, at(7))
    );
}
