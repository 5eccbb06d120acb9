//! The kinds of commands, events and snapshot lines: one list, each with one owner, and an object has
//! exactly one of them (L7, L8).

use std::collections::BTreeSet;

use bursar_booking::{Command as BookingCommand, Event as BookingEvent, fact};
use bursar_engine::codec::{Error, decode, decode_events, read_command_text};
use bursar_engine::{Events, cluster, market, snapshot, spine};
use bursar_journal::record::BlobRef;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{golden, strategies};

/// The commands of the spine, of bookings, of markets and of the cluster.
pub(crate) const COMMANDS: [&[&str]; 4] = [
    &[
        "genesis",
        "level",
        "resume",
        "tick",
        "change",
        "createToken",
        "revokeToken",
        "rotateKey",
        "anchor",
        "prune",
        "restore",
    ],
    &[
        "reserve",
        "submit",
        "release",
        "renew",
        "started",
        "adopt",
        "exited",
        "stopFailed",
        "cancel",
        "force",
        "note",
    ],
    &["reportMarket"],
    &[
        "cancelRun",
        "rotateEnvelope",
        "runStarted",
        "runExited",
        "setPolicy",
    ],
];

/// The events of the spine, of bookings, of markets and of the cluster.
pub(crate) const EVENTS: [&[&str]; 4] = [
    &[
        "genesis",
        "level",
        "resumed",
        "tokenCreated",
        "tokenRevoked",
        "keyRotated",
        "anchored",
        "pruned",
        "restored",
        "nodeSet",
        "nodeDropped",
        "keyed",
    ],
    &[
        "reserved",
        "granted",
        "renewed",
        "ended",
        "submitted",
        "started",
        "adopted",
        "stopping",
        "stopFailed",
        "exited",
        "noted",
        "limitSet",
        "limitDropped",
        "unsettled",
    ],
    &[
        "marketSet",
        "marketLabelled",
        "originalTaken",
        "originalReturned",
        "marketDigested",
    ],
    &[
        "policySet",
        "budgetSet",
        "budgetDropped",
        "epochClosed",
        "meterNear",
        "runSubmitted",
        "runEdited",
        "runFunded",
        "runDemoted",
        "leasesOpened",
        "leasesClosed",
        "runEnding",
        "runRunning",
        "runEnded",
        "passUnfinished",
        "passFinished",
    ],
];

/// The lines of a snapshot that belong to the spine, to bookings, to markets and to the cluster.
const LINES: [&[&str]; 4] = [
    &["spine", "node", "token", "key", "keyed"],
    &[
        "totals", "limit", "queued", "granted", "ended", "class", "tenant",
    ],
    &["market", "original"],
    &["cluster", "policy", "account", "liveRun", "endedRun"],
];

/// The kinds of all planes in one list, in the order of the alphabet.
pub(crate) fn sorted(kinds: [&[&'static str]; 4]) -> BTreeSet<&'static str> {
    kinds.concat().into_iter().collect()
}

/// Kinds that serde reads, from its error for an unknown one.
fn read_by_serde<T: DeserializeOwned>() -> Vec<String> {
    let error = serde_json::from_str::<T>(r#"{"?":0}"#).err().unwrap();
    let words = error.to_string();
    let (_, expected) = words.split_once("expected ").unwrap();
    let quoted = expected.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

fn framed(cmd: &str, ev: &str) -> String {
    format!(r#"{{"v":1,"seq":7,"t":5,"by":"ada","cmd":{cmd},"ev":{ev}}}"#)
}

/// Result of decoding a record with that command.
fn read_command(cmd: &str) -> Result<(), Error> {
    decode(7, framed(cmd, "[]").as_bytes(), |_| None).map(drop)
}

/// Result of decoding only the events.
fn read_events(ev: &str) -> Result<Events, Error> {
    let bytes = framed(r#"{"tick":{}}"#, ev);
    decode_events(7, bytes.as_bytes(), |_| None).map(|(_, events)| events)
}

/// Unknown kind, if the error says that the record is newer.
fn unknown_kind<T>(result: Result<T, Error>) -> Option<String> {
    match result.err().filter(Error::is_newer)? {
        Error::UnknownKind { seq: 7, kind } => Some(kind),
        _ => None,
    }
}

fn is_damaged<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Form { .. }))
}

#[test]
fn the_kinds_that_are_read_are_the_kinds_of_the_list() {
    assert_eq!(read_by_serde::<spine::Command>(), COMMANDS[0]);
    assert_eq!(read_by_serde::<BookingCommand>(), COMMANDS[1]);
    assert_eq!(read_by_serde::<market::Command>(), COMMANDS[2]);
    assert_eq!(read_by_serde::<spine::Event>(), EVENTS[0]);
    assert_eq!(read_by_serde::<BookingEvent>(), EVENTS[1]);
    assert_eq!(read_by_serde::<market::Event>(), EVENTS[2]);
    assert_eq!(read_by_serde::<spine::Fact>(), LINES[0]);
    assert_eq!(read_by_serde::<fact::Fact>(), LINES[1]);
    assert_eq!(read_by_serde::<market::Fact>(), LINES[2]);
    assert_eq!(read_by_serde::<cluster::Command>(), COMMANDS[3]);
    assert_eq!(read_by_serde::<cluster::Event>(), EVENTS[3]);
    assert_eq!(read_by_serde::<cluster::fact::Fact>(), LINES[3]);
}

/// A kind of two planes would always be read by the first.
#[test]
fn no_kind_belongs_to_two_planes() {
    for kinds in [COMMANDS, EVENTS, LINES] {
        assert_eq!(sorted(kinds).len(), kinds.concat().len());
    }
}

#[test]
fn every_kind_of_the_list_has_a_golden_record() {
    let records: Vec<Value> = golden::RECORDS
        .map(|bytes| serde_json::from_str(bytes).unwrap())
        .into();
    let kind_of = |value: &Value| value.as_object().unwrap().keys().next().cloned().unwrap();
    let commands: BTreeSet<String> = records
        .iter()
        .map(|record| kind_of(&record["cmd"]))
        .collect();
    let events = records
        .iter()
        .flat_map(|record| record["ev"].as_array().unwrap());
    let events: BTreeSet<String> = events.map(kind_of).collect();
    assert!(commands.iter().eq(&sorted(COMMANDS)), "{commands:?}");
    assert!(events.iter().eq(&sorted(EVENTS)), "{events:?}");
}

/// Method: nonsense inside every kind: damaged, not new.
#[test]
fn every_kind_of_the_list_is_known_by_name() {
    for kind in COMMANDS.concat() {
        let read = read_command(&format!(r#"{{"{kind}":0}}"#));
        assert!(is_damaged(&read), "{kind}: {read:?}");
    }
    for kind in EVENTS.concat() {
        let read = read_events(&format!(r#"[{{"{kind}":0}}]"#));
        assert!(is_damaged(&read), "{kind}: {read:?}");
    }
}

/// The property tests leave no kind out. Method: a thousand values of each strategy.
#[test]
fn every_kind_of_the_list_is_made_by_the_strategies() {
    fn made<T: Serialize>(strategy: impl Strategy<Value = T>) -> BTreeSet<String> {
        let mut runner = TestRunner::deterministic();
        let mut kind = || {
            let value = strategy.new_tree(&mut runner).unwrap().current();
            let json = serde_json::to_value(value).unwrap();
            json.as_object().unwrap().keys().next().cloned().unwrap()
        };
        (0..1_000).map(|_| kind()).collect()
    }
    let commands = made(strategies::command());
    assert!(commands.iter().eq(&sorted(COMMANDS)), "{commands:?}");
    let events = made(strategies::event());
    assert!(events.iter().eq(&sorted(EVENTS)), "{events:?}");
}

proptest! {
    /// Method: any word that is no kind, alone and among known kinds, inline and in a blob.
    #[test]
    fn an_unknown_kind_is_named_wherever_it_stands(word in strategies::label(), place in 0..3_usize) {
        let known = |kinds| sorted(kinds).contains(word.as_str());
        prop_assume!(!known(COMMANDS) && !known(EVENTS));
        let kind = Some(word.as_str().to_owned());
        let new = format!(r#"{{{}:{{"id":"a"}}}}"#, serde_json::to_string(&word).unwrap());

        prop_assert_eq!(&unknown_kind(read_command(&new)), &kind);
        prop_assert!(read_command_text(&new).is_err());
        prop_assert_eq!(&unknown_kind(read_events(&format!("[{new}]"))), &kind);

        let granted = r#"{"granted":{"id":"a","fence":1}}"#;
        let mut list = [granted, granted, granted];
        list[place] = &new;
        let list = format!("[{}]", list.join(","));
        prop_assert_eq!(&unknown_kind(read_events(&list)), &kind);

        let outside = |part: &str| serde_json::to_string(&BlobRef::to(part.as_bytes())).unwrap();
        for (part, bytes) in [
            (&new, framed(&outside(&new), "[]")),
            (&list, framed(r#"{"tick":{}}"#, &outside(&list))),
        ] {
            let read = decode(7, bytes.as_bytes(), |_| Some(part.clone().into_bytes()));
            prop_assert_eq!(&unknown_kind(read), &kind);
        }
    }
}

/// Method: no kind, two of them, one twice, and something before or behind it; what is no object too.
#[test]
fn an_object_has_one_kind_and_nothing_else() {
    let good = r#"{"cancel":{"id":"a"}}"#;
    read_command(good).unwrap();
    read_command_text(good).unwrap();
    for bad in [
        "{}",
        r#"{"cancel":{"id":"a"},"tick":{}}"#,
        r#"{"tick":{},"cancel":{"id":"a"}}"#,
        r#"{"cancel":{"id":"a"},"reportMarket":0}"#,
        r#"{"cancel":{"id":"a"},"cancel":{"id":"a"}}"#,
        r#"{"cancel":{"id":"a"},"id":"a"}"#,
        r#"{"id":"a","cancel":{"id":"a"}}"#,
        r#"{"cancel":{"id":"a"}"#,
        r#"{"cancel":{"id":"a"},}"#,
        r#"{"cancel":{"id":"a"}}{}"#,
        r#"[{"cancel":{"id":"a"}}]"#,
        r#"["cancel",{"id":"a"}]"#,
        r#""cancel""#,
        "null",
        "0",
    ] {
        read_command(bad).expect_err(bad);
        read_command_text(bad).expect_err(bad);
    }
    for (bad, why) in [
        ("{}", "an object without a kind"),
        (
            r#"{"cancel":{"id":"a"},"tick":{}}"#,
            "an object with more than its kind",
        ),
        ("0", "expected an object with one key, its kind"),
    ] {
        let error = read_command_text(bad).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    let good = r#"{"granted":{"id":"a","fence":1}}"#;
    assert_eq!(read_events(&format!("[{good},{good}]")).unwrap().len(), 2);
    for bad in [
        "{}",
        r#"{"granted":{"id":"a","fence":1},"unsettled":{"more":true}}"#,
        r#"{"granted":{"id":"a","fence":1},"genesis":0}"#,
        r#"{"granted":{"id":"a","fence":1},"granted":{"id":"a","fence":1}}"#,
        r#"{"granted":{"id":"a","fence":1},"t":5}"#,
        r#"{"t":5,"granted":{"id":"a","fence":1}}"#,
        r#"["granted",{"id":"a","fence":1}]"#,
        r#""granted""#,
        "null",
        "0",
    ] {
        read_events(&format!("[{bad}]")).expect_err(bad);
        read_events(&format!("[{good},{bad}]")).expect_err(bad);
        read_events(&format!("[{bad},{good}]")).expect_err(bad);
        read_events(bad).expect_err(bad);
    }

    let good = r#"{"key":{"at":5,"key":"k"}}"#;
    assert_eq!(snapshot::read(good).unwrap().spine.keys.len(), 1);
    for bad in [
        "{}",
        r#"{"key":{"at":5,"key":"k"},"limit":0}"#,
        r#"{"key":{"at":5,"key":"k"},"key":{"at":5,"key":"k"}}"#,
        r#"{"key":{"at":5,"key":"k"},"at":5}"#,
        r#"{"at":5,"key":{"at":5,"key":"k"}}"#,
        r#"{"key":{"at":5,"key":"k"}}{}"#,
        r#""key""#,
        "null",
    ] {
        assert!(snapshot::read(bad).is_err(), "{bad}");
    }
}
