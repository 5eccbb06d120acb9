//! Bookings: reserve, renew, release, cancel, one or many, and how they stand.

pub(crate) mod list;

use bursar_engine::Reference;
use std::collections::BTreeMap;
use std::time::Duration;

use bursar_client::api::{
    Batch, BatchAnswer, BatchDone, BatchRefused, BatchResult, Booking, Operation, ReleaseRequest,
    State as BookingState,
};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::booking::decide::Refusal as BookingRefusal;
use bursar_engine::booking::{Command as Ask, Fence, Reply, Standing};
use bursar_engine::token::Role;
use bursar_engine::{Answer as Word, Command, Events, Refusal, State, explain};
use bursar_ledger::intake::Outcome;
use bursar_units::{BookingId, Label, Millis};

use crate::booking::answers::{self, Look};
use crate::caller::Caller;
use crate::service::nearest::nearest;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Mode, Service, last_record, planned};

pub use list::{BookingFilter, Cursor};

/// The longest a look at a booking may wait for it to change.
pub const LONG_POLL_MAX: Duration = Duration::from_mins(5);

/// How a booking is to be looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookAt {
    /// Ask whether this fence is the present one.
    pub fence: Option<u64>,
    /// Wait so long for a queued booking to change.
    pub wait: Option<Duration>,
}

impl Service {
    /// One operation on one booking.
    pub async fn operate(
        &self,
        caller: &Caller,
        operation: Operation,
        mode: Mode,
    ) -> Result<Answer<Booking>, Problem> {
        let command = self.command(caller, operation, &BTreeMap::new())?;
        self.carry_out(caller, command.into(), mode).await
    }

    /// One command about one booking, which the caller may send.
    pub(crate) async fn carry_out(
        &self,
        caller: &Caller,
        command: Command,
        mode: Mode,
    ) -> Result<Answer<Booking>, Problem> {
        if mode == Mode::DryRun {
            return self.try_out(caller, &command);
        }
        let outcome = self.submit_one(caller, command.clone()).await?;
        let mut answer = self.answer(caller, &command, outcome)?;
        if answer.body.state == BookingState::Queued {
            let now = self.ledger.now();
            answers::tell_place(&mut answer.body, &self.ledger.view().read(), now);
        }
        Ok(answer)
    }

    /// The decision on a command about one booking, as its answer.
    fn answer(
        &self,
        caller: &Caller,
        command: &Command,
        outcome: Outcome,
    ) -> Result<Answer<Booking>, Problem> {
        let refuse = |record, refusal: &Refusal| {
            of_refusal(&self.ledger.view().read(), record, caller, command, refusal)
        };
        answer(caller, command, outcome, refuse)
    }

    /// Independent operations, decided in order, one result each (S8).
    pub async fn batch(
        &self,
        caller: &Caller,
        batch: Batch,
        mode: Mode,
    ) -> Result<Answer<BatchAnswer>, Problem> {
        let asked = self.commands(caller, batch.operations);
        let commands: Vec<Command> = asked
            .iter()
            .filter_map(|(_, command)| command.as_ref().ok())
            .cloned()
            .collect();
        let dry_run = (mode == Mode::DryRun).then_some(true);
        let (results, record) = if mode == Mode::DryRun {
            self.try_out_all(caller, asked)
        } else {
            let outcomes = if commands.is_empty() {
                Vec::new()
            } else {
                self.submit(caller, commands).await?
            };
            let record = outcomes.last().map(|last| last.record);
            (self.results(caller, asked, outcomes), record)
        };
        let record = record.unwrap_or_else(|| self.record());
        Ok(Answer {
            status: 200,
            record,
            body: BatchAnswer {
                results,
                record,
                dry_run,
            },
        })
    }

    /// How a booking stands, now or when it has changed.
    pub async fn booking(
        &self,
        caller: &Caller,
        id: &BookingId,
        look_at: LookAt,
    ) -> Result<Answer<Booking>, Problem> {
        let look = || self.look(caller, id, look_at.fence);
        let is_enough = |answer: &Answer<Booking>| answer.body.state != BookingState::Queued;
        self.look_until(id, look_at.wait, look, is_enough).await
    }

    /// What a look finds, once that is enough or the wait is over.
    pub(crate) async fn look_until<T>(
        &self,
        id: &BookingId,
        wait: Option<Duration>,
        look: impl Fn() -> Result<T, Problem>,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Result<T, Problem> {
        let deadline = wait.map(|wait| tokio::time::Instant::now() + wait.min(LONG_POLL_MAX));
        loop {
            // Whoever asks to be told first cannot miss a change between the look and the wait.
            let changed =
                deadline.map(|_| self.ledger.view().changed(Reference::Booking(id.clone())));
            let answer = look()?;
            let (Some(deadline), Some(changed)) = (deadline, changed) else {
                return Ok(answer);
            };
            if is_enough(&answer) {
                return Ok(answer);
            }
            tokio::select! {
                _ = changed => {}
                () = tokio::time::sleep_until(deadline) => return Ok(answer),
                () = self.stopped() => return Ok(answer),
            }
        }
    }

    /// All that is known of a booking that the caller may see.
    pub(crate) fn look(
        &self,
        caller: &Caller,
        id: &BookingId,
        fence: Option<u64>,
    ) -> Result<Answer<Booking>, Problem> {
        let (now, renewed_until) = (
            self.ledger.now(),
            self.ledger.alive_until(&Reference::Booking(id.clone())),
        );
        let state = self.ledger.view().read();
        let look = Look {
            state: &state,
            now,
            caller,
            renewed_until,
        };
        let seen = look.whole(id).filter(|booking| {
            booking
                .tenant
                .as_ref()
                .is_some_and(|tenant| caller.sees_tenant(tenant))
        });
        let mut body = seen.ok_or_else(|| no_booking(&state, caller, id))?;
        let record = last_record(&state);
        body.record = Some(record);
        body.held = fence.map(|fence| is_held(&state, id, fence));
        let saga = explain::saga(&state.bookings, now, id).map(answers::saga);
        if let Some((course, saga)) = body.execution.as_mut().zip(saga) {
            (course.steps, course.compensations) = (saga.steps, saga.compensations);
        }
        Ok(Answer {
            status: 200,
            record,
            body,
        })
    }

    /// The same function that would decide, on a copy of the small problem.
    fn try_out(&self, caller: &Caller, command: &Command) -> Result<Answer<Booking>, Problem> {
        let (outcome, after) = self.plan(command);
        let now = outcome.time;
        let refuse =
            |record, refusal: &Refusal| of_refusal(&after, record, caller, command, refusal);
        let mut answer = answer(caller, command, outcome, refuse)?;
        answers::tell_place(&mut answer.body, &after, now);
        answer.body.dry_run = Some(true);
        Ok(answer)
    }

    /// Each operation sees what those before it would have left, as in earnest.
    fn try_out_all(&self, caller: &Caller, asked: Vec<Asked>) -> (Vec<BatchResult>, Option<u64>) {
        let now = self.ledger.now();
        let commands = asked.iter();
        let commands = commands.filter_map(|(_, command)| command.as_ref().ok());
        let commands: Vec<Command> = commands.cloned().collect();
        let mut sketch = self.ledger.view().read().sketch(&commands);
        let decide = |(id, command): Asked| {
            let done = command.and_then(|command| {
                let mut events = Events::new();
                let result = bursar_engine::decide(&mut sketch, now, &command, &mut events);
                let outcome = planned(&sketch, now, result, events);
                let refuse = |record, refusal: &Refusal| {
                    of_refusal(&sketch, record, caller, &command, refusal)
                };
                answer(caller, &command, outcome, refuse)
            });
            batch_result(id, done)
        };
        let results = asked.into_iter().map(decide).collect();
        (results, Some(last_record(&sketch)))
    }

    /// The outcomes of a batch, in the order of its operations.
    fn results(
        &self,
        caller: &Caller,
        asked: Vec<Asked>,
        outcomes: Vec<Outcome>,
    ) -> Vec<BatchResult> {
        let mut outcomes = outcomes.into_iter();
        let result = |(id, command): Asked| {
            let done = command.and_then(|command| {
                let outcome = outcomes.next();
                let outcome = outcome
                    .ok_or_else(|| Problem::new(Code::Internal, "a command had no outcome"))?;
                self.answer(caller, &command, outcome)
            });
            batch_result(id, done)
        };
        asked.into_iter().map(result).collect()
    }

    /// The commands of a batch; one that may not be sent is refused by itself.
    fn commands(&self, caller: &Caller, operations: Vec<Operation>) -> Vec<Asked> {
        let mut own = BTreeMap::new();
        let command = |operation: Operation| {
            let id = operation.id().clone();
            let mut mistakes = operation.mistakes();
            if let Operation::Reserve { request, .. } = &operation
                && request.tenant.is_none()
            {
                mistakes.extend(missing_tenant(caller));
            }
            let command = if mistakes.is_empty() {
                self.command(caller, operation, &own)
            } else {
                Err(Problem::invalid(mistakes))
            };
            if let Ok(Ask::Reserve(request)) = &command {
                own.insert(id.clone(), request.tenant.clone());
            }
            (id, command.map(Command::Booking))
        };
        operations.into_iter().map(command).collect()
    }

    /// The command of an operation, if the caller may send it. `own` are the bookings that the
    /// same batch asks for, with their tenants: the view does not know them yet.
    fn command(
        &self,
        caller: &Caller,
        operation: Operation,
        own: &BTreeMap<BookingId, Label>,
    ) -> Result<Ask, Problem> {
        match operation {
            Operation::Reserve { id, mut request } => {
                let tenant = tenant_of(caller, request.tenant.take())?;
                caller.require_tenant(&tenant)?;
                Ok(Ask::Reserve(answers::request(id, request, tenant)))
            }
            Operation::Renew { id, request } => {
                self.require_own(caller, &id, own)?;
                let ttl = request.ttl_ms.map(Millis::from_ms);
                Ok(Ask::Renew {
                    id,
                    fence: Fence(request.fence),
                    ttl,
                })
            }
            Operation::Release { id, request } => {
                let command = release(caller, id, &request)?;
                if let Ask::Release { id, .. } = &command {
                    self.require_own(caller, id, own)?;
                }
                Ok(command)
            }
            Operation::Cancel { id } => {
                self.require_own(caller, &id, own)?;
                Ok(Ask::Cancel { id })
            }
        }
    }

    /// Refuses whoever may not act as the booking's tenant. What a caller may not see is not
    /// there for it; what the view does not know yet was asked by nobody who got an answer.
    fn require_own(
        &self,
        caller: &Caller,
        id: &BookingId,
        own: &BTreeMap<BookingId, Label>,
    ) -> Result<(), Problem> {
        if caller.may_operate() {
            return Ok(());
        }
        if !caller.roles.contains(&Role::Use) {
            return caller.require_operate("act on bookings of others");
        }
        let state = self.ledger.view().read();
        // Whoever is known to hold the id comes first: asking for it again in the same batch makes
        // it nobody else's.
        let known = state.bookings.request(id).map(|request| request.tenant);
        match known.or_else(|| own.get(id).cloned()) {
            Some(tenant) if caller.may_act_as(&tenant) => Ok(()),
            Some(tenant) if caller.sees_tenant(&tenant) => caller.require_tenant(&tenant),
            _ => Err(no_booking(&state, caller, id)),
        }
    }
}

/// An operation that may be sent, or why not.
type Asked = (BookingId, Result<Command, Problem>);

/// The decision on a command about one booking, as its answer; `refuse` explains a refusal as of a
/// record.
fn answer(
    caller: &Caller,
    command: &Command,
    outcome: Outcome,
    refuse: impl FnOnce(u64, &Refusal) -> Problem,
) -> Result<Answer<Booking>, Problem> {
    let Outcome {
        record,
        time,
        result,
        events: _,
    } = outcome;
    let (Command::Booking(asked), Word::Booking(reply)) =
        (command, result.map_err(|refusal| refuse(record, &refusal))?)
    else {
        return Err(Problem::new(Code::Internal, "a command names no booking"));
    };
    let (id, request) = (asked.id(), asked.request());
    let body = match &reply {
        Reply::Granted(fence) => {
            request.map(|(request, order)| answers::granted(request, order, time, *fence))
        }
        Reply::Queued => request.map(|(request, order)| answers::queued(request, order, time)),
        Reply::Renewed { expires } => Some(Booking {
            expires_at: Some(*expires),
            ..Booking::new(id.clone(), BookingState::Granted)
        }),
        Reply::Repeated(shown)
        | Reply::Stopping(shown)
        | Reply::Ended(shown)
        | Reply::AlreadyEnded(shown) => Some(answers::shown(id, shown, caller)),
        Reply::Noted => None,
    };
    let body = body.ok_or_else(|| Problem::new(Code::Internal, "a reply shows no booking"))?;
    Ok(Answer {
        status: status(&reply, body.state),
        record,
        body: Booking {
            record: Some(record),
            applied: applied(asked, &reply),
            ..body
        },
    })
}

/// Whether a write had an effect, where its answer alone would not tell.
fn applied(asked: &Ask, reply: &Reply) -> Option<bool> {
    match asked {
        Ask::Renew { .. } | Ask::Reserve(_) => None,
        Ask::Submit(_) => Some(!matches!(reply, Reply::Repeated(_))),
        _ => Some(matches!(reply, Reply::Ended(_) | Reply::Stopping(_))),
    }
}

/// The tenant that is meant: the one named, or the only one there is.
pub(crate) fn tenant_of(caller: &Caller, named: Option<Label>) -> Result<Label, Problem> {
    if let Some(tenant) = named {
        return Ok(tenant);
    }
    if let Some(missing) = missing_tenant(caller) {
        return Err(Problem::invalid(vec![missing]));
    }
    if let Some(only) = caller.tenants.first() {
        return Ok(only.clone());
    }
    caller.require_operate("book without a tenant")?;
    Ok(caller.name.clone())
}

/// What is wrong with a request of this caller that names no tenant.
pub(crate) fn missing_tenant(caller: &Caller) -> Option<FieldError> {
    if caller.tenants.len() < 2 {
        return None;
    }
    let all: Vec<&str> = caller.tenants.iter().map(Label::as_str).collect();
    let message = format!(
        "is missing; `{}` may act as {}",
        caller.name,
        all.join(", ")
    );
    Some(FieldError::new("tenant", message))
}

/// A release by its holder, or by force.
fn release(caller: &Caller, id: BookingId, asked: &ReleaseRequest) -> Result<Ask, Problem> {
    match (asked.force, asked.fence, &asked.reason) {
        (false, Some(fence), None) => Ok(Ask::Release {
            id,
            fence: Fence(fence),
            outcome: asked.outcome,
            exit_code: asked.exit_code,
        }),
        (true, None, Some(reason)) => {
            caller.require_operate("take a booking back by force")?;
            let reason = reason.trim().to_owned();
            Ok(Ask::Force { id, reason })
        }
        // The reader of the body has refused it already.
        _ => Err(Problem::invalid(asked.mistakes())),
    }
}

fn batch_result(id: BookingId, done: Result<Answer<Booking>, Problem>) -> BatchResult {
    match done {
        Ok(Answer {
            status,
            body: booking,
            ..
        }) => BatchResult::Done(BatchDone { status, booking }),
        Err(problem) => BatchResult::Refused(BatchRefused { id, problem }),
    }
}

const fn status(reply: &Reply, state: BookingState) -> u16 {
    match (reply, state) {
        (Reply::Granted(_), _) => 201,
        (Reply::Queued | Reply::Repeated(_), BookingState::Queued) => 202,
        _ => 200,
    }
}

fn is_held(state: &State, id: &BookingId, fence: u64) -> bool {
    matches!(
        state.bookings.standing(id),
        Some(Standing::Granted(granted)) if granted.fence.0 == fence
    )
}

/// There is no such booking, or the caller may not see it; the nearest it may see is told.
pub(crate) fn no_booking(state: &State, caller: &Caller, id: &BookingId) -> Problem {
    let refusal = Refusal::Booking(BookingRefusal::NotFound);
    let command = Ask::Cancel { id: id.clone() }.into();
    let visible = state
        .bookings
        .live_ids(None)
        .take(VISIBLE_MAX)
        .filter(|id| {
            state
                .bookings
                .request(id)
                .is_some_and(|request| caller.sees_tenant(&request.tenant))
        });
    Problem {
        suggestion: nearest(id.as_str(), visible.map(BookingId::as_str)),
        ..of_refusal(state, last_record(state), caller, &command, &refusal)
    }
}

/// Bookings that are looked at for the nearest name.
const VISIBLE_MAX: usize = 1_000;
