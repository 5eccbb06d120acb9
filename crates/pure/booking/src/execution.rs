//! Executions: work that runs under a booking of the same id, from submission to its end (X1).
//!
//! ```text
//! queued ─► starting ─► running ─► ended (completed, failed, lost)
//!    │          └───────────┴────► stopping ─► ended (cancelled, timed out, failed)
//!    │                                └──────► stuck, after ten stops that failed
//!    └────► ended (cancelled, wait over)
//! ```
//! The slot becomes free in the record that says that the process is gone, never before: a free
//! slot with a living process would be over-admission. The task of the executor is a function of
//! this state ([`Bookings::wanted`]), not a queue beside it (X2); its results come back as
//! commands. Deliberately absent: the command that is run. The ledger has its salted hash (L13).

use bursar_journal::hash::Hash;
use bursar_units::{BookingId, Instant, Millis, is_default, vocabulary};
use serde::{Deserialize, Serialize};

use crate::decide::{Events, Refusal, Reply, emit, finish, show};
use crate::{Bookings, Event, Fence, Granted, Outcome, Request, Standing};

/// Number of failed stops after which an execution is stuck.
pub const STOPS_UNTIL_STUCK: u32 = 10;
/// Start timeout of an order that names none.
pub const START_TIMEOUT_DEFAULT: Millis = Millis::from_secs(60);
/// Longest run time of an order that names none.
pub const MAX_TIME_DEFAULT: Millis = Millis::from_hours(1);
/// Grace time of an order that names none.
pub const GRACE_DEFAULT: Millis = Millis::from_secs(10);
/// Shortest start timeout and shortest run time.
pub const TIME_MIN: Millis = Millis::from_secs(1);
/// Longest start timeout: the slot is held meanwhile.
pub const START_TIMEOUT_MAX: Millis = Millis::from_hours(1);
/// Longest run time: thirty days, so that nothing holds a slot for ever.
pub const MAX_TIME_MAX: Millis = Millis::from_hours(30 * 24);
/// Longest grace time, between the request to end and the kill.
pub const GRACE_MAX: Millis = Millis::from_hours(1);
/// Exit code for a program that cannot be executed, as in shells.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// Exit code for a program that is not found, as in shells.
pub const EXIT_NOT_FOUND: i32 = 127;
/// Time without timeouts after an absence of the server: results of the executor go first.
pub const ADOPTION: Millis = Millis::from_secs(10);

/// Part of a submission that makes a booking an execution.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Order {
    /// Salted hash of command, arguments, environment and directory, which are kept outside the
    /// ledger (L13).
    pub work: Hash,
    /// Most processes and threads at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Longest time from the grant until the process runs.
    #[serde(rename = "startTimeoutMs")]
    pub start_timeout: Millis,
    /// Longest run time.
    #[serde(rename = "maxTimeMs")]
    pub max_time: Millis,
    /// Time to end by itself after a request to end.
    #[serde(rename = "graceMs")]
    pub grace: Millis,
    /// Execution that this one retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<BookingId>,
}

/// An execution that was found running.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Adoption {
    /// Its request, with the fence that its program was given if that is known.
    pub booking: Request,
    /// Its order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Isolation of its process.
    pub isolation: Isolation,
}

impl Order {
    /// First field that differs, by its name in the API. One hash covers command, arguments,
    /// environment and directory: `command` stands for all four.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<&'static str> {
        [
            ("command", self.work == other.work),
            ("pids", self.pids == other.pids),
            ("startTimeoutMs", self.start_timeout == other.start_timeout),
            ("maxTimeMs", self.max_time == other.max_time),
            ("graceMs", self.grace == other.grace),
            ("retryOf", self.retry_of == other.retry_of),
        ]
        .into_iter()
        .find_map(|(field, same)| (!same).then_some(field))
    }
}

/// Stage of an execution that holds its slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The process is being started.
    Starting,
    /// The process runs.
    Running,
    /// The process is being stopped; number of stops that failed.
    Stopping(u32),
    /// Ten stops failed: the slot is held until the process is gone or an operator forces the end.
    Stuck,
}

vocabulary! {
    /// Cause of a stop.
    pub enum Cause {
        /// The execution was cancelled.
        Cancelled = "cancelled",
        /// The longest run time is over.
        TimedOut = "timed-out",
        /// The start timeout is over.
        NotStarted = "not-started",
    }
}

vocabulary! {
    /// Isolation of a process from others.
    pub enum Isolation {
        /// A cgroup of its own: use is counted and limited, and all its processes end together.
        Cgroup = "cgroup",
        /// Only a process group, which child processes can leave.
        None = "none",
    }
}

/// Result of a process that is gone, as the executor reports it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// A signal ended the process.
    Signal(i32),
    /// The process ended, and the kernel had killed it or one of its children at its memory
    /// limit.
    OutOfMemory {
        /// Exit code, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// Signal that ended it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// The result is not known: the process that watched it is gone too.
    Lost,
    /// The process never ran, with the reason; no text of the caller is in it (L13).
    NotStarted(String),
}

vocabulary! {
    /// Verdict on an execution that has ended.
    pub enum Verdict {
        /// Exit code 0.
        Completed = "completed",
        /// Another exit code, a signal, or a failed start.
        Failed = "failed",
        /// The result is not known.
        Lost = "lost",
        /// Cancelled while it ran or waited.
        Cancelled = "cancelled",
        /// Stopped at its longest run time.
        TimedOut = "timed-out",
        /// Not granted within its wait.
        WaitOver = "wait-over",
    }
}

impl Verdict {
    /// Outcome of its booking.
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Completed => Some(Outcome::Ok),
            Self::Failed | Self::Lost | Self::Cancelled | Self::TimedOut => Some(Outcome::Failed),
            Self::WaitOver => None,
        }
    }
}

vocabulary! {
    /// Kind of failure of an execution.
    pub enum Failure {
        /// The kernel killed a process at the memory limit.
        OutOfMemory = "out-of-memory",
        /// Exit code 126: the program could not be executed.
        NotExecutable = "not-executable",
        /// Exit code 127: the program was not found.
        NotFound = "not-found",
        /// Another exit code.
        Code = "exit-code",
        /// A signal.
        Signal = "signal",
        /// The process was never started.
        NotStarted = "not-started",
    }
}

impl Failure {
    /// Failure of an exit code, a signal and an out-of-memory kill.
    pub const fn of(code: Option<i32>, signal: Option<i32>, is_out_of_memory: bool) -> Self {
        match (is_out_of_memory, code, signal) {
            (true, _, _) => Self::OutOfMemory,
            (_, Some(EXIT_NOT_EXECUTABLE), _) => Self::NotExecutable,
            (_, Some(EXIT_NOT_FOUND), _) => Self::NotFound,
            (_, Some(_), _) => Self::Code,
            (_, None, Some(_)) => Self::Signal,
            (_, None, None) => Self::NotStarted,
        }
    }
}

/// Progress of an execution that holds its slot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Progress {
    /// Stage.
    pub stage: Stage,
    /// Start and isolation of the process, once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<(Instant, Isolation)>,
    /// Time and cause of the stop, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<(Instant, Cause)>,
    /// Whether it was found running after a restore that lost its grant (X5).
    #[serde(default, skip_serializing_if = "is_default", rename = "adopted")]
    pub is_adopted: bool,
}

impl Progress {
    pub(crate) const BEGINNING: Self = Self {
        stage: Stage::Starting,
        started: None,
        stopping: None,
        is_adopted: false,
    };
}

/// History of an execution that has ended, beside that of its booking.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Course {
    /// Verdict.
    pub verdict: Verdict,
    /// Start and isolation of the process, if it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<(Instant, Isolation)>,
    /// Time and cause of the stop, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<(Instant, Cause)>,
    /// Signal that ended the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the kernel killed a process at the memory limit.
    #[serde(default, skip_serializing_if = "is_default", rename = "outOfMemory")]
    pub is_out_of_memory: bool,
    /// Whether it was found running after a restore that lost its grant (X5).
    #[serde(default, skip_serializing_if = "is_default", rename = "adopted")]
    pub is_adopted: bool,
}

/// Task of the executor for an execution (X2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// Start the process once, then watch it.
    Start,
    /// Watch the process until it is gone.
    Watch,
    /// Stop the process.
    Stop {
        /// Number of attempts that failed.
        failed: u32,
    },
}

impl Bookings {
    /// Task of the executor for an id; `None` if no execution holds a slot under it.
    pub fn wanted(&self, id: &BookingId) -> Option<Wanted> {
        wanted(self.granted.get(id)?)
    }

    /// Executions that hold a slot, each with the task of the executor, by id.
    pub fn all_wanted(&self) -> impl Iterator<Item = (&BookingId, Wanted)> {
        self.granted
            .iter()
            .filter_map(|(id, granted)| Some((id, wanted(granted)?)))
    }

    /// Executions that hold a slot, each with its progress, by id.
    pub fn executions(&self) -> impl Iterator<Item = (&BookingId, &Granted, &Progress)> {
        self.granted
            .iter()
            .filter_map(|(id, granted)| Some((id, granted, granted.progress()?)))
    }
}

fn wanted(granted: &Granted) -> Option<Wanted> {
    Some(match granted.progress()?.stage {
        Stage::Starting => Wanted::Start,
        Stage::Running => Wanted::Watch,
        Stage::Stopping(failed) => Wanted::Stop { failed },
        Stage::Stuck => Wanted::Stop {
            failed: STOPS_UNTIL_STUCK,
        },
    })
}

/// Records that a process runs. The stage of an execution that is being stopped does not change.
pub(crate) fn started(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    isolation: Isolation,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    let Some(progress) = holding(bookings, id)? else {
        return show(bookings, id, Reply::AlreadyEnded);
    };
    if progress.started.is_some() {
        return show(bookings, id, Reply::Repeated);
    }
    let id = id.clone();
    let of = None;
    emit(bookings, at, Event::Started { id, isolation, of }, events);
    Ok(Reply::Recorded)
}

/// Adopts a running execution that the ledger does not know, or knows as queued or starting: a
/// restore has lost the records of its grant. It is charged even above limits. It keeps the fence
/// that its program was given unless another holder has that fence, or the ledger has given it a
/// new one.
pub(crate) fn adopt(
    bookings: &mut Bookings,
    at: Instant,
    adoption: &Adoption,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    let id = &adoption.booking.id;
    let granted = match bookings.standing(id) {
        Some(Standing::Ended(_)) => return show(bookings, id, Reply::AlreadyEnded),
        Some(Standing::Granted(granted)) if wanted(granted) == Some(Wanted::Start) => {
            Some(granted.fence)
        }
        Some(Standing::Granted(_)) => return show(bookings, id, Reply::Repeated),
        Some(Standing::Queued { .. }) | None => None,
    };
    // A request in the ledger goes before the one that was found.
    let (request, order) = match bookings.request(id) {
        Some(request) => (request, bookings.order(id).cloned()),
        None => (adoption.booking.clone(), adoption.order.clone()),
    };
    if order.is_none() {
        return Err(Refusal::NotAnExecution);
    }
    let is_free = |fence: &Fence| {
        let mut holders = bookings.granted.values();
        fence.0 != 0 && holders.all(|granted| granted.fence != *fence)
    };
    let fence = granted
        .or(adoption.booking.fence.filter(is_free))
        .unwrap_or(bookings.next_fence());
    let event = Event::Adopted(Adoption {
        booking: Request {
            fence: Some(fence),
            ..request
        },
        order,
        isolation: adoption.isolation,
    });
    finish(bookings, at, event, events);
    Ok(Reply::Recorded)
}

/// Ends an execution whose process is gone, and grants its slot.
pub(crate) fn exited(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    exit: &Exit,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    let Some(progress) = holding(bookings, id)? else {
        return show(bookings, id, Reply::AlreadyEnded);
    };
    let cause = progress.stopping.map(|(_, cause)| cause);
    let (exit_code, signal, reason) = match exit {
        Exit::Code(code) => (Some(*code), None, None),
        Exit::Signal(signal) => (None, Some(*signal), None),
        Exit::OutOfMemory { code, signal } => (*code, *signal, None),
        Exit::Lost => (None, None, None),
        Exit::NotStarted(reason) => (None, None, Some(reason.clone())),
    };
    let event = Event::Exited {
        id: id.clone(),
        verdict: verdict(exit, cause),
        exit_code,
        signal,
        is_out_of_memory: matches!(exit, Exit::OutOfMemory { .. }),
        reason,
        of: None,
    };
    finish(bookings, at, event, events);
    show(bookings, id, Reply::Ended)
}

/// Counts a failed stop. A repeated report of the same attempt counts once.
pub(crate) fn stop_failed(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    attempt: u32,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    let Some(progress) = holding(bookings, id)? else {
        return show(bookings, id, Reply::AlreadyEnded);
    };
    match progress.stage {
        Stage::Stopping(failed) if attempt == failed + 1 => {
            let id = id.clone();
            let of = None;
            emit(bookings, at, Event::StopFailed { id, attempt, of }, events);
            Ok(Reply::Recorded)
        }
        _ => show(bookings, id, Reply::Repeated),
    }
}

/// Stops an execution that holds its slot. Returns false if it is being stopped already.
pub(crate) fn stop(
    bookings: &mut Bookings,
    at: Instant,
    id: &BookingId,
    cause: Cause,
    events: &mut Events,
) -> bool {
    let is_stopping = |granted: &Granted| {
        let progress = granted.progress();
        progress.is_some_and(|progress| progress.stopping.is_some())
    };
    if bookings.granted.get(id).is_some_and(is_stopping) {
        return false;
    }
    let id = id.clone();
    let (of, t) = (None, None);
    emit(bookings, at, Event::Stopping { id, cause, of, t }, events);
    true
}

/// Checks the times of an order and the execution that it retries.
pub(crate) fn check_order(bookings: &Bookings, order: &Order) -> Result<(), Refusal> {
    let bounds = [
        (
            "startTimeoutMs",
            order.start_timeout,
            TIME_MIN,
            START_TIMEOUT_MAX,
        ),
        ("maxTimeMs", order.max_time, TIME_MIN, MAX_TIME_MAX),
        ("graceMs", order.grace, Millis::ZERO, GRACE_MAX),
    ];
    for (field, time, min, max) in bounds {
        if !(min..=max).contains(&time) {
            return Err(Refusal::TimeOutOfBounds {
                field,
                min_ms: min.ms(),
                max_ms: max.ms(),
                limit: None,
            });
        }
    }
    let Some(first) = &order.retry_of else {
        return Ok(());
    };
    match bookings.standing(first) {
        Some(Standing::Ended(ended)) if ended.course().is_some() => Ok(()),
        Some(_) if bookings.order(first).is_some() => Err(Refusal::RetryOfLive),
        _ => Err(Refusal::RetryOfUnknown),
    }
}

/// Deadline of a stage that began at `since`.
pub(crate) fn until(order: &Order, stage: Stage, since: Instant) -> Option<Instant> {
    match stage {
        Stage::Starting => Some(since.after(order.start_timeout)),
        Stage::Running => Some(since.after(order.max_time)),
        Stage::Stopping(_) | Stage::Stuck => None,
    }
}

pub(crate) fn overdue(stage: Stage) -> Cause {
    match stage {
        Stage::Starting => Cause::NotStarted,
        Stage::Running | Stage::Stopping(_) | Stage::Stuck => Cause::TimedOut,
    }
}

fn verdict(exit: &Exit, cause: Option<Cause>) -> Verdict {
    match (cause, exit) {
        (Some(Cause::Cancelled), _) => Verdict::Cancelled,
        (Some(Cause::TimedOut), _) => Verdict::TimedOut,
        (None, Exit::Code(0) | Exit::OutOfMemory { code: Some(0), .. }) => Verdict::Completed,
        (None, Exit::Lost) => Verdict::Lost,
        (Some(Cause::NotStarted), _)
        | (
            None,
            Exit::Code(_) | Exit::Signal(_) | Exit::OutOfMemory { .. } | Exit::NotStarted(_),
        ) => Verdict::Failed,
    }
}

/// Progress of an execution that holds its slot; `None` for one that has ended.
fn holding<'a>(bookings: &'a Bookings, id: &BookingId) -> Result<Option<&'a Progress>, Refusal> {
    match bookings.standing(id) {
        None => Err(Refusal::NotFound),
        Some(Standing::Queued { .. }) => Err(Refusal::IsQueued),
        Some(Standing::Granted(granted)) => {
            granted.progress().map(Some).ok_or(Refusal::NotAnExecution)
        }
        Some(Standing::Ended(_)) => Ok(None),
    }
}
