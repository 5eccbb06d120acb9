//! Executions: submit, read, cancel, list, and read their output (X1).
//!
//! An execution is a booking with an order, so its slots are decided, answered and listed like those
//! of any booking. The executor stores the program before the command is submitted, and the ledger
//! records only the salted hash of it (L13).

mod logs;
mod runs_as;

use std::path::PathBuf;
use std::sync::Arc;

use bursar_client::api::{
    Booking, Execution, ExecutionRequest, ExecutionState, ListExecutions, Operation, Wait,
};
use bursar_client::{Code, Problem};
use bursar_engine::booking::decide::Refusal as BookingRefusal;
use bursar_engine::booking::execution::{
    GRACE_DEFAULT, MAX_TIME_DEFAULT, Order, START_TIMEOUT_DEFAULT,
};
use bursar_engine::booking::{Command as BookingCommand, Request, Standing, Submission};
use bursar_engine::{Command, Reference, Refusal, State};
use bursar_journal::hash::Hash;
use bursar_node::executor::{Executor, User, Work};
use bursar_units::causes::chain;
use bursar_units::{BookingId, Label, Millis};
use rustix::process::geteuid;

use crate::booking::answers::{self, BookingView};
use crate::booking::bookings::list::ListFilter;
use crate::booking::bookings::tenant_of;
use crate::caller::Caller;
use crate::log;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Service, WriteMode, last_record};

pub(crate) use logs::{Logs, LogsFrom};
pub use runs_as::OwnUser;

pub(crate) struct ExecutorSettings {
    executor: Arc<dyn Executor>,
    /// Whether the server is root, so that work without a user would run as root.
    is_root: bool,
    own_user: OwnUser,
}

impl Service {
    /// Adds an executor. Without one the service refuses executions.
    #[must_use]
    pub fn executing(self, executor: Arc<dyn Executor>, own_user: OwnUser) -> Self {
        let executing = ExecutorSettings {
            executor,
            is_root: geteuid().is_root(),
            own_user,
        };
        Self {
            executing: Some(executing),
            ..self
        }
    }

    pub(crate) async fn submit_execution(
        &self,
        caller: &Caller,
        id: BookingId,
        mut request: ExecutionRequest,
        mode: WriteMode,
    ) -> Result<Answer<Execution>, Problem> {
        let ExecutorSettings {
            executor,
            is_root,
            own_user,
        } = self.require_executor()?;
        let tenant = tenant_of(caller, request.tenant.take())?;
        caller.require_tenant(&tenant)?;
        let user = runs_as::runs_as(caller, *is_root, *own_user)?;
        let work = work(&mut request, user);
        let submission = submission(id, request, tenant, executor.digest(&work));
        let retried = submission.order.retry_of.clone();
        let command = BookingCommand::Submit(submission).into();
        self.require_visible(caller, &command, retried.as_ref())?;
        // Plan first: the program of a refused request is not stored, or callers could fill the
        // disk.
        let planned = self
            .run_command(caller, command.clone(), WriteMode::DryRun)
            .await?;
        if mode == WriteMode::DryRun {
            return Ok(as_execution(planned));
        }
        store(executor, work).await?;
        Ok(as_execution(self.run_command(caller, command, mode).await?))
    }

    pub(crate) async fn execution(
        &self,
        caller: &Caller,
        id: &BookingId,
        wait: Option<Wait>,
    ) -> Result<Answer<Execution>, Problem> {
        let mut first = None;
        let is_done = |answer: &Answer<Execution>| {
            let state = answer.body.course.state;
            state == ExecutionState::Ended || *first.get_or_insert(state) != state
        };
        let read = || self.find_execution(caller, id);
        let object = Reference::Booking(id.clone());
        self.wait_until(&object, wait, read, is_done).await
    }

    pub(crate) async fn cancel_execution(
        &self,
        caller: &Caller,
        id: BookingId,
        mode: WriteMode,
    ) -> Result<Answer<Execution>, Problem> {
        self.find_execution(caller, &id)?;
        let operation = Operation::Cancel { id };
        Ok(as_execution(self.operate(caller, operation, mode).await?))
    }

    fn find_execution(
        &self,
        caller: &Caller,
        id: &BookingId,
    ) -> Result<Answer<Execution>, Problem> {
        let answer = self.find_booking(caller, id, None)?;
        if answer.body.execution.is_none() {
            return Err(Problem {
                changes: vec![format!("read /v1/bookings/{id}")],
                ..Problem::new(
                    Code::NotFound,
                    format!("{id} is a plain booking: nothing runs under it here"),
                )
            });
        }
        let state = self.ledger.view().read();
        let order = state.bookings.order(id);
        Ok(answer.map(|booking| answers::execution_of(booking, order)))
    }

    /// Refuses the retry of an execution that the caller may not see, as if it did not exist.
    fn require_visible(
        &self,
        caller: &Caller,
        command: &Command,
        retried: Option<&BookingId>,
    ) -> Result<(), Problem> {
        let state = self.ledger.view().read();
        match retried.and_then(|first| state.bookings.request(first)) {
            Some(retried) if !caller.sees_tenant(&retried.tenant) => {
                let unknown = Refusal::Booking(BookingRefusal::RetryOfUnknown);
                let record = last_record(&state);
                Err(of_refusal(&state, record, caller, command, &unknown))
            }
            _ => Ok(()),
        }
    }

    fn require_executor(&self) -> Result<&ExecutorSettings, Problem> {
        self.executing.as_ref().ok_or_else(|| Problem {
            changes: vec!["book slots and run it yourself: `bursar exec`".to_owned()],
            ..Problem::new(Code::Unavailable, "this server does not run executions")
        })
    }
}

impl ListFilter for ListExecutions {
    type Item = Execution;

    fn class(&self) -> Option<&Label> {
        self.class.as_ref()
    }

    fn tenant(&self) -> Option<&Label> {
        self.tenant.as_ref()
    }

    fn id(&self) -> Option<&BookingId> {
        self.id.as_ref()
    }

    fn wants_live(&self) -> bool {
        let is_live = |state: &ExecutionState| *state != ExecutionState::Ended;
        let wanted = self.state.as_ref();
        self.outcome.is_none() && wanted.is_none_or(|wanted| wanted.0.iter().any(is_live))
    }

    fn wants_ended(&self) -> bool {
        wants_state(self, ExecutionState::Ended)
    }

    fn wants(&self, state: &State, id: &BookingId, standing: &Standing<'_>) -> bool {
        match standing {
            Standing::Queued { .. } => {
                self.outcome.is_none()
                    && wants_state(self, ExecutionState::Queued)
                    && state.bookings.order(id).is_some()
            }
            Standing::Granted(granted) => {
                self.outcome.is_none()
                    && granted.progress().is_some_and(|progress| {
                        wants_state(self, answers::stage_of(progress.stage))
                    })
            }
            Standing::Ended(ended) => ended.course().is_some_and(|course| {
                let outcome = course.verdict;
                let wanted = self.outcome.as_ref();
                self.wants_ended() && wanted.is_none_or(|wanted| wanted.0.contains(&outcome))
            }),
        }
    }

    fn item(&self, view: &BookingView<'_>, id: &BookingId) -> Option<Execution> {
        let order = view.state.bookings.order(id);
        Some(answers::execution_of(view.booking(id)?, order))
    }
}

fn wants_state(filter: &ListExecutions, state: ExecutionState) -> bool {
    let wanted = filter.state.as_ref();
    wanted.is_none_or(|wanted| wanted.0.contains(&state))
}

fn as_execution(answer: Answer<Booking>) -> Answer<Execution> {
    answer.map(|booking| answers::execution_of(booking, None))
}

/// Takes the program out of a request, because it must not reach the ledger.
fn work(request: &mut ExecutionRequest, user: Option<User>) -> Work {
    Work {
        command: std::mem::take(&mut request.command),
        args: std::mem::take(&mut request.args),
        env: std::mem::take(&mut request.env),
        directory: request.directory.take().map(PathBuf::from),
        user,
        allow_privilege_escalation: request.allow_privilege_escalation,
    }
}

async fn store(executor: &Arc<dyn Executor>, work: Work) -> Result<Hash, Problem> {
    let executor = Arc::clone(executor);
    match tokio::task::spawn_blocking(move || executor.keep(&work)).await {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(error)) => {
            tracing::error!(error = chain(&error), "{}", log::EXECUTION_NOT_KEPT);
            let detail = format!("the program to run cannot be stored: {}", chain(&error));
            Err(Problem::new(Code::Unavailable, detail))
        }
        Err(_) => Err(Problem::new(
            Code::Internal,
            "storing the program to run panicked",
        )),
    }
}

fn submission(id: BookingId, from: ExecutionRequest, tenant: Label, work: Hash) -> Submission {
    let order = Order {
        work,
        pids: from.pids,
        start_timeout: from
            .start_timeout_ms
            .map_or(START_TIMEOUT_DEFAULT, Millis::from_ms),
        max_time: from.max_time_ms.map_or(MAX_TIME_DEFAULT, Millis::from_ms),
        grace: from.grace_ms.map_or(GRACE_DEFAULT, Millis::from_ms),
        retry_of: from.retry_of,
    };
    let booking = Request {
        slots: from.slots,
        cpu_milli: from.cpu_milli.unwrap_or_default(),
        memory_bytes: from.memory_bytes.unwrap_or_default(),
        gpus: from.gpus.unwrap_or_default(),
        priority: from.priority.unwrap_or_default(),
        ttl: Millis::ZERO,
        wait: from.wait_ms.map_or(Millis::ZERO, Millis::from_ms),
        cpu_limit_milli: from.cpu_limit_milli,
        memory_limit_bytes: from.memory_limit_bytes,
        ..Request::new(id, from.class, tenant)
    };
    Submission { booking, order }
}
