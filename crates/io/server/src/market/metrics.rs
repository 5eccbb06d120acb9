//! Metrics of the CPU market, with the prefixes `apex_` and `market_`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;

use bursar_market::clear::{Mode, Share};
use bursar_market::need::PPM;
use bursar_market::node::{Held, Standing};
use bursar_node::market::{Acts, View, Why};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeGaugeValue, EncodeLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{Atomic, Gauge};
use prometheus_client::registry::{Registry, Unit};

/// Pods with their own labels, in the order of their names; a kubelet runs no more.
pub const POD_LABELS_MAX: usize = 1_000;

/// Every metric of the market, for tests of dashboards and alerts.
pub const NAMES: &[&str] = &[
    "apex_allocation_mode",
    "apex_allocation_milli",
    "apex_headroom_utilization",
    "apex_nash_reduction_ratio",
    "apex_need_milli",
    "market_acts",
    "market_capacity_milli",
    "market_clearing_interval_seconds",
    "market_clearings_total",
    "market_held",
    "market_last_clearing_seconds",
    "market_misses_total",
    "market_over_capacity_seconds_total",
    "market_price_ppm",
    "market_skipped_total",
    "market_throttled_permille",
    "market_unmanaged",
    "market_unmanaged_milli",
    "market_writes_total",
];

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct ModeLabels {
    node: String,
    mode: &'static str,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    node: String,
    reason: &'static str,
}

/// On plain Linux the pod is a cgroup, which has no namespace.
#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct PodLabels {
    pod: String,
    namespace: String,
}

type Whole = Gauge<u64, AtomicU64>;
type Ratio = Gauge<f64, AtomicU64>;

struct Row<'a> {
    standing: &'a Standing,
    /// Share of the last clearing; `None` for a held pod.
    share: Option<&'a Share>,
}

/// Writes all metrics of a market as text, for an agent without a server.
pub fn text(view: &View) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    register(&mut registry, view);
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    encode_eof(&mut text)?;
    Ok(text)
}

pub(crate) fn register(registry: &mut Registry, view: &View) {
    let rows = rows(view);
    apex(registry, view, &rows);
    of_node(registry, view);
    of_time(registry, view);
    by_reason(registry, view);
    counted(registry, view);
    by_pod(
        registry,
        ("market_throttled_permille", "Share of throttled periods"),
        &rows,
        |row| row.standing.throttled_permille,
    );
}

fn apex(registry: &mut Registry, view: &View, rows: &[Row<'_>]) {
    let modes = Family::<ModeLabels, Whole>::default();
    let label = view.clearing.as_ref().map(|clearing| clearing.label);
    for mode in Mode::ALL {
        let labels = ModeLabels {
            node: view.node.clone(),
            mode: mode.word(),
        };
        modes
            .get_or_create(&labels)
            .set(u64::from(label == Some(mode)));
    }
    registry.register(
        "apex_allocation_mode",
        "Mode of the node: 1 for the current one",
        modes,
    );
    let need = ("apex_need_milli", "Need of a pod, in millicores");
    by_pod(registry, need, rows, |row| Some(row.need_milli()));
    let share = ("apex_allocation_milli", "Share of a pod, in millicores");
    by_pod(registry, share, rows, |row| Some(row.allocated_milli()));
    by_pod(
        registry,
        (
            "apex_nash_reduction_ratio",
            "Part of the need above the baseline that a pod does not get",
        ),
        rows,
        |row| Some(ratio(row.share.map_or(0, Share::reduction_ppm), PPM)),
    );
    by_pod(
        registry,
        (
            "apex_headroom_utilization",
            "Part of its share that a pod uses",
        ),
        rows,
        |row| Some(ratio(row.standing.used_milli?, row.allocated_milli())),
    );
}

fn of_node(registry: &mut Registry, view: &View) {
    let cleared = view.clearing.as_ref().map(|clearing| &clearing.cleared);
    let mut one = |name: &str, help: &str, value: u64| {
        let family = Family::<NodeLabel, Whole>::default();
        family.get_or_create(&of(view)).set(value);
        registry.register(name, help, family);
    };
    one(
        "market_price_ppm",
        "Price of a millicore: 0 if no pod is held back",
        cleared.map_or(0, |cleared| cleared.price_ppm),
    );
    one(
        "market_capacity_milli",
        "CPU that can be shared, in millicores",
        cleared.map_or(0, |cleared| cleared.capacity_milli),
    );
    let clearing = view.clearing.as_ref();
    one(
        "market_unmanaged_milli",
        "CPU used by unmanaged cgroups, in millicores",
        clearing.map_or(0, |clearing| clearing.unmanaged_milli),
    );
    one(
        "market_acts",
        "1 if limits are written",
        u64::from(view.acts == Acts::Yes),
    );
}

fn of_time(registry: &mut Registry, view: &View) {
    // Before its first clearing an agent is silent since its first reading, not since 1970.
    let cleared_ms = view.cleared_ms.unwrap_or(view.at_ms);
    let last = Family::<NodeLabel, Whole>::default();
    last.get_or_create(&of(view)).set(cleared_ms / 1_000);
    registry.register(
        "market_last_clearing_seconds",
        "Time of the last clearing, or of the first reading before it, in seconds since 1970",
        last,
    );
    let interval_ms = view.interval_ms;
    let interval = Family::<NodeLabel, Ratio>::default();
    interval
        .get_or_create(&of(view))
        .set(ratio(interval_ms, 1_000));
    registry.register(
        "market_clearing_interval_seconds",
        "Time between clearings, in seconds",
        interval,
    );
}

fn by_reason(registry: &mut Registry, view: &View) {
    let labels = |reason| ReasonLabels {
        node: view.node.clone(),
        reason,
    };
    let held = Family::<ReasonLabels, Whole>::default();
    for reason in Held::ALL {
        let standings = view.standings.iter();
        let count = standings.filter(|pod| pod.held == Some(reason)).count();
        held.get_or_create(&labels(reason.word()))
            .set(u64::try_from(count).unwrap_or(u64::MAX));
    }
    registry.register("market_held", "Pods whose limit is left unchanged", held);
    let unmanaged = Family::<ReasonLabels, Whole>::default();
    for why in Why::ALL {
        let count = view.unmanaged.iter().filter(|(_, is)| *is == why).count();
        unmanaged
            .get_or_create(&labels(why.word()))
            .set(u64::try_from(count).unwrap_or(u64::MAX));
    }
    registry.register(
        "market_unmanaged",
        "Cgroups that should be managed but are not",
        unmanaged,
    );
}

fn counted(registry: &mut Registry, view: &View) {
    let mut count = |name: &str, help: &str, value: u64| {
        let family = Family::<NodeLabel, Counter>::default();
        family.get_or_create(&of(view)).inc_by(value);
        registry.register(name, help, family);
    };
    count("market_writes", "Limits written", view.writes);
    count("market_clearings", "Clearings", view.clearings);
    count(
        "market_misses",
        "Minutes in which a pod was throttled although it had its whole need",
        view.misses,
    );
    count(
        "market_skipped",
        "Clearings skipped because they were late",
        view.skipped,
    );
    let over = Family::<NodeLabel, Counter<f64, AtomicU64>>::default();
    over.get_or_create(&of(view))
        .inc_by(ratio(view.over_ms, 1_000));
    registry.register_with_unit(
        "market_over_capacity",
        "Time in which the sum of limits exceeded the capacity",
        Unit::Seconds,
        over,
    );
}

fn by_pod<N>(
    registry: &mut Registry,
    (name, help): (&str, &str),
    rows: &[Row<'_>],
    value: impl Fn(&Row<'_>) -> Option<N>,
) where
    N: EncodeGaugeValue + Debug + Send + Sync + 'static,
    AtomicU64: Atomic<N>,
{
    let family = Family::<PodLabels, Gauge<N, AtomicU64>>::default();
    for row in rows {
        if let Some(value) = value(row) {
            family.get_or_create(&row.labels()).set(value);
        }
    }
    registry.register(name, help, family);
}

fn rows(view: &View) -> Vec<Row<'_>> {
    let cleared = view.clearing.as_ref().map(|clearing| &clearing.cleared);
    let shares: BTreeMap<&str, &Share> = cleared
        .into_iter()
        .flat_map(|cleared| &cleared.shares)
        .map(|share| (&*share.id, share))
        .collect();
    let standings = view.standings.iter().take(POD_LABELS_MAX);
    standings
        .map(|standing| Row {
            standing,
            share: shares.get(standing.id.as_str()).copied(),
        })
        .collect()
}

impl Row<'_> {
    fn labels(&self) -> PodLabels {
        PodLabels {
            pod: self.standing.id.clone(),
            namespace: String::new(),
        }
    }

    /// A held pod needs and gets its present limit.
    fn need_milli(&self) -> u64 {
        let share = self.share.map(|share| share.need_milli);
        share.unwrap_or(self.standing.bidder.limit_milli)
    }

    fn allocated_milli(&self) -> u64 {
        let share = self.share.map(|share| share.allocated_milli);
        share.unwrap_or(self.standing.bidder.limit_milli)
    }
}

fn of(view: &View) -> NodeLabel {
    NodeLabel {
        node: view.node.clone(),
    }
}

/// Returns `part / whole`, or 0 if `whole` is 0.
fn ratio(part: u64, whole: u64) -> f64 {
    let number = |value: u64| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    if whole == 0 {
        return 0.0;
    }
    number(part) / number(whole)
}
