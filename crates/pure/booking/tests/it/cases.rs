//! Cases of plain bookings, among them the mistakes of an earlier design.

use bursar_booking::{End, Refusal, Request, Standing};
use bursar_units::Millis;

use crate::make::{Desk, Reply, at, at_once, id, request, sized, slots_limit};

const HOUR: u64 = 3_600_000;

/// An earlier design counted, compared, then inserted: all fifty were granted.
#[test]
fn of_fifty_reserves_with_one_free_slot_one_is_granted_and_the_others_are_refused_with_the_limit() {
    let mut desk = Desk::with_limits(&[("python", slots_limit("python", "", 5))]);
    desk.hold(0, "big", &sized(request("python", "a"), 4));
    let mut granted = 0;
    for number in 0..50_usize {
        let tenant = ["a", "b", "c"][number % 3];
        let asked = if number % 2 == 0 {
            request("python", tenant)
        } else {
            at_once("python", tenant)
        };
        match desk.reserve(1, &format!("b{number}"), &asked) {
            Ok(Reply::Granted(_)) => granted += 1,
            Ok(Reply::Queued) => assert_eq!(number % 2, 0),
            Err(Refusal::OverLimit { limits }) => {
                assert_eq!(limits[0].name.as_str(), "python");
                assert_eq!((limits[0].size, limits[0].in_use), (5, 5));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((granted, desk.live()), (1, (2, 24)));
}

/// An earlier design never freed the row of a successful run: run 101 was refused.
#[test]
fn a_hundred_and_thirty_runs_one_after_another_all_finish_under_a_limit_of_a_hundred() {
    let mut desk = Desk::new();
    for number in 0..130 {
        let text = format!("run-{number}");
        let fence = desk.hold(number * 10, &text, &at_once("python", "a"));
        assert_eq!(
            desk.release(number * 10 + 5, &text, fence),
            Ok(Reply::Ended)
        );
    }
    assert_eq!(desk.live(), (0, 0));
}

#[test]
fn every_way_to_end_leaves_nobody_holding() {
    let one = || {
        let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
        let fence = desk.hold(0, "holder", &request("python", "a"));
        (desk, fence)
    };
    let (mut desk, fence) = one();
    desk.release(1, "holder", fence).unwrap();
    assert_eq!(
        (desk.live(), how(&desk, "holder")),
        ((0, 0), Some(End::Released))
    );

    let (mut desk, _) = one();
    desk.tick(59_999);
    assert_eq!(
        desk.live(),
        (1, 0),
        "a deadline has passed when now ≥ deadline, not before"
    );
    desk.tick(60_000);
    assert_eq!(
        (desk.live(), how(&desk, "holder")),
        ((0, 0), Some(End::Expired))
    );

    let (mut desk, _) = one();
    desk.force(1, "holder").unwrap();
    assert_eq!(
        (desk.live(), how(&desk, "holder")),
        ((0, 0), Some(End::Forced))
    );

    let (mut desk, fence) = one();
    assert!(desk.reserve(1, "refused", &at_once("python", "b")).is_err());
    desk.release(1, "holder", fence).unwrap();
    assert_eq!(
        (desk.live(), how(&desk, "refused")),
        ((0, 0), None),
        "a refusal leaves no trace"
    );

    let (mut desk, fence) = one();
    desk.reserve(1, "waiter", &request("python", "b")).unwrap();
    desk.cancel(2, "waiter").unwrap();
    desk.release(3, "holder", fence).unwrap();
    assert_eq!(
        (desk.live(), how(&desk, "waiter")),
        ((0, 0), Some(End::Cancelled))
    );

    let (mut desk, _) = one();
    let short = Request {
        wait: Millis::from_secs(30),
        ..request("python", "b")
    };
    desk.reserve(1, "waiter", &short).unwrap();
    desk.tick(60_000);
    assert_eq!(
        (desk.live(), how(&desk, "waiter")),
        ((0, 0), Some(End::WaitOver))
    );
}

/// A booking whose wait ends when another expires gets its slot.
#[test]
fn a_slot_that_comes_free_when_a_wait_ends_is_granted_to_the_one_that_waited() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    desk.hold(0, "holder", &request("python", "a"));
    let until_then = Request {
        wait: Millis::from_secs(60),
        ..request("python", "b")
    };
    desk.reserve(0, "waiter", &until_then).unwrap();
    desk.tick(60_000);
    assert!(desk.fence_of("waiter").is_some());
}

#[test]
fn the_same_request_twice_hours_apart_gives_one_grant() {
    let mut desk = Desk::new();
    let asked = Request {
        ttl: Millis::from_hours(24),
        ..request("python", "a")
    };
    let fence = desk.hold(0, "job", &asked);
    assert_eq!(desk.reserve(5 * HOUR, "job", &asked), Ok(Reply::Repeated));
    assert_eq!(desk.fence_of("job"), Some(fence));
    desk.release(6 * HOUR, "job", fence).unwrap();
    assert_eq!(desk.reserve(20 * HOUR, "job", &asked), Ok(Reply::Repeated));
    assert_eq!(
        how(&desk, "job"),
        Some(End::Released),
        "its present state answers"
    );
    assert_eq!((desk.grants().len(), desk.live()), (1, (0, 0)));
}

#[test]
fn a_release_repeated_or_with_an_old_fence_or_after_expiry_has_one_effect() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    let first = desk.hold(0, "one", &request("python", "a"));
    assert_eq!(desk.release(1, "one", first), Ok(Reply::Ended));
    let recorded = desk.log.len();
    assert_eq!(desk.release(2, "one", first), Ok(Reply::AlreadyEnded));

    let second = desk.hold(3, "two", &request("python", "a"));
    assert!(second > first, "fences rise for every id");
    assert_eq!(
        desk.release(4, "two", first),
        Err(Refusal::StaleFence { end: None })
    );
    assert_eq!(
        desk.release(4, "two", second + 1),
        Err(Refusal::StaleFence { end: None })
    );
    let stale = Err(Refusal::StaleFence {
        end: Some(End::Released),
    });
    assert_eq!(desk.release(4, "one", second), stale);
    assert_eq!(desk.live(), (1, 0));

    desk.tick(60_003);
    assert_eq!(desk.release(60_004, "two", second), Ok(Reply::AlreadyEnded));
    assert_eq!(how(&desk, "two"), Some(End::Expired));
    assert_eq!((desk.live(), desk.log.len()), ((0, 0), recorded + 2));
}

#[test]
fn a_queued_booking_is_cancelled_without_a_fence_and_a_granted_one_is_not() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    let fence = desk.hold(0, "holder", &request("python", "a"));
    desk.reserve(0, "waiter", &request("python", "a")).unwrap();
    assert_eq!(desk.cancel(1, "holder"), Err(Refusal::IsGranted));
    assert_eq!(desk.release(1, "waiter", fence), Err(Refusal::IsQueued));
    assert_eq!(desk.cancel(1, "nobody"), Err(Refusal::NotFound));
    assert_eq!(desk.cancel(1, "waiter"), Ok(Reply::Ended));
    assert_eq!(desk.cancel(1, "waiter"), Ok(Reply::AlreadyEnded));
}

/// A renewal must not be longer than the ttl that a holder gets after a crash (L5).
#[test]
fn a_renewal_is_for_at_most_the_ttl_that_was_asked_for_even_when_limits_were_lowered() {
    let mut desk = Desk::new();
    let fence = desk.hold(0, "job", &request("python", "a"));
    let strict = bursar_booking::Limit {
        ttl_max: Millis::from_secs(10),
        ..slots_limit("python", "", 10)
    };
    desk.set(1, &[("python", strict)]).unwrap();
    let recorded = desk.log.len();
    let mut renew = |fence, ttl| desk.renew(2_000, "job", fence, ttl);
    let until = |secs: u64| {
        Ok(Reply::Renewed {
            expires: at(secs * 1_000),
        })
    };
    assert_eq!(
        renew(fence, None),
        until(62),
        "a lowered limit evicts nobody"
    );
    assert_eq!(renew(fence, Some(Millis::from_secs(7))), until(9));
    for ttl in [Millis::from_secs(61), Millis::from_ms(999)] {
        let refused = Refusal::TimeOutOfBounds {
            field: "ttlMs",
            min_ms: 1_000,
            max_ms: 60_000,
            limit: None,
        };
        assert_eq!(renew(fence, Some(ttl)), Err(refused));
    }
    assert_eq!(renew(9, None), Err(Refusal::StaleFence { end: None }));
    assert_eq!(desk.log.len(), recorded, "evidence is no event");
}

/// An absence of the server expires no holder: each gets its full ttl after it.
#[test]
fn nobody_expires_while_the_engine_is_away() {
    let mut desk = Desk::with_limits(&[("all", slots_limit("", "", 1))]);
    desk.hold(0, "holder", &request("python", "a"));
    desk.reserve(0, "waiter", &request("python", "a")).unwrap();
    desk.bookings.resume(at(2 * HOUR));
    desk.tick(2 * HOUR + 59_999);
    assert_eq!(
        desk.live(),
        (1, 0),
        "the holder holds, and the wait was over on our return"
    );
    desk.tick(2 * HOUR + 60_000);
    assert_eq!(desk.live(), (0, 0));
}

fn how(desk: &Desk, text: &str) -> Option<End> {
    match desk.bookings.standing(&id(text)) {
        Some(Standing::Ended(ended)) => Some(ended.end()),
        _ => None,
    }
}
