//! What is counted of the CPU market: the seed's five names, and ours beside them (design 10).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use bursar_market::clear::{Mode, Share};
use bursar_market::need::PPM;
use bursar_market::node::{Held, Standing};
use bursar_node::market::{Acts, View, Why};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Pods that have labels of their own, in the order of their names; a kubelet runs no more.
pub const POD_LABELS_MAX: usize = 1_000;

/// Every metric of the market as it is written, for dashboards and alerts to be tested against.
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

/// As the seed has them. On plain Linux the pod is a cgroup, which has no namespace.
#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct PodLabels {
    pod: String,
    namespace: String,
}

type Whole = Gauge<u64, AtomicU64>;
type Ratio = Gauge<f64, AtomicU64>;

/// What one pod shows.
struct Row<'a> {
    standing: &'a Standing,
    /// What the last clearing gave it, unless it is held.
    share: Option<&'a Share>,
}

/// All metrics of a market as text, for an agent without a server.
pub fn text(view: &View) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    register(&mut registry, view);
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    encode_eof(&mut text)?;
    Ok(text)
}

/// Adds the metrics of a market to others.
pub(crate) fn register(registry: &mut Registry, view: &View) {
    let rows = rows(view);
    of_seed(registry, view, &rows);
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

fn of_seed(registry: &mut Registry, view: &View, rows: &[Row<'_>]) {
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
        "Which mode the node is in: 1 for that one",
        modes,
    );
    let need = ("apex_need_milli", "What a pod needs, in millicores");
    by_pod(registry, need, rows, |row| Some(row.need_milli()));
    let got = ("apex_allocation_milli", "What it gets, in millicores");
    by_pod(registry, got, rows, |row| Some(row.allocated_milli()));
    by_pod_ratio(
        registry,
        (
            "apex_nash_reduction_ratio",
            "How much of what it needs above its baseline it does not get",
        ),
        rows,
        |row| Some(ratio(row.share.map_or(0, Share::reduction_ppm), PPM)),
    );
    by_pod_ratio(
        registry,
        (
            "apex_headroom_utilization",
            "How much of what it gets it uses",
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
        "What a millicore is worth: 0 when nobody is held back",
        cleared.map_or(0, |cleared| cleared.price_ppm),
    );
    one(
        "market_capacity_milli",
        "What can be shared, in millicores",
        cleared.map_or(0, |cleared| cleared.capacity_milli),
    );
    let clearing = view.clearing.as_ref();
    one(
        "market_unmanaged_milli",
        "What those take who are not managed, in millicores",
        clearing.map_or(0, |clearing| clearing.unmanaged_milli),
    );
    one(
        "market_acts",
        "Whether limits are written",
        u64::from(view.acts == Acts::Yes),
    );
}

fn of_time(registry: &mut Registry, view: &View) {
    // An agent that never cleared is silent since its first look, not since 1970.
    let cleared_ms = view.cleared_ms.unwrap_or(view.at_ms);
    let last = Family::<NodeLabel, Whole>::default();
    last.get_or_create(&of(view)).set(cleared_ms / 1_000);
    registry.register(
        "market_last_clearing_seconds",
        "When the node was cleared last, or looked at first, in seconds since 1970",
        last,
    );
    let (_, clear_ms) = view.every_ms;
    let interval = Family::<NodeLabel, Ratio>::default();
    interval
        .get_or_create(&of(view))
        .set(ratio(clear_ms, 1_000));
    registry.register(
        "market_clearing_interval_seconds",
        "How often the node is cleared, in seconds",
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
    registry.register("market_held", "Pods that are left as they are", held);
    let unmanaged = Family::<ReasonLabels, Whole>::default();
    for why in Why::ALL {
        let count = view.unmanaged.iter().filter(|(_, is)| *is == why).count();
        unmanaged
            .get_or_create(&labels(why.word()))
            .set(u64::try_from(count).unwrap_or(u64::MAX));
    }
    registry.register(
        "market_unmanaged",
        "Cgroups that should be managed and are not",
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
        "market_skipped",
        "Looks and clearings that came too late to take place",
        view.skipped,
    );
    let over = Family::<NodeLabel, Counter<f64, AtomicU64>>::default();
    over.get_or_create(&of(view))
        .inc_by(ratio(view.over_ms, 1_000));
    registry.register_with_unit(
        "market_over_capacity",
        "How long the limits together exceeded what can be shared",
        Unit::Seconds,
        over,
    );
}

fn by_pod(
    registry: &mut Registry,
    (name, help): (&str, &str),
    rows: &[Row<'_>],
    value: impl Fn(&Row<'_>) -> Option<u64>,
) {
    let family = Family::<PodLabels, Whole>::default();
    for row in rows {
        if let Some(value) = value(row) {
            family.get_or_create(&row.labels()).set(value);
        }
    }
    registry.register(name, help, family);
}

fn by_pod_ratio(
    registry: &mut Registry,
    (name, help): (&str, &str),
    rows: &[Row<'_>],
    value: impl Fn(&Row<'_>) -> Option<f64>,
) {
    let family = Family::<PodLabels, Ratio>::default();
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

    /// Whoever is held needs and gets what it has.
    fn need_milli(&self) -> u64 {
        let share = self.share.map(|share| share.need_milli);
        share.unwrap_or(self.standing.limit_milli)
    }

    fn allocated_milli(&self) -> u64 {
        let share = self.share.map(|share| share.allocated_milli);
        share.unwrap_or(self.standing.limit_milli)
    }
}

fn of(view: &View) -> NodeLabel {
    NodeLabel {
        node: view.node.clone(),
    }
}

/// A part of a whole; 0 of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    let number = |value: u64| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    if whole == 0 {
        return 0.0;
    }
    number(part) / number(whole)
}
