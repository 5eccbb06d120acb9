//! Explanations of waits, refusals and changes of limits.

use bursar_booking::decide::Change;
use bursar_booking::position::Reason;
use bursar_booking::{Bound, Command as BookingCommand, Limit, Priority, Request, Scope};
use bursar_engine::explain::{
    Mood, Object, Stage, WaitsFor, booking, change_effect, held_by, limit, reason_word, refused,
};
use bursar_engine::{Command, FORMAT, plan, spine};
use bursar_units::Millis;

use crate::world::{
    World, cancel, change, force, id, label, limit_of, name, patient, request, reserve, set_limit,
};

/// 100 of 100 python slots held by acme 61, zeta 30 and seven others; 3 wait.
fn full() -> World {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 100))).unwrap();
    for at in 0..250 {
        let job = format!("past-{at}");
        world.run(reserve(&job, request("python", "acme"))).unwrap();
        world.advance(10_000);
        world.release(&job).unwrap();
    }
    let ttl = Millis::from_hours(1);
    for at in 0..100 {
        let tenant = match at {
            0..61 => "acme".to_owned(),
            61..91 => "zeta".to_owned(),
            _ => format!("small-{}", at % 7),
        };
        let request = Request {
            ttl,
            ..request("python", &tenant)
        };
        world.run(reserve(&format!("held-{at}"), request)).unwrap();
    }
    for at in 0..3 {
        world
            .run(reserve(&format!("waits-{at}"), patient("python", "other")))
            .unwrap();
    }
    world
}

#[test]
fn a_refusal_by_a_limit_names_it_its_size_its_holders_and_the_way_out() {
    let mut world = full();
    let command = reserve("job-7", request("python", "acme"));
    let refusal = world.run(command.clone()).unwrap_err();
    let told = refused(&world.state, &command, &refusal);
    assert_eq!(told.headline, "no python slot is free");
    assert_eq!(told.detail, "limit `python` is 100, in use 100, waiting 3");
    assert_eq!(told.changes, ["send waitMs", "raise limit python"]);
    let holders = |may_see: &dyn Fn(&str) -> bool| {
        let held = held_by(&told.holders, |tenant| may_see(tenant.as_str()));
        let named = held
            .named
            .iter()
            .map(|(name, slots)| format!("{name} {slots}"));
        let named: Vec<String> = named.collect();
        (named.join(", "), held.others, held.others_slots)
    };
    let everyone = holders(&|_| true);
    assert_eq!(everyone, ("acme 61, zeta 30, small-0 2".to_owned(), 6, 7));
    let some = holders(&|tenant| tenant == "zeta");
    assert_eq!(some, ("zeta 30".to_owned(), 8, 70));
    assert_eq!(holders(&|_| false), (String::new(), 9, 100));
    let when = told.when.unwrap();
    assert_eq!(
        (when.estimate_ms, when.text().as_str()),
        (Some(100), "about 1s (rests on the last 200 executions)")
    );
}

#[test]
fn a_booking_that_waits_says_for_what_behind_whom_and_how_long() {
    let mut world = full();
    world
        .run(reserve("job-7", patient("python", "other")))
        .unwrap();
    let told = booking(&world.state, world.now, &id("job-7")).unwrap();
    assert_eq!(
        told.headline,
        "job-7 waits for a python slot: 100/100 in use, 3 ahead, about 1s (rests on the last 200 executions)"
    );
    assert_eq!(
        (told.stage, told.waits_for),
        (Stage::Queued, Some(WaitsFor::Room))
    );
    assert_eq!(told.reason.map(reason_word), Some("LimitFull"));
    assert_eq!(told.changes, ["raise limit python"]);
    assert_eq!(told.why.holders.len(), 9);
    assert_eq!(told.record, world.state.spine.head - 1);
    assert_eq!(told.object, Object::Booking(id("job-7")));
}

#[test]
fn a_paused_limit_is_named_as_the_cause() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 0))).unwrap();
    world
        .run(reserve("job-7", patient("python", "acme")))
        .unwrap();
    let told = booking(&world.state, world.now, &id("job-7")).unwrap();
    assert_eq!(
        told.headline,
        "job-7 waits: limit python is paused (0 slots)"
    );
    assert_eq!(
        (told.reason, told.waits_for),
        (Some(Reason::LimitPaused), Some(WaitsFor::Budget))
    );
    assert_eq!(told.changes, ["raise limit python above 0"]);
    assert_eq!(
        told.when.unwrap().text(),
        "unknown (a paused limit grants nothing)"
    );
    let command = reserve("job-8", request("python", "acme"));
    let refusal = world.run(command.clone()).unwrap_err();
    let told = refused(&world.state, &command, &refusal);
    assert_eq!(told.headline, "limit `python` is paused");
    assert_eq!(told.detail, "limit `python` is 0, in use 0, waiting 1");
    assert_eq!(told.when, None);
    let told = limit(&world.state, &name("python"), |_| true).unwrap();
    assert_eq!(
        (told.headline.as_str(), told.stage),
        ("limit python is paused (0 slots), 1 waiting", Stage::Paused)
    );
}

#[test]
fn an_estimate_without_a_basis_is_unknown_and_says_why() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 1))).unwrap();
    world
        .run(reserve("job-1", request("python", "acme")))
        .unwrap();
    world
        .run(reserve("job-2", patient("python", "acme")))
        .unwrap();
    let told = booking(&world.state, world.now, &id("job-2")).unwrap();
    assert_eq!(
        told.headline,
        "job-2 waits for a python slot: 1/1 in use, nobody ahead"
    );
    assert_eq!(
        told.when.unwrap().text(),
        "unknown (fewer than 20 python bookings have ended)"
    );
}

#[test]
fn where_nothing_of_the_class_is_held_that_alone_is_why_there_is_no_estimate() {
    let mut world = World::new();
    let acme = Limit {
        slots: Some(1),
        ..Limit::unbounded(name("acme"), None, Some(Scope::Named(label("acme"))))
    };
    world.run(set_limit(acme)).unwrap();
    world.run(reserve("job-1", request("go", "acme"))).unwrap();
    world
        .run(reserve("job-2", patient("python", "acme")))
        .unwrap();
    let told = booking(&world.state, world.now, &id("job-2")).unwrap();
    assert_eq!(
        told.when.unwrap().text(),
        "unknown (nothing holds a python slot)"
    );
}

#[test]
fn a_limit_that_is_not_the_class_is_named_in_the_headline() {
    let mut world = World::new();
    let each = Limit {
        slots: Some(1),
        ..Limit::unbounded(name("tenant"), None, Some(Scope::Each))
    };
    world.run(set_limit(each)).unwrap();
    world
        .run(reserve("job-1", request("python", "acme")))
        .unwrap();
    world
        .run(reserve("job-2", patient("rust", "acme")))
        .unwrap();
    let told = booking(&world.state, world.now, &id("job-2")).unwrap();
    assert_eq!(
        told.headline,
        "job-2 waits for a rust slot: 1/1 of limit tenant in use, nobody ahead"
    );
    assert_eq!(told.why.holders, [(label("acme"), 1)]);
}

#[test]
fn one_behind_its_own_lane_waits_for_its_turn() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 3))).unwrap();
    for at in 0..2 {
        world
            .run(reserve(&format!("job-{at}"), request("python", "acme")))
            .unwrap();
    }
    let large = Request {
        slots: 2,
        ..patient("python", "acme")
    };
    world.run(reserve("large", large)).unwrap();
    world
        .run(reserve("small", patient("python", "acme")))
        .unwrap();
    let told = booking(&world.state, world.now, &id("small")).unwrap();
    assert_eq!(
        told.headline,
        "small waits for its turn: 2/3 in use, 1 ahead"
    );
    assert_eq!(
        (told.reason, told.waits_for),
        (Some(Reason::QueueOrder), Some(WaitsFor::Turn))
    );
    assert_eq!(
        told.changes,
        [
            "those ahead being served",
            "ask with a higher priority under a new id"
        ]
    );
    let told = booking(&world.state, world.now, &id("large")).unwrap();
    assert_eq!(
        told.headline,
        "large waits for 2 python slots: 2/3 in use, nobody ahead"
    );
    assert_eq!(
        told.changes,
        ["raise limit python", "ask for fewer slots under a new id"]
    );
    let command = reserve("now", request("python", "acme"));
    let refusal = world.run(command.clone()).unwrap_err();
    let told = refused(&world.state, &command, &refusal);
    assert_eq!(told.headline, "others wait before it");
    assert_eq!(told.detail, "limit `python` is 3, in use 2, waiting 2");
    assert_eq!(told.changes, ["send waitMs"]);
}

/// Method: 100 small ones of another tenant pass a large one; the next small one is shielded.
#[test]
fn one_that_a_due_request_shields_says_so() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 2))).unwrap();
    for at in 0..2 {
        world
            .run(reserve(&format!("start-{at}"), request("python", "acme")))
            .unwrap();
    }
    let large = Request {
        slots: 2,
        priority: Priority::Urgent,
        ..patient("python", "zeta")
    };
    world.run(reserve("large", large)).unwrap();
    world.release("start-0").unwrap();
    for at in 0..100 {
        let job = format!("small-{at}");
        world.run(reserve(&job, patient("python", "acme"))).unwrap();
        if at < 99 {
            world.release(&job).unwrap();
        }
    }
    world.release("small-99").unwrap();
    world
        .run(reserve("next", patient("python", "acme")))
        .unwrap();
    let told = booking(&world.state, world.now, &id("next")).unwrap();
    assert_eq!(
        (told.reason, told.waits_for),
        (Some(Reason::Shielded), Some(WaitsFor::Turn))
    );
    assert!(
        told.headline
            .starts_with("next waits for its turn, a larger request before it is due: 1/2 in use"),
        "{}",
        told.headline
    );
}

#[test]
fn one_that_holds_says_since_when_and_until_when_and_not_its_fence() {
    let mut world = full();
    world.run(set_limit(limit_of("rust", 5))).unwrap();
    world
        .run(reserve("job-9", request("rust", "acme")))
        .unwrap();
    world.advance(14_000);
    let told = booking(&world.state, world.now, &id("job-9")).unwrap();
    assert_eq!(
        told.headline,
        "job-9 holds 1 rust slot for 14s so far, expires in 46s unless renewed"
    );
    assert_eq!(told.why.limits.len(), 1);
    assert_eq!(
        (told.why.limits[0].name.as_str(), told.why.limits[0].in_use),
        ("rust", 1)
    );
    let fence = world.fence("job-9").0.to_string();
    assert!(!format!("{:?}", (&told.headline, &told.changes, &told.when)).contains(&fence));
}

#[test]
fn one_that_ended_says_how() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 1))).unwrap();
    world
        .run(reserve("released", request("python", "acme")))
        .unwrap();
    world.advance(14_000);
    let outcome = Some(bursar_booking::Outcome::Failed);
    let fence = world.fence("released");
    let id_of = id("released");
    world
        .run(BookingCommand::Release {
            id: id_of,
            fence,
            outcome,
            exit_code: Some(3),
        })
        .unwrap();
    world
        .run(reserve("expired", request("python", "acme")))
        .unwrap();
    let waits = Request {
        wait: Millis::from_secs(5),
        ..request("python", "acme")
    };
    world.run(reserve("over", waits)).unwrap();
    world
        .run(reserve("cancelled", patient("python", "acme")))
        .unwrap();
    world.run(cancel("cancelled")).unwrap();
    world.advance(60_000);
    world
        .run(reserve("forced", request("python", "acme")))
        .unwrap();
    world.run(force("forced", "stuck")).unwrap();
    for (booked, headline) in [
        (
            "released",
            "released ended: released after 14s, failed, exit code 3",
        ),
        (
            "expired",
            "expired ended: expired after 1m, not renewed within 1m",
        ),
        ("over", "over ended: never granted in the 5s it would wait"),
        ("cancelled", "cancelled ended: cancelled after waiting 0s"),
        (
            "forced",
            "forced ended: taken by an operator after 0s: stuck",
        ),
    ] {
        let told = booking(&world.state, world.now, &id(booked)).unwrap();
        assert_eq!(
            (told.headline.as_str(), told.stage),
            (headline, Stage::Ended)
        );
    }
    assert_eq!(booking(&world.state, world.now, &id("nobody")), None);
}

/// The dry run and the change have the same effect.
#[test]
fn the_dry_run_and_the_change_of_a_limit_have_the_same_effect() {
    let mut world = full();
    let raise = set_limit(limit_of("python", 120));
    let before = world.state.bookings.limit("python").unwrap().limit.clone();
    let (_, events, after) = plan(&world.state, world.now, &raise);
    let effect = change_effect(Some(&before), &events, &after, &name("python"));
    assert_eq!(
        effect.text(Mood::Would),
        "3 waiting bookings would be granted, 103/120 in use"
    );
    let done_events = world.events(raise);
    let done = change_effect(Some(&before), &done_events, &world.state, &name("python"));
    assert_eq!(done, effect);
    assert_eq!(
        done.text(Mood::Did),
        "3 waiting bookings granted, 103/120 in use"
    );
    let field = &done.fields[0];
    assert_eq!(
        (field.field, field.before.as_str(), field.after.as_str()),
        ("slots", "100", "120")
    );
    assert_eq!(done.fields.len(), 1);

    let before = world.state.bookings.limit("python").unwrap().limit.clone();
    let events = world.events(set_limit(limit_of("python", 80)));
    let lowered = change_effect(Some(&before), &events, &world.state, &name("python"));
    assert_eq!(
        lowered.text(Mood::Did),
        "103 in use, 23 over: nobody is stopped, no grant until 24 have been given back"
    );
    assert_eq!(lowered.over, 23);
    let told = limit(&world.state, &name("python"), |_| true).unwrap();
    assert_eq!(
        told.headline,
        "limit python is full: 103/80 in use, no grant until 24 have been given back"
    );
    assert_eq!((told.stage, told.why.holders.len()), (Stage::Full, 10));
}

/// Method: after 23 releases nothing is granted, after the 24th one booking is.
#[test]
fn the_number_to_give_back_is_exact() {
    let mut world = full();
    world.run(set_limit(limit_of("python", 77))).unwrap();
    for at in 0..23 {
        world.release(&format!("held-{at}")).unwrap();
        let waits = booking(&world.state, world.now, &id("waits-0")).unwrap();
        assert_eq!(waits.stage, Stage::Queued);
    }
    world.release("held-23").unwrap();
    let granted = booking(&world.state, world.now, &id("waits-0")).unwrap();
    assert_eq!(granted.stage, Stage::Granted);
}

#[test]
fn pauses_removals_and_limits_on_each_value_have_their_effects() {
    let mut world = World::new();
    for at in 0..3 {
        world
            .run(reserve(&format!("job-{at}"), request("python", "acme")))
            .unwrap();
    }
    let effect = |world: &mut World, limit: &str, command: Command| {
        let before = world
            .state
            .bookings
            .limit(limit)
            .map(|declared| declared.limit.clone());
        let events = world.events(command);
        change_effect(before.as_ref(), &events, &world.state, &name(limit))
    };
    let paused = effect(&mut world, "python", set_limit(limit_of("python", 0)));
    assert_eq!(
        paused.text(Mood::Did),
        "3 in use: nobody is stopped, no grant until it is raised"
    );
    assert_eq!(paused.fields[0].before, "-");
    world
        .run(reserve("waits", patient("python", "acme")))
        .unwrap();
    let drop_limit = Change::DropLimit {
        name: name("python"),
    };
    let removed = effect(&mut world, "python", change([drop_limit]));
    assert_eq!(
        removed.text(Mood::Did),
        "1 waiting booking granted, nothing is bounded by it"
    );
    let each = Limit {
        slots: Some(2),
        ..Limit::unbounded(name("default"), Some(Scope::Each), None)
    };
    let each = effect(&mut world, "default", set_limit(each));
    assert_eq!(
        each.text(Mood::Did),
        "python 4 in use, 2 over: nobody is stopped, no grant until 3 have been given back"
    );
    let told = limit(&world.state, &name("default"), |_| true).unwrap();
    assert_eq!(
        told.headline,
        "limit default is full for python: 4/2 in use, no grant until 3 have been given back"
    );
}

/// Method: one record raises one limit and removes another; each effect has its own grants.
#[test]
fn each_limit_of_a_change_has_its_own_grants() {
    let mut world = World::new();
    for class in ["python", "rust"] {
        world.run(set_limit(limit_of(class, 0))).unwrap();
        world
            .run(reserve(&format!("{class}-1"), patient(class, "acme")))
            .unwrap();
    }
    world
        .run(reserve("rust-2", patient("rust", "acme")))
        .unwrap();
    let before: Vec<Limit> = ["python", "rust"]
        .map(|limit| world.state.bookings.limit(limit).unwrap().limit.clone())
        .into();
    let events = world.events(change([
        Change::SetLimit(limit_of("python", 9)),
        Change::DropLimit { name: name("rust") },
    ]));
    let effect = |limit: &str, before| {
        change_effect(Some(before), &events, &world.state, &name(limit)).text(Mood::Did)
    };
    assert_eq!(
        effect("python", &before[0]),
        "1 waiting booking granted, 1/9 in use"
    );
    assert_eq!(
        effect("rust", &before[1]),
        "2 waiting bookings granted, nothing is bounded by it"
    );
}

#[test]
fn other_dimensions_have_their_units() {
    let mut world = World::new();
    let memory = Some(Bound::Exactly(4 << 30));
    world
        .run(set_limit(Limit {
            memory,
            ..limit_of("python", 10)
        }))
        .unwrap();
    let large = |wait| Request {
        memory_bytes: 3 << 30,
        wait,
        ..request("python", "acme")
    };
    world.run(reserve("job-1", large(Millis::ZERO))).unwrap();
    let command = reserve("job-2", large(Millis::ZERO));
    let refusal = world.run(command.clone()).unwrap_err();
    let told = refused(&world.state, &command, &refusal);
    assert_eq!(told.headline, "no room for 1 python slot (memory 3Gi)");
    assert_eq!(
        told.detail,
        "limit `python` is memory 4Gi, in use 3Gi, waiting 0"
    );
    world
        .run(reserve("job-3", large(Millis::from_secs(9))))
        .unwrap();
    let told = booking(&world.state, world.now, &id("job-3")).unwrap();
    assert_eq!(
        told.headline,
        "job-3 waits for a python slot: memory 3Gi/4Gi in use, nobody ahead"
    );
    let huge = Request {
        slots: 11,
        memory_bytes: 5 << 30,
        ..request("python", "acme")
    };
    let command = reserve("job-4", huge);
    let refusal = world.run(command.clone()).unwrap_err();
    let told = refused(&world.state, &command, &refusal);
    assert_eq!(told.headline, "11 python slots (memory 5Gi) can never fit");
    assert_eq!(told.detail, "limit `python` is 10, asked 11");
    assert_eq!(
        told.changes,
        [
            "ask for fewer slots",
            "ask for less memory",
            "raise limit python"
        ]
    );
}

/// Method: provoke every other refusal and compare its text.
#[test]
fn every_refusal_says_what_why_and_the_way_out() {
    let mut world = World::new();
    world.run(set_limit(limit_of("python", 1))).unwrap();
    world
        .run(reserve("held", request("python", "acme")))
        .unwrap();
    world
        .run(reserve("waits", patient("python", "acme")))
        .unwrap();
    let release = |name: &str, fence| {
        BookingCommand::Release {
            id: id(name),
            fence: bursar_booking::Fence(fence),
            outcome: None,
            exit_code: None,
        }
        .into()
    };
    let drop_limit = |limit: &str| change([Change::DropLimit { name: name(limit) }]);
    let hurried = Limit {
        ttl_max: Millis::from_hours(1),
        ..limit_of("rust", 1)
    };
    world.run(set_limit(hurried)).unwrap();
    let long_in_rust = Request {
        ttl: Millis::from_hours(2),
        ..request("rust", "acme")
    };
    let long = Request {
        ttl: Millis::from_hours(48),
        ..request("python", "acme")
    };
    let mut check = |command: Command, expected: &str| {
        let refusal = world.run(command.clone()).unwrap_err();
        let told = refused(&world.state, &command, &refusal);
        assert_eq!(format!("{}: {}", told.headline, told.detail), expected);
    };
    check(
        reserve("held", request("python", "zeta")),
        "id `held` is in use for another request: `tenant` differs from what was asked under it before",
    );
    check(
        reserve("new", long),
        "`ttlMs` is out of bounds: asked 2d, allowed are 1s to 1d",
    );
    check(
        reserve("new", long_in_rust),
        "`ttlMs` is out of bounds: asked 2h, allowed are 1s to 1h by limit `rust`",
    );
    check(
        release("nobody", 1),
        "no booking `nobody`: it was never made, or ended more than 1d ago",
    );
    check(
        release("held", 99),
        "the fence is stale: `held` is held under another fence",
    );
    check(
        release("waits", 1),
        "`waits` is queued: only a booking that is granted can be released or renewed",
    );
    check(
        cancel("held"),
        "`held` is granted: only a booking that waits can be cancelled",
    );
    check(
        drop_limit("default"),
        "limit `default` stays: it can be changed, not deleted, and keeps its class and tenant",
    );
    check(
        drop_limit("x"),
        "no limit `x`: only a declared object can be deleted",
    );
    check(
        set_limit(Limit {
            name: name("other"),
            ..limit_of("python", 3)
        }),
        "limits `python` and `other` have the same class and tenant: at most one limit of each kind applies to a booking",
    );
    let prune = spine::Command::Prune {
        below: 1,
        idempotency: None,
    };
    check(
        prune.into(),
        "nothing was pruned: only records below 0 are covered by an anchored snapshot",
    );
    let genesis = spine::Command::Genesis {
        ledger: "x".to_owned(),
        format: FORMAT,
    };
    check(
        genesis.into(),
        "the ledger has begun already: a ledger begins once",
    );
    check(
        spine::Command::RevokeToken { name: name("x") }.into(),
        "no token `x`: it was never created, or is revoked already",
    );
}
