//! From asking to holding: the queue, what is said of it, and how it is left.

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
use super::super::{end_words, estimate, without_a_slot};
use super::signals::{Signals, exit_code};
use super::{ONE_NAME, new_id};
use crate::command::explain::holders;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::ExecArguments;
use crate::layout::escaped_line;
use crate::session::Session;

/// How long one may wait where no limit says less (S1); the limit's word is taken otherwise.
pub(super) const WAIT_MAX_MS: u64 = 86_400_000;
/// How often a person is told how it stands.
const LOOK_TERMINAL: Duration = Duration::from_secs(2);
/// How often a file is.
const LOOK_LINES: Duration = Duration::from_secs(10);
/// How long leaving may take: who pressed Ctrl-C wants to go.
const LEAVE: Duration = Duration::from_secs(5);

/// Asks for a slot and waits for it as long as that may take; a signal leaves the queue.
pub(super) async fn slot(
    session: &mut Session,
    client: &Client,
    arguments: &ExecArguments,
    signals: &mut Signals,
) -> Result<Slot, Stop> {
    let fresh = new_id(session)?;
    let id = arguments.id.clone().unwrap_or_else(|| fresh.clone());
    // Under a name of the caller's the execution has one of its own, so that the same name is
    // another request, which the server refuses: nothing runs twice under one name.
    let execution = (id != fresh).then_some(fresh);
    let began = Instant::now();
    let asking = ask(client, &id, request(arguments, execution.clone()));
    tokio::pin!(asking);
    let asked = tokio::select! {
        biased;
        signal = signals.ending() => {
            // What is on its way is waited for a little, so that it can be taken back.
            match timeout(LEAVE, asking).await {
                Ok(Ok(asked)) => leave(session, asked).await,
                _ => take_back(client, &id, execution.as_ref()).await,
            }
            return Err(ended_by(signal));
        }
        asked = &mut asking => asked,
    };
    let mut asked = match asked {
        Ok(asked) => asked,
        Err(error) => {
            return Err(refused(client, &id, execution.as_ref(), arguments, error).await);
        }
    };
    let must_wait = asked.booking().state == State::Queued;
    let mut line = Line::new(session);
    let waited = tokio::select! {
        biased;
        signal = signals.ending() => Err(signal),
        waited = wait(session, client, &arguments.class, &mut line, &mut asked) => Ok(waited),
    };
    line.end(session);
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
    if must_wait && line.is_shown() {
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

/// Asks. Where a limit allows less than what nobody asked for in so many words, that is taken.
async fn ask(
    client: &Client,
    id: &BookingId,
    mut request: BookingRequest,
) -> Result<Asked, slot::Error> {
    loop {
        let error = match Asked::new(client, id, &request).await {
            Ok(asked) => return Ok(asked),
            Err(error) => error,
        };
        match problem(&error).and_then(longest_allowed) {
            Some(("ttlMs", ms)) if request.ttl_ms.is_none() => request.ttl_ms = Some(ms),
            Some(("waitMs", ms)) if request.wait_ms == Some(WAIT_MAX_MS) => {
                request.wait_ms = Some(ms);
            }
            _ => return Err(error),
        }
    }
}

/// The field of the request that is out of bounds, and the most that it may be.
pub(super) fn longest_allowed(problem: &Problem) -> Option<(&str, u64)> {
    let bounds = problem.bounds.as_ref()?;
    Some((bounds.field.as_str(), bounds.max)).filter(|_| problem.code == Code::Invalid)
}

/// Waits in the queue and says how that stands; answers what was last known of it.
async fn wait(
    session: &mut Session,
    client: &Client,
    class: &Label,
    line: &mut Line,
    asked: &mut Asked,
) -> Result<Option<Explanation>, slot::Error> {
    let mut last = None;
    while asked.booking().state == State::Queued {
        let id = asked.booking().id.to_string();
        // It is only what is said: whoever cannot be told why waits all the same.
        let explanation = client.explain("booking", &id).await.ok();
        last = explanation
            .filter(|explanation| explanation.state == State::Queued.word())
            .or(last);
        line.say(session, &sentence(asked.booking(), last.as_ref(), class));
        asked.look(line.every()).await?;
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

/// `100/100 slots in use`; a limit that is not called like the class is named.
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

/// Leaves the queue. If that cannot be said, it ends by itself: told, for it takes its time.
async fn leave(session: &mut Session, asked: Asked) {
    let id = asked.booking().id.clone();
    if !matches!(timeout(LEAVE, asked.leave()).await, Ok(Ok(()))) {
        session.say(&format!(
            "warning: the queue could not be left, `bursar booking cancel {id}` does it later\n"
        ));
    }
}

/// Takes back what may have been booked without an answer. Under a name of the caller's that may be
/// somebody else's, who works in it: only the execution tells whose it is.
async fn take_back(client: &Client, id: &BookingId, execution: Option<&BookingId>) {
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

fn problem(error: &slot::Error) -> Option<&Problem> {
    match error {
        slot::Error::Client(error) => error.problem(),
        _ => None,
    }
}

fn stop(error: slot::Error) -> Stop {
    match error {
        slot::Error::Client(error) => error.into(),
        other => Failure::new(exit::EXEC, chain(&other)).into(),
    }
}

/// Why nothing was granted or queued. Where that is not known it must not be granted to nobody.
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
            take_back(client, id, execution).await;
            stop(error)
        }
    }
}

/// A refusal: the limit, its size, its holders and the way out (rule 9).
pub(super) async fn refusal(
    client: &Client,
    id: &BookingId,
    arguments: &ExecArguments,
    problem: Box<Problem>,
) -> Failure {
    let class = &arguments.class;
    let failure = match problem.code {
        Code::IdReused => match client.booking(id).await {
            Ok(booking) => name_is_taken(&booking),
            Err(_) => Failure::from((*problem).clone()),
        },
        Code::OverLimit if arguments.wait.is_some_and(|wait| wait.ms() == 0) => {
            let leave = match (arguments.detach, &arguments.id) {
                (false, _) => ", Ctrl-C leaves the queue".to_owned(),
                (true, Some(id)) => format!(", `bursar booking cancel {id}` leaves the queue"),
                // The next attempt will have another id.
                (true, None) => String::new(),
            };
            without_a_slot(&problem).hint(format!("leave out `--wait 0` to queue{leave}"))
        }
        Code::OverLimit => without_a_slot(&problem).hint(format!(
            "`bursar bookings --where class={class},state=queued` shows who waits"
        )),
        _ => Failure::from((*problem).clone()),
    };
    Failure {
        problem: Some(problem),
        ..failure
    }
}

/// One name runs once: how the one that has it fares.
fn name_is_taken(booking: &Booking) -> Failure {
    let id = &booking.id;
    let message = match (booking.state, booking.granted_at) {
        (State::Queued, _) => format!("`{id}` waits already"),
        (State::Granted, _) => format!("`{id}` holds a slot already"),
        (State::Ended, Some(_)) => format!("`{id}` has run already: {}", end_words(booking)),
        (State::Ended, None) => format!("`{id}` has ended already: {}", end_words(booking)),
    };
    Failure::new(exit::EXEC, message).hint(ONE_NAME)
}

/// What was queued and came to its end there.
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

/// The line that says how the wait stands: kept up to date on a terminal, written now and then
/// into a file.
struct Line {
    kind: Kind,
    said: Option<String>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    /// Nobody wants to know.
    Silent,
    /// The same place on a terminal.
    InPlace,
    /// A line whenever it changes.
    Lines,
}

impl Line {
    fn new(session: &Session) -> Self {
        let kind = if session.common.quiet || session.environment.no_progress {
            Kind::Silent
        } else if session.terminal.words {
            Kind::InPlace
        } else {
            Kind::Lines
        };
        Self { kind, said: None }
    }

    fn is_shown(&self) -> bool {
        self.kind != Kind::Silent
    }

    /// How often it is worth saying something.
    fn every(&self) -> Duration {
        match self.kind {
            Kind::InPlace => LOOK_TERMINAL,
            Kind::Silent | Kind::Lines => LOOK_LINES,
        }
    }

    fn say(&mut self, session: &mut Session, text: &str) {
        let text = &*escaped_line(text);
        if self.kind == Kind::Silent || self.said.as_deref() == Some(text) {
            return;
        }
        // What is broken over two lines cannot be written over.
        if self.kind == Kind::InPlace && width().is_none_or(|width| width <= text.chars().count()) {
            self.end(session);
            self.kind = Kind::Lines;
        }
        match self.kind {
            Kind::InPlace => session.console.words(&format!("\r{text}\u{1b}[K")),
            Kind::Silent | Kind::Lines => session.console.words(&format!("{text}\n")),
        }
        self.said = Some(text.to_owned());
    }

    /// Leaves it as it is, and what follows below it.
    fn end(&mut self, session: &mut Session) {
        if self.kind == Kind::InPlace && self.said.is_some() {
            session.console.words("\n");
        }
    }
}

/// Columns of the terminal that words go to.
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
    fn places_are_counted_as_people_do() {
        let numbers = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1_003];
        let texts = numbers.map(ordinal).join(" ");
        assert_eq!(
            texts,
            "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 1,003rd"
        );
    }

    fn said(name: &str, size: u64, dimension: &str, estimate: Option<u64>) -> String {
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
    fn a_wait_says_its_place_the_limit_and_what_the_estimate_rests_on() {
        assert_eq!(
            said("python", 100, "slots", Some(39_500)),
            "waiting: 4th for python, 100/100 slots in use, about 40s (rests on the last 200 executions)"
        );
        assert_eq!(
            said("tenant", 64, "slots", None),
            "waiting: 4th for python, 64/64 slots of limit tenant in use, \
             time unknown (fewer than 20 python bookings have ended)"
        );
        assert!(said("python", 60_000, "cpu", Some(1)).contains("cpu 60/60 in use"));
        assert!(said("python", 0, "slots", None).contains("limit python is paused"));
    }

    #[test]
    fn the_most_that_a_limit_allows_is_taken_from_its_refusal() {
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
