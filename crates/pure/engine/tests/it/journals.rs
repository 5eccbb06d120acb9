//! Every journal that was ever written folds to the state it had (L8).

use std::collections::BTreeSet;

use bursar_engine::codec::{decode, decode_events, encode};
use bursar_engine::{Command, Events, State, decide, invariants, plan, snapshot, spine};

use crate::{kinds, script};

/// A journal of each release with the hash of the state it folds to.
const JOURNALS: [(&str, &str, &str); 3] = [
    (
        "0.1.0",
        include_str!("../../../../../tests/journals/0.1.0.jsonl"),
        include_str!("../../../../../tests/journals/0.1.0.sha256"),
    ),
    (
        "0.2.0, level 1",
        include_str!("../../../../../tests/journals/0.2.0-level-1.jsonl"),
        include_str!("../../../../../tests/journals/0.2.0-level-1.sha256"),
    ),
    (
        "0.2.0",
        include_str!("../../../../../tests/journals/0.2.0.jsonl"),
        include_str!("../../../../../tests/journals/0.2.0.sha256"),
    ),
];

/// How many records the first journal had before there were executions, and its state then.
const BEFORE_EXECUTIONS: (usize, &str) = (
    296,
    "8fe46b12fb10ece520cd9be9ec8b1d5916362e12eaa28938c5f15bee86867f79",
);

/// How many it had before there were markets, and its state then.
const BEFORE_MARKETS: (usize, &str) = (
    343,
    "c179b8f9149a72a157ebced7cfbcdc2e7d0ac1c9596773c678aa03157935f25c",
);

/// Method: the same bytes as then, folded by the program that knows more.
#[test]
fn a_journal_from_before_a_plane_existed_folds_to_the_state_it_had() {
    for (records, expected) in [BEFORE_EXECUTIONS, BEFORE_MARKETS] {
        folds_to(records, expected);
    }
}

fn folds_to(records: usize, expected: &str) {
    let (_, journal, _) = JOURNALS[0];
    let mut state = State::default();
    for (seq, line) in (0..).zip(journal.lines().take(records)) {
        let (time, events) = decode_events(seq, line.as_bytes(), |_| None).unwrap();
        state.apply_record(time, &events);
    }
    assert_eq!(snapshot::hash(&state).unwrap().to_string(), expected);
}

#[test]
fn every_released_journal_folds_to_its_state() {
    for (version, journal, expected) in JOURNALS {
        let mut state = State::default();
        for (seq, line) in (0..).zip(journal.lines()) {
            let (time, events) = decode_events(seq, line.as_bytes(), |_| None).unwrap();
            state.apply_record(time, &events);
        }
        invariants::check(&state).unwrap();
        assert_eq!(
            snapshot::hash(&state).unwrap().to_string(),
            expected.trim(),
            "{version}"
        );
    }
}

/// Method: the newest journal is decided again, command by command, byte for byte.
#[test]
fn the_commands_of_the_newest_journal_give_the_same_bytes() {
    let (_, journal, _) = JOURNALS.last().unwrap();
    let mut state = State::default();
    for (seq, line) in (0..).zip(journal.lines()) {
        let mut record = decode(seq, line.as_bytes(), |_| None).unwrap();
        let mut events = Events::new();
        decide(&mut state, record.time, &record.command, &mut events).unwrap();
        state.spine.head += 1;
        record.events = events;
        assert_eq!(
            String::from_utf8(encode(&record).unwrap().bytes).unwrap(),
            line
        );
    }
}

/// Method: each command of the newest journal is planned on the state before it. Nobody plans a tick.
#[test]
fn a_plan_has_the_events_of_the_decision_byte_for_byte() {
    let (_, journal, _) = JOURNALS.last().unwrap();
    let mut state = State::default();
    for (seq, line) in (0..).zip(journal.lines()) {
        let mut record = decode(seq, line.as_bytes(), |_| None).unwrap();
        let before = state.clone();
        state.apply_record(record.time, &record.events);
        if matches!(record.command, Command::Spine(spine::Command::Tick { .. })) {
            continue;
        }
        let (answer, events, _) = plan(&before, record.time, &record.command);
        answer.unwrap();
        record.events = events;
        let planned = encode(&record).unwrap().bytes;
        assert_eq!(String::from_utf8(planned).unwrap(), line);
    }
}

/// The script is the source of the newest journal; `cargo run -p bursar-engine --example
/// golden_journal` writes it again where a change before the release was wanted.
#[test]
fn the_newest_journal_is_what_the_script_writes() {
    let (_, journal, _) = JOURNALS.last().unwrap();
    let world = script::everything_happens();
    for (written, line) in world.journal.iter().zip(journal.lines()) {
        assert_eq!(std::str::from_utf8(written).unwrap(), line);
    }
    assert_eq!(world.journal.len(), journal.lines().count());
}

#[test]
fn the_newest_journal_has_every_kind_of_event_and_of_command() {
    let (_, journal, _) = JOURNALS.last().unwrap();
    let records: Vec<serde_json::Value> = journal
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |values: Vec<&serde_json::Value>| {
        let keys = values
            .iter()
            .flat_map(|value| value.as_object().unwrap().keys().cloned());
        keys.collect::<BTreeSet<String>>()
    };
    let events = records
        .iter()
        .flat_map(|record| record["ev"].as_array().unwrap())
        .collect();
    assert!(of(events).iter().eq(&kinds::sorted(kinds::EVENTS)));
    // A renewal is never a record of its own (S7).
    let mut journaled = kinds::sorted(kinds::COMMANDS);
    journaled.remove("renew");
    let commands = records.iter().map(|record| &record["cmd"]).collect();
    assert!(of(commands).iter().eq(&journaled));
}
