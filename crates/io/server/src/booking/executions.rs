//! Executions: submit, look, cancel, list, and read what was written (X1).
//!
//! An execution is a booking with an order: what is decided, told and listed of its slots is
//! decided, told and listed as of any booking. What is to be run is kept by the executor before
//! the ledger hears of it, and only its salted hash goes on record (L13).

mod logs;
mod runs_as;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bursar_client::api::{
    Booking, Execution, ExecutionOutcome, ExecutionRequest, ExecutionState, ListAnswer, Operation,
};
use bursar_client::{Code, Problem};
use bursar_engine::booking::decide::Refusal as BookingRefusal;
use bursar_engine::booking::execution::{
    GRACE_DEFAULT, MAX_TIME_DEFAULT, Order, START_TIMEOUT_DEFAULT,
};
use bursar_engine::booking::{Command as BookingCommand, Request, Standing, Submission};
use bursar_engine::{Command, Refusal, State};
use bursar_journal::hash::Hash;
use bursar_node::executor::{Executor, User, Work};
use bursar_units::causes::chain;
use bursar_units::{BookingId, Label, Millis};
use rustix::process::geteuid;

use crate::booking::answers::{self, Look};
use crate::booking::bookings::list::Listed;
use crate::booking::bookings::{Cursor, tenant_of};
use crate::caller::Caller;
use crate::log;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Mode, Service, last_record};

pub use logs::{Logs, LogsFrom};
pub use runs_as::OwnUser;

/// Where executions run.
pub(crate) struct Executing {
    executor: Arc<dyn Executor>,
    /// Whether it runs work as root unless told otherwise.
    is_root: bool,
    own_user: OwnUser,
}

/// Which executions are listed; `None` and empty mean all.
#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    /// Of this class.
    pub class: Option<Label>,
    /// Of this tenant.
    pub tenant: Option<Label>,
    /// In one of these states.
    pub states: BTreeSet<ExecutionState>,
    /// Ended with one of these outcomes.
    pub outcomes: BTreeSet<ExecutionOutcome>,
    /// Of this id.
    pub id: Option<BookingId>,
}

impl Service {
    /// The same service, which has executions run. Without an executor it refuses to take any.
    #[must_use]
    pub fn executing(self, executor: Arc<dyn Executor>, own_user: OwnUser) -> Self {
        let executing = Executing {
            executor,
            is_root: geteuid().is_root(),
            own_user,
        };
        Self {
            executing: Some(executing),
            ..self
        }
    }

    /// Has a program run under an id.
    pub async fn submit_execution(
        &self,
        caller: &Caller,
        id: BookingId,
        mut asked: ExecutionRequest,
        mode: Mode,
    ) -> Result<Answer<Execution>, Problem> {
        let Executing {
            executor,
            is_root,
            own_user,
        } = self.where_it_runs()?;
        let tenant = tenant_of(caller, asked.tenant.take())?;
        caller.require_tenant(&tenant)?;
        let user = runs_as::runs_as(caller, *is_root, *own_user)?;
        let work = work(&mut asked, user);
        let submission = submission(id, asked, tenant, executor.digest(&work));
        let retried = submission.order.retry_of.clone();
        let command = BookingCommand::Submit(submission).into();
        self.require_seen(caller, &command, retried.as_ref())?;
        // What would be refused is not kept: whoever may submit could fill the disk with it.
        let planned = self
            .carry_out(caller, command.clone(), Mode::DryRun)
            .await?;
        if mode == Mode::DryRun {
            return Ok(told(planned));
        }
        keep(executor, work).await?;
        Ok(told(self.carry_out(caller, command, mode).await?))
    }

    /// How an execution stands, now or when it is in another state.
    pub async fn execution(
        &self,
        caller: &Caller,
        id: &BookingId,
        wait: Option<Duration>,
    ) -> Result<Answer<Execution>, Problem> {
        let mut first = None;
        let is_enough = |answer: &Answer<Execution>| {
            let state = answer.body.course.state;
            state == ExecutionState::Ended || *first.get_or_insert(state) != state
        };
        let look = || self.look_at_execution(caller, id);
        self.look_until(id, wait, look, is_enough).await
    }

    /// Has an execution stopped, or takes it out of the queue.
    pub async fn cancel_execution(
        &self,
        caller: &Caller,
        id: BookingId,
        mode: Mode,
    ) -> Result<Answer<Execution>, Problem> {
        self.look_at_execution(caller, &id)?;
        let operation = Operation::Cancel { id };
        Ok(told(self.operate(caller, operation, mode).await?))
    }

    /// One page of the executions that the caller may see.
    pub async fn executions(
        &self,
        caller: &Caller,
        filter: ExecutionFilter,
        limit: usize,
        cursor: Option<Cursor>,
    ) -> Result<Answer<ListAnswer<Execution>>, Problem> {
        self.page(caller, filter, limit, cursor).await
    }

    fn look_at_execution(
        &self,
        caller: &Caller,
        id: &BookingId,
    ) -> Result<Answer<Execution>, Problem> {
        let Answer {
            status,
            record,
            body,
        } = self.look(caller, id, None)?;
        if body.execution.is_none() {
            return Err(Problem {
                changes: vec![format!("look at /v1/bookings/{id}")],
                ..Problem::new(
                    Code::NotFound,
                    format!("{id} is a plain booking: nothing runs under it here"),
                )
            });
        }
        let state = self.ledger.view().read();
        let body = answers::execution_of(body, state.bookings.order(id));
        Ok(Answer {
            status,
            record,
            body,
        })
    }

    /// An execution that the caller may not see is not there to be retried.
    fn require_seen(
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

    fn where_it_runs(&self) -> Result<&Executing, Problem> {
        self.executing.as_ref().ok_or_else(|| Problem {
            changes: vec!["book slots and run it yourself: `bursar exec`".to_owned()],
            ..Problem::new(Code::Unavailable, "this server runs nothing")
        })
    }
}

impl Listed for ExecutionFilter {
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
        self.outcomes.is_empty() && (self.states.is_empty() || self.states.iter().any(is_live))
    }

    fn wants_ended(&self) -> bool {
        self.wants_state(ExecutionState::Ended)
    }

    fn wants(&self, state: &State, id: &BookingId, standing: &Standing<'_>) -> bool {
        match standing {
            Standing::Queued { .. } => {
                self.outcomes.is_empty()
                    && self.wants_state(ExecutionState::Queued)
                    && state.bookings.order(id).is_some()
            }
            Standing::Granted(granted) => {
                self.outcomes.is_empty()
                    && granted
                        .progress()
                        .is_some_and(|progress| self.wants_state(answers::stage_of(progress.stage)))
            }
            Standing::Ended(ended) => ended.course().is_some_and(|course| {
                let outcome = course.verdict;
                self.wants_ended() && (self.outcomes.is_empty() || self.outcomes.contains(&outcome))
            }),
        }
    }

    fn tell(&self, look: &Look<'_>, id: &BookingId) -> Option<Execution> {
        let booking = look.whole(id)?;
        Some(answers::execution_of(
            booking,
            look.state.bookings.order(id),
        ))
    }
}

impl ExecutionFilter {
    fn wants_state(&self, state: ExecutionState) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }
}

fn told(answer: Answer<Booking>) -> Answer<Execution> {
    Answer {
        status: answer.status,
        record: answer.record,
        body: answers::execution_of(answer.body, None),
    }
}

/// What is run, which stays out of the ledger.
fn work(asked: &mut ExecutionRequest, user: Option<User>) -> Work {
    Work {
        command: std::mem::take(&mut asked.command),
        args: std::mem::take(&mut asked.args),
        env: std::mem::take(&mut asked.env),
        directory: asked.directory.take().map(PathBuf::from),
        user,
        allow_privilege_escalation: asked.allow_privilege_escalation,
    }
}

/// Keeps what is to be run, on a thread that may block.
async fn keep(executor: &Arc<dyn Executor>, work: Work) -> Result<Hash, Problem> {
    let executor = Arc::clone(executor);
    match tokio::task::spawn_blocking(move || executor.keep(&work)).await {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(error)) => {
            tracing::error!(error = chain(&error), "{}", log::EXECUTION_NOT_KEPT);
            let detail = format!("what is to be run cannot be kept: {}", chain(&error));
            Err(Problem::new(Code::Unavailable, detail))
        }
        Err(_) => Err(Problem::new(
            Code::Internal,
            "keeping what is to be run panicked",
        )),
    }
}

/// What an API request asks of the engine, for a tenant.
fn submission(id: BookingId, asked: ExecutionRequest, tenant: Label, work: Hash) -> Submission {
    let order = Order {
        work,
        pids: asked.pids,
        start_timeout: asked
            .start_timeout_ms
            .map_or(START_TIMEOUT_DEFAULT, Millis::from_ms),
        max_time: asked.max_time_ms.map_or(MAX_TIME_DEFAULT, Millis::from_ms),
        grace: asked.grace_ms.map_or(GRACE_DEFAULT, Millis::from_ms),
        retry_of: asked.retry_of,
    };
    let booking = Request {
        slots: asked.slots,
        cpu_milli: asked.cpu_milli.unwrap_or_default(),
        memory_bytes: asked.memory_bytes.unwrap_or_default(),
        gpus: asked.gpus.unwrap_or_default(),
        priority: asked.priority.unwrap_or_default(),
        ttl: Millis::ZERO,
        wait: asked.wait_ms.map_or(Millis::ZERO, Millis::from_ms),
        cpu_limit_milli: asked.cpu_limit_milli,
        memory_limit_bytes: asked.memory_limit_bytes,
        ..Request::new(id, asked.class, tenant)
    };
    Submission { booking, order }
}
