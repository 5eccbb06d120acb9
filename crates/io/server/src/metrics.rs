//! Metrics: names with the unit last, and bounded labels.
//!
//! Gauges are computed from the committed state at each scrape. Counters are incremented as events
//! happen, or computed from the state where it keeps the counts.

use std::sync::Arc;
use std::time::Duration;

use bursar_engine::State;
use bursar_node::market::View;
use bursar_units::Instant;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub use crate::booking::metrics::CLASS_LABELS_MAX;
pub use crate::market::metrics as market;

use crate::booking::metrics as booking;
use crate::cluster::metrics as cluster;
use crate::runner::Counts;
use crate::spine::metrics as spine;

/// Label of requests that match no route.
const NO_ROUTE: &str = "none";

/// Counters, shared by all parts of the server.
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
    executions: booking::Ended,
    lending_denied: cluster::Denied,
    runner: Arc<Counts>,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let connections_refused = Counter::default();
        // 0.1 ms to 13 s: an fsync takes from a tenth of a millisecond to several seconds.
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
            "Connections refused because of the limit",
            connections_refused.clone(),
        );
        registry.register_with_unit(
            "ledger_commit",
            "Duration of a commit",
            Unit::Seconds,
            commit_seconds.clone(),
        );
        registry.register(
            "ledger_batch_records",
            "Records committed together",
            batch_records.clone(),
        );
        registry.register(
            "ledger_store_failures",
            "Failures of the store",
            store_failures.clone(),
        );
        registry.register(
            "ledger_poisoned",
            "Commands set aside because deciding them panicked",
            poisoned.clone(),
        );
        let invariants_broken = Counter::default();
        registry.register(
            "ledger_invariants_broken",
            "Checks of the state that found a broken invariant",
            invariants_broken.clone(),
        );
        let executions = booking::Ended::new(&mut registry);
        let lending_denied = cluster::Denied::new(&mut registry);
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
            lending_denied,
            runner: Arc::default(),
        }))
    }
}

impl Metrics {
    /// Counts a request by its route and status.
    pub fn answered(&self, route: Option<&str>, status: u16) {
        // The star of `{*name}` is syntax of the router only.
        let route = route.map_or_else(|| NO_ROUTE.to_owned(), |route| route.replace("{*", "{"));
        self.0
            .requests
            .get_or_create(&RequestLabels { route, status })
            .inc();
    }

    /// Counts a connection over the limit.
    pub fn connection_refused(&self) {
        self.0.connections_refused.inc();
    }

    /// Counts a committed batch.
    pub fn committed(&self, records: usize, took: Duration) {
        self.0.commit_seconds.observe(took.as_secs_f64());
        let records = u32::try_from(records).unwrap_or(u32::MAX);
        self.0.batch_records.observe(f64::from(records));
    }

    /// Counts a failure of the store.
    pub fn store_failed(&self) {
        self.0.store_failures.inc();
    }

    /// Counts a command that was set aside.
    pub fn poisoned(&self) {
        self.0.poisoned.inc();
    }

    /// Counts a check that found a broken invariant.
    pub fn invariant_broken(&self) {
        self.0.invariants_broken.inc();
    }

    /// Counts a loan that an envelope denied to a borrower.
    pub(crate) fn lending_denied(&self, envelope: &str, borrower: &str) {
        self.0.lending_denied.count(envelope, borrower);
    }

    /// Counters of the runner.
    pub fn runner(&self) -> Arc<Counts> {
        Arc::clone(&self.0.runner)
    }

    /// Writes all metrics as text. Executions that ended before `since` are not counted: earlier
    /// processes did.
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
        let mut registry = Registry::default();
        booking::register(&mut registry, state, now, &self.0.runner);
        cluster::register(&mut registry, state, now);
        spine::register(&mut registry, state, lanes);
        if let Some(view) = node {
            market::register(&mut registry, view);
        }
        encode_registry(&mut text, &registry)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}
