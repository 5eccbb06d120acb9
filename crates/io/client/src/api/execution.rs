//! Executions: programs that the server runs under a booking of the same id (X1).
//!
//! The command, its arguments and its environment may hold secrets. No answer, record or log
//! repeats them (L13), and the `Debug` output of a request leaves them out.

use std::collections::BTreeMap;

use bursar_booking::execution::{GRACE_MAX, MAX_TIME_MAX, START_TIMEOUT_MAX, TIME_MIN};
use bursar_units::{BookingId, Instant, Label, Millis, vocabulary};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::body::{ARGUMENT, ID, LABEL, PRIORITY, SLOTS, SOME, time};
use super::booking::{Priority, one};
use super::fields::object;
use super::{instant, integer};
use crate::ToSchema;
use crate::problem::FieldError;
use crate::shape::{Shape, WHOLE, Wrong};

pub use super::booking::answer::Execution;
pub use bursar_booking::execution::{Cause as StopCause, Isolation, Verdict as ExecutionOutcome};
pub use bursar_engine::explain::StepState;

object! {
    /// Request for an execution: the body of `PUT /v1/executions/{id}`.
    #[derive(Clone, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ExecutionRequest {
        /// Kind of execution, for example a language.
        #[schema(value_type = String, min_length = 1, max_length = 128)]
        required class "class": Label = LABEL;
        /// Tenant that the execution counts for; optional for a caller who may act as one tenant only.
        #[schema(value_type = Option<String>, min_length = 1, max_length = 128)]
        optional tenant "tenant": Label = LABEL;
        /// Units of admission.
        #[serde(default = "one", deserialize_with = "integer::required")]
        #[schema(default = 1, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
        defaulted slots "slots": u64 = SLOTS, one();
        /// Program: a path, or a name to look up in the `PATH` of `env`.
        #[serde(deserialize_with = "text")]
        #[schema(min_length = 1)]
        required command "command": String = Shape::Secret(program);
        /// Arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "texts")]
        defaulted args "args": Vec<String> = Shape::List(&ARGUMENT), Vec::new();
        /// Whole environment; only `BURSAR_BOOKING` and `BURSAR_FENCE` are added to it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "named_texts")]
        defaulted env "env": BTreeMap<String, String> = Shape::Named(variable, &ARGUMENT), BTreeMap::new();
        /// Working directory, an absolute path; the root directory if absent.
        optional directory "directory": String = Shape::Secret(directory);
        /// Allows the program to gain privileges from files with the set-user-ID bit or with file
        /// capabilities, like the field of the same name of Kubernetes pods.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        defaulted allow_privilege_escalation "allowPrivilegeEscalation": bool = Shape::Bool, false;
        /// CPU charged to limits, in millicores.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional cpu_milli "cpuMilli": u64 = WHOLE;
        /// Memory charged to limits, in bytes.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional memory_bytes "memoryBytes": u64 = WHOLE;
        /// Whole GPUs charged to limits.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        optional gpus "gpus": u64 = WHOLE;
        /// CPU limit, in millicores; the CPU charged if absent.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
        optional cpu_limit_milli "cpuLimitMilli": u64 = SOME;
        /// Memory limit, in bytes; the memory charged if absent.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
        optional memory_limit_bytes "memoryLimitBytes": u64 = SOME;
        /// Maximum number of processes and threads.
        #[schema(minimum = 1)]
        optional pids "pids": u32 = Shape::Whole { min: 1, max: 0xffff_ffff };
        /// Priority in the queue.
        #[schema(value_type = Option<crate::api::word::Priority>, default = "normal")]
        optional priority "priority": Priority = PRIORITY;
        /// Maximum wait for its slots, in milliseconds; 0 means: refuse at once.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 0, maximum = 9_007_199_254_740_991_u64)]
        optional wait_ms "waitMs": u64 = WHOLE;
        /// Maximum time from the grant until the program runs, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 60_000, minimum = 1_000, maximum = 3_600_000)]
        optional start_timeout_ms "startTimeoutMs": u64 = time(TIME_MIN, START_TIMEOUT_MAX);
        /// Maximum run time, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 3_600_000, minimum = 1_000, maximum = 2_592_000_000_u64)]
        optional max_time_ms "maxTimeMs": u64 = time(TIME_MIN, MAX_TIME_MAX);
        /// Time between the request to stop and the kill, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 10_000, minimum = 0, maximum = 3_600_000)]
        optional grace_ms "graceMs": u64 = time(Millis::ZERO, GRACE_MAX);
        /// Execution that this one retries; it must have ended.
        #[schema(value_type = Option<String>, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
        optional retry_of "retryOf": BookingId = ID;
    }
}

/// Progress of an execution: the fields that a plain booking does not have.
///
/// They are members of an [`Execution`], and members of `execution` in the booking of the same id.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    /// State.
    #[schema(value_type = crate::api::word::ExecutionState)]
    pub state: ExecutionState,
    /// Outcome, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::ExecutionOutcome>)]
    pub outcome: Option<ExecutionOutcome>,
    /// Signal that ended its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if the kernel killed one of its processes at its memory limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// Isolation of its process, once it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::Isolation>)]
    pub isolation: Option<Isolation>,
    /// True if it was found running after a restore that had lost the records about it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Start of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Instant>,
    /// Time at which it began to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stopping_at: Option<Instant>,
    /// Cause of the stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::StopCause>)]
    pub cause: Option<StopCause>,
    /// Number of stops that left a process alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops_failed: Option<u32>,
    /// Execution that this one retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retry_of: Option<BookingId>,
    /// All six steps of its saga, in order; only in the answer about one execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Compensations, in the order of execution; empty unless it fails or is stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compensations: Vec<Step>,
}

/// Saga of an execution: its steps, and the compensations if it does not complete.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Saga {
    /// All six steps, in order.
    pub steps: Vec<Step>,
    /// Compensations, in the order of execution; empty unless it fails or is stopped.
    pub compensations: Vec<Step>,
}

/// Step or compensation of a saga.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Name.
    pub name: String,
    /// State.
    #[schema(value_type = crate::api::word::StepState)]
    pub state: StepState,
    /// Start; absent if it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Instant>,
    /// Duration, or duration so far, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

vocabulary! {
    /// State of an execution.
    pub enum ExecutionState {
        /// The execution waits for its slots.
        Queued = "queued",
        /// Its process is to be started.
        Starting = "starting",
        /// Its process runs.
        Running = "running",
        /// Its process is to be stopped.
        Stopping = "stopping",
        /// Ten stops have failed: the execution keeps its slots until its process is gone or an
        /// operator forces a release.
        Stuck = "stuck",
        /// The execution has ended and its slots are free.
        Ended = "ended",
    }
}

vocabulary! {
    /// Output stream of a process.
    #[derive(Default)]
    pub enum LogStream {
        /// Standard output.
        #[default]
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

impl ExecutionRequest {
    /// Mistakes in the program and its limits. No message repeats a value (L13).
    pub(super) fn program_mistakes(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut check = |path: String, read: Result<(), Wrong>| {
            errors.extend(read.err().map(|wrong| FieldError::new(path, wrong.message)));
        };
        check("command".to_owned(), program(&self.command));
        for (index, arg) in self.args.iter().enumerate() {
            check(format!("args[{index}]"), argument(arg));
        }
        for (name, value) in &self.env {
            match variable(name) {
                Ok(()) => check(format!("env.{name}"), argument(value)),
                wrong => check("env".to_owned(), wrong),
            }
        }
        if let Some(path) = &self.directory {
            check("directory".to_owned(), directory(path));
        }
        for (path, limit) in [
            ("cpuLimitMilli", self.cpu_limit_milli),
            ("memoryLimitBytes", self.memory_limit_bytes),
            ("pids", self.pids.map(u64::from)),
        ] {
            let message = "is 0, with which nothing can run; leave it out for no limit";
            if limit == Some(0) {
                check(path.to_owned(), Err(Wrong::new(message)));
            }
        }
        errors
    }
}

/// Leaves out the command, arguments and environment: they may hold secrets, and debug output goes
/// into logs (L13).
impl std::fmt::Debug for ExecutionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutionRequest")
            .field("class", &self.class)
            .field("tenant", &self.tenant)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl Course {
    /// Progress with all optional fields absent.
    pub const fn new(state: ExecutionState) -> Self {
        Self {
            state,
            outcome: None,
            signal: None,
            out_of_memory: false,
            adopted: false,
            isolation: None,
            started_at: None,
            stopping_at: None,
            cause: None,
            stops_failed: None,
            retry_of: None,
            steps: Vec::new(),
            compensations: Vec::new(),
        }
    }
}

pub(super) fn program(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err(Wrong::new("is empty"));
    }
    argument(text)
}

pub(super) fn argument(text: &str) -> Result<(), Wrong> {
    if text.contains('\0') {
        return Err(Wrong::new(
            "contains a zero byte, which a program cannot receive",
        ));
    }
    Ok(())
}

pub(super) fn variable(name: &str) -> Result<(), Wrong> {
    if name.is_empty() {
        return Err(Wrong::new("has an empty name"));
    }
    if name.contains(['=', '\0']) {
        return Err(Wrong::new("has a name that contains `=` or a zero byte"));
    }
    Ok(())
}

pub(super) fn directory(text: &str) -> Result<(), Wrong> {
    argument(text)?;
    if !text.starts_with('/') {
        return Err(Wrong::new("is not an absolute path"));
    }
    Ok(())
}

/// Reads a text. Serde's own message would repeat the value (L13).
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        _ => Err(serde::de::Error::custom("must be a text")),
    }
}

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let wrong = || serde::de::Error::custom("must be a list of texts");
    let Value::Array(values) = Value::deserialize(deserializer)? else {
        return Err(wrong());
    };
    let text = |value| match value {
        Value::String(text) => Ok(text),
        _ => Err(wrong()),
    };
    values.into_iter().map(text).collect()
}

fn named_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let wrong = || serde::de::Error::custom("must have a text for each name");
    let Value::Object(values) = Value::deserialize(deserializer)? else {
        return Err(wrong());
    };
    let text = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        _ => Err(wrong()),
    };
    values.into_iter().map(text).collect()
}
