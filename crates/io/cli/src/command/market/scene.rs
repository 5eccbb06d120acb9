//! Conversion of an API answer about a node into the types of `market::explain`.

use bursar_client::api::{MarketActs, MarketKind, MarketPod, MarketStep, NodeMarket};
use bursar_market::clear::{BoundBy, Share, Step};
use bursar_market::explain::{Asked, Evidence, Home, Scene};
use bursar_market::kernel::Level;
use bursar_market::node::Held;
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
            MarketStep::Rung => {
                let rung = market.rung.unwrap_or(market.windows);
                Step::Rung(usize::try_from(rung).unwrap_or(usize::MAX))
            }
            MarketStep::Shared => Step::Shared(level),
            MarketStep::Overload => Step::Overload,
        },
        allocatable_milli: market.allocatable_milli,
        unmanaged_milli: market.unmanaged_milli,
        held_milli: market.held_milli,
        capacity_milli: market.capacity_milli,
        pods: u64::try_from(took_part.count()).unwrap_or(u64::MAX),
        need_milli: market.need_milli,
        min_milli: market.min_milli,
        windows: market.windows,
        interval_ms: market.agent.interval_ms,
        asking: market
            .pods
            .iter()
            .filter(|pod| pod.asked.is_some_and(|asked| asked.asks))
            .map(|pod| pod.pod.clone())
            .collect(),
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
        need: None,
        bid: pod.bid,
        allocated_milli: pod.allocated_milli,
        bound_by: pod.bound_by.unwrap_or(BoundBy::Need),
    }
}

/// Measurements and limits of one pod.
pub(in crate::command) fn evidence(market: &NodeMarket, pod: &MarketPod, now: Instant) -> Evidence {
    let asked = pod.asked.map(|asked| Asked {
        milli: asked.ask_milli,
        firm_milli: asked.firm_milli,
        used_milli: asked.used_milli,
        throttled_permille: asked.throttled_permille,
        size_milli: asked.size_milli,
        size_s: market.agent.size_ms / 1_000,
        is_stepped: asked.stepped,
        asks: asked.asks,
    });
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
        asked,
        left_out: pod.left_out,
        changed_s: pod.since.map(|since| now.since(since).ms() / 1_000),
        cooldown_s: market.agent.cooldown_ms / 1_000,
        max_step: market.agent.max_step,
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
    pod.used_milli.is_some()
}
