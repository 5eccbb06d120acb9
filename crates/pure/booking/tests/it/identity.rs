//! Ids: repeated, reused, remembered and too old (L6, S5).

use bursar_booking::decide::{self, Events};
use bursar_booking::{Event, Extras, Fence, Priority, Refusal, Reply, Request};
use bursar_units::{Amount, BookingId, Millis};

use crate::make::{Desk, at, id, label, request, uuid_id};

const DAY: u64 = 86_400_000;

#[test]
fn an_id_with_another_body_is_refused_and_the_field_is_named() {
    let mut desk = Desk::new();
    let asked = request("python", "a");
    desk.hold(0, "job", &asked);
    let amount = asked.amount;
    let extras = |extras| Request {
        extras: Some(Box::new(extras)),
        ..asked.clone()
    };
    for (field, other) in [
        (
            "class",
            Request {
                class: label("java"),
                ..asked.clone()
            },
        ),
        (
            "tenant",
            Request {
                tenant: label("b"),
                ..asked.clone()
            },
        ),
        (
            "slots",
            Request {
                amount: Amount { slots: 2, ..amount },
                ..asked.clone()
            },
        ),
        (
            "cpuMilli",
            Request {
                amount: Amount {
                    cpu_milli: 1,
                    ..amount
                },
                ..asked.clone()
            },
        ),
        (
            "memoryBytes",
            Request {
                amount: Amount {
                    memory_bytes: 1,
                    ..amount
                },
                ..asked.clone()
            },
        ),
        (
            "gpus",
            Request {
                amount: Amount { gpus: 1, ..amount },
                ..asked.clone()
            },
        ),
        (
            "priority",
            Request {
                priority: Priority::High,
                ..asked.clone()
            },
        ),
        (
            "ttlMs",
            Request {
                ttl: Millis::from_secs(9),
                ..asked.clone()
            },
        ),
        (
            "waitMs",
            Request {
                wait: Millis::ZERO,
                ..asked.clone()
            },
        ),
        (
            "executionId",
            extras(Extras {
                execution: Some(id("e")),
                ..Extras::default()
            }),
        ),
        (
            "cpuLimitMilli",
            extras(Extras {
                cpu_limit_milli: Some(1),
                ..Extras::default()
            }),
        ),
        (
            "memoryLimitBytes",
            extras(Extras {
                memory_limit_bytes: Some(1),
                ..Extras::default()
            }),
        ),
    ] {
        assert_eq!(
            desk.reserve(1, "job", &other),
            Err(Refusal::IdReused { field })
        );
    }
    assert_eq!(
        desk.reserve(1, "job", &extras(Extras::default())),
        Ok(Reply::Repeated)
    );
}

/// Ended bookings keep all that was asked, also where numbers are unusually large.
#[test]
fn an_ended_booking_still_knows_its_request_to_the_last_field() {
    let unusual = Request {
        amount: Amount {
            slots: 3,
            cpu_milli: 1,
            memory_bytes: 1 << 52,
            gpus: 2,
        },
        wait: Millis::from_hours(24 * 60),
        extras: Some(Box::new(Extras {
            cpu_limit_milli: Some(5),
            ..Extras::default()
        })),
        ..request("python", "a")
    };
    let limit = bursar_booking::Limit {
        wait_max: Millis::from_hours(24 * 365),
        ..bursar_booking::Limit::shipped()
    };
    let mut desk = Desk::with_limits(&[("default", limit)]);
    for asked in [unusual, request("python", "a")] {
        let text = format!("job-{}", asked.amount.slots);
        let fence = desk.hold(0, &text, &asked);
        desk.release(1, &text, fence).unwrap();
        assert_eq!(desk.bookings.request(&id(&text)).as_ref(), Some(&asked));
        assert_eq!(desk.reserve(2, &text, &asked), Ok(Reply::Repeated));
    }
}

#[test]
fn an_end_is_remembered_for_a_day_and_forgotten_by_the_next_end_after_it() {
    let mut desk = Desk::new();
    let once = |desk: &mut Desk, now: u64, text: &str| {
        let fence = desk.hold(now, text, &request("python", "a"));
        desk.release(now, text, fence).unwrap();
    };
    once(&mut desk, 1_000, "old");
    once(&mut desk, 1_000 + DAY - 1, "young");
    assert_eq!(
        desk.reserve(1_000 + DAY - 1, "old", &request("python", "a")),
        Ok(Reply::Repeated)
    );
    once(&mut desk, 1_000 + DAY, "younger");
    assert_eq!(desk.bookings.counts(), (0, 0, 2));
    assert!(desk.bookings.standing(&id("old")).is_none());
    desk.hold(1_000 + DAY, "old", &request("python", "a"));
}

#[test]
fn a_uuid_v7_id_is_never_granted_twice_however_late_it_is_repeated() {
    let mut desk = Desk::new();
    let asked = request("python", "a");
    let again = |desk: &mut Desk, now: u64, id: &BookingId| {
        desk.record(|b, events| decide::reserve(b, at(now), id, &asked, events))
    };
    let made = 10 * DAY;
    // Made, granted and given back within one millisecond: the edge of "older than".
    let first = uuid_id(made, 1);
    let Ok(Reply::Granted(Fence(fence))) = again(&mut desk, made, &first) else {
        panic!()
    };
    desk.release(made, first.as_str(), fence).unwrap();
    assert_eq!(
        again(&mut desk, made + DAY - 1, &first),
        Ok(Reply::Repeated)
    );

    let fence = desk.hold(made + DAY, "other", &request("python", "a"));
    desk.release(made + DAY, "other", fence).unwrap();
    assert!(desk.bookings.standing(&first).is_none(), "it is forgotten");
    let too_old = Err(Refusal::IdTooOld {
        forgotten_at: at(made),
    });
    assert_eq!(again(&mut desk, made + DAY, &first), too_old);
    assert_eq!(again(&mut desk, made + 99 * DAY, &first), too_old);
    assert_eq!(again(&mut desk, made + DAY, &uuid_id(made - 1, 2)), too_old);
    assert!(again(&mut desk, made + DAY, &uuid_id(made + 1, 3)).is_ok());
    assert!(again(&mut desk, made + DAY, &id("no-uuid")).is_ok());
}

/// What makes no sense changes nothing: a fold cannot fail.
#[test]
fn events_about_the_wrong_standing_change_nothing() {
    let mut desk = Desk::new();
    let fence = desk.hold(0, "held", &request("python", "a"));
    desk.hold(0, "ended", &request("python", "a"));
    desk.release(1, "ended", fence + 1).unwrap();
    let before: Vec<_> = desk.bookings.facts().collect();
    let again = |text: &str, fence| Event::Reserved {
        id: id(text),
        request: request("java", "b"),
        fence,
    };
    for event in [
        again("held", Some(Fence(9))),
        again("held", None),
        again("ended", Some(Fence(9))),
        Event::Granted {
            id: id("held"),
            fence: Fence(9),
        },
        Event::Granted {
            id: id("nobody"),
            fence: Fence(9),
        },
        Event::Renewed {
            id: id("ended"),
            expires: at(99),
        },
    ] {
        desk.bookings.apply(at(2), &event);
        assert!(
            desk.bookings.facts().eq(before.iter().cloned()),
            "{event:?}"
        );
    }
    let mut events = Events::new();
    let unknown = decide::force(&mut desk.bookings, at(2), &id("nobody"), "why", &mut events);
    assert_eq!(unknown, Err(Refusal::NotFound));
}
