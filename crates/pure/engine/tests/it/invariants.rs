//! Each invariant is broken on purpose and found.

use bursar_booking::{Event as BookingEvent, Fence, Request};
use bursar_engine::invariants::{Broken, Mark, check, check_record, check_snapshot};
use bursar_engine::market::{self, NODES_MAX, ORIGINALS_MAX};
use bursar_engine::{Event, spine};
use bursar_units::Instant;

use crate::script;
use crate::world::{World, id, name, pod, request};

fn resumed(wall: Instant) -> Vec<Event> {
    vec![spine::Event::Resumed { wall }.into()]
}

#[test]
fn a_good_state_breaks_nothing() {
    let state = script::small_state();
    check(&state).unwrap();
    check_snapshot(&state).unwrap();
}

#[test]
fn time_that_goes_back_is_found() {
    let mut world = World::new();
    let before = Mark::of(&world.state);
    let early = Instant::from_ms(world.now.ms() - 1);
    let events = resumed(early);
    world.state.apply_record(early, &events);
    let broken = check_record(before, early, &events, &world.state);
    assert!(matches!(broken, Err(Broken::TimeBack { .. })), "{broken:?}");
}

#[test]
fn time_that_no_event_carries_is_found() {
    let mut world = World::new();
    let before = Mark::of(&world.state);
    let events = resumed(world.now);
    world.state.apply_record(world.now, &events);
    world.state.spine.time = Instant::from_ms(world.now.ms() + 1);
    let broken = check_record(before, world.now, &events, &world.state);
    assert!(matches!(broken, Err(Broken::TimeBack { .. })), "{broken:?}");
}

#[test]
fn a_head_that_does_not_count_records_is_found() {
    let mut world = World::new();
    let before = Mark::of(&world.state);
    let events = resumed(world.now);
    world.state.apply_record(world.now, &events);
    check_record(before, world.now, &events, &world.state).unwrap();
    world.state.spine.head += 1;
    let broken = check_record(before, world.now, &events, &world.state);
    assert!(matches!(broken, Err(Broken::Head { .. })), "{broken:?}");
}

#[test]
fn keys_out_of_order_are_found() {
    let mut state = World::new().state;
    state.spine.keys = vec![
        (Instant::from_ms(2), String::new()),
        (Instant::from_ms(1), String::new()),
    ];
    let broken = check(&state);
    assert!(
        matches!(broken, Err(Broken::Spine(spine::Broken::KeyOrder { .. }))),
        "{broken:?}"
    );
}

#[test]
fn pruning_beyond_the_anchor_is_found() {
    let mut state = script::small_state();
    assert_eq!(
        (state.spine.anchor.unwrap().0, state.spine.pruned_below),
        (5, 4)
    );
    state.spine.pruned_below = 6;
    check(&state).unwrap();
    state.spine.pruned_below = 7;
    let broken = check(&state);
    assert!(
        matches!(broken, Err(Broken::Spine(spine::Broken::Pruned { .. }))),
        "{broken:?}"
    );
}

/// Method: events that no decision makes.
#[test]
fn a_market_that_outgrew_its_bound_or_its_time_is_found() {
    let event = |node: usize, at: usize| market::Event::Taken {
        node: name(&format!("n{node}")),
        pod: pod(&format!("p{at}")),
        milli: None,
        was: None,
    };
    let filled = |nodes: usize, pods: usize| {
        let mut state = World::new().state;
        for (node, at) in (0..nodes).flat_map(|node| (0..pods).map(move |at| (node, at))) {
            state.apply(state.spine.time, &event(node, at).into());
        }
        state
    };
    check(&filled(1, ORIGINALS_MAX)).unwrap();
    let broken = check(&filled(1, ORIGINALS_MAX + 1));
    assert!(
        matches!(broken, Err(Broken::Market(market::Broken::Market { .. }))),
        "{broken:?}"
    );
    let broken = check(&filled(NODES_MAX + 1, 1));
    assert!(
        matches!(broken, Err(Broken::Market(market::Broken::Count { .. }))),
        "{broken:?}"
    );
    let mut early = filled(1, 1);
    early.spine.time = Instant::from_ms(early.spine.time.ms() - 1);
    let broken = check(&early);
    assert!(
        matches!(broken, Err(Broken::Market(market::Broken::Market { .. }))),
        "{broken:?}"
    );
}

#[test]
fn a_broken_room_of_bookings_is_found() {
    let mut state = World::new().state;
    let at = state.spine.time;
    for name in ["one", "two"] {
        let event = BookingEvent::Reserved(Request {
            id: id(name),
            fence: Some(Fence(1)),
            ..request("python", "acme")
        });
        state.apply(at, &event.into());
    }
    let broken = check(&state);
    assert!(matches!(broken, Err(Broken::Booking(_))), "{broken:?}");
}

/// Method: more keys than may be kept, within a day; the oldest leave.
#[test]
fn the_keys_of_actions_are_bounded() {
    let mut state = World::new().state;
    let body = bursar_journal::hash::sha256(b"x");
    for at in 0..10_050_u64 {
        let key = id(&format!("key-{at}"));
        state.apply(
            Instant::from_ms(at),
            &spine::Event::Keyed { key, body }.into(),
        );
    }
    check(&state).unwrap();
    let lines = bursar_engine::snapshot::write(&state).unwrap();
    assert!(!lines.contains("\"key-49\"") && lines.contains("\"key-50\""));
}
