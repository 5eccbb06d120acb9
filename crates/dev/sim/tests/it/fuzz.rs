//! The corpus in the tree is replayed in every test run.

use std::path::Path;
use std::time::Duration;

use bursar_sim::fuzz::corpus::{Corpus, root};
use bursar_sim::fuzz::targets::{TARGETS, Target};
use bursar_sim::fuzz::{http, run, run_one};

#[test]
fn every_target_accepts_its_corpus() {
    for target in TARGETS {
        let corpus = Corpus::read(&root(), target.name).unwrap();
        assert!(!corpus.inputs().is_empty(), "{} has no corpus", target.name);
        for input in corpus.inputs() {
            run_one(target, input).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// Method: a target that fails on a byte that only mutations produce.
#[test]
fn a_panic_is_found_and_its_input_kept() {
    let failing = Target {
        name: "units",
        run: |bytes| assert!(!bytes.contains(&0xFF), "byte 255"),
    };
    let corpus = Corpus::read(&root(), failing.name).unwrap();
    let failure = run(&[&failing], &[corpus], 1, Duration::from_mins(1)).unwrap_err();
    assert_eq!(failure.target, "units");
    assert_eq!(failure.cause, "byte 255");
    assert!(failure.input.contains(&0xFF));
    assert!(failure.file_name().starts_with("units-"));
}

/// Method: two inputs of the corpus get the expected answers; a target that sees only invalid requests
/// would find nothing.
#[test]
fn the_http_target_reaches_the_code_behind_the_parser() {
    let input = |name: &str| std::fs::read(root().join("corpus/http").join(name)).unwrap();
    assert_eq!(http::statuses(&input("life")), [201, 200, 200, 200, 200]);
    assert_eq!(http::statuses(&input("limits")), [201, 200, 200, 200]);
}

/// Method: the present readers accept the corpus; files in an old format would find nothing. To make
/// a new record, run the example `market` of `bursar-node`.
#[test]
fn the_corpus_of_the_market_is_in_the_present_format() {
    let input = |name: &str| std::fs::read(root().join("corpus").join(name)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record.jsonl");
    std::fs::write(record, input("market_record/real")).unwrap();
    let verified = bursar_node::market::record::read(directory.path(), |_| ());
    assert_eq!(verified.unwrap().lines, 6);
    let file = bursar_client::object::File {
        name: "market.yaml".to_owned(),
        bytes: input("market/docs"),
    };
    let market = bursar_client::object::read_market(&file).unwrap();
    assert_eq!(market.pods.len(), 3);
    let originals = String::from_utf8(input("originals/kept")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let originals = originals.replace("THIS-BOOT", boot.trim());
    std::fs::write(directory.path().join("originals.json"), originals).unwrap();
    let originals = bursar_node::market::originals::Originals::open(directory.path());
    assert_eq!(originals.unwrap().kept().len(), 2);
}

/// Method: the present readers accept the records and the snapshot of a cluster, and its files; seeds
/// in an old format would find nothing. To make new ones, export a ledger in which these happen.
#[test]
fn the_corpus_of_the_cluster_is_in_the_present_format() {
    let mut records = 0;
    for entry in std::fs::read_dir(root().join("corpus/record")).unwrap() {
        let path = entry.unwrap().path();
        if stem(&path).starts_with("cluster-") {
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let seq = text.strip_prefix("{\"v\":1,\"seq\":").unwrap();
            let seq = seq.split(',').next().unwrap().parse().unwrap();
            let record = bursar_engine::codec::decode(seq, &bytes, |_| None);
            assert!(record.is_ok(), "{}: {record:?}", path.display());
            records += 1;
        }
    }
    assert!(records > 0, "there are no records of a cluster");
    let text = std::fs::read_to_string(root().join("corpus/snapshot/cluster")).unwrap();
    let state = bursar_engine::snapshot::read(&text).unwrap();
    assert!(state.clusters.runs().count() > 0, "no run is remembered");
    assert_eq!(bursar_engine::snapshot::write(&state).unwrap(), text);
    for name in ["budget", "run-and-gpu-node"] {
        let bytes = std::fs::read(root().join("corpus/objects").join(name)).unwrap();
        let name = name.to_owned();
        let objects =
            bursar_client::object::read_files(&[bursar_client::object::File { name, bytes }]);
        assert!(objects.is_ok(), "{objects:?}");
    }
}

/// Method: compares the targets in `fuzz/` with our list.
#[test]
fn cargo_fuzz_has_the_same_targets() {
    let directory = root().join("fuzz_targets");
    let mut files: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| stem(&entry.unwrap().path()))
        .collect();
    files.sort();
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(files, names);
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}
