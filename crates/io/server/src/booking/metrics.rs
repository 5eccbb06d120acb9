//! Metrics of bookings and executions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bursar_engine::State;
use bursar_engine::booking::execution::{Failure, Stage, Verdict};
use bursar_engine::booking::{self, ClassUse, Standing};
use bursar_units::{BookingId, Instant};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::runner::Counts;

/// Classes with their own label; the smaller ones share one.
pub const CLASS_LABELS_MAX: usize = 100;
const OTHERS: &str = "others";

/// Counts of ended executions, read from the ends that the state remembers. Each end is counted
/// once, provided that scrapes are more frequent than ends are forgotten (L6).
pub(crate) struct Ended {
    by_outcome: Family<OutcomeLabel, Counter>,
    by_failure: Family<FailureLabel, Counter>,
    start_seconds: Histogram,
    run_seconds: Histogram,
    newest: Mutex<Option<(Instant, BookingId)>>,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: String,
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
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let by_outcome = Family::<OutcomeLabel, Counter>::default();
        for outcome in Verdict::ALL.map(Verdict::word) {
            let _zero = by_outcome.get_or_create(&OutcomeLabel { outcome });
        }
        let by_failure = Family::<FailureLabel, Counter>::default();
        for reason in Failure::ALL.map(Failure::word) {
            let _zero = by_failure.get_or_create(&FailureLabel { reason });
        }
        // 1 ms to 65 s, which covers the default start timeout.
        let start_seconds = Histogram::new((0..17).map(|power| 0.001 * 2_f64.powi(power)));
        // 10 ms to a month, the longest run allowed.
        let run_seconds = Histogram::new((0..15).map(|power| 0.01 * 4_f64.powi(power)));
        registry.register(
            "executions_ended",
            "Ended executions, by outcome",
            by_outcome.clone(),
        );
        registry.register(
            "executions_failed",
            "Failed executions, by reason",
            by_failure.clone(),
        );
        registry.register_with_unit(
            "execution_start",
            "Time of ended executions from their grant until they ran",
            Unit::Seconds,
            start_seconds.clone(),
        );
        registry.register_with_unit(
            "execution_run",
            "Run time of ended executions",
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

    /// Counts the ends since the last call, or since `since` on the first.
    pub(crate) fn count(&self, state: &State, since: Instant) {
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

pub(crate) fn register(registry: &mut Registry, state: &State, now: Instant, runner: &Counts) {
    of_classes(registry, state, now);
    of_bookings(registry, state);
    of_executions(registry, state, runner);
}

fn of_classes(registry: &mut Registry, state: &State, now: Instant) {
    let by_class = by_class(state);
    let mut of_class =
        |name: &str, help: &str, unit: Option<Unit>, value: &dyn Fn(&ClassUse) -> u64| {
            let family = Family::<ClassLabel, Gauge<u64, AtomicU64>>::default();
            for (class, of) in &by_class {
                family
                    .get_or_create(&ClassLabel {
                        class: (*class).to_owned(),
                    })
                    .set(value(of));
            }
            match unit {
                Some(unit) => registry.register_with_unit(name, help, unit, family),
                None => registry.register(name, help, family),
            }
        };
    of_class("booking_slots_in_use", "Slots held", None, &|of| {
        of.slots_in_use
    });
    of_class("booking_waiting", "Waiting bookings", None, &|of| {
        of.waiting
    });
    of_class(
        "booking_waiting_oldest",
        "Age of the oldest waiting booking",
        Some(Unit::Seconds),
        &|of| of.oldest.map_or(0, |since| now.since(since).ms() / 1_000),
    );
}

fn of_bookings(registry: &mut Registry, state: &State) {
    let (granted, queued, remembered) = state.bookings.counts();
    let mut one = |name: &str, help: &str, value: usize| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(u64::try_from(value).unwrap_or(u64::MAX));
        registry.register(name, help, gauge);
    };
    one("booking_holding", "Granted bookings", granted);
    one("booking_queued", "Waiting bookings of all classes", queued);
    one("booking_remembered", "Ended bookings in memory", remembered);
    // Each grant of the ledger raises the fence by one, so the last fence is the number of grants.
    let grants: Counter = Counter::default();
    grants.inc_by(state.bookings.last_fence().0);
    registry.register("booking_granted", "Grants since the ledger began", grants);
}

fn of_executions(registry: &mut Registry, state: &State, runner: &Counts) {
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
        "Executions adopted when this process began",
        &runner.adopted,
    );
    count(
        "executions_cleaned",
        "Clean-ups of ended executions",
        &runner.cleaned,
    );
    count(
        "execution_stops_failed",
        "Stops that left a process running",
        &runner.stops_failed,
    );
    count(
        "execution_troubles",
        "Failed listings, starts and clean-ups of executions",
        &runner.troubles,
    );
}

/// Use by class: the largest classes by name, the others together.
fn by_class(state: &State) -> Vec<(&str, ClassUse)> {
    let classes = state.bookings.by_class().into_iter();
    let mut classes: Vec<_> = classes.map(|(class, of)| (class.as_str(), of)).collect();
    classes.sort_by(|(a_name, a), (b_name, b)| {
        let size = |of: &ClassUse| of.slots_in_use.saturating_add(of.waiting);
        size(b).cmp(&size(a)).then_with(|| a_name.cmp(b_name))
    });
    let rest = classes.split_off(classes.len().min(CLASS_LABELS_MAX));
    if !rest.is_empty() {
        let together = rest
            .into_iter()
            .fold(ClassUse::default(), |sum, (_, of)| ClassUse {
                slots_in_use: sum.slots_in_use.saturating_add(of.slots_in_use),
                waiting: sum.waiting + of.waiting,
                oldest: sum.oldest.into_iter().chain(of.oldest).min(),
            });
        classes.push((OTHERS, together));
    }
    classes
}

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
