//! Commands of each part, and the summary of results.

use std::time::Duration;

use clap::ValueEnum as _;
use xtask::invocation::Invocation;
use xtask::programs::{self, Programs};
use xtask::simulator;
use xtask::suite::{Part, PartResult, failed, summary};

fn result(part: Part, failure: Option<&str>) -> PartResult {
    PartResult {
        part,
        elapsed: Duration::from_millis(1_250),
        failure: failure.map(String::from),
    }
}

#[test]
fn the_printed_name_of_a_part_is_its_command_line_name() {
    assert_eq!(Part::value_variants(), Part::ALL);
    for part in Part::ALL {
        assert_eq!(part.to_possible_value().unwrap().get_name(), part.name());
    }
}

#[test]
fn a_command_is_printed_as_a_person_would_type_it() {
    let doc = Invocation::cargo(&["doc", "a b", "", "it's"]).with_variable("FLAGS", "--deny all");
    let expected = r"FLAGS='--deny all' cargo doc 'a b' '' 'it'\''s'";
    assert_eq!(doc.to_string(), expected);
}

#[test]
fn a_seed_repeats_the_run_of_the_test() {
    let programs = Programs::below("t");
    let test = simulator::test_simulation(&programs);
    assert_eq!(test, simulator::simulation(&programs, 1, Some(1_000_000)));
    assert_eq!(
        test.to_string(),
        "t/debug/simulate --seed 1 --steps 1000000"
    );
    let seed = simulator::simulation(&programs, 7, None);
    assert_eq!(seed.to_string(), "t/debug/simulate --seed 7");
    let fuzz = simulator::test_fuzz(&programs);
    assert_eq!(fuzz.to_string(), "t/debug/fuzz --seed 1 --seconds 10");
}

#[test]
fn builds_name_no_single_package_and_so_build_nothing_twice() {
    for invocation in [programs::invocation(), Part::Unit.invocation().unwrap()] {
        let line = invocation.to_string();
        let names_one = line.contains("--package") || line.contains(" -p ");
        assert!(line.contains("--workspace") && !names_one, "{line}");
    }
}

#[test]
fn the_summary_has_a_line_for_each_part_and_ends_with_the_counts() {
    let results = [
        result(Part::Format, None),
        result(Part::Simulate, Some("seed 7\nmore")),
    ];
    let expected = "\
format    passed      1.2 s
simulate  failed      1.2 s  seed 7
1 passed, 1 failed
";
    assert_eq!(summary(&results), expected);
    assert_eq!(failed(&results), ["simulate"]);
}
