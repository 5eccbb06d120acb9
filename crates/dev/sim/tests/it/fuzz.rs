//! The corpus in the tree is replayed with every test run.

use std::path::Path;
use std::time::Duration;

use bursar_sim::fuzz::corpus::{Corpus, root};
use bursar_sim::fuzz::targets::{TARGETS, Target};
use bursar_sim::fuzz::{http, run, run_one};

#[test]
fn every_target_takes_its_corpus() {
    for target in TARGETS {
        let corpus = Corpus::read(&root(), target.name).unwrap();
        assert!(!corpus.inputs().is_empty(), "{} has no corpus", target.name);
        for input in corpus.inputs() {
            run_one(target, input).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// Method: a target that fails on a word that only mutations make.
#[test]
fn a_panic_is_found_and_its_input_kept() {
    let fussy = Target {
        name: "units",
        run: |bytes| assert!(!bytes.contains(&0xFF), "it came"),
    };
    let corpus = Corpus::read(&root(), fussy.name).unwrap();
    let failure = run(&[&fussy], &[corpus], 1, Duration::from_mins(1)).unwrap_err();
    assert_eq!(failure.target, "units");
    assert_eq!(failure.what, "it came");
    assert!(failure.input.contains(&0xFF));
    assert!(failure.file_name().starts_with("units-"));
}

/// Method: a target that sees only bad requests would find nothing.
#[test]
fn the_http_target_reaches_what_is_behind_the_parser() {
    let input = |name: &str| std::fs::read(root().join("corpus/http").join(name)).unwrap();
    assert_eq!(http::statuses(&input("life")), [201, 200, 200, 200, 200]);
    assert_eq!(http::statuses(&input("limits")), [201, 200, 200, 200]);
}

/// Method: a corpus of files that nobody writes any more would find nothing. A new record is what
/// the example `market` of `bursar-node` leaves in its directory.
#[test]
fn the_targets_of_the_market_have_files_as_they_are_written() {
    let input = |name: &str| std::fs::read(root().join("corpus").join(name)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record.jsonl");
    std::fs::write(record, input("market_record/real")).unwrap();
    let verified = bursar_node::market::record::read(directory.path(), |_| ());
    assert_eq!(verified.unwrap().lines, 6);
    let file = bursar_client::object::File {
        name: "market.yaml".to_owned(),
        bytes: input("market/guards"),
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

/// Method: the list of the crate for `cargo fuzz` against ours.
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
