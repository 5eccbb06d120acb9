//! Metrics of budgets and waiting runs.
//!
//! Integers of the state become floats here only. A metric has at most [`LABELS_MAX`] label sets; all
//! further ones are counted together under `others`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar_engine::State;
use bursar_engine::cluster::budget::Class;
use bursar_engine::cluster::explain::WaitReason;
use bursar_engine::explain::WaitsFor;
use bursar_units::Instant;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Label sets of one metric.
const LABELS_MAX: usize = 1_000;
/// Waiting runs that are asked for the reason of their wait, oldest first.
const WAITS_MAX: usize = 1_000;
const OTHERS: &str = "others";

#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, EncodeLabelSet)]
struct MeterLabel {
    meter: String,
}

#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, EncodeLabelSet)]
struct PartLabels {
    meter: String,
    part: &'static str,
}

#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, EncodeLabelSet)]
struct ClassLabels {
    envelope: String,
    class: &'static str,
}

#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, EncodeLabelSet)]
struct LoanLabels {
    envelope: String,
    borrower: String,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct WaitLabel {
    waits_for: &'static str,
}

/// Loans that were denied, counted as they happen.
#[derive(Default)]
pub(crate) struct Denied {
    counts: Family<LoanLabels, Counter>,
    known: Mutex<BTreeSet<LoanLabels>>,
}

impl Denied {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let denied = Self::default();
        registry.register(
            "budget_lending_denied",
            "Submissions that named a sponsor whose envelope does not lend to their owner",
            denied.counts.clone(),
        );
        denied
    }

    pub(crate) fn count(&self, envelope: &str, borrower: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labels = LoanLabels {
            envelope: envelope.to_owned(),
            borrower: borrower.to_owned(),
        };
        if !known.contains(&labels) {
            if LABELS_MAX <= known.len() {
                labels = LoanLabels::others();
            } else {
                known.insert(labels.clone());
            }
        }
        self.counts.get_or_create(&labels).inc();
    }
}

/// A label set that stands for all further ones.
trait Others {
    fn others() -> Self;
}

impl Others for MeterLabel {
    fn others() -> Self {
        Self {
            meter: OTHERS.to_owned(),
        }
    }
}

impl Others for ClassLabels {
    fn others() -> Self {
        Self {
            envelope: OTHERS.to_owned(),
            class: OTHERS,
        }
    }
}

impl Others for LoanLabels {
    fn others() -> Self {
        Self {
            envelope: OTHERS.to_owned(),
            borrower: OTHERS.to_owned(),
        }
    }
}

/// Sums by label set, bounded.
struct Sums<L>(BTreeMap<L, u64>);

impl<L: Ord + Others> Sums<L> {
    fn add(&mut self, labels: L, value: u64) {
        let is_full = LABELS_MAX <= self.0.len() && !self.0.contains_key(&labels);
        let labels = if is_full { L::others() } else { labels };
        let sum = self.0.entry(labels).or_default();
        *sum = sum.saturating_add(value);
    }
}

impl<L> Default for Sums<L> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

pub(crate) fn register(registry: &mut Registry, state: &State, now: Instant) {
    of_meters(registry, state, now);
    of_usage(registry, state, now);
    of_waits(registry, state, now);
}

fn of_meters(registry: &mut Registry, state: &State, now: Instant) {
    let (mut used, mut limits) = (Sums::default(), Sums::default());
    let (mut hours, mut hour_limits) = (Sums::default(), Sums::default());
    let accounts = state.clusters.accounts();
    for view in accounts
        .budgets()
        .flat_map(|of| accounts.meters(now, &of.id()))
    {
        let label = || MeterLabel {
            meter: view.meter.to_string(),
        };
        used.add(label(), view.gpus_used.saturating_sub(view.gpus_held));
        hours.add(label(), view.accrued_gpu_ms);
        if let Some(limit) = view.gpus_limit {
            limits.add(label(), limit);
        }
        if let Some(limit) = view.limit_gpu_ms {
            hour_limits.add(label(), limit);
        }
    }
    let by_part = Family::<PartLabels, Gauge<u64, AtomicU64>>::default();
    for (MeterLabel { meter }, value) in used.0 {
        let labels = PartLabels {
            meter,
            part: "active",
        };
        by_part.get_or_create(&labels).set(value);
    }
    registry.register("budget_concurrency_used", "GPUs in use, by meter", by_part);
    let by_meter = Family::<MeterLabel, Gauge<u64, AtomicU64>>::default();
    for (label, value) in limits.0 {
        by_meter.get_or_create(&label).set(value);
    }
    registry.register(
        "budget_concurrency_limit",
        "The most GPUs of a meter",
        by_meter,
    );
    let mut of_hours = |name: &str, help: &str, sums: Sums<MeterLabel>| {
        let family = Family::<MeterLabel, Gauge<f64, AtomicU64>>::default();
        for (label, gpu_ms) in sums.0 {
            family.get_or_create(&label).set(to_hours(gpu_ms));
        }
        registry.register(name, help, family);
    };
    of_hours(
        "budget_gpu_hours_used",
        "GPU-hours used in the present epoch of a meter",
        hours,
    );
    of_hours(
        "budget_gpu_hours_limit",
        "The most GPU-hours of an epoch of a meter",
        hour_limits,
    );
}

fn of_usage(registry: &mut Registry, state: &State, now: Instant) {
    let (mut by_class, mut lent) = (Sums::default(), Sums::default());
    for used in state.clusters.accounts().usage_totals(now) {
        let Some(envelope) = used.envelope else {
            continue;
        };
        let labels = ClassLabels {
            envelope: envelope.to_string(),
            class: used.class.word(),
        };
        by_class.add(labels, used.gpu_ms);
        if used.class == Class::Borrowed {
            let labels = LoanLabels {
                envelope: envelope.to_string(),
                borrower: used.owner.to_string(),
            };
            lent.add(labels, used.gpu_ms);
        }
    }
    let paid = Family::<ClassLabels, Counter>::default();
    for (labels, gpu_ms) in by_class.0 {
        paid.get_or_create(&labels).inc_by(gpu_ms);
    }
    let help = "GPU-milliseconds that an envelope paid, over all epochs";
    registry.register("budget_gpu_ms", help, paid);
    let loans = Family::<LoanLabels, Counter<f64, AtomicU64>>::default();
    for (labels, gpu_ms) in lent.0 {
        loans.get_or_create(&labels).inc_by(to_hours(gpu_ms));
    }
    registry.register(
        "budget_lent_gpu_hours",
        "GPU-hours that an envelope lent",
        loans,
    );
}

/// The age of the oldest waiting run of each category, among the [`WAITS_MAX`] oldest.
fn of_waits(registry: &mut Registry, state: &State, now: Instant) {
    let mut oldest: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (uid, submitted) in state.clusters.waiting().take(WAITS_MAX) {
        let reason = state.clusters.wait_reason_of(now, uid);
        let waits_for = reason.map_or(WaitsFor::Turn, WaitReason::waits_for);
        let age = now.since(submitted).ms() / 1_000;
        oldest.entry(waits_for.word()).or_insert(age);
    }
    let family = Family::<WaitLabel, Gauge<u64, AtomicU64>>::default();
    for waits_for in WaitsFor::WORDS {
        let age = oldest.get(waits_for).copied().unwrap_or_default();
        family.get_or_create(&WaitLabel { waits_for }).set(age);
    }
    registry.register_with_unit(
        "run_waiting_oldest",
        "Age of the oldest waiting run, by cause of its wait",
        Unit::Seconds,
        family,
    );
}

fn to_hours(gpu_ms: u64) -> f64 {
    Duration::from_millis(gpu_ms).as_secs_f64() / 3_600.0
}
