//! The steps of an execution on one line.
//!
//! ```text
//! validate ✓ 0ms > allocate ✓ 0ms > queue ✓ 2s > create ✓ 210ms > monitor … > finish
//! ```
//! Compensations follow on a second line. A skipped step has a dash.

use bursar_client::api::{Step, StepState};
use bursar_units::Millis;

use crate::time::distance;

/// The lines, each with its newline; empty without steps.
pub(in crate::command) fn lines(steps: &[Step], compensations: &[Step]) -> String {
    let steps: Vec<String> = steps.iter().map(shown).collect();
    // A skipped compensation has nothing to undo.
    let undone = compensations.iter();
    let undone = undone.filter(|step| step.state != StepState::Skipped);
    let undone: Vec<String> = undone.map(shown).collect();
    let line = |before: &str, steps: &[String]| match steps {
        [] => String::new(),
        steps => format!("  {before}{}\n", steps.join(" > ")),
    };
    line("", &steps) + &line("undo: ", &undone)
}

fn shown(step: &Step) -> String {
    let name = &step.name;
    match step.state {
        StepState::Pending => name.clone(),
        StepState::Skipped => format!("{name} -"),
        StepState::Active => format!("{name} …"),
        StepState::Done => format!("{name} ✓ {}", took(step)),
        StepState::Failed => format!("{name} ✗ {}", took(step)),
    }
}

fn took(step: &Step) -> String {
    match step.took_ms.unwrap_or_default() {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms => distance(Millis::from_ms(ms)),
    }
}

#[cfg(test)]
mod tests {
    use bursar_client::api::{Step, StepState};

    use super::lines;

    fn step(name: &str, state: StepState, took_ms: Option<u64>) -> Step {
        Step {
            name: name.to_owned(),
            state,
            at: None,
            took_ms,
        }
    }

    #[test]
    fn steps_are_on_one_line_with_their_times() {
        let steps = [
            step("validate", StepState::Done, Some(0)),
            step("allocate", StepState::Done, Some(1)),
            step("queue", StepState::Done, Some(0)),
            step("create", StepState::Done, Some(210)),
            step("monitor", StepState::Active, Some(14_000)),
            step("finish", StepState::Pending, None),
        ];
        assert_eq!(
            lines(&steps, &[]),
            "  validate ✓ 0ms > allocate ✓ 1ms > queue ✓ 0ms > create ✓ 210ms > monitor … > finish\n"
        );
    }

    #[test]
    fn the_longest_line_fits_and_compensations_follow() {
        let days = Some(29 * 86_400_000);
        let steps = [
            step("validate", StepState::Done, Some(0)),
            step("allocate", StepState::Done, Some(0)),
            step("queue", StepState::Done, days),
            step("create", StepState::Done, Some(3_599_000)),
            step("monitor", StepState::Failed, days),
            step("finish", StepState::Skipped, None),
        ];
        let compensations = [
            step("delete-process", StepState::Done, Some(2_000)),
            step("leave-queue", StepState::Skipped, None),
            step("release", StepState::Done, Some(0)),
        ];
        let text = lines(&steps, &compensations);
        assert!(
            text.ends_with(
                "monitor ✗ 29d > finish -\n  undo: delete-process ✓ 2s > release ✓ 0ms\n"
            )
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}
