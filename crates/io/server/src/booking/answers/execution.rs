//! Executions in the shapes of the API: the booking's, and what a plain booking does not have.

use bursar_client::api::{
    self, Booking, Course, Execution, ExecutionOutcome, ExecutionState, StopCause,
};
use bursar_engine::booking::Standing;
use bursar_engine::booking::execution::{
    Cause, Isolation, Order, STOPS_UNTIL_STUCK, Stage, Verdict,
};
use bursar_engine::explain::{Saga, Step, StepState};
use bursar_units::Instant;

/// When something of an execution began, and what goes with it.
type Began<T> = Option<(Instant, T)>;

/// How an execution goes, without its steps.
pub(crate) fn course(standing: &Standing<'_>, order: &Order) -> Course {
    let course = match standing {
        Standing::Queued { .. } => Course::new(ExecutionState::Queued),
        Standing::Granted(granted) => {
            let progress = granted.progress();
            // What is granted and is an execution has some; were it not so, it would start.
            let stage = progress.map_or(Stage::Starting, |progress| progress.stage);
            Course {
                stops_failed: stops_failed(stage),
                adopted: progress.is_some_and(|progress| progress.is_adopted),
                ..moved(
                    stage_of(stage),
                    progress.and_then(|progress| progress.started),
                    progress.and_then(|progress| progress.stopping),
                )
            }
        }
        Standing::Ended(ended) => {
            let course = ended.course();
            Course {
                outcome: course.map(|course| outcome_of(course.verdict)),
                signal: course.and_then(|course| course.signal),
                adopted: course.is_some_and(|course| course.is_adopted),
                out_of_memory: course.is_some_and(|course| course.is_out_of_memory),
                ..moved(
                    ExecutionState::Ended,
                    course.and_then(|course| course.started),
                    course.and_then(|course| course.stopping),
                )
            }
        }
    };
    Course {
        retry_of: order.retry_of.clone(),
        ..course
    }
}

/// An execution, as its booking tells it; with an order all that is known, else what was decided.
pub(crate) fn execution_of(booking: Booking, order: Option<&Order>) -> Execution {
    // One that has been forgotten since it was decided has ended.
    let course = booking
        .execution
        .map_or(Course::new(ExecutionState::Ended), |course| *course);
    Execution {
        fence: booking.fence,
        exit_code: booking.exit_code,
        reason: booking.reason,
        class: booking.class,
        tenant: booking.tenant,
        slots: booking.slots,
        cpu_milli: booking.cpu_milli,
        memory_bytes: booking.memory_bytes,
        gpus: booking.gpus,
        cpu_limit_milli: booking.cpu_limit_milli,
        memory_limit_bytes: booking.memory_limit_bytes,
        pids: order.and_then(|order| order.pids),
        priority: booking.priority,
        start_timeout_ms: order.map(|order| order.start_timeout.ms()),
        max_time_ms: order.map(|order| order.max_time.ms()),
        grace_ms: order.map(|order| order.grace.ms()),
        submitted_at: booking.queued_at,
        granted_at: booking.granted_at,
        ended_at: booking.ended_at,
        wait_until: booking.wait_until,
        ahead: booking.ahead,
        estimate_ms: booking.estimate_ms,
        rests_on: booking.rests_on,
        applied: booking.applied,
        record: booking.record,
        dry_run: booking.dry_run,
        ..Execution::new(booking.id, course)
    }
}

/// The steps of an execution.
pub(crate) fn saga(saga: Saga) -> api::Saga {
    api::Saga {
        steps: saga.steps.into_iter().map(step).collect(),
        compensations: saga.compensations.into_iter().map(step).collect(),
    }
}

/// How far an execution that holds its slots has come.
pub(crate) const fn stage_of(stage: Stage) -> ExecutionState {
    match stage {
        Stage::Starting => ExecutionState::Starting,
        Stage::Running => ExecutionState::Running,
        Stage::Stopping(_) => ExecutionState::Stopping,
        Stage::Stuck => ExecutionState::Stuck,
    }
}

/// How an execution came out.
pub(crate) const fn outcome_of(verdict: Verdict) -> ExecutionOutcome {
    match verdict {
        Verdict::Completed => ExecutionOutcome::Completed,
        Verdict::Failed => ExecutionOutcome::Failed,
        Verdict::Lost => ExecutionOutcome::Lost,
        Verdict::Cancelled => ExecutionOutcome::Cancelled,
        Verdict::TimedOut => ExecutionOutcome::TimedOut,
        Verdict::WaitOver => ExecutionOutcome::WaitOver,
    }
}

fn moved(state: ExecutionState, started: Began<Isolation>, stopping: Began<Cause>) -> Course {
    Course {
        isolation: started.map(|(_, isolation)| match isolation {
            Isolation::Cgroup => api::Isolation::Cgroup,
            Isolation::None => api::Isolation::None,
        }),
        started_at: started.map(|(at, _)| at),
        stopping_at: stopping.map(|(at, _)| at),
        cause: stopping.map(|(_, cause)| match cause {
            Cause::Cancelled => StopCause::Cancelled,
            Cause::TimedOut => StopCause::TimedOut,
            Cause::NotStarted => StopCause::NotStarted,
        }),
        ..Course::new(state)
    }
}

fn stops_failed(stage: Stage) -> Option<u32> {
    match stage {
        Stage::Starting | Stage::Running | Stage::Stopping(0) => None,
        Stage::Stopping(failed) => Some(failed),
        Stage::Stuck => Some(STOPS_UNTIL_STUCK),
    }
}

fn step(step: Step) -> api::Step {
    api::Step {
        name: step.name.to_owned(),
        state: match step.state {
            StepState::Pending => api::StepState::Pending,
            StepState::Active => api::StepState::Active,
            StepState::Done => api::StepState::Done,
            StepState::Failed => api::StepState::Failed,
            StepState::Skipped => api::StepState::Skipped,
        },
        at: step.began,
        took_ms: step.took.map(bursar_units::Millis::ms),
    }
}
