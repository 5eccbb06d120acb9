//! The bookings agree with the naive oracle on random worlds.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::world::{Step, any_steps, execution_steps, run, shield_steps};

/// Method: both get the same steps; grants in order, fences, ends, refusals with their headline, and
/// the whole state are compared after every step. Each rule must apply in enough worlds.
#[test]
fn any_world_goes_as_the_plain_rules_say() {
    let met = worlds(3_000, any_steps());
    for rule in [
        "granted at once",
        "queued",
        "repeated",
        "ended",
        "already ended",
        "over-limit",
        "queue-full",
        "never-fits",
        "ttl",
        "wait",
        "slots",
        "id-reused",
        "id-too-old",
        "not-found",
        "stale-fence",
        "is-granted",
        "is-queued",
        "released",
        "cancelled",
        "expired",
        "wait-over",
        "forced",
        "renewed",
        "resumed",
        "aged",
        "passed",
        "forgotten",
        "same scopes",
        "lowered below what is held",
        "others-first",
    ] {
        assert!(
            met.get(rule).is_some_and(|count| *count >= 10),
            "{rule}: {met:?}"
        );
    }
}

/// Method: as above, with worlds that begin with a large request passed about a hundred times.
#[test]
fn any_world_with_a_due_head_goes_as_the_plain_rules_say() {
    let met = worlds(200, shield_steps());
    for rule in [
        "due",
        "shielded by everything",
        "shielded by class",
        "shielded by its own tenant",
        "due but hopeless",
        "others-first",
    ] {
        assert!(
            met.get(rule).is_some_and(|count| *count >= 5),
            "{rule}: {met:?}"
        );
    }
}

/// Method: as above, with executions whose processes start and end at any time.
#[test]
fn any_world_of_executions_goes_as_the_plain_rules_say() {
    let met = worlds(1_500, execution_steps());
    for rule in [
        "noted",
        "asked to stop",
        "overdue",
        "adopted",
        "starting",
        "running",
        "stopping",
        "stuck",
        "completed",
        "failed",
        "cancelled",
        "wait-over",
        "forced",
        "already ended",
        "resumed",
        "lost",
        "timed-out",
        "is-execution",
        "not-an-execution",
        "retry-of-unknown",
        "retry-of-live",
        "startTimeoutMs",
        "maxTimeMs",
        "graceMs",
    ] {
        assert!(
            met.get(rule).is_some_and(|count| *count >= 10),
            "{rule}: {met:?}"
        );
    }
}

/// Runs random worlds, and counts for each rule the worlds in which it applied.
fn worlds(cases: u32, steps: impl Strategy<Value = Vec<Step>>) -> BTreeMap<&'static str, u32> {
    let met = RefCell::new(BTreeMap::new());
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, random).run(&steps, |steps| {
        for rule in run(&steps) {
            *met.borrow_mut().entry(rule).or_insert(0) += 1;
        }
        Ok(())
    });
    outcome.unwrap();
    met.into_inner()
}
