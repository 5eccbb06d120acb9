//! Begin of a level, and fences and tokens after a restore (L7, L8, S5).

use bursar_engine::booking::{Fence, Limit};
use bursar_engine::codec::{Error, decode_events};
use bursar_engine::token::{Role, Token};
use bursar_engine::{Answer, Event, LEVEL, first_fence, snapshot, spine};
use bursar_journal::hash::sha256;
use bursar_units::Instant;

use crate::world::{START_MS, World, name, request, reserve, set_limit};

#[test]
fn a_level_begins_once_and_brings_the_shipped_limits_in_its_record() {
    let mut world = World::new();
    assert_eq!(
        (
            world.state.spine.level,
            world.state.bookings.limit("tenants")
        ),
        (0, None)
    );
    assert_eq!(
        world.run(spine::Command::Level { n: LEVEL }),
        Ok(Answer::Done)
    );
    assert_eq!(world.state.spine.level, LEVEL);
    let tenants = world.state.bookings.limit("tenants").unwrap();
    assert_eq!(tenants.limit.slots, Some(1_000));
    let head = world.state.spine.head;
    assert_eq!(
        world.run(spine::Command::Level { n: LEVEL }),
        Ok(Answer::Unchanged)
    );
    assert_eq!(world.state.spine.head, head, "a repeat leaves no record");
}

#[test]
fn a_record_of_a_higher_level_is_refused_by_name() {
    let bytes = format!(
        r#"{{"v":1,"seq":7,"t":1,"by":"bursar","cmd":{{"level":{{"n":{0}}}}},"ev":[{{"level":{{"n":{0}}}}}]}}"#,
        LEVEL + 1
    );
    let error = decode_events(7, bytes.as_bytes(), |_| None).unwrap_err();
    assert!(matches!(error, Error::NewerLevel { seq: 7, level } if level == LEVEL + 1));
    assert!(error.is_newer(), "nothing is wrong with the ledger");
    let said = error.to_string();
    assert_eq!(
        said,
        "record 7 needs a newer bursar: its level is 3, this one knows up to 2"
    );
}

#[test]
fn a_level_is_in_the_snapshot_and_its_absence_is_zero() {
    let mut world = World::new();
    let before = snapshot::write(&world.state).unwrap();
    assert!(!before.contains("level"), "{before}");
    world.run(spine::Command::Level { n: LEVEL }).unwrap();
    let lines = snapshot::write(&world.state).unwrap();
    assert_eq!(snapshot::read(&lines).unwrap().spine.level, LEVEL);
}

/// Method: a copy that had given out few fences is restored at the time of its restore, and again
/// a second later; a copy with a larger fence than that goes on from it.
#[test]
fn no_fence_of_an_earlier_generation_is_given_out_after_a_restore() {
    let restored_at = |now: Instant| spine::Command::Restore {
        size: 3,
        fence: Some(first_fence(now)),
        replaces: None,
        end_tokens: false,
    };
    let granted = |world: &mut World, id: &str| {
        world.run(reserve(id, request("python", "acme"))).unwrap();
        world.state.bookings.last_fence()
    };
    let now = Instant::from_ms(START_MS + 1_000);
    let mut first = World::new();
    assert_eq!(granted(&mut first, "a"), Fence(1));
    let mut second = first.clone();
    first.run(restored_at(now)).unwrap();
    second
        .run(restored_at(now.after(bursar_units::Millis::from_secs(1))))
        .unwrap();
    let seconds = (START_MS + 1_000) / 1_000;
    assert_eq!(granted(&mut first, "b"), Fence(seconds << 21));
    assert_eq!(granted(&mut second, "b"), Fence((seconds + 1) << 21));
    assert_eq!(granted(&mut first, "c"), Fence((seconds << 21) + 1));
    // A clock that is behind does not lower the fence.
    first.run(restored_at(Instant::from_ms(1_000))).unwrap();
    assert_eq!(granted(&mut first, "d"), Fence((seconds << 21) + 2));
    // The next fence survives a snapshot before it was given out.
    second
        .run(restored_at(Instant::from_ms(START_MS + 9_000)))
        .unwrap();
    let read = snapshot::read(&snapshot::write(&second.state).unwrap()).unwrap();
    assert_eq!(
        read.bookings.next_fence(),
        Fence((START_MS / 1_000 + 9) << 21)
    );
}

#[test]
fn fences_stay_exact_numbers_until_the_next_century() {
    let end = Instant::from_ms((u64::from(u32::MAX)) * 1_000);
    assert!(first_fence(end).0 < 1 << 53);
}

#[test]
fn a_restore_ends_all_tokens_unless_it_keeps_them() {
    for (end_tokens, left) in [(false, 1), (true, 0)] {
        let mut world = World::new();
        let token = Token {
            name: name("ci"),
            sha256: sha256(b"secret"),
            roles: [Role::View].into(),
            tenants: std::collections::BTreeSet::new(),
            owners: std::collections::BTreeSet::new(),
            expires: Instant::from_ms(START_MS * 2),
            created: None,
        };
        world.run(spine::Command::CreateToken(token)).unwrap();
        let restore = spine::Command::Restore {
            size: 2,
            fence: None,
            replaces: None,
            end_tokens,
        };
        world.run(restore).unwrap();
        assert_eq!(world.state.spine.tokens.iter().count(), left);
    }
}

/// Method: the events that a journal of before level 1 has, folded.
#[test]
fn an_old_restore_still_means_what_it_meant() {
    let bytes = br#"{"v":1,"seq":1,"t":1,"by":"bursar","cmd":{"restore":{"size":1}},"ev":[{"restored":{"generation":4}}]}"#;
    let (time, events) = decode_events(1, bytes, |_| None).unwrap();
    let mut world = World::new();
    world
        .run(set_limit(Limit {
            name: name("python"),
            ..Limit::shipped()
        }))
        .ok();
    let next = world.state.bookings.next_fence();
    for event in &events {
        world.state.apply(time, event);
    }
    assert!(matches!(
        events.as_slice(),
        [Event::Spine(spine::Event::Restored { fence: None, .. })]
    ));
    assert_eq!(
        (
            world.state.spine.generation,
            world.state.bookings.next_fence()
        ),
        (4, next)
    );
}
