//! Executions: what is to run under a booking of the same id, and how that goes (design 40, X1).
//!
//! What is run may hold secrets. It travels to the server and no further: no answer, record or
//! log repeats it (L13), and printing a request for debugging leaves it out.

use std::collections::BTreeMap;

use bursar_booking::execution::{GRACE_MAX, MAX_TIME_MAX, START_TIMEOUT_MAX, TIME_MIN};
use bursar_units::{BookingId, Instant, Label, Millis, vocabulary};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::body::{ARGUMENT, ID, LABEL, PRIORITY, SLOTS, SOME, time};
use super::booking::{Priority, one};
use super::fields::object;
use super::{instant, integer, word};
use crate::problem::FieldError;
use crate::shape::{Shape, WHOLE, Wrong};

pub use super::booking::answer::Execution;
pub use bursar_booking::execution::{Cause as StopCause, Isolation, Verdict as ExecutionOutcome};
pub use bursar_engine::explain::StepState;

object! {
    /// What is to run under an id: the body of `PUT /v1/executions/{id}`.
    #[derive(Clone, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ExecutionRequest {
        /// What kind of execution it is; the seed's language.
        #[schema(value_type = String, min_length = 1, max_length = 128)]
        required class "class": Label = LABEL;
        /// Whom it counts for; may be left out by a caller who may act as one tenant only.
        #[schema(value_type = Option<String>, min_length = 1, max_length = 128)]
        optional tenant "tenant": Label = LABEL;
        /// Units of admission.
        #[serde(default = "one", deserialize_with = "integer::required")]
        #[schema(default = 1, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
        defaulted slots "slots": u64 = SLOTS, one();
        /// The program: a path, or a name to look for in the `PATH` it is given.
        #[serde(deserialize_with = "text")]
        #[schema(min_length = 1)]
        required command "command": String = Shape::Secret(program);
        /// Its arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "texts")]
        defaulted args "args": Vec<String> = Shape::List(&ARGUMENT), Vec::new();
        /// Its whole environment, to which only `BURSAR_BOOKING` and `BURSAR_FENCE` are added.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "named_texts")]
        defaulted env "env": BTreeMap<String, String> = Shape::Named(variable, &ARGUMENT), BTreeMap::new();
        /// Where it starts, as an absolute path; the root directory where absent.
        optional directory "directory": String = Shape::Secret(directory);
        /// Whether a program that it executes may give it more privileges than it has: one with the
        /// set-user-ID bit, or with file capabilities. The field of the same name that pods have.
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
        /// The most CPU it may use, in millicores; what is charged where absent.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
        optional cpu_limit_milli "cpuLimitMilli": u64 = SOME;
        /// The most memory it may use, in bytes; what is charged where absent.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
        optional memory_limit_bytes "memoryLimitBytes": u64 = SOME;
        /// The most processes and threads it may have at once.
        #[schema(minimum = 1)]
        optional pids "pids": u32 = Shape::Whole { min: 1, max: 0xffff_ffff };
        /// How urgent it is.
        #[schema(value_type = Option<word::Priority>, default = "normal")]
        optional priority "priority": Priority = PRIORITY;
        /// How long it may wait for its slot, in milliseconds; 0 refuses at once.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 0, maximum = 9_007_199_254_740_991_u64)]
        optional wait_ms "waitMs": u64 = WHOLE;
        /// How long it may take from the grant until it runs, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 60_000, minimum = 1_000, maximum = 3_600_000)]
        optional start_timeout_ms "startTimeoutMs": u64 = time(TIME_MIN, START_TIMEOUT_MAX);
        /// How long it may run, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 3_600_000, minimum = 1_000, maximum = 2_592_000_000_u64)]
        optional max_time_ms "maxTimeMs": u64 = time(TIME_MIN, MAX_TIME_MAX);
        /// How long it has to end by itself once it is asked to, in milliseconds.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(default = 10_000, minimum = 0, maximum = 3_600_000)]
        optional grace_ms "graceMs": u64 = time(Millis::ZERO, GRACE_MAX);
        /// The execution that this one tries again; it must have ended.
        #[schema(value_type = Option<String>, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
        optional retry_of "retryOf": BookingId = ID;
    }
}

/// How an execution goes: what a plain booking does not have.
///
/// It stands flat in an [`Execution`], and in the booking of the same id under `execution`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    /// How far it has come.
    #[schema(value_type = word::ExecutionState)]
    pub state: ExecutionState,
    /// How it came out, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::ExecutionOutcome>)]
    pub outcome: Option<ExecutionOutcome>,
    /// The signal that ended its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if the kernel killed a process of it at its memory limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// How its process is kept apart, once it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::Isolation>)]
    pub isolation: Option<Isolation>,
    /// True if it was found running after a restore that had lost the records about it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Since when its process runs, or ran.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Instant>,
    /// Since when it is stopped, or was.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stopping_at: Option<Instant>,
    /// Why it is stopped, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::StopCause>)]
    pub cause: Option<StopCause>,
    /// After how many stops its process was still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops_failed: Option<u32>,
    /// The execution that this one tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retry_of: Option<BookingId>,
    /// All six steps of its saga, in order; told where one execution is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What is undone, in the order in which it is; none of one that completed or goes well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compensations: Vec<Step>,
}

/// The seed's saga: what is done, and what is undone when it does not complete.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Saga {
    /// All six steps, in order.
    pub steps: Vec<Step>,
    /// What is undone, in the order in which it is; empty for one that completed or goes well.
    pub compensations: Vec<Step>,
}

/// One step, or one compensation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its name, as the seed has it.
    pub name: String,
    /// How far it is.
    #[schema(value_type = word::StepState)]
    pub state: StepState,
    /// When it began; absent if it did not.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Instant>,
    /// How long it took, or has taken so far, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

vocabulary! {
    /// How far an execution has come.
    pub enum ExecutionState {
        /// It waits for its slots.
        Queued = "queued",
        /// Its process is to be started.
        Starting = "starting",
        /// Its process runs.
        Running = "running",
        /// Its process is to be stopped.
        Stopping = "stopping",
        /// Ten stops have failed: it keeps its slots until its process is gone or an operator forces it.
        Stuck = "stuck",
        /// It is over, and its slots are free.
        Ended = "ended",
    }
}

vocabulary! {
    /// One of the two streams of a process.
    #[derive(Default)]
    pub enum LogStream {
        /// Its standard output.
        #[default]
        Stdout = "stdout",
        /// Its standard error.
        Stderr = "stderr",
    }
}

impl ExecutionRequest {
    /// What is wrong with what is to run. No value is repeated (L13).
    pub(super) fn program_mistakes(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut check = |path: String, read: Result<(), Wrong>| {
            errors.extend(read.err().map(|wrong| FieldError::new(path, wrong.message)));
        };
        check("command".to_owned(), program(&self.command));
        for (place, arg) in self.args.iter().enumerate() {
            check(format!("args[{place}]"), argument(arg));
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

/// Without what is run: it may hold secrets, and whatever is printed ends up in a log (L13).
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
    /// A course of which nothing is told but how far it has come; to be filled in.
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

/// Accepts a program.
pub(super) fn program(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err(Wrong::new("is empty"));
    }
    argument(text)
}

/// Accepts what a program can be given.
pub(super) fn argument(text: &str) -> Result<(), Wrong> {
    if text.contains('\0') {
        return Err(Wrong::new("has a zero byte, which no program can be given"));
    }
    Ok(())
}

/// Accepts the name of a variable of the environment.
pub(super) fn variable(name: &str) -> Result<(), Wrong> {
    if name.is_empty() {
        return Err(Wrong::new("has a name that is empty"));
    }
    if name.contains(['=', '\0']) {
        return Err(Wrong::new("has a name with `=` or a zero byte in it"));
    }
    Ok(())
}

/// Accepts where a program is started.
pub(super) fn directory(text: &str) -> Result<(), Wrong> {
    argument(text)?;
    if !text.starts_with('/') {
        return Err(Wrong::new("is not an absolute path"));
    }
    Ok(())
}

/// A text whose value no message repeats: serde's own would (L13).
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        _ => Err(serde::de::Error::custom("must be a text")),
    }
}

/// A list of such texts.
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

/// Such texts by name.
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
