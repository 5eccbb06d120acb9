//! Changes of declared objects of several planes: one command, all or nothing, decided with the
//! versions that the caller saw (8b).

use bursar_booking::decide as rules;
use bursar_engine::{Change, Command, Node, Reference, Refusal, snapshot, spine};
use bursar_units::Amount;

use crate::world::{World, limit_of, name};

fn set_limit(slots: u64) -> Change {
    rules::Change::SetLimit(limit_of("python", slots)).into()
}

fn set_node(text: &str) -> Change {
    let capacity = Amount {
        cpu_milli: 1_000,
        ..Amount::default()
    };
    spine::Change::SetNode(Node::new(name(text), &capacity)).into()
}

fn drop_node(text: &str) -> Change {
    spine::Change::DropNode { name: name(text) }.into()
}

fn change(changes: &[Change], expect: &[(Reference, String)]) -> Command {
    spine::Command::Change {
        changes: changes.to_vec(),
        expect: expect.to_vec(),
    }
    .into()
}

#[test]
fn one_change_that_is_refused_leaves_the_objects_of_every_plane_as_they_were() {
    let mut world = World::new();
    let before = snapshot::write(&world.state).unwrap();
    for changes in [
        [set_limit(3), drop_node("n1")],
        [set_node("n1"), drop_node("n2")],
        [
            set_node("n1"),
            rules::Change::DropLimit {
                name: name("absent"),
            }
            .into(),
        ],
    ] {
        assert!(world.run(change(&changes, &[])).is_err(), "{changes:?}");
        assert_eq!(snapshot::write(&world.state).unwrap(), before);
    }
    world
        .run(change(&[set_node("n1"), set_limit(3)], &[]))
        .unwrap();
    assert!(world.state.spine.inventory.get("n1").is_some());
    assert!(world.state.bookings.limit("python").is_some());
}

#[test]
fn a_change_is_decided_with_the_version_that_its_caller_saw() {
    let mut world = World::new();
    let limit = Reference::Limit(name("python"));
    assert_eq!(world.state.version(&limit), None);
    let any = [(limit.clone(), "*".to_owned())];
    let refused = world.run(change(&[set_limit(3)], &any)).unwrap_err();
    let absent = spine::Refusal::Version {
        object: limit.clone(),
        expected: "*".to_owned(),
        present: None,
    };
    assert_eq!(
        refused,
        Refusal::Spine(absent),
        "`*` is an object that exists"
    );
    world.run(change(&[set_limit(3)], &[])).unwrap();
    let seen = world.state.version(&limit).unwrap();
    let expect = [(limit.clone(), seen.clone())];
    // Two callers saw the same version: the second finds another one.
    world.run(change(&[set_limit(4)], &expect)).unwrap();
    let present = world.state.version(&limit);
    assert_ne!(present.as_ref(), Some(&seen));
    let refused = world.run(change(&[set_limit(5)], &expect)).unwrap_err();
    let expected = seen.clone();
    let other = spine::Refusal::Version {
        object: limit.clone(),
        expected,
        present,
    };
    assert_eq!(refused, Refusal::Spine(other));
    world.run(change(&[set_limit(5)], &any)).unwrap();
    world.run(change(&[set_limit(3)], &[])).unwrap();
    assert_eq!(
        world.state.version(&limit),
        Some(seen),
        "same content, same version"
    );
}

#[test]
fn where_a_node_stands_follows_from_its_labels() {
    let mut world = World::new();
    let mut node = Node::new(name("a01"), &Amount::default());
    for (key, value) in [
        ("topology.kubernetes.io/region", "us-west"),
        ("bursar.dev/cluster", "west-1"),
        ("bursar.dev/domain", "rack-a"),
        ("bursar.dev/flavor", "h100"),
    ] {
        node.labels.insert(key.to_owned(), value.to_owned());
    }
    node.unschedulable = true;
    let set = spine::Change::SetNode(node).into();
    world.run(change(&[set], &[])).unwrap();
    let lines = snapshot::write(&world.state).unwrap();
    let read = snapshot::read(&lines).unwrap();
    let kept = read.spine.inventory.get("a01").unwrap();
    let places = (kept.region(), kept.cluster(), kept.domain(), kept.flavor());
    let expected = (
        Some("us-west"),
        Some("west-1"),
        Some("rack-a"),
        Some("h100"),
    );
    assert_eq!(places, expected);
    assert!(kept.unschedulable);
}
