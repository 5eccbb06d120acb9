//! Bookings: reserve, renew, release, cancel, batches, and reads.

pub(crate) mod list;

use bursar_engine::Reference;
use std::collections::BTreeMap;

use bursar_client::api::{
    Batch, BatchAnswer, BatchDone, BatchRefused, BatchResult, Booking, GetBooking, NoteRequest,
    Operation, ReleaseRequest, State as BookingState, Wait,
};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem, nearest};
use bursar_engine::booking::decide::Refusal as BookingRefusal;
use bursar_engine::booking::{Command as BookingCommand, Fence, Reply, Standing};
use bursar_engine::token::Role;
use bursar_engine::{Answer as EngineAnswer, Command, Events, Refusal, State, explain};
use bursar_ledger::intake::Outcome;
use bursar_units::{BookingId, Label, Millis};

use crate::booking::answers::{self, BookingView};
use crate::caller::Caller;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Service, WriteMode, last_record, planned};

pub(crate) use list::Cursor;

impl Service {
    /// Runs one operation on one booking.
    pub async fn operate(
        &self,
        caller: &Caller,
        operation: Operation,
        mode: WriteMode,
    ) -> Result<Answer<Booking>, Problem> {
        let command = self.command(caller, operation, &BTreeMap::new())?;
        self.run_command(caller, command.into(), mode).await
    }

    /// Records a remark on a booking.
    pub(crate) async fn note(
        &self,
        caller: &Caller,
        id: BookingId,
        request: NoteRequest,
        mode: WriteMode,
    ) -> Result<Answer<Booking>, Problem> {
        self.require_own(caller, &id, &BTreeMap::new())?;
        let text = request.text.trim().to_owned();
        let command = BookingCommand::Note { id, text };
        self.run_command(caller, command.into(), mode).await
    }

    /// Submits or plans one command about one booking. The caller's rights were checked before.
    pub(crate) async fn run_command(
        &self,
        caller: &Caller,
        command: Command,
        mode: WriteMode,
    ) -> Result<Answer<Booking>, Problem> {
        if mode == WriteMode::DryRun {
            return self.plan_one(caller, &command);
        }
        let outcome = self.submit_one(caller, command.clone()).await?;
        let mut answer = self.answer(caller, &command, outcome)?;
        if answer.body.state == BookingState::Queued {
            let now = self.ledger.now();
            answers::add_position(&mut answer.body, &self.ledger.view().read(), now);
        }
        Ok(answer)
    }

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

    /// Runs independent operations in order, with one result each (S8).
    pub(crate) async fn batch(
        &self,
        caller: &Caller,
        batch: Batch,
        mode: WriteMode,
    ) -> Result<Answer<BatchAnswer>, Problem> {
        let items = self.commands(caller, batch.operations);
        let (results, record) = if mode == WriteMode::DryRun {
            self.plan_batch(caller, items)
        } else {
            let commands = valid_commands(&items);
            let outcomes = if commands.is_empty() {
                Vec::new()
            } else {
                self.submit(caller, commands).await?
            };
            let record = outcomes.last().map(|last| last.record);
            (self.results(caller, items, outcomes), record)
        };
        let record = record.unwrap_or_else(|| self.record());
        let body = BatchAnswer {
            results,
            record,
            dry_run: (mode == WriteMode::DryRun).then_some(true),
        };
        Ok(Answer::ok(record, body))
    }

    pub(crate) async fn booking(
        &self,
        caller: &Caller,
        id: &BookingId,
        query: GetBooking,
    ) -> Result<Answer<Booking>, Problem> {
        let read = || self.find_booking(caller, id, query.fence);
        let is_done = |answer: &Answer<Booking>| answer.body.state != BookingState::Queued;
        let object = Reference::Booking(id.clone());
        self.wait_until(&object, query.wait, read, is_done).await
    }

    /// Calls `read` after each change of an object until `is_done` or the wait is over.
    pub(crate) async fn wait_until<T>(
        &self,
        object: &Reference,
        wait: Option<Wait>,
        read: impl Fn() -> Result<T, Problem>,
        mut is_done: impl FnMut(&T) -> bool,
    ) -> Result<T, Problem> {
        let deadline = wait.map(|wait| tokio::time::Instant::now() + wait.0);
        loop {
            // Subscribe before the read, so that no change is missed between read and wait.
            let changed = deadline.map(|_| self.ledger.view().changed(object.clone()));
            let answer = read()?;
            let (Some(deadline), Some(changed)) = (deadline, changed) else {
                return Ok(answer);
            };
            if is_done(&answer) {
                return Ok(answer);
            }
            tokio::select! {
                _ = changed => {}
                () = tokio::time::sleep_until(deadline) => return Ok(answer),
                () = self.stopped() => return Ok(answer),
            }
        }
    }

    pub(crate) fn find_booking(
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
        let view = BookingView {
            state: &state,
            now,
            caller,
            renewed_until,
        };
        let visible = view.booking(id).filter(|booking| {
            let tenant = booking.tenant.as_ref();
            tenant.is_some_and(|tenant| caller.sees_tenant(tenant))
        });
        let mut body = visible.ok_or_else(|| no_booking(&state, caller, id))?;
        let record = last_record(&state);
        body.record = Some(record);
        body.held = fence.map(|fence| is_held(&state, id, fence));
        let saga = explain::saga(&state.bookings, now, id).map(answers::saga);
        if let Some((course, saga)) = body.execution.as_mut().zip(saga) {
            (course.steps, course.compensations) = (saga.steps, saga.compensations);
        }
        Ok(Answer::ok(record, body))
    }

    fn plan_one(&self, caller: &Caller, command: &Command) -> Result<Answer<Booking>, Problem> {
        let (outcome, after) = self.plan(command);
        let now = outcome.time;
        let refuse =
            |record, refusal: &Refusal| of_refusal(&after, record, caller, command, refusal);
        let mut answer = answer(caller, command, outcome, refuse)?;
        answers::add_position(&mut answer.body, &after, now);
        answer.body.dry_run = Some(true);
        Ok(answer)
    }

    /// Each operation sees the effects of those before it, as in a real batch.
    fn plan_batch(
        &self,
        caller: &Caller,
        items: Vec<BatchItem>,
    ) -> (Vec<BatchResult>, Option<u64>) {
        let now = self.ledger.now();
        let mut sketch = self.ledger.view().read().sketch(&valid_commands(&items));
        let decide = |(id, command): BatchItem| {
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
        let results = items.into_iter().map(decide).collect();
        (results, Some(last_record(&sketch)))
    }

    fn results(
        &self,
        caller: &Caller,
        items: Vec<BatchItem>,
        outcomes: Vec<Outcome>,
    ) -> Vec<BatchResult> {
        let mut outcomes = outcomes.into_iter();
        let result = |(id, command): BatchItem| {
            let done = command.and_then(|command| {
                let outcome = outcomes.next();
                let outcome = outcome
                    .ok_or_else(|| Problem::new(Code::Internal, "a command had no outcome"))?;
                self.answer(caller, &command, outcome)
            });
            batch_result(id, done)
        };
        items.into_iter().map(result).collect()
    }

    /// Creates the commands of a batch; each operation is checked by itself.
    fn commands(&self, caller: &Caller, operations: Vec<Operation>) -> Vec<BatchItem> {
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
            if let Ok(BookingCommand::Reserve(request)) = &command {
                own.insert(id.clone(), request.tenant.clone());
            }
            (id, command.map(Command::Booking))
        };
        operations.into_iter().map(command).collect()
    }

    /// Creates the command of an operation, if the caller may send it. `own` are the bookings that
    /// the same batch reserves, with their tenants: the view does not have them yet.
    fn command(
        &self,
        caller: &Caller,
        operation: Operation,
        own: &BTreeMap<BookingId, Label>,
    ) -> Result<BookingCommand, Problem> {
        match operation {
            Operation::Reserve { id, mut request } => {
                let tenant = tenant_of(caller, request.tenant.take())?;
                caller.require_tenant(&tenant)?;
                Ok(BookingCommand::Reserve(answers::request(
                    id, request, tenant,
                )))
            }
            Operation::Renew { id, request } => {
                self.require_own(caller, &id, own)?;
                let ttl = request.ttl_ms.map(Millis::from_ms);
                Ok(BookingCommand::Renew {
                    id,
                    fence: Fence(request.fence),
                    ttl,
                })
            }
            Operation::Release { id, request } => {
                let command = release(caller, id, &request)?;
                if let BookingCommand::Release { id, .. } = &command {
                    self.require_own(caller, id, own)?;
                }
                Ok(command)
            }
            Operation::Cancel { id } => {
                self.require_own(caller, &id, own)?;
                Ok(BookingCommand::Cancel { id })
            }
        }
    }

    /// Refuses a caller that may not act as the booking's tenant. A booking that the caller may not
    /// see is answered as not found. So is one that is not in the view: its request has not been
    /// answered yet.
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
        // The view comes before `own`: reserving a foreign id in the same batch does not make it
        // the caller's.
        let known = state.bookings.request(id).map(|request| request.tenant);
        match known.or_else(|| own.get(id).cloned()) {
            Some(tenant) if caller.may_act_as(&tenant) => Ok(()),
            Some(tenant) if caller.sees_tenant(&tenant) => caller.require_tenant(&tenant),
            _ => Err(no_booking(&state, caller, id)),
        }
    }
}

type BatchItem = (BookingId, Result<Command, Problem>);

fn valid_commands(items: &[BatchItem]) -> Vec<Command> {
    let commands = items
        .iter()
        .filter_map(|(_, command)| command.as_ref().ok());
    commands.cloned().collect()
}

/// Creates the answer to a command about one booking; `refuse` explains a refusal as of a record.
fn answer(
    caller: &Caller,
    command: &Command,
    outcome: Outcome,
    refuse: impl FnOnce(u64, &Refusal) -> Problem,
) -> Result<Answer<Booking>, Problem> {
    let (record, time) = (outcome.record, outcome.time);
    let result = outcome.result;
    let (Command::Booking(command), EngineAnswer::Booking(reply)) =
        (command, result.map_err(|refusal| refuse(record, &refusal))?)
    else {
        return Err(Problem::new(Code::Internal, "a command names no booking"));
    };
    let (id, request) = (command.id(), command.request());
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
        | Reply::AlreadyEnded(shown)
        | Reply::Noted(shown) => Some(answers::shown(id, shown, caller)),
        Reply::Recorded => None,
    };
    let body = body.ok_or_else(|| Problem::new(Code::Internal, "a reply shows no booking"))?;
    Ok(Answer {
        status: status(&reply, body.state),
        record,
        body: Booking {
            record: Some(record),
            applied: applied(command, &reply),
            ..body
        },
    })
}

/// Whether a write had an effect; `None` where the rest of the answer shows it.
fn applied(command: &BookingCommand, reply: &Reply) -> Option<bool> {
    match command {
        BookingCommand::Renew { .. } | BookingCommand::Reserve(_) => None,
        BookingCommand::Submit(_) => Some(!matches!(reply, Reply::Repeated(_))),
        _ => Some(matches!(
            reply,
            Reply::Ended(_) | Reply::Stopping(_) | Reply::Noted(_)
        )),
    }
}

/// The tenant of a request: the named one, or the caller's only one.
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

/// The mistake of a request without a tenant, if the caller has several.
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

fn release(
    caller: &Caller,
    id: BookingId,
    request: &ReleaseRequest,
) -> Result<BookingCommand, Problem> {
    match (request.force, request.fence, &request.reason) {
        (false, Some(fence), None) => Ok(BookingCommand::Release {
            id,
            fence: Fence(fence),
            outcome: request.outcome,
            exit_code: request.exit_code,
        }),
        (true, None, Some(reason)) => {
            caller.require_operate("release a booking by force")?;
            let reason = reason.trim().to_owned();
            Ok(BookingCommand::Force { id, reason })
        }
        // Unreachable: the body's parser has refused it.
        _ => Err(Problem::invalid(request.mistakes())),
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

/// Problem of a booking that does not exist or that the caller may not see. Suggests the nearest id
/// that the caller may see.
pub(crate) fn no_booking(state: &State, caller: &Caller, id: &BookingId) -> Problem {
    let refusal = Refusal::Booking(BookingRefusal::NotFound);
    let command = BookingCommand::Cancel { id: id.clone() }.into();
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
        suggestion: nearest(id.as_str(), visible.map(BookingId::as_str)).map(str::to_owned),
        ..of_refusal(state, last_record(state), caller, &command, &refusal)
    }
}

/// Bookings compared for the nearest name.
const VISIBLE_MAX: usize = 1_000;
