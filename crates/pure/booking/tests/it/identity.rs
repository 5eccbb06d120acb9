//! Ids: repeated, reused, remembered and too old (L6, S5).

use bursar_booking::execution::{Adoption, Isolation};
use bursar_booking::{Bookings, Event, Fence, NOTE_LENGTH_MAX, Priority, Refusal, Request};
use bursar_units::{BookingId, Millis};

use crate::make::{Desk, LEVEL, Reply, at, id, label, order, request, slots_limit, uuid_id};

const DAY: u64 = 86_400_000;

#[test]
fn an_id_with_another_body_is_refused_and_the_field_is_named() {
    let mut desk = Desk::new();
    let asked = request("python", "a");
    desk.hold(0, "job", &asked);
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
                slots: 2,
                ..asked.clone()
            },
        ),
        (
            "cpuMilli",
            Request {
                cpu_milli: 1,
                ..asked.clone()
            },
        ),
        (
            "memoryBytes",
            Request {
                memory_bytes: 1,
                ..asked.clone()
            },
        ),
        (
            "gpus",
            Request {
                gpus: 1,
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
            Request {
                execution_id: Some(id("e")),
                ..asked.clone()
            },
        ),
        (
            "cpuLimitMilli",
            Request {
                cpu_limit_milli: Some(1),
                ..asked.clone()
            },
        ),
        (
            "memoryLimitBytes",
            Request {
                memory_limit_bytes: Some(1),
                ..asked.clone()
            },
        ),
    ] {
        assert_eq!(
            desk.reserve(1, "job", &other),
            Err(Refusal::IdReused { field })
        );
    }
    let fenced = Request {
        fence: Some(Fence(9)),
        ..asked
    };
    assert_eq!(
        desk.reserve(1, "job", &fenced),
        Ok(Reply::Repeated),
        "a fence is no part of what was asked"
    );
    assert_eq!(desk.hold(1, "other", &fenced), 2);
}

/// Ended bookings keep the whole request, also with large numbers.
#[test]
fn an_ended_booking_still_knows_its_request_to_the_last_field() {
    let unusual = Request {
        slots: 3,
        cpu_milli: 1,
        memory_bytes: 1 << 52,
        gpus: 2,
        wait: Millis::from_hours(24 * 60),
        cpu_limit_milli: Some(5),
        ..request("python", "a")
    };
    let limit = bursar_booking::Limit {
        wait_max: Millis::from_hours(24 * 365),
        ..bursar_booking::Limit::shipped()
    };
    let mut desk = Desk::with_limits(&[("default", limit)]);
    for asked in [unusual, request("python", "a")] {
        let text = format!("job-{}", asked.slots);
        let asked = Request {
            id: id(&text),
            ..asked
        };
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
    let again = |desk: &mut Desk, now: u64, id: &BookingId| desk.reserve(now, id.as_str(), &asked);
    let made = 10 * DAY;
    // Made, granted and released within one millisecond: the edge of "older than".
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

/// Events that do not fit the state change nothing: `apply` cannot fail.
#[test]
fn events_about_the_wrong_standing_change_nothing() {
    let mut desk = Desk::new();
    let fence = desk.hold(0, "held", &request("python", "a"));
    desk.hold(0, "ended", &request("python", "a"));
    desk.release(1, "ended", fence + 1).unwrap();
    let before: Vec<_> = desk.bookings.facts(LEVEL).collect();
    let again = |text: &str, fence| {
        Event::Reserved(Request {
            id: id(text),
            fence,
            ..request("java", "b")
        })
    };
    let adopted = Event::Adopted(Adoption {
        booking: Request {
            id: id("unfenced"),
            ..request("java", "b")
        },
        order: Some(order()),
        isolation: Isolation::Cgroup,
    });
    for event in [
        adopted,
        again("held", Some(Fence(9))),
        again("held", None),
        again("ended", Some(Fence(9))),
        Event::Granted {
            id: id("held"),
            fence: Fence(9),
            of: None,
            t: None,
        },
        Event::Granted {
            id: id("nobody"),
            fence: Fence(9),
            of: None,
            t: None,
        },
        Event::Renewed {
            id: id("ended"),
            expires: at(99),
            t: None,
        },
    ] {
        desk.bookings.apply(at(2), &event);
        assert!(
            desk.bookings.facts(LEVEL).eq(before.iter().cloned()),
            "{event:?}"
        );
    }
    assert_eq!(desk.force(2, "nobody"), Err(Refusal::NotFound));
}

/// Method: one booking that holds, one that waits and one that has ended, before and after a snapshot.
#[test]
fn a_note_is_on_record_and_takes_the_place_of_the_one_before() {
    let mut desk = Desk::with_limits(&[("python", slots_limit("python", "", 1))]);
    let fence = desk.hold(0, "ended", &request("python", "a"));
    desk.release(1, "ended", fence).unwrap();
    desk.hold(2, "held", &request("python", "a"));
    desk.reserve(3, "queued", &request("python", "a")).unwrap();
    assert_eq!(desk.note(4, "nobody", "?"), Err(Refusal::NotFound));
    for text in ["", &"x".repeat(NOTE_LENGTH_MAX + 1)] {
        assert_eq!(desk.note(4, "held", text), Err(Refusal::NoteLength));
    }
    for text in ["ended", "held", "queued"] {
        assert_eq!(desk.note(4, text, "first"), Ok(Reply::Noted));
        assert_eq!(desk.note(5, text, "second"), Ok(Reply::Noted));
        let recorded = desk.log.len();
        assert_eq!(desk.note(6, text, "second"), Ok(Reply::Repeated));
        assert_eq!(desk.log.len(), recorded, "a repeat leaves no record");
    }
    let mut restored = Bookings::blank();
    for fact in desk.bookings.facts(LEVEL) {
        restored.restore(fact);
    }
    for text in ["ended", "held", "queued"] {
        assert_eq!(desk.bookings.note(&id(text)), Some("second"));
        assert_eq!(restored.note(&id(text)), Some("second"));
    }
}
