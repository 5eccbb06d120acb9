//! Metrics of the ledger itself.

use std::sync::atomic::AtomicU64;

use bursar_engine::State;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Eq, PartialEq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: &'static str,
}

pub(crate) fn register(registry: &mut Registry, state: &State, lanes: (usize, usize)) {
    let mut one = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    one("ledger_records", "Records of the ledger", state.spine.head);
    one(
        "ledger_pruned_records",
        "Records whose payload was pruned",
        state.spine.pruned_below,
    );
    let intake = Family::<LaneLabel, Gauge<u64, AtomicU64>>::default();
    for (lane, waiting) in [("control", lanes.0), ("work", lanes.1)] {
        intake
            .get_or_create(&LaneLabel { lane })
            .set(u64::try_from(waiting).unwrap_or(u64::MAX));
    }
    registry.register("intake_waiting", "Commands waiting to be decided", intake);
}
