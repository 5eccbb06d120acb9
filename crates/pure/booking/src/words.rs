//! Texts for ends of executions and for uses of limits.

use bursar_units::Dimension;
use bursar_units::words::value;

use crate::LimitUse;
use crate::execution::{Failure, Verdict};

/// Text of a verdict.
pub const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Completed => "completed",
        Verdict::Failed => "failed",
        Verdict::Lost => "lost",
        Verdict::Cancelled => "cancelled",
        Verdict::TimedOut => "timed out",
        Verdict::WaitOver => "never granted in time",
    }
}

/// Text of a verdict, with ` after 3s` and the details of the exit.
pub fn came_out(came_out: Verdict, after: &str, how: &str) -> String {
    let how = match came_out {
        Verdict::Lost => ", nobody knows how it ended",
        _ => how,
    };
    format!("{}{after}{how}", verdict(came_out))
}

/// Details after a verdict: `, exit 7`, `, signal 9`, or the reason of a failed start; for common
/// failures also their meaning.
pub fn exit(
    code: Option<i32>,
    signal: Option<i32>,
    is_out_of_memory: bool,
    reason: Option<&str>,
) -> String {
    let number = match (code, signal, reason) {
        (Some(0), _, _) | (None, None, None) => String::new(),
        (Some(code), _, _) => format!(", exit {code}"),
        (None, Some(signal), _) => format!(", signal {signal}"),
        (None, None, Some(reason)) => format!(", {reason}"),
    };
    let meaning = match (Failure::of(code, signal, is_out_of_memory), code) {
        (Failure::OutOfMemory, None) => ", out of memory: the kernel killed it at its memory limit",
        (Failure::OutOfMemory, Some(_)) => {
            ", out of memory: the kernel killed a process of it at its memory limit"
        }
        (Failure::NotExecutable, _) => {
            ", the program could not be executed: it is not executable, or permission is missing"
        }
        (Failure::NotFound, _) => ", the program was not found",
        (Failure::Code | Failure::Signal | Failure::NotStarted, _) => "",
    };
    number + meaning
}

/// Use and bound: `100/100` for slots, `memory 12Gi/240Gi` for other dimensions.
pub fn used(of: &LimitUse) -> String {
    let both = format!(
        "{}/{}",
        value(of.dimension, of.in_use),
        value(of.dimension, of.size)
    );
    match of.dimension {
        Dimension::Slots => both,
        other => format!("{} {both}", other.word()),
    }
}
