//! What is counted of executions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bursar_engine::State;
use bursar_engine::booking::execution::{Failure, Stage, Verdict};
use bursar_engine::booking::{self, Standing};
use bursar_units::{BookingId, Instant};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::runner::Counts;

/// Executions that have ended, counted off the ends that the state remembers: each once, however
/// rarely somebody asks, as long as that is more often than ends are forgotten (L6).
pub(super) struct Ended {
    by_outcome: Family<OutcomeLabel, Counter>,
    by_failure: Family<FailureLabel, Counter>,
    start_seconds: Histogram,
    run_seconds: Histogram,
    /// The newest end that was counted.
    newest: Mutex<Option<(Instant, BookingId)>>,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct FailureLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

impl Ended {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let by_outcome = Family::<OutcomeLabel, Counter>::default();
        for outcome in Verdict::ALL.map(Verdict::word) {
            let _zero = by_outcome.get_or_create(&OutcomeLabel { outcome });
        }
        let by_failure = Family::<FailureLabel, Counter>::default();
        for reason in Failure::ALL.map(Failure::word) {
            let _zero = by_failure.get_or_create(&FailureLabel { reason });
        }
        // 1 ms to 65 s: as long as an execution may take to start unless it says otherwise.
        let start_seconds = Histogram::new((0..17).map(|power| 0.001 * 2_f64.powi(power)));
        // 10 ms to a month, which is as long as one may run.
        let run_seconds = Histogram::new((0..15).map(|power| 0.01 * 4_f64.powi(power)));
        registry.register(
            "executions_ended",
            "Executions that ended, by how they came out",
            by_outcome.clone(),
        );
        registry.register(
            "executions_failed",
            "Executions that failed, by reason",
            by_failure.clone(),
        );
        registry.register_with_unit(
            "execution_start",
            "How long executions that ended took from their grant until they ran",
            Unit::Seconds,
            start_seconds.clone(),
        );
        registry.register_with_unit(
            "execution_run",
            "How long executions that ended ran",
            Unit::Seconds,
            run_seconds.clone(),
        );
        Self {
            by_outcome,
            by_failure,
            start_seconds,
            run_seconds,
            newest: Mutex::default(),
        }
    }

    /// Counts what has ended since the last time, or since a time at first.
    pub(super) fn count(&self, state: &State, since: Instant) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |ended: &&booking::Ended| match &*newest {
            Some((at, id)) => ended.ended_at() >= *at && ended.id() != id,
            None => ended.ended_at() >= since,
        };
        for ended in state.bookings.ended().take_while(is_new) {
            self.observe(ended);
        }
        if let Some(last) = state.bookings.ended().next() {
            *newest = Some((last.ended_at(), last.id().clone()));
        }
    }

    fn observe(&self, ended: &booking::Ended) {
        let Some(course) = ended.course() else {
            return;
        };
        let outcome = course.verdict.word();
        self.by_outcome
            .get_or_create(&OutcomeLabel { outcome })
            .inc();
        if course.verdict == Verdict::Failed {
            let failure = Failure::of(ended.exit_code(), course.signal, course.is_out_of_memory);
            let reason = failure.word();
            self.by_failure
                .get_or_create(&FailureLabel { reason })
                .inc();
        }
        let (Some((started, _)), Some((granted, _))) = (course.started, ended.granted()) else {
            return;
        };
        self.start_seconds.observe(seconds(granted, started));
        self.run_seconds.observe(seconds(started, ended.ended_at()));
    }
}

/// Gauges of the executions that live, and what their runner has counted.
pub(super) fn register(registry: &mut Registry, state: &State, runner: &Counts) {
    let by_state = Family::<StateLabel, Gauge<u64, AtomicU64>>::default();
    for (state, count) in by_stage(state) {
        by_state.get_or_create(&StateLabel { state }).set(count);
    }
    registry.register(
        "executions",
        "Executions that have not ended, by state",
        by_state,
    );
    let mut count = |name: &str, help: &str, count: &AtomicU64| {
        let counter: Counter = Counter::default();
        counter.inc_by(count.load(Ordering::Relaxed));
        registry.register(name, help, counter);
    };
    count(
        "executions_adopted",
        "Executions that were taken over when this process began",
        &runner.adopted,
    );
    count(
        "executions_cleaned",
        "Times that what was left of an execution was removed",
        &runner.cleaned,
    );
    count(
        "execution_stops_failed",
        "Stops after which a process was still there",
        &runner.stops_failed,
    );
    count(
        "execution_troubles",
        "Listings, starts and clean-ups of executions that failed",
        &runner.troubles,
    );
}

/// How many executions are in each state that is not the last.
fn by_stage(state: &State) -> [(&'static str, u64); 5] {
    let bookings = &state.bookings;
    let [
        mut queued,
        mut starting,
        mut running,
        mut stopping,
        mut stuck,
    ] = [0; 5];
    for id in bookings.live_ids(None) {
        match bookings.standing(id) {
            Some(Standing::Queued { .. }) => queued += u64::from(bookings.order(id).is_some()),
            Some(Standing::Granted(granted)) => match granted.progress().map(|of| of.stage) {
                Some(Stage::Starting) => starting += 1,
                Some(Stage::Running) => running += 1,
                Some(Stage::Stopping(_)) => stopping += 1,
                Some(Stage::Stuck) => stuck += 1,
                None => {}
            },
            Some(Standing::Ended(_)) | None => {}
        }
    }
    [
        ("queued", queued),
        ("starting", starting),
        ("running", running),
        ("stopping", stopping),
        ("stuck", stuck),
    ]
}

fn seconds(from: Instant, to: Instant) -> f64 {
    std::time::Duration::from_millis(to.since(from).ms()).as_secs_f64()
}
