//! The record of an agent: it replays, detects changes, continues after a crash, and is bounded. Also
//! the parsers of kubepods and processor lists.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use bursar_journal::hash::Hash;
use bursar_market::clear::Policy;
use bursar_market::node::{Clearing, Node, Settings, Supply};
use bursar_market::params::Params;
use bursar_market::sense::Sample;
use bursar_node::market::kubepods::{PodGroup, Qos, pod_group};
use bursar_node::market::machine::processors;
use bursar_node::market::record::{self, Event, Input, Past, Record};
use bursar_node::market::{Mode, Options, Rules, Unmanaged};
use proptest::prelude::*;

/// A node with pods whose shares differ from clearing to clearing.
struct Plant {
    node: Node,
    rules: Rules,
    now_us: u64,
    rounds: u64,
}

/// The rules of an agent with this mode and these settings.
fn rules(mode: Mode, settings: Settings) -> Rules {
    Rules::of(&Options {
        node: "w-17".to_owned(),
        directory: "/nowhere".into(),
        mode,
        settings,
        interval: Duration::from_secs(5),
        reserve_milli: None,
        unmanaged: Unmanaged::Measured,
        cgroups: Vec::new(),
        executions: None,
        process: "/nowhere".into(),
    })
}

const SETTINGS: Settings = Settings {
    policy: Policy::WeightedNash,
    quantum_milli: 1,
    windows: 4,
    size_block: 6,
    writes_per_hour: 600,
    cooldown_us: 0,
    max_step: None,
    conflict_us: 0,
    unmanaged_milli_max: None,
};

impl Plant {
    fn new(pods: u64) -> Self {
        let mut plant = Self {
            node: Node::new(SETTINGS),
            rules: rules(Mode::Act, SETTINGS),
            now_us: 0,
            rounds: 0,
        };
        for pod in 0..pods {
            plant.adopt(&format!("pod-{pod}"), 2 * pod + 1);
        }
        plant
    }

    fn adopt(&mut self, id: &str, weight: u64) {
        let params = Params {
            min_milli: 10,
            max_milli: 1_000,
            weight,
        };
        let quota = bursar_market::cgroup::Quota::of_milli(400, 100_000);
        self.node.adopt(id, params, quota, quota);
    }

    /// Clears once with this capacity and adds it to a record.
    fn add(&mut self, record: &mut Record, allocatable_milli: u64) {
        let event = Event::Wrote {
            pod: "pod-0".to_owned(),
            from_milli: None,
            to_milli: Some(allocatable_milli),
        };
        self.add_with(record, allocatable_milli, event);
    }

    fn add_with(&mut self, record: &mut Record, allocatable_milli: u64, event: Event) {
        self.now_us += 5_000_000;
        let supply = Supply {
            allocatable_milli,
            unmanaged_milli: Some(0),
        };
        let at_ms = self.now_us / 1_000;
        let (clearing, inputs) = self.clear(supply);
        record
            .add(at_ms, &self.rules, (&clearing, &inputs), vec![event])
            .unwrap();
    }

    /// Reads counters that grow at another rate each time, and clears.
    fn clear(&mut self, supply: Supply) -> (Clearing, BTreeMap<String, Input>) {
        self.rounds += 1;
        let before: Vec<_> = self.node.standings().collect();
        for (place, standing) in (1_u64..).zip(&before) {
            let at = |rounds: u64| Sample {
                at_us: rounds * 1_000_000,
                usage_us: rounds * rounds * 30_000 * place,
                throttled_us: Some(rounds * rounds * 10_000),
                periods: Some(rounds * 10),
                throttled_periods: Some(rounds * 5),
            };
            self.node.observe(&standing.id, Some(at(self.rounds - 1)));
            self.node.observe(&standing.id, Some(at(self.rounds)));
        }
        self.node.clear(self.now_us, supply);
        let after = self.node.standings().zip(before);
        let inputs = after.filter_map(|(after, before)| {
            let input = Input {
                before: before.bidder,
                headroom_permille: after.bidder.headroom_permille,
                reading: after.estimate?.reading,
            };
            Some((after.id, input))
        });
        let inputs = inputs.collect();
        (self.node.last().unwrap(), inputs)
    }
}

fn read(directory: &Path) -> (Vec<Past>, record::Verified) {
    let mut all = Vec::new();
    let verified = record::read(directory, |past| all.push(past)).unwrap();
    (all, verified)
}

#[test]
fn every_clearing_replays_as_it_was_and_pods_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    let mut plant = Plant::new(3);
    let mut expected = Vec::new();
    for round in 0..20_u64 {
        match round {
            7 => plant.adopt("late", 5),
            12 => plant.node.forget("pod-1"),
            _ => {}
        }
        plant.add(&mut record, 500 + round / 3 * 100);
        let last = plant.node.last().unwrap();
        expected.push((last.cleared.clone(), last.label));
    }
    let (all, verified) = read(directory.path());
    let last = all.last().unwrap().hash;
    let all: Vec<_> = all
        .into_iter()
        .map(|past| past.replayed.unwrap().clearing)
        .map(|clearing| (clearing.cleared, clearing.label))
        .collect();
    assert_eq!(all, expected);
    let position = record.position().unwrap();
    assert_eq!((verified.lines, last), (20, position.head));
    assert_eq!((verified.from_ms, verified.to_ms), (5_000, 100_000));
}

#[test]
fn every_change_in_it_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    let mut plant = Plant::new(2);
    for round in 0..6 {
        plant.add(&mut record, 600 + round);
    }
    let path = directory.path().join("record.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let without = |place: usize| {
        let mut lines = lines.clone();
        lines.remove(place);
        lines.join("\n") + "\n"
    };
    let mut swapped = lines.clone();
    swapped.swap(3, 4);
    let tampered = [
        without(2),
        without(0),
        swapped.join("\n") + "\n",
        good.replacen("\"capacityMilli\":602", "\"capacityMilli\":603", 1),
        good.replacen("\"toMilli\":602", "\"toMilli\":999", 1),
        good.replacen("congested", "uncongested", 1),
        good.replacen('{', "[", 1),
    ];
    for text in tampered {
        assert_ne!(text, good);
        fs::write(&path, &text).unwrap();
        let broken = record::read(directory.path(), |_| {}).unwrap_err();
        assert!(broken.to_string().starts_with("line "), "{broken}");
    }
}

/// Method: the last line is changed, which no later line can reveal.
#[test]
fn every_line_has_its_settings_and_its_counts() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    assert_eq!(record.position(), None);
    let mut plant = Plant::new(2);
    let first = plant.rules.sha256;
    plant.add(&mut record, 600);
    plant.add(&mut record, 601);
    plant.rules = rules(Mode::Observe, SETTINGS);
    let then = plant.rules.sha256;
    assert_ne!(first, then);
    // The asks exceed it, so that the policy decides.
    plant.add(&mut record, 402);
    plant.add(&mut record, 603);
    let (all, _) = read(directory.path());
    let settings: Vec<Hash> = all
        .iter()
        .map(|past| past.replayed.as_ref().unwrap().settings)
        .collect();
    assert_eq!(settings, [first, first, then, then]);
    let position = record.position().unwrap();
    assert_eq!((position.lines, position.writes), (4, 4));
    assert_eq!(
        (position.at_ms, position.head),
        (20_000, all.last().unwrap().hash)
    );

    let path = directory.path().join("record.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    assert_eq!(good.matches("settingsText").count(), 2, "{good}");
    // The lines up to one, with that one changed.
    let changed = |last: usize, change: &dyn Fn(&str) -> String| {
        let mut lines: Vec<String> = good.lines().take(last + 1).map(str::to_owned).collect();
        let line = lines.pop().unwrap();
        lines.push(change(&line));
        assert_ne!(lines.last(), Some(&line));
        lines.join("\n") + "\n"
    };
    let other = rules(Mode::Act, Settings::default());
    let proportional = serde_json::to_string(&other.text).unwrap();
    let told = serde_json::to_string(&plant.rules.text).unwrap();
    for (from, to, why) in [
        (
            then.to_string(),
            first.to_string(),
            "its settings are missing",
        ),
        (
            "\"lines\":4".into(),
            "\"lines\":5".into(),
            "its numbers of lines and writes",
        ),
        (
            "\"writes\":4".into(),
            "\"writes\":3".into(),
            "its numbers of lines and writes",
        ),
    ] {
        fs::write(&path, changed(3, &|line| line.replacen(&from, &to, 1))).unwrap();
        let broken = record::read(directory.path(), |_| {}).unwrap_err();
        assert!(broken.to_string().contains(why), "{broken}");
    }
    for (text, hash, why) in [
        (&proportional, then, "its settings do not match their hash"),
        (
            &proportional,
            other.sha256,
            "clearing it again gives a different result",
        ),
    ] {
        let (from, to) = (then.to_string(), hash.to_string());
        let settle = |line: &str| line.replacen(&told, text, 1).replacen(&from, &to, 1);
        fs::write(&path, changed(2, &settle)).unwrap();
        let broken = record::read(directory.path(), |_| {}).unwrap_err();
        assert!(broken.to_string().contains(why), "{broken}");
    }
}

/// Method: a record that begins with two lines of the version before, whose clearings nobody can repeat.
#[test]
fn lines_of_older_versions_are_checked_by_their_hashes_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record.jsonl");
    let nothing = Hash([0; 32]);
    let old = |at_ms: u64, previous: Hash| {
        format!(
            "{{\"atMs\":{at_ms},\"lines\":{at_ms},\"writes\":0,\"previous\":\"{previous}\",\"whole\":true,\"pods\":[[1]]}}"
        )
    };
    let first = old(1, nothing);
    let second = old(2, bursar_journal::hash::sha256(first.as_bytes()));
    let text = format!("{first}\n{second}\n");
    fs::write(&path, &text).unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    let mut plant = Plant::new(2);
    plant.add(&mut record, 600);
    plant.add(&mut record, 601);
    let (all, verified) = read(directory.path());
    assert_eq!(verified.lines, 4);
    let replayed: Vec<bool> = all.iter().map(|past| past.replayed.is_some()).collect();
    assert_eq!(replayed, [false, false, true, true]);
    let found = record::read_at(directory.path(), 2).unwrap().unwrap();
    assert_eq!((found.line, found.replayed), (2, None));
    // A change in an old line is found by the hash in the next one.
    let good = fs::read_to_string(&path).unwrap();
    fs::write(&path, good.replacen("[[1]]", "[[2]]", 1)).unwrap();
    let broken = record::read(directory.path(), |_| {}).unwrap_err();
    assert!(
        broken.to_string().contains("hash of the previous line"),
        "{broken}"
    );
}

/// Method: a line cannot be written once; the readings of its clearing are missing in the record.
#[test]
fn after_a_line_that_could_not_be_written_the_whole_state_follows() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    let mut plant = Plant::new(2);
    plant.add(&mut record, 600);
    let supply = Supply {
        allocatable_milli: 600,
        unmanaged_milli: Some(0),
    };
    let (clearing, inputs) = plant.clear(supply);
    // An old segment that cannot be removed.
    let old = directory.path().join("record-0000000000000001.jsonl");
    fs::create_dir(&old).unwrap();
    let opened = fs::File::open(&old).unwrap();
    opened.set_modified(std::time::UNIX_EPOCH).unwrap();
    let late_ms = 86_400_000;
    let failed = record.add(late_ms, &plant.rules, (&clearing, &inputs), Vec::new());
    assert!(failed.is_err());
    fs::remove_dir(&old).unwrap();
    plant.now_us = late_ms * 1_000;
    plant.add(&mut record, 601);
    plant.add(&mut record, 602);
    assert_eq!(read(directory.path()).1.lines, 3);
}

#[test]
fn a_reopened_record_continues_its_counts() {
    let directory = tempfile::tempdir().unwrap();
    let mut plant = Plant::new(1);
    for round in 1..=5 {
        let mut record = Record::open(directory.path()).unwrap();
        plant.add(&mut record, 600 + round);
        let position = record.position();
        assert_eq!(position.as_ref().unwrap().lines, round);
        drop(record);
        let record = Record::open(directory.path()).unwrap();
        assert_eq!(record.position(), position);
        if round == 3 {
            // As if the file had been closed.
            let path = directory.path();
            let closed = path.join("record-0000000000000001.jsonl");
            fs::rename(path.join("record.jsonl"), closed).unwrap();
        }
    }
    assert_eq!(read(directory.path()).1.lines, 5);
}

/// Method: four files of an hour each; in the third the clock is a day ahead for one line, and set
/// back by ten minutes afterwards. Then the first file is damaged.
#[test]
fn a_time_is_found_in_its_file_and_no_other_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    let mut plant = Plant::new(2);
    let mut times = Vec::new();
    for round in 0..2_400_u64 {
        match round {
            1_700 => plant.now_us += 86_400_000_000,
            1_701 => plant.now_us -= 86_400_000_000 + 600_000_000,
            _ => {}
        }
        plant.add(&mut record, 600 + round % 7);
        times.push(plant.now_us / 1_000);
    }
    let names = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(4 <= names.len(), "{names:?}");
    let line = |at_ms: u64| {
        let past = record::read_at(directory.path(), at_ms);
        past.map(|past| past.map(|past| past.line))
    };
    let expected = |at_ms: u64| {
        let place = times.iter().rposition(|time| *time <= at_ms)?;
        u64::try_from(place + 1).ok()
    };
    for at_ms in [
        4_999, 5_000, 5_001, 3_000_000, 3_605_000, 8_000_000, 8_400_000, 9_999_999,
    ] {
        assert_eq!(line(at_ms).unwrap(), expected(at_ms), "{at_ms}");
    }
    let first = names.first().unwrap();
    let good = fs::read_to_string(first).unwrap();
    let damaged = good.replacen("\"atMs\":10000,", "\"atMs\":10001,", 1);
    assert_ne!(damaged, good);
    fs::write(first, damaged).unwrap();
    assert!(record::read(directory.path(), |_| {}).is_err());
    assert_eq!(line(9_000_000).unwrap(), expected(9_000_000));
    assert!(line(20_000).is_err(), "the chain is checked up to the line");
    assert_eq!(line(10_000).unwrap(), Some(1), "and no further");
}

/// Method: the file has both names, as a reader sees it that opens it before the renaming.
#[test]
fn a_file_that_is_closed_while_the_record_is_read_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut record = Record::open(path).unwrap();
    let mut plant = Plant::new(1);
    for round in 0..3 {
        plant.add(&mut record, 600 + round);
    }
    let closed = path.join("record-0000000000000001.jsonl");
    fs::hard_link(path.join("record.jsonl"), closed).unwrap();
    assert_eq!(read(path).1.lines, 3);
    let past = record::read_at(path, 10_000).unwrap().unwrap();
    assert_eq!(past.line, 2);
}

#[test]
fn after_a_crash_it_continues_after_the_last_complete_line() {
    let directory = tempfile::tempdir().unwrap();
    let mut plant = Plant::new(2);
    for round in 0..5_u64 {
        let mut record = Record::open(directory.path()).unwrap();
        plant.add(&mut record, 600 + round);
        plant.add(&mut record, 700 + round);
        drop(record);
        let path = directory.path().join("record.jsonl");
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"atMs\":17,\"prev").unwrap();
    }
    let (all, verified) = read(directory.path());
    assert_eq!((all.len(), verified.lines), (10, 10));
}

#[test]
fn it_is_bounded_and_its_files_follow_one_another() {
    let directory = tempfile::tempdir().unwrap();
    // The record is so large that the first files are deleted.
    let large = fs::File::create(directory.path().join("record-0000000000000001.jsonl")).unwrap();
    large.set_len(record::TOTAL_SIZE_MAX).unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    let mut plant = Plant::new(40);
    // One line per five seconds: an hour and a half, two files.
    for round in 0..1_100_u64 {
        plant.add(&mut record, 600 + round % 7);
    }
    let names = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    let sizes = names.iter().map(|name| {
        let path = directory.path().join(name);
        fs::metadata(path).unwrap().len()
    });
    assert!(sizes.sum::<u64>() < record::TOTAL_SIZE_MAX);
    let (all, _) = read(directory.path());
    assert_eq!(all.len(), 1_100);
    // The next process continues where this one stopped.
    let position = record.position();
    assert!(position.is_some());
    drop(record);
    let again = Record::open(directory.path()).unwrap();
    assert_eq!(again.position(), position);
}

/// Method: the record is so large that a line of 20 MiB replaces others, at each end of a file.
#[test]
fn a_line_larger_than_a_segment_keeps_it_bounded_and_is_replayed() {
    for is_first in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        for number in 1..=15 {
            let name = format!("record-{number:016}.jsonl");
            let closed = fs::File::create(directory.path().join(name)).unwrap();
            closed.set_len(record::SEGMENT_SIZE).unwrap();
        }
        let mut record = Record::open(directory.path()).unwrap();
        let mut plant = Plant::new(2);
        let mut check = |huge: bool| {
            let event = Event::Refused {
                pod: "pod-0".to_owned(),
                reason: "x".repeat(if huge { 20 << 20 } else { 1 }),
            };
            plant.add_with(&mut record, 600, event);
            let files = fs::read_dir(directory.path()).unwrap();
            let sizes = files.map(|file| file.unwrap().metadata().unwrap().len());
            let total: u64 = sizes.sum();
            assert!(total <= record::TOTAL_SIZE_MAX, "{total}");
        };
        if !is_first {
            check(false);
        }
        check(true);
        check(false);
        let (all, _) = read(directory.path());
        assert_eq!(all.len(), if is_first { 2 } else { 3 });
    }
}

#[test]
fn a_file_that_somebody_else_closed_is_followed_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = Record::open(directory.path()).unwrap();
    let mut plant = Plant::new(2);
    plant.add(&mut record, 600);
    let path = directory.path();
    let closed = path.join("record-0000000000000001.jsonl");
    fs::rename(path.join("record.jsonl"), closed).unwrap();
    // Late enough that it must be closed.
    plant.now_us += 3_600_000_000;
    plant.add(&mut record, 601);
    plant.add(&mut record, 602);
    assert_eq!(read(path).0.len(), 3);
    assert!(path.join("record.jsonl").exists());
}

#[test]
fn kubepods_of_both_drivers_are_recognised() {
    let check = |path: &str, expected: Option<(Qos, &str, Option<&str>)>| {
        let expected = expected.map(|(qos, uid, container)| PodGroup {
            qos,
            uid: uid.to_owned(),
            container: container.map(str::to_owned),
        });
        assert_eq!(pod_group(Path::new(path)), expected, "{path}");
    };
    let uid = "6a3f1c1e-8a35-4b5c-9d06-1f2e3d4c5b6a";
    let id = "0d4cf5c3a1b2";
    check(
        &format!("/kubepods/burstable/pod{uid}/{id}"),
        Some((Qos::Burstable, uid, Some(id))),
    );
    check(
        &format!("/kubepods/pod{uid}"),
        Some((Qos::Guaranteed, uid, None)),
    );
    check(
        &format!("kubepods/besteffort/pod{uid}/{id}"),
        Some((Qos::BestEffort, uid, Some(id))),
    );
    let slice = uid.replace('-', "_");
    let burstable =
        format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice");
    check(&burstable, Some((Qos::Burstable, uid, None)));
    for runtime in ["cri-containerd", "crio", "docker"] {
        check(
            &format!("{burstable}/{runtime}-{id}.scope"),
            Some((Qos::Burstable, uid, Some(id))),
        );
    }
    check(
        &format!("/kubepods.slice/kubepods-pod{slice}.slice/crio-{id}.scope"),
        Some((Qos::Guaranteed, uid, Some(id))),
    );
    // A node that is itself a container.
    check(
        &format!("/docker/ab12/kubelet/kubepods/burstable/pod{uid}/{id}"),
        Some((Qos::Burstable, uid, Some(id))),
    );
    for other in [
        "/",
        "/kubepods",
        "/kubepods/burstable",
        "/kubepods/burstable/podnot_a_uid/x",
        "/kubepods.slice/kubepods-burstable.slice",
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-burstable-pod1.slice",
        "/system.slice/web.service",
    ] {
        check(other, None);
    }
}

#[test]
fn processors_are_those_online_that_our_cpuset_allows() {
    let check = |allowed: &str, online: &str, expected: Option<u64>| {
        let status = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n");
        let found = processors(&status, online);
        assert_eq!(found, expected, "{allowed} of {online}");
    };
    check("0-1", "0-1\n", Some(2));
    check("0-127", "0-63\n", Some(64));
    check("2,4-5,9", "0-4,8-9\n", Some(3));
    check("0-3,2-5,3", "0-9,4\n", Some(6));
    check("3-1", "0-3\n", None);
    check("7", "0-3\n", None);
    check("", "0-3\n", None);
    check("0-99999999999999999999", "0-3\n", None);
    check("0-18446744073709551615", "0-3\n", None);
    assert_eq!(processors("", "0-1"), None);
}

proptest! {
    #[test]
    fn no_path_and_no_list_makes_a_reader_fail(text in ".{0,80}", parts in prop::collection::vec("(kubepods|kubepods.slice|burstable|pod[0-9a-f-]{0,4}|kubepods-pod[0-9_]{0,3}.slice|[a-z-]{0,6}.scope)", 0..5)) {
        let _ = pod_group(Path::new(&text));
        let _ = pod_group(Path::new(&parts.join("/")));
        let _ = processors(&format!("Cpus_allowed_list:{text}"), &text);
    }
}
