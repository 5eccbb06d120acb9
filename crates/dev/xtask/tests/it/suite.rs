//! What each part runs, and how the result is told.

use std::time::Duration;

use clap::ValueEnum as _;
use xtask::programs::{self, Programs};
use xtask::simulator;
use xtask::suite::{Outcome, Part, failed, summary};

fn outcome(part: Part, failure: Option<&str>) -> Outcome {
    Outcome {
        part,
        elapsed: Duration::from_millis(1_250),
        failure: failure.map(String::from),
    }
}

#[test]
fn a_part_is_typed_by_the_name_it_is_told_by() {
    assert_eq!(Part::value_variants(), Part::ALL);
    for part in Part::ALL {
        assert_eq!(part.to_possible_value().unwrap().get_name(), part.name());
    }
}

#[test]
fn each_part_runs_a_command_that_a_person_could_type() {
    for (part, expected) in [
        (Part::Format, "cargo fmt --all --check"),
        (
            Part::Lint,
            "cargo clippy --workspace --all-targets --locked -- --deny warnings",
        ),
        (Part::Unit, "cargo test --workspace --locked"),
        (
            Part::Docs,
            "RUSTDOCFLAGS='--deny warnings' cargo doc --workspace --no-deps --locked",
        ),
    ] {
        assert_eq!(part.invocation().unwrap().to_string(), expected);
    }
}

#[test]
fn a_bare_machine_gets_a_python_before_the_first_test_starts_one() {
    let mut parts = Part::ALL.into_iter().filter(|part| part.needs_python());
    assert_eq!(parts.next(), Some(Part::Unit));
    assert_eq!(parts.next(), Some(Part::Python));
    assert_eq!(parts.next(), Some(Part::Hostile));
}

#[test]
fn a_seed_runs_as_the_test_that_printed_it() {
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
fn nothing_is_built_twice_because_a_package_was_named() {
    assert_eq!(
        programs::invocation().to_string(),
        "cargo build --workspace --locked --bins --examples"
    );
}

#[test]
fn a_bench_runs_as_users_build_it_with_its_own_arguments() {
    let bench = simulator::bench("bookings", &["--no-peers".to_owned()]);
    let expected =
        "cargo run --locked --release --package bursar-sim --bin bench -- bookings --no-peers";
    assert_eq!(bench.to_string(), expected);
    let program = "cargo build --locked --release --package bursar";
    assert_eq!(simulator::program().to_string(), program);
}

#[test]
fn the_summary_has_a_line_for_each_part_and_closes_with_the_counts() {
    let outcomes = [
        outcome(Part::Format, None),
        outcome(Part::Simulate, Some("seed 7\nmore")),
    ];
    let expected = "\
format    passed      1.2 s
simulate  failed      1.2 s  seed 7
1 passed, 1 failed
";
    assert_eq!(summary(&outcomes), expected);
    assert_eq!(failed(&outcomes), ["simulate"]);
}
