//! Subjects of decoded records.

use std::collections::BTreeSet;

use bursar_engine::codec::{Record, decode};
use bursar_engine::subject::{VERSION, is_about, subjects_of};
use bursar_engine::{Kind, Reference};
use bursar_journal::hash::sha256;
use bursar_plane::reference::Error;
use serde_json::Value;

/// Records of every kind that each version wrote.
const JOURNALS: [&str; 3] = [
    include_str!("../../../../../tests/journals/0.1.0.jsonl"),
    include_str!("../../../../../tests/journals/0.2.0-level-1.jsonl"),
    include_str!("../../../../../tests/journals/0.2.0.jsonl"),
];

/// The version of the rule, and the hash of all subjects of the first journal.
const SUBJECTS: (u32, &str) = (
    1,
    "cd352b60b92dd977cf967d09d2a14a6e7ce001dbc31cdbe9b6b5e995e7cc2795",
);

fn records() -> Vec<(Value, Record)> {
    JOURNALS.into_iter().flat_map(records_of).collect()
}

fn records_of(journal: &str) -> Vec<(Value, Record)> {
    let read = |(seq, line): (u64, &str)| {
        let record = decode(seq, line.as_bytes(), |_| None).ok()?;
        Some((serde_json::from_str(line).unwrap(), record))
    };
    (0..).zip(journal.lines()).filter_map(read).collect()
}

/// Subjects of a record, read naively from the fields of its JSON.
fn stated(json: &Value) -> BTreeSet<String> {
    let mut stated = BTreeSet::from([format!("record/{}", json["seq"])]);
    let events = json["ev"].as_array().unwrap().iter();
    let changes = json["cmd"]["change"]["changes"].as_array();
    for fact in events.chain(changes.into_iter().flatten()) {
        for (kind, fields) in fact.as_object().unwrap() {
            let mut note = |kind: &str, field: &str| {
                if let Some(name) = fields[field].as_str() {
                    stated.insert(format!("{kind}/{name}"));
                }
            };
            match kind.as_str() {
                "reserved" | "granted" | "renewed" | "ended" | "started" | "stopping"
                | "stopFailed" | "exited" | "noted" => note("booking", "id"),
                "submitted" | "adopted" => {
                    let id = fields["booking"]["id"].as_str().unwrap();
                    stated.insert(format!("booking/{id}"));
                }
                "limitSet" | "limitDropped" | "setLimit" | "dropLimit" => note("limit", "name"),
                "nodeSet" | "nodeDropped" | "setNode" | "dropNode" => note("node", "name"),
                "tokenCreated" | "tokenRevoked" => note("token", "name"),
                "budgetDropped" | "dropBudget" => note("budget", "budget"),
                "budgetSet" | "setBudget" => {
                    stated.insert(format!("budget/{}", scoped(fields)));
                }
                "setRun" => {
                    stated.insert(format!("run/{}", scoped(fields)));
                }
                "runSubmitted" => {
                    stated.insert(format!("run/{}", scoped(&fields["run"])));
                }
                "epochClosed" => stated.extend(of_meter(&fields["epoch"]["meter"])),
                "meterNear" => stated.extend(of_meter(&fields["near"]["meter"])),
                kind if fields.get("of").is_some_and(|of| of.get("run").is_some()) => {
                    stated.extend(of_run(kind, fields));
                }
                kind if kind.starts_with("market") || fields.get("node").is_some() => {
                    note("node", "node");
                    note("pod", "pod");
                }
                _ => {}
            }
        }
    }
    stated
}

/// Namespace and name of a declared object.
fn scoped(object: &Value) -> String {
    let part = |field: &str| object[field].as_str().unwrap().to_owned();
    format!("{}/{}", part("namespace"), part("name"))
}

/// A meter is named like its envelope; a lending pool and a cap have a word before it.
fn of_meter(meter: &Value) -> Vec<String> {
    let text = meter.as_str().unwrap();
    let words = ["lending/", "cap/"];
    let name = words.iter().find_map(|word| text.strip_prefix(word));
    let name = name.unwrap_or(text);
    let budget = format!("budget/{}", name.rsplit_once('/').unwrap().0);
    if text.starts_with("cap/") {
        vec![budget]
    } else {
        vec![budget, format!("envelope/{name}")]
    }
}

/// The run, the envelopes of its claims, and the first lease of each pod that opens.
fn of_run(kind: &str, fields: &Value) -> Vec<String> {
    let mut stated = vec![format!("run/{}", fields["of"]["run"].as_str().unwrap())];
    for claim in fields["claims"].as_array().into_iter().flatten() {
        stated.push(format!("envelope/{}", claim["envelope"].as_str().unwrap()));
    }
    if kind == "leasesOpened" {
        let mut number = fields["first"].as_u64().unwrap_or(0);
        for pod in fields["pods"].as_array().unwrap() {
            stated.push(format!("lease/lease-{}.{number}", fields["record"]));
            for range in pod["gpus"].as_array().unwrap() {
                number += range[1].as_u64().unwrap() - range[0].as_u64().unwrap() + 1;
            }
        }
    }
    stated
}

/// Method: every subject that any record states is asked of every record.
#[test]
fn a_record_is_about_what_its_events_and_changes_name_and_nothing_else() {
    let records = records();
    let all: BTreeSet<String> = records.iter().flat_map(|(json, _)| stated(json)).collect();
    for kind in Kind::ALL {
        assert!(
            all.iter()
                .any(|subject| subject.starts_with(&format!("{kind}/"))),
            "no {kind} is in the journal"
        );
    }
    for text in &all {
        let subject: Reference = text.parse().unwrap();
        assert_eq!(subject.to_string(), *text);
        for (json, record) in &records {
            assert_eq!(
                is_about(record, &subject),
                stated(json).contains(text),
                "{text}: {json}"
            );
        }
    }
}

/// Method: the list is compared with the naive one; every listed subject is asked of every record.
#[test]
fn a_record_is_about_exactly_the_subjects_that_are_listed_of_it() {
    let records = records();
    let listed = |record: &Record| -> BTreeSet<String> {
        subjects_of(record)
            .map(|subject| subject.to_string())
            .collect()
    };
    let lists: Vec<BTreeSet<String>> = records.iter().map(|(_, record)| listed(record)).collect();
    for ((json, _), listed) in records.iter().zip(&lists) {
        assert_eq!(*listed, stated(json), "{json}");
    }
    for text in lists.iter().flatten().collect::<BTreeSet<_>>() {
        let subject: Reference = text.parse().unwrap();
        for ((_, record), listed) in records.iter().zip(&lists) {
            assert_eq!(is_about(record, &subject), listed.contains(text), "{text}");
        }
    }
}

/// Method: a hash of the subjects of a journal that is never added to.
#[test]
fn the_version_rises_when_an_old_record_gets_other_subjects() {
    let mut lines = String::new();
    for (_, record) in records_of(JOURNALS[0]) {
        let subjects: BTreeSet<String> = subjects_of(&record)
            .map(|subject| subject.to_string())
            .collect();
        for subject in subjects {
            lines.push_str(&subject);
            lines.push('\n');
        }
        lines.push('\n');
    }
    let hash = sha256(lines.as_bytes()).to_string();
    assert_eq!((VERSION, hash.as_str()), SUBJECTS, "raise subject::VERSION");
}

/// Method: every text that occurs anywhere in a record is taken for a name of each kind.
#[test]
fn a_name_that_only_occurs_in_a_record_does_not_make_the_record_be_about_it() {
    fn texts(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => {
                into.insert(text.clone());
            }
            Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
            Value::Object(fields) => fields.values().for_each(|field| texts(field, into)),
            _ => {}
        }
    }
    let mut refused = 0;
    for (json, record) in records() {
        let mut words = BTreeSet::new();
        texts(&json, &mut words);
        let stated = stated(&json);
        for (word, kind) in words
            .iter()
            .flat_map(|word| Kind::ALL.map(|kind| (word, kind)))
        {
            if let Ok(subject) = Reference::new(kind, word) {
                let is_stated = stated.contains(&subject.to_string());
                assert_eq!(is_about(&record, &subject), is_stated, "{subject}: {json}");
                refused += usize::from(!is_stated);
            }
        }
    }
    assert!(1_000 < refused, "{refused}");
}

#[test]
fn what_is_no_subject_is_refused_in_words() {
    let words = |text: &str| text.parse::<Reference>().unwrap_err().to_string();
    assert_eq!(
        words("wedding/job-1"),
        "`wedding` is not a kind here; the kinds are record, booking, limit, node, pod, token, budget, envelope, run, lease"
    );
    assert_eq!(
        words("job-1"),
        "`job-1` has no kind, write record/NAME or booking/NAME or limit/NAME or node/NAME or pod/NAME or token/NAME or budget/NAME or envelope/NAME or run/NAME or lease/NAME"
    );
    assert_eq!(words("booking/"), "the name of a booking must not be empty");
    for number in ["x", "-1", "+1", "01", ""] {
        let text = number.to_owned();
        assert_eq!(
            Reference::new(Kind::Record, number),
            Err(Error::Number { text })
        );
    }
}
