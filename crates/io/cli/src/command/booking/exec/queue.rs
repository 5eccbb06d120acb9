//! Request for a slot, the wait in the queue with its status line, and leaving the queue.

use std::time::Duration;

use bursar_client::api::{Booking, BookingRequest, End, Explanation, State};
use bursar_client::problem::LimitUse;
use bursar_client::slot::{self, Asked};
use bursar_client::{Client, Code, Problem, Slot, client};
use bursar_engine::words;
use bursar_units::causes::chain;
use bursar_units::{BookingId, Dimension, Label, Millis};
use rustix::process::Signal;
use tokio::time::{Instant, timeout};

use super::super::columns::amount;
use super::super::{end_words, estimate, no_free_slot};
use super::signals::{Signals, exit_code};
use super::{ID_IS_TAKEN, new_id};
use crate::command::explain::holders;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::ExecArguments;
use crate::layout::escaped_line;
use crate::session::Session;

/// Default wait: the longest that is allowed where no limit sets less (S1).
pub(super) const WAIT_MAX_MS: u64 = 86_400_000;
/// Interval of status updates on a terminal.
const POLL_TERMINAL: Duration = Duration::from_secs(2);
/// Interval of status updates in a file.
const POLL_LINES: Duration = Duration::from_secs(10);
/// Time limit for leaving the queue, short because the user has pressed Ctrl-C.
const LEAVE: Duration = Duration::from_secs(5);

/// Requests a slot and waits until it is granted; a signal leaves the queue.
pub(super) async fn slot(
    session: &mut Session,
    client: &Client,
    arguments: &ExecArguments,
    signals: &mut Signals,
) -> Result<Slot, Stop> {
    let fresh = new_id(session)?;
    let id = arguments.id.clone().unwrap_or_else(|| fresh.clone());
    // With an id of the caller, a fresh execution id makes each call a different request, and the
    // server refuses the second: nothing runs twice under one id.
    let execution = (id != fresh).then_some(fresh);
    let began = Instant::now();
    let answer = request_slot(client, &id, request(arguments, execution.clone()));
    tokio::pin!(answer);
    let asked = tokio::select! {
        biased;
        signal = signals.ending() => {
            // A request on its way may still be granted, and must be taken back then.
            match timeout(LEAVE, answer).await {
                Ok(Ok(asked)) => leave(session, asked).await,
                _ => cancel_own(client, &id, execution.as_ref()).await,
            }
            return Err(ended_by(signal));
        }
        asked = &mut answer => asked,
    };
    let mut asked = match asked {
        Ok(asked) => asked,
        Err(error) => {
            return Err(refused(client, &id, execution.as_ref(), arguments, error).await);
        }
    };
    let must_wait = asked.booking().state == State::Queued;
    let mut status = StatusLine::new(session);
    let waited = tokio::select! {
        biased;
        signal = signals.ending() => Err(signal),
        waited = wait(session, client, &arguments.class, &mut status, &mut asked) => Ok(waited),
    };
    status.end(session);
    let last = match waited {
        Ok(Ok(last)) => last,
        Ok(Err(error)) => {
            leave(session, asked).await;
            return Err(stop(error));
        }
        Err(signal) => {
            leave(session, asked).await;
            return Err(ended_by(signal));
        }
    };
    if asked.booking().state == State::Ended {
        return Err(not_granted(asked.booking(), arguments, last.as_ref()).into());
    }
    let slot = tokio::select! {
        biased;
        signal = signals.ending() => {
            let _unknown = timeout(LEAVE, slot::leave(client, &id)).await;
            return Err(ended_by(signal));
        }
        slot = asked.granted() => slot.map_err(stop)?,
    };
    if must_wait && status.is_shown() {
        let waited = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        session.aside(&format!(
            "granted after {}\n",
            words::length(Millis::from_ms(waited))
        ));
    }
    Ok(slot)
}

fn request(arguments: &ExecArguments, execution: Option<BookingId>) -> BookingRequest {
    BookingRequest {
        tenant: arguments.tenant.clone(),
        slots: arguments.slots,
        cpu_milli: arguments.cpu,
        memory_bytes: arguments.memory,
        wait_ms: Some(arguments.wait.map_or(WAIT_MAX_MS, Millis::ms)),
        priority: Some(arguments.priority),
        execution_id: execution,
        ..BookingRequest::new(arguments.class.clone())
    }
}

/// Books. If a limit allows less than a default of the request, uses the longest allowed value.
async fn request_slot(
    client: &Client,
    id: &BookingId,
    mut request: BookingRequest,
) -> Result<Asked, slot::Error> {
    loop {
        let error = match Asked::new(client, id, &request).await {
            Err(slot::Error::Client(error)) => error,
            answer => return answer,
        };
        match error.problem().and_then(longest_allowed) {
            Some(("ttlMs", ms)) if request.ttl_ms.is_none() => request.ttl_ms = Some(ms),
            Some(("waitMs", ms)) if request.wait_ms == Some(WAIT_MAX_MS) => {
                request.wait_ms = Some(ms);
            }
            _ => return Err(slot::Error::Client(error)),
        }
    }
}

/// The request field that is out of bounds, and its maximum.
pub(super) fn longest_allowed(problem: &Problem) -> Option<(&str, u64)> {
    let bounds = problem.bounds.as_ref()?;
    Some((bounds.field.as_str(), bounds.max)).filter(|_| problem.code == Code::Invalid)
}

/// Waits in the queue and shows its status; returns the last explanation of the wait.
async fn wait(
    session: &mut Session,
    client: &Client,
    class: &Label,
    status: &mut StatusLine,
    asked: &mut Asked,
) -> Result<Option<Explanation>, slot::Error> {
    let mut last = None;
    while asked.booking().state == State::Queued {
        let id = asked.booking().id.to_string();
        // The explanation is only shown, so the wait continues without it.
        let explanation = client.explain("booking", &id).await.ok();
        last = explanation
            .filter(|explanation| explanation.state == State::Queued.word())
            .or(last);
        status.show(session, &sentence(asked.booking(), last.as_ref(), class));
        asked.look(status.interval()).await?;
    }
    Ok(last)
}

/// `waiting: 4th for python, 100/100 slots in use, about 40s (rests on the last 200 executions)`.
fn sentence(booking: &Booking, explanation: Option<&Explanation>, class: &Label) -> String {
    let why = explanation.and_then(|explanation| explanation.why.as_ref());
    let place = booking
        .ahead
        .map(|ahead| format!("{} for {class}", ordinal(ahead.saturating_add(1))));
    let limit = why.and_then(|why| why.limits.first());
    let basis = explanation
        .and_then(|explanation| explanation.when.as_ref()?.rests_on.first())
        .filter(|_| booking.estimate_ms.is_none());
    let when = match basis {
        Some(basis) => format!("time unknown ({})", basis.basis),
        None if booking.estimate_ms.is_none() => format!("time {}", estimate(booking)),
        None => estimate(booking),
    };
    let parts = [place, limit.map(|limit| in_use(limit, class)), Some(when)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("waiting: {}", parts.join(", "))
}

/// `100/100 slots in use`, with the limit's name unless it equals the class.
fn in_use(limit: &LimitUse, class: &Label) -> String {
    let name = if limit.name.as_str() == class.as_str() {
        String::new()
    } else {
        format!(" of limit {}", limit.name)
    };
    if limit.size == 0 {
        return format!("limit {} is paused", limit.name);
    }
    let value = |value| amount(limit.dimension, value);
    let both = format!("{}/{}", value(limit.in_use), value(limit.size));
    match limit.dimension {
        Dimension::Slots | Dimension::Gpus => {
            format!("{both} {}{name} in use", limit.dimension.word())
        }
        Dimension::Cpu | Dimension::Memory => {
            format!("{} {both}{name} in use", limit.dimension.word())
        }
    }
}

/// `1st`, `22nd`, `113th`.
fn ordinal(number: u64) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{suffix}", words::number(number))
}

/// Leaves the queue, or warns that the booking stays queued.
async fn leave(session: &mut Session, asked: Asked) {
    let id = asked.booking().id.clone();
    if !matches!(timeout(LEAVE, asked.leave()).await, Ok(Ok(()))) {
        session.say(&format!(
            "warning: booking {id} is still queued; cancel it with `bursar booking cancel {id}`\n"
        ));
    }
}

/// Cancels a booking that may have been made without an answer. Under an id of the caller it may
/// belong to an earlier request; the execution id decides.
async fn cancel_own(client: &Client, id: &BookingId, execution: Option<&BookingId>) {
    let taking = async {
        if execution.is_none() || client.booking(id).await?.execution_id.as_ref() == execution {
            slot::leave(client, id).await?;
        }
        Ok::<_, client::Error>(())
    };
    let _unknown = timeout(LEAVE, taking).await;
}

fn ended_by(signal: Signal) -> Stop {
    Stop::Exit(exit_code(signal.as_raw()))
}

fn stop(error: slot::Error) -> Stop {
    match error {
        slot::Error::Client(error) => error.into(),
        other => Failure::new(exit::EXEC, chain(&other)).into(),
    }
}

/// Failure of the request. If its outcome is unknown, the booking is cancelled.
async fn refused(
    client: &Client,
    id: &BookingId,
    execution: Option<&BookingId>,
    arguments: &ExecArguments,
    error: slot::Error,
) -> Stop {
    match error {
        slot::Error::Client(client::Error::Problem(problem))
            if problem.code != Code::OutcomeUnknown =>
        {
            refusal(client, id, arguments, problem).await.into()
        }
        error => {
            cancel_own(client, id, execution).await;
            stop(error)
        }
    }
}

/// A refusal with the limit, its size, its holders and the way out (22).
pub(super) async fn refusal(
    client: &Client,
    id: &BookingId,
    arguments: &ExecArguments,
    problem: Box<Problem>,
) -> Failure {
    let class = &arguments.class;
    let failure = match problem.code {
        Code::IdReused => match client.booking(id).await {
            Ok(booking) => id_is_taken(&booking),
            Err(_) => Failure::from((*problem).clone()),
        },
        Code::OverLimit if arguments.wait.is_some_and(|wait| wait.ms() == 0) => {
            let leave = match (arguments.detach, &arguments.id) {
                (false, _) => ", Ctrl-C leaves the queue".to_owned(),
                (true, Some(id)) => format!(", `bursar booking cancel {id}` leaves the queue"),
                // The next attempt will have another id.
                (true, None) => String::new(),
            };
            no_free_slot(&problem).hint(format!("leave out `--wait 0` to queue{leave}"))
        }
        Code::OverLimit => no_free_slot(&problem).hint(format!(
            "`bursar bookings --where class={class},state=queued` shows who waits"
        )),
        _ => Failure::from((*problem).clone()),
    };
    Failure {
        problem: Some(problem),
        ..failure
    }
}

/// Failure of an id in use, with the state of its booking.
fn id_is_taken(booking: &Booking) -> Failure {
    let id = &booking.id;
    let message = match (booking.state, booking.granted_at) {
        (State::Queued, _) => format!("`{id}` waits already"),
        (State::Granted, _) => format!("`{id}` holds a slot already"),
        (State::Ended, Some(_)) => format!("`{id}` has run already: {}", end_words(booking)),
        (State::Ended, None) => format!("`{id}` has ended already: {}", end_words(booking)),
    };
    Failure::new(exit::EXEC, message).hint(ID_IS_TAKEN)
}

/// Failure of a booking that ended in the queue.
fn not_granted(
    booking: &Booking,
    arguments: &ExecArguments,
    last: Option<&Explanation>,
) -> Failure {
    let class = &arguments.class;
    if booking.end != Some(End::WaitOver) {
        let message = format!(
            "booking {} ended before it was granted: {}",
            booking.id,
            end_words(booking)
        );
        return Failure::new(exit::EXEC, message);
    }
    let waited = booking.ended_at.zip(booking.queued_at);
    let waited = waited.map(|(ended, queued)| words::length(ended.since(queued)));
    let why = last.and_then(|last| last.why.as_ref());
    let limit = why.and_then(|why| why.limits.first());
    let hint = match (arguments.wait, limit) {
        (Some(_), _) => "leave out `--wait` to wait as long as the limit allows".to_owned(),
        (None, Some(limit)) => {
            let name = &limit.name;
            format!("`bursar limit set {name} --max-wait 24h` lets everybody wait longer")
        }
        (None, None) => "try again later".to_owned(),
    };
    let limit = limit.map(|limit| format!(": {}", in_use(limit, class)));
    let message = format!(
        "no {class} slot was granted in {}{}",
        waited.unwrap_or_else(|| "time".to_owned()),
        limit.unwrap_or_default()
    );
    let mut failure = Failure::new(exit::EXEC, message);
    if let Some(why) = why.filter(|why| !why.holders.is_empty()) {
        failure = failure.detail("held by", holders(&why.holders));
    }
    failure.hint(hint)
}

/// Status of the wait: one line that is updated on a terminal, or lines in a file.
struct StatusLine {
    style: Style,
    last: Option<String>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Style {
    Silent,
    /// The same line of a terminal is overwritten.
    InPlace,
    /// A new line for each change.
    Lines,
}

impl StatusLine {
    fn new(session: &Session) -> Self {
        let style = if session.common.quiet || session.environment.no_progress {
            Style::Silent
        } else if session.terminal.words {
            Style::InPlace
        } else {
            Style::Lines
        };
        Self { style, last: None }
    }

    fn is_shown(&self) -> bool {
        self.style != Style::Silent
    }

    fn interval(&self) -> Duration {
        match self.style {
            Style::InPlace => POLL_TERMINAL,
            Style::Silent | Style::Lines => POLL_LINES,
        }
    }

    fn show(&mut self, session: &mut Session, text: &str) {
        let text = &*escaped_line(text);
        if self.style == Style::Silent || self.last.as_deref() == Some(text) {
            return;
        }
        // A text that wraps cannot be overwritten in place.
        if self.style == Style::InPlace && width().is_none_or(|width| width <= text.chars().count())
        {
            self.end(session);
            self.style = Style::Lines;
        }
        match self.style {
            Style::InPlace => session.console.words(&format!("\r{text}\u{1b}[K")),
            Style::Silent | Style::Lines => session.console.words(&format!("{text}\n")),
        }
        self.last = Some(text.to_owned());
    }

    /// Moves below the line, which stays.
    fn end(&mut self, session: &mut Session) {
        if self.style == Style::InPlace && self.last.is_some() {
            session.console.words("\n");
        }
    }
}

/// Columns of the terminal on stderr.
fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use bursar_client::api::{Booking, Explanation, State};
    use bursar_client::{Code, Problem, problem::Range};
    use bursar_units::{BookingId, Label};
    use serde_json::json;

    use super::{longest_allowed, ordinal, sentence};

    #[test]
    fn places_are_ordinal_numbers() {
        let numbers = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1_003];
        let texts = numbers.map(ordinal).join(" ");
        assert_eq!(
            texts,
            "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 1,003rd"
        );
    }

    fn sentence_of(name: &str, size: u64, dimension: &str, estimate: Option<u64>) -> String {
        let id = BookingId::new("a").unwrap_or_else(|_| unreachable!());
        let class = Label::new("python").unwrap_or_else(|_| unreachable!());
        let booking = Booking {
            ahead: Some(3),
            estimate_ms: estimate,
            rests_on: estimate.map(|_| "last 200 executions".to_owned()),
            ..Booking::new(id, State::Queued)
        };
        let explanation: Option<Explanation> = serde_json::from_value(json!({
            "object": {"kind": "Booking", "name": "a"}, "headline": "", "state": "queued",
            "why": {"limits": [{"name": name, "dimension": dimension, "size": size,
                                "inUse": size, "waiting": 4}]},
            "when": {"restsOn": [{"basis": "fewer than 20 python bookings have ended"}]},
            "record": 1
        }))
        .ok();
        assert!(explanation.is_some());
        sentence(&booking, explanation.as_ref(), &class)
    }

    #[test]
    fn the_status_has_the_place_the_limit_and_the_basis_of_the_estimate() {
        assert_eq!(
            sentence_of("python", 100, "slots", Some(39_500)),
            "waiting: 4th for python, 100/100 slots in use, about 40s (rests on the last 200 executions)"
        );
        assert_eq!(
            sentence_of("tenant", 64, "slots", None),
            "waiting: 4th for python, 64/64 slots of limit tenant in use, \
             time unknown (fewer than 20 python bookings have ended)"
        );
        assert!(sentence_of("python", 60_000, "cpu", Some(1)).contains("cpu 60/60 in use"));
        assert!(sentence_of("python", 0, "slots", None).contains("limit python is paused"));
    }

    #[test]
    fn the_longest_allowed_value_comes_from_the_refusal() {
        let problem = Problem {
            bounds: Some(Range {
                field: "waitMs".to_owned(),
                min: 0,
                max: 300_000,
                limit: None,
            }),
            ..Problem::new(Code::Invalid, "")
        };
        assert_eq!(longest_allowed(&problem), Some(("waitMs", 300_000)));
        assert_eq!(longest_allowed(&Problem::new(Code::Invalid, "")), None);
    }
}
