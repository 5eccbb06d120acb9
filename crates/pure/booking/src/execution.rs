//! Executions: work that runs under a booking of the same id, from submission to its end (X1).
//!
//! ```text
//! queued ─► starting ─► running ─► ended (completed, failed, lost)
//!    │          └───────────┴────► stopping ─► ended (cancelled, timed out, failed)
//!    │                                └──────► stuck, after ten stops that failed
//!    └────► ended (cancelled, wait over)
//! ```
//! The slot is free in the record that says that the process is gone, and never before: a freed
//! slot with a living process would be over-admission. What the executor should be doing is a
//! function of this state ([`Bookings::wanted`]), not a queue beside it (X2); what it finds comes
//! back as commands. Deliberately absent: what is run. The ledger holds its salted hash (L13).

use bursar_journal::hash::Hash;
use bursar_units::{BookingId, Instant, Millis, is_default, vocabulary};
use serde::{Deserialize, Serialize};

use crate::decide::{Events, Refusal, Reply, emit, finish, show};
use crate::{Bookings, Event, Fence, Granted, Outcome, Request, Standing};

/// After how many stops that failed an execution is stuck.
pub const STOPS_UNTIL_STUCK: u32 = 10;
/// What an order that names no time to start in gets.
pub const START_TIMEOUT_DEFAULT: Millis = Millis::from_secs(60);
/// What an order that names no longest time gets.
pub const MAX_TIME_DEFAULT: Millis = Millis::from_hours(1);
/// What an order that names no grace gets.
pub const GRACE_DEFAULT: Millis = Millis::from_secs(10);
/// The shortest time that one may give an execution to start, or to run.
pub const TIME_MIN: Millis = Millis::from_secs(1);
/// The longest time to start in: a longer one would hold a slot for nothing.
pub const START_TIMEOUT_MAX: Millis = Millis::from_hours(1);
/// The longest time to run: thirty days, so that nothing holds a slot for ever.
pub const MAX_TIME_MAX: Millis = Millis::from_hours(30 * 24);
/// The longest time between asking to end and making it.
pub const GRACE_MAX: Millis = Millis::from_hours(1);
/// The exit code of a program that is there and cannot be executed, as shells have it.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// The exit code of a program that is not found, as shells have it.
pub const EXIT_NOT_FOUND: i32 = 127;
/// How long after an absence of ours nothing is timed out: what ended in the meantime is told first.
pub const ADOPTION: Millis = Millis::from_secs(10);

/// What makes a booking an execution.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Order {
    /// Salted hash of what is run: command, arguments, environment and directory. The thing itself
    /// is kept outside the ledger (L13).
    pub work: Hash,
    /// The most processes and threads it may have at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// How long it may take from the grant until it runs.
    #[serde(rename = "startTimeoutMs")]
    pub start_timeout: Millis,
    /// How long it may run.
    #[serde(rename = "maxTimeMs")]
    pub max_time: Millis,
    /// How long it has to end by itself once it is asked to.
    #[serde(rename = "graceMs")]
    pub grace: Millis,
    /// The execution that this one tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<BookingId>,
}

/// An execution that was found running: what was asked for it, under which fence, and how it is
/// kept apart.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Adoption {
    /// What was asked for it; with the fence that its program was given, where that is known.
    pub booking: Request,
    /// What is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// How it is kept apart.
    pub isolation: Isolation,
}

impl Order {
    /// The first field in which two orders differ, by its name in the API. What is run is told
    /// apart by its hash, so one word stands for command, arguments, environment and directory.
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

/// How far an execution that holds its slot has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Its process is to be started.
    Starting,
    /// Its process runs.
    Running,
    /// Its process is to be stopped; so many stops have failed.
    Stopping(u32),
    /// Ten stops have failed: it keeps its slot until its process is gone or an operator forces it.
    Stuck,
}

vocabulary! {
    /// Why an execution is stopped.
    pub enum Cause {
        /// Somebody asked for it.
        Cancelled = "cancelled",
        /// It ran for as long as it may.
        TimedOut = "timed-out",
        /// It did not start in time.
        NotStarted = "not-started",
    }
}

vocabulary! {
    /// How a process is kept apart from others.
    pub enum Isolation {
        /// In a cgroup of its own: it is counted, limited and ended whole.
        Cgroup = "cgroup",
        /// Only in a process group: what it starts may get away.
        None = "none",
    }
}

/// What became of a process, as the executor saw it. After any of these it is gone.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Exit {
    /// It ended by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It ended, and the kernel had killed a process of it for want of memory: itself, with a
    /// signal, or one that it had started.
    OutOfMemory {
        /// Its exit code, if it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// The signal that ended it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// Nobody knows: whoever watched it went away too.
    Lost,
    /// It never ran, and why: words of ours, nothing of the caller's (L13).
    NotStarted(String),
}

vocabulary! {
    /// How an execution came out.
    pub enum Verdict {
        /// Exit code 0.
        Completed = "completed",
        /// Another exit code, a signal, or it could not be started.
        Failed = "failed",
        /// Nobody knows.
        Lost = "lost",
        /// It was stopped, or left the queue, because somebody asked for it.
        Cancelled = "cancelled",
        /// It was stopped because it ran for as long as it may.
        TimedOut = "timed-out",
        /// No slot came free in the time it was willing to wait.
        WaitOver = "wait-over",
    }
}

impl Verdict {
    /// What its booking says of the work.
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Completed => Some(Outcome::Ok),
            Self::Failed | Self::Lost | Self::Cancelled | Self::TimedOut => Some(Outcome::Failed),
            Self::WaitOver => None,
        }
    }
}

vocabulary! {
    /// Why an execution failed, as far as it can be told in a word.
    pub enum Failure {
        /// The kernel killed a process of it at its memory limit.
        OutOfMemory = "out-of-memory",
        /// Exit code 126: the program could not be executed.
        NotExecutable = "not-executable",
        /// Exit code 127: the program was not found.
        NotFound = "not-found",
        /// Another exit code.
        Code = "exit-code",
        /// A signal.
        Signal = "signal",
        /// It was never started.
        NotStarted = "not-started",
    }
}

impl Failure {
    /// The failure that an exit code, a signal and what the kernel did amount to.
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

/// Where an execution that holds its slot stands.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Progress {
    /// How far it has come.
    pub stage: Stage,
    /// When its process ran and how it is kept apart, once it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<(Instant, Isolation)>,
    /// Since when it is stopped and why, once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<(Instant, Cause)>,
    /// Whether it was found running after a restore that had lost its grant (X5).
    #[serde(default, skip_serializing_if = "is_default", rename = "adopted")]
    pub is_adopted: bool,
}

impl Progress {
    /// Where everyone who is granted begins.
    pub(crate) const BEGINNING: Self = Self {
        stage: Stage::Starting,
        started: None,
        stopping: None,
        is_adopted: false,
    };
}

/// The way of an execution that has ended, as far as its booking does not tell it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Course {
    /// How it came out.
    pub verdict: Verdict,
    /// When its process ran and how it was kept apart, if it ever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<(Instant, Isolation)>,
    /// Since when it was stopped and why, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<(Instant, Cause)>,
    /// The signal that ended its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the kernel killed a process of it for want of memory.
    #[serde(default, skip_serializing_if = "is_default", rename = "outOfMemory")]
    pub is_out_of_memory: bool,
    /// Whether it was found running after a restore that had lost its grant (X5).
    #[serde(default, skip_serializing_if = "is_default", rename = "adopted")]
    pub is_adopted: bool,
}

/// What the executor should be doing for an execution (X2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// Start it, once; then watch it.
    Start,
    /// Watch it until it is gone.
    Watch,
    /// Make it end; so many attempts have failed.
    Stop {
        /// How many.
        failed: u32,
    },
}

impl Bookings {
    /// What the executor should be doing for an id; nothing for whatever holds no slot.
    pub fn wanted(&self, id: &BookingId) -> Option<Wanted> {
        wanted(self.granted.get(id)?)
    }

    /// Every execution that holds a slot, with what should be done for it, by id.
    pub fn all_wanted(&self) -> impl Iterator<Item = (&BookingId, Wanted)> {
        self.granted
            .iter()
            .filter_map(|(id, granted)| Some((id, wanted(granted)?)))
    }

    /// Executions that hold a slot, with where each stands, by id.
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

/// The process of an execution runs. Of one that is being stopped it is only noted.
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
    Ok(Reply::Noted)
}

/// The process of an execution runs that the ledger does not know, or knows as queued or about to
/// start: a restore has lost the records that granted it. It is charged whatever the limits say.
/// It keeps the fence that its program was given unless another holder has it, or the ledger has
/// granted one since.
pub(crate) fn adopt(
    bookings: &mut Bookings,
    at: Instant,
    found: &Adoption,
    events: &mut Events,
) -> Result<Reply, Refusal> {
    let id = &found.booking.id;
    let granted = match bookings.standing(id) {
        Some(Standing::Ended(_)) => return show(bookings, id, Reply::AlreadyEnded),
        Some(Standing::Granted(granted)) if wanted(granted) == Some(Wanted::Start) => {
            Some(granted.fence)
        }
        Some(Standing::Granted(_)) => return show(bookings, id, Reply::Repeated),
        Some(Standing::Queued { .. }) | None => None,
    };
    // What the ledger knows was asked counts more than what was found.
    let (request, order) = match bookings.request(id) {
        Some(request) => (request, bookings.order(id).cloned()),
        None => (found.booking.clone(), found.order.clone()),
    };
    if order.is_none() {
        return Err(Refusal::NotAnExecution);
    }
    let is_free = |fence: &Fence| {
        let mut holders = bookings.granted.values();
        fence.0 != 0 && holders.all(|granted| granted.fence != *fence)
    };
    let fence = granted
        .or(found.booking.fence.filter(is_free))
        .unwrap_or(bookings.next_fence());
    let event = Event::Adopted(Adoption {
        booking: Request {
            fence: Some(fence),
            ..request
        },
        order,
        isolation: found.isolation,
    });
    finish(bookings, at, event, events);
    Ok(Reply::Noted)
}

/// The process of an execution is gone: the slot is free, and the next are granted.
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

/// A stop did not make the process go away; after ten of them it is stuck. An attempt that was
/// counted already counts once.
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
            Ok(Reply::Noted)
        }
        _ => show(bookings, id, Reply::Repeated),
    }
}

/// Stops an execution that holds its slot. Returns false where it is being stopped already.
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

/// What can be said of an order without looking at who holds.
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

/// The deadline of a stage: when it began to count and for how long.
pub(crate) fn until(order: &Order, stage: Stage, since: Instant) -> Option<Instant> {
    match stage {
        Stage::Starting => Some(since.after(order.start_timeout)),
        Stage::Running => Some(since.after(order.max_time)),
        Stage::Stopping(_) | Stage::Stuck => None,
    }
}

/// Why an execution whose deadline has passed is stopped.
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

/// Where an execution that holds its slot stands; `None` for one that has ended.
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
