//! Executions as API types: the fields of their booking, and their own.

use bursar_client::api::{self, Booking, Course, Execution, ExecutionState};
use bursar_engine::booking::Standing;
use bursar_engine::booking::execution::{Cause, Isolation, Order, STOPS_UNTIL_STUCK, Stage};
use bursar_engine::explain::{Saga, Step};
use bursar_units::Instant;

/// The course of an execution, without its steps.
pub(crate) fn course(standing: &Standing<'_>, order: &Order) -> Course {
    let course = match standing {
        Standing::Queued { .. } => Course::new(ExecutionState::Queued),
        Standing::Granted(granted) => {
            let progress = granted.progress();
            // A granted execution always has progress; the default is only for the type.
            let stage = progress.map_or(Stage::Starting, |progress| progress.stage);
            Course {
                stops_failed: stops_failed(stage),
                adopted: progress.is_some_and(|progress| progress.is_adopted),
                ..course_of(
                    stage_of(stage),
                    progress.and_then(|progress| progress.started),
                    progress.and_then(|progress| progress.stopping),
                )
            }
        }
        Standing::Ended(ended) => {
            let course = ended.course();
            Course {
                outcome: course.map(|course| course.verdict),
                signal: course.and_then(|course| course.signal),
                adopted: course.is_some_and(|course| course.is_adopted),
                out_of_memory: course.is_some_and(|course| course.is_out_of_memory),
                ..course_of(
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

/// Converts the booking of an execution; `order` adds the fields of its request.
pub(crate) fn execution_of(booking: Booking, order: Option<&Order>) -> Execution {
    Execution {
        pids: order.and_then(|order| order.pids),
        start_timeout_ms: order.map(|order| order.start_timeout.ms()),
        max_time_ms: order.map(|order| order.max_time.ms()),
        grace_ms: order.map(|order| order.grace.ms()),
        ..booking.into()
    }
}

pub(crate) fn saga(saga: Saga) -> api::Saga {
    api::Saga {
        steps: saga.steps.into_iter().map(step).collect(),
        compensations: saga.compensations.into_iter().map(step).collect(),
    }
}

pub(crate) const fn stage_of(stage: Stage) -> ExecutionState {
    match stage {
        Stage::Starting => ExecutionState::Starting,
        Stage::Running => ExecutionState::Running,
        Stage::Stopping(_) => ExecutionState::Stopping,
        Stage::Stuck => ExecutionState::Stuck,
    }
}

fn course_of(
    state: ExecutionState,
    started: Option<(Instant, Isolation)>,
    stopping: Option<(Instant, Cause)>,
) -> Course {
    Course {
        isolation: started.map(|(_, isolation)| isolation),
        started_at: started.map(|(at, _)| at),
        stopping_at: stopping.map(|(at, _)| at),
        cause: stopping.map(|(_, cause)| cause),
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
        state: step.state,
        at: step.began,
        took_ms: step.took.map(bursar_units::Millis::ms),
    }
}
