//! What is counted: one list of metrics, unit last, with bounded labels (style 46).
//!
//! Gauges are read off the committed state when someone asks, so they are the state. Counters
//! are kept as things happen, or read off the state too where it remembers what happened.

mod executions;
pub mod market;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bursar_engine::State;
use bursar_engine::booking::ClassUse;
use bursar_node::market::View;
use bursar_units::Instant;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::runner::Counts;

/// Classes that have a label of their own; the smaller ones are counted together.
pub const CLASS_LABELS_MAX: usize = 100;
/// The label of all further classes.
const OTHERS: &str = "others";

/// The label of requests that match no route.
const NOWHERE: &str = "none";

/// Counters that are shared by everyone who counts.
#[derive(Clone)]
pub struct Metrics(Arc<Counters>);

struct Counters {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    connections_refused: Counter,
    commit_seconds: Histogram,
    batch_records: Histogram,
    store_failures: Counter,
    poisoned: Counter,
    invariants_broken: Counter,
    executions: executions::Ended,
    runner: Arc<Counts>,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: String,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let connections_refused = Counter::default();
        // 0.1 ms to 13 s: an fsync takes from a tenth of a millisecond to, on a bad day, seconds.
        let commit_seconds = Histogram::new((0..18).map(|power| 0.000_1 * 2_f64.powi(power)));
        let batch_records = Histogram::new((0..13).map(|power| 2_f64.powi(power)));
        let (store_failures, poisoned) = (Counter::default(), Counter::default());
        registry.register(
            "http_requests",
            "Requests answered, by address and status",
            requests.clone(),
        );
        registry.register(
            "http_connections_refused",
            "Connections past the limit",
            connections_refused.clone(),
        );
        registry.register_with_unit(
            "ledger_commit",
            "How long a commit took",
            Unit::Seconds,
            commit_seconds.clone(),
        );
        registry.register(
            "ledger_batch_records",
            "Records that were committed together",
            batch_records.clone(),
        );
        registry.register(
            "ledger_store_failures",
            "Times the store failed",
            store_failures.clone(),
        );
        registry.register(
            "ledger_poisoned",
            "Commands kept aside because deciding them panicked",
            poisoned.clone(),
        );
        let invariants_broken = Counter::default();
        registry.register(
            "ledger_invariants_broken",
            "Checks of the state that found a broken invariant",
            invariants_broken.clone(),
        );
        let executions = executions::Ended::new(&mut registry);
        Self(Arc::new(Counters {
            registry,
            requests,
            connections_refused,
            commit_seconds,
            batch_records,
            store_failures,
            poisoned,
            invariants_broken,
            executions,
            runner: Arc::default(),
        }))
    }
}

impl Metrics {
    /// A request was answered, by the route that it matched.
    pub fn answered(&self, route: Option<&str>, status: u16) {
        // A part that takes the rest of an address has a star for the router only.
        let route = route.map_or_else(|| NOWHERE.to_owned(), |route| route.replace("{*", "{"));
        self.0
            .requests
            .get_or_create(&RequestLabels { route, status })
            .inc();
    }

    /// A connection came past the limit.
    pub fn connection_refused(&self) {
        self.0.connections_refused.inc();
    }

    /// A batch is durable.
    pub fn committed(&self, records: usize, took: Duration) {
        self.0.commit_seconds.observe(took.as_secs_f64());
        let records = u32::try_from(records).unwrap_or(u32::MAX);
        self.0.batch_records.observe(f64::from(records));
    }

    /// The store failed.
    pub fn store_failed(&self) {
        self.0.store_failures.inc();
    }

    /// A command was kept aside.
    pub fn poisoned(&self) {
        self.0.poisoned.inc();
    }

    /// The state breaks an invariant.
    pub fn invariant_broken(&self) {
        self.0.invariants_broken.inc();
    }

    /// Where the runner counts.
    pub fn runner(&self) -> Arc<Counts> {
        Arc::clone(&self.0.runner)
    }

    /// Everything as text, with gauges read off the state. What ended before `since` is what
    /// earlier processes have counted.
    pub fn text(
        &self,
        state: &State,
        (since, now): (Instant, Instant),
        lanes: (usize, usize),
        node: Option<&View>,
    ) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        self.0.executions.count(state, since);
        encode_registry(&mut text, &self.0.registry)?;
        let mut registry = gauges(state, now, lanes);
        executions::register(&mut registry, state, &self.0.runner);
        if let Some(view) = node {
            market::register(&mut registry, view);
        }
        encode_registry(&mut text, &registry)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// What is in use and waits, by class: the largest by name, all others together.
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

fn gauges(state: &State, now: Instant, lanes: (usize, usize)) -> Registry {
    let mut registry = Registry::default();
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
    of_class("booking_waiting", "Bookings that wait", None, &|of| {
        of.waiting
    });
    of_class(
        "booking_waiting_oldest",
        "How long the longest wait is",
        Some(Unit::Seconds),
        &|of| of.oldest.map_or(0, |since| now.since(since).ms() / 1_000),
    );
    let (granted, queued, remembered) = state.bookings.counts();
    let mut one = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    one("booking_holding", "Bookings that hold", count(granted));
    one(
        "booking_queued",
        "Bookings that wait, all classes together",
        count(queued),
    );
    one(
        "booking_remembered",
        "Ended bookings that are remembered",
        count(remembered),
    );
    one("ledger_records", "Records of the ledger", state.spine.head);
    one(
        "ledger_pruned_records",
        "Records whose payload was forgotten",
        state.spine.pruned_below,
    );
    let intake = Family::<LaneLabel, Gauge<u64, AtomicU64>>::default();
    for (lane, waiting) in [("control", lanes.0), ("work", lanes.1)] {
        intake
            .get_or_create(&LaneLabel { lane })
            .set(count(waiting));
    }
    registry.register("intake_waiting", "Commands that wait to be decided", intake);
    // A fence is one counter for the whole ledger: its last value is the number of grants.
    let grants: Counter = Counter::default();
    grants.inc_by(state.bookings.last_fence().0);
    registry.register("booking_granted", "Grants since the ledger began", grants);
    registry
}
