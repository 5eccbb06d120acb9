//! Ends of executions and uses of limits as people read them.

use bursar_units::Dimension;
use bursar_units::words::value;

use crate::LimitUse;
use crate::execution::{Failure, Verdict};

/// How an execution came out.
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

/// How an execution came out, ` after` which time, and what is known of it.
pub fn came_out(came_out: Verdict, after: &str, how: &str) -> String {
    let how = match came_out {
        Verdict::Lost => ", nobody knows how it ended",
        _ => how,
    };
    format!("{}{after}{how}", verdict(came_out))
}

/// What follows the verdict: `, exit 7`, `, signal 9`, or why it never ran; of what people ask
/// about most also what it means.
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

/// What is in use against its bound: `100/100`, `memory 12Gi/240Gi`; slots need no word.
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
