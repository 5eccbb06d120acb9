//! A short simulation in every test run; `cargo xtask test simulate` runs the long one.

use bursar_sim::simulation::{Extent, Report, run};
use bursar_sim::trace::SHOWN_DEFAULT;

const SEED: u64 = 7;

fn report(seed: u64, steps: u64) -> Report {
    let extent = Extent {
        steps,
        worlds: u64::MAX,
        shown: SHOWN_DEFAULT,
    };
    run(seed, extent).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Method: thirty thousand steps of worlds with crashes, faults and clock jumps.
#[test]
fn promises_hold_through_crashes_faults_and_clock_jumps() {
    let report = report(SEED, 30_000);
    for met in [
        "crashes",
        "end: expired",
        "end: released",
        "executions adopted after a crash",
        "executions started",
        "executions stopped",
        "verdict: completed",
        "grants of those who waited",
        "recovered from record 0",
        "renewals answered",
        "runs ended: completed",
        "runs started",
    ] {
        assert!(report.tally.count(met) > 0, "never occurred: {met}");
    }
}

/// Method: traces are hashed; a second run with the seed must give the same hash.
#[test]
fn one_seed_gives_one_trace_and_another_seed_another() {
    let first = report(SEED, 5_000);
    let again = report(SEED, 5_000);
    assert_eq!(first.trace_hash, again.trace_hash);
    assert_eq!(first.tally.table(), again.tally.table());
    assert_ne!(first.trace_hash, report(SEED + 1, 5_000).trace_hash);
}
