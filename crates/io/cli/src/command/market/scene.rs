//! Conversion of an API answer about a node into the types of `market::explain`.

use bursar_client::api::{MarketActs, MarketKind, MarketPod, MarketStep, NodeMarket};
use bursar_market::clear::{BoundBy, Share, Step};
use bursar_market::explain::{Evidence, Home, Scene, guarded};
use bursar_market::kernel::Level;
use bursar_market::need::Need;
use bursar_market::node::Held;
use bursar_market::sense::Shown;
use bursar_units::Instant;

pub(in crate::command) fn scene(market: &NodeMarket) -> Scene {
    let level = market.level.map_or(Level::Full, |level| Level::At {
        numerator: level.numerator,
        denominator: u128::from(level.denominator),
    });
    let took_part = market.pods.iter().filter(|pod| pod.bound_by.is_some());
    Scene {
        node: Some(market.node.clone()),
        acts: market.acts == MarketActs::Act,
        mode: market.mode,
        price_ppm: market.price_ppm,
        policy: market.policy,
        quantum_milli: market.quantum_milli,
        step: match market.step {
            MarketStep::AllFits => Step::AllFits,
            MarketStep::Shared => Step::Shared(level),
            MarketStep::GuardsYield => Step::GuardsYield,
            MarketStep::Overload => Step::Overload,
        },
        allocatable_milli: market.allocatable_milli,
        unmanaged_milli: market.unmanaged_milli,
        held_milli: market.held_milli,
        capacity_milli: market.capacity_milli,
        pods: u64::try_from(took_part.count()).unwrap_or(u64::MAX),
        need_milli: market.need_milli,
        min_milli: market.min_milli,
        guarded: guarded(market.pods.iter().filter_map(|pod| pod.bound_by)),
    }
}

/// Share of one pod. A held pod took no part: its share is its current limit.
pub(in crate::command) fn share(market: &NodeMarket, pod: &MarketPod) -> Share {
    let quantum = market.quantum_milli.max(1);
    let (min, max) = (pod.wrote.request_milli, pod.wrote.limit_milli);
    let min = min.min(max);
    Share {
        id: pod.pod.as_str().into(),
        min_milli: min.div_ceil(quantum).saturating_mul(quantum),
        max_milli: max / quantum * quantum,
        need_milli: pod.need_milli,
        need: pod.demand.map(|demand| Need {
            min_milli: min,
            range_milli: max - min,
            demand_ppm: demand.demand_ppm,
            raw_milli: demand.raw_milli,
            headroom_ppm: demand.headroom_ppm,
            uncapped_milli: demand.uncapped_milli,
            milli: demand.uncapped_milli.min(max),
        }),
        bid: pod.bid,
        allocated_milli: pod.allocated_milli,
        bound_by: pod.bound_by.unwrap_or(BoundBy::Need),
    }
}

/// Measurements and limits of one pod.
pub(in crate::command) fn evidence(market: &NodeMarket, pod: &MarketPod, now: Instant) -> Evidence {
    let shown = match (pod.demand, pod.used_milli_max) {
        (Some(demand), _) => Shown::Demand {
            milli: demand.peak_milli,
        },
        (None, Some(milli)) => Shown::Use { milli },
        (None, None) => Shown::Nothing,
    };
    let held = pod.held.as_ref().map(|held| held.reason.as_str());
    Evidence {
        home: match pod.kind {
            MarketKind::Kubernetes => Home::Kubernetes,
            MarketKind::Declared => Home::Declared,
            MarketKind::Execution => Home::Execution {
                booking: booking_of(pod).to_owned(),
            },
        },
        limit_milli: Some(pod.applied_milli),
        original_milli: pod.original_milli,
        shown,
        window_s: pod.demand.map_or(0, |demand| demand.window_ms / 1_000),
        changed_s: pod.cooling_since.map(|since| now.since(since).ms() / 1_000),
        cooldown_s: market.agent.cooldown_ms / 1_000,
        held: Held::ALL
            .into_iter()
            .find(|known| Some(known.word()) == held),
    }
}

/// Booking id of the pod of an execution.
pub(in crate::command) fn booking_of(pod: &MarketPod) -> &str {
    pod.pod.strip_prefix("e-").unwrap_or(&pod.pod)
}

/// True once its counters have been read.
pub(in crate::command) fn is_measured(pod: &MarketPod) -> bool {
    pod.demand.is_some() || pod.used_milli_max.is_some()
}
