//! The checker finds every broken invariant. Each is broken once, with contradicting facts.

use bursar_booking::fact::{Fact, Unsettled};
use bursar_booking::invariants::{Broken, check};
use bursar_booking::{Bookings, Fence, Limit};

use crate::make::{Desk, LEVEL, at, execution, id, name, request, slots_limit};

/// A state with one granted, two queued and one ended booking.
fn sound() -> Vec<Fact> {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    let fence = desk.hold(0, "ended", &request("python", "a"));
    desk.release(1, "ended", fence).unwrap();
    desk.hold(2, "held", &request("python", "a"));
    desk.reserve(3, "first", &request("python", "b")).unwrap();
    desk.reserve(4, "second", &request("python", "b")).unwrap();
    desk.bookings.facts(LEVEL).collect()
}

fn checked(facts: impl IntoIterator<Item = Fact>) -> Result<(), Broken> {
    let mut bookings = Bookings::blank();
    for fact in facts {
        bookings.restore(fact);
    }
    check(&bookings)
}

/// The sound state after a change to each of its facts.
fn with(change: impl Fn(&mut Fact)) -> Result<(), Broken> {
    let mut facts = sound();
    facts.iter_mut().for_each(change);
    checked(facts)
}

#[test]
fn a_sound_state_passes() {
    assert_eq!(checked(sound()), Ok(()));
}

#[test]
fn a_counter_that_differs_from_its_bookings_is_found() {
    let held = sound()
        .into_iter()
        .find(|fact| matches!(fact, Fact::Granted { .. }))
        .unwrap();
    let broken = checked(sound().into_iter().chain([held]));
    assert!(matches!(broken, Err(Broken::Counter { .. })), "{broken:?}");
}

#[test]
fn limits_that_changed_behind_the_bookings_are_found() {
    let late = Fact::Limit(Limit {
        name: name("late"),
        ..slots_limit("python", "", 9)
    });
    let broken = checked(sound().into_iter().chain([late]));
    assert!(matches!(broken, Err(Broken::Limits { .. })), "{broken:?}");
}

#[test]
fn an_id_in_two_standings_is_found() {
    let broken = with(|fact| {
        if let Fact::Ended { request, .. } = fact {
            request.id = id("held");
        }
    });
    assert_eq!(broken, Err(Broken::TwoStandings { id: id("held") }));
}

#[test]
fn a_fence_never_given_out_or_given_out_twice_is_found() {
    let broken = with(|fact| {
        if let Fact::Totals { fence, .. } = fact {
            *fence = Fence(1);
        }
    });
    assert!(matches!(broken, Err(Broken::Fence { .. })), "{broken:?}");
    let twin = sound().into_iter().find_map(|mut fact| match &mut fact {
        Fact::Granted { request, .. } => {
            request.id = id("twin");
            Some(fact)
        }
        _ => None,
    });
    let broken = checked(sound().into_iter().chain(twin));
    assert!(matches!(broken, Err(Broken::Fence { .. })), "{broken:?}");
}

/// Method: executions in every stage; then each loses one field that its stage needs.
#[test]
fn an_execution_whose_stage_does_not_agree_with_its_times_is_found() {
    let mut desk = Desk::new();
    for text in ["starting", "running", "stopping", "stuck"] {
        desk.hold(0, text, &execution("python", "a"));
    }
    desk.started(1, "running").unwrap();
    for text in ["stopping", "stuck"] {
        desk.cancel(2, text).unwrap();
    }
    for attempt in 1..=10 {
        desk.stop_failed(3, "stuck", attempt).unwrap();
    }
    let facts: Vec<Fact> = desk.bookings.facts(LEVEL).collect();
    assert_eq!(checked(facts.clone()), Ok(()));
    let stage_of = |text: &str| {
        let progress = facts.iter().find_map(|fact| match fact {
            Fact::Granted {
                request, progress, ..
            } if request.id.as_str() == text => progress.clone(),
            _ => None,
        });
        progress.unwrap()
    };
    // Each gets the stage of another with its own deadline, or loses a field.
    for (text, other) in [
        ("starting", "running"),
        ("running", "starting"),
        ("starting", "stopping"),
        ("stopping", "starting"),
        ("stuck", "running"),
        ("running", "stuck"),
    ] {
        let broken = checked(facts.iter().cloned().map(|mut fact| {
            if let Fact::Granted {
                request, progress, ..
            } = &mut fact
                && request.id.as_str() == text
            {
                progress.as_mut().unwrap().stage = stage_of(other).stage;
            }
            fact
        }));
        assert_eq!(broken, Err(Broken::Execution { id: id(text) }), "{other}");
    }
    for text in ["starting", "running"] {
        let broken = checked(facts.iter().cloned().map(|mut fact| {
            if let Fact::Granted { request, until, .. } = &mut fact
                && request.id.as_str() == text
            {
                *until = None;
            }
            fact
        }));
        assert_eq!(broken, Err(Broken::Execution { id: id(text) }));
    }
    let without_order = checked(facts.iter().cloned().map(|mut fact| {
        if let Fact::Granted { request, order, .. } = &mut fact
            && request.id.as_str() == "running"
        {
            *order = None;
        }
        fact
    }));
    assert_eq!(without_order, Err(Broken::Execution { id: id("running") }));
}

#[test]
fn a_lane_out_of_order_is_found() {
    let broken = with(|fact| {
        if let Fact::Queued { sequence, .. } = fact {
            *sequence = 3;
        }
    });
    assert!(matches!(broken, Err(Broken::Room { .. })), "{broken:?}");
    let broken = with(|fact| {
        if let Fact::Totals { sequence, .. } = fact {
            *sequence = 3;
        }
    });
    assert!(matches!(broken, Err(Broken::Room { .. })), "{broken:?}");
}

#[test]
fn passes_that_no_head_can_have_are_found() {
    let passed = |number: &str, times: u32, place: Option<u64>| {
        with(|fact| match fact {
            Fact::Queued {
                request,
                passes,
                due,
                ..
            } if request.id.as_str() == number => {
                (*passes, *due) = (times, place);
            }
            Fact::Totals { dues, .. } => *dues = 1,
            _ => {}
        })
    };
    assert_eq!(passed("first", 99, None), Ok(()));
    assert_eq!(passed("first", 100, Some(0)), Ok(()));
    for (number, times, place) in [
        ("first", 100, None),
        ("first", 99, Some(0)),
        ("first", 100, Some(1)),
        ("second", 1, None),
    ] {
        let broken = passed(number, times, place);
        assert!(
            matches!(broken, Err(Broken::Due { .. })),
            "{number} {times} {place:?}: {broken:?}"
        );
    }
}

#[test]
fn an_end_that_should_be_forgotten_is_found() {
    let young = sound().into_iter().find_map(|mut fact| match &mut fact {
        Fact::Ended {
            request, ended_at, ..
        } => {
            (request.id, *ended_at) = (id("young"), at(86_400_001));
            Some(fact)
        }
        _ => None,
    });
    let broken = checked(sound().into_iter().chain(young));
    assert!(matches!(broken, Err(Broken::Archive { .. })), "{broken:?}");
}

#[test]
fn a_grantable_booking_is_found_unless_the_room_is_unsettled() {
    let free = |more: bool| {
        let without_holder = sound()
            .into_iter()
            .filter(|fact| !matches!(fact, Fact::Granted { .. }));
        checked(without_holder.map(|mut fact| {
            if let Fact::Totals { unsettled, .. } = &mut fact {
                *unsettled = Unsettled::Is(more);
            }
            fact
        }))
    };
    assert_eq!(free(false), Err(Broken::Grantable { id: id("first") }));
    assert_eq!(free(true), Ok(()));
}
