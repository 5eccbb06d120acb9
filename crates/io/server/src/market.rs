//! The CPU market of this node: its state, and the restore of original limits.
//!
//! The agent decides and acts by itself. This module reads its view, asks it to restore, and gives
//! it the list of running executions.

pub mod metrics;
mod past;
pub(crate) mod routes;
pub(crate) mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bursar_client::api::{
    FailedPod, MarketActs, MarketAgent, MarketAsk, MarketHeld, MarketKind, MarketLevel, MarketPod,
    MarketPodPoint, MarketPoint, MarketStep, NodeMarket, ObservedGroup, RestoreAnswer, RestoredPod,
    Since, UnmanagedPods, Wrote,
};
use bursar_client::{Code, Problem, nearest};
use bursar_engine::booking::execution::Stage;
use bursar_ledger::pipeline::Ledger;
use bursar_market::clear::Step;
use bursar_market::kernel::Level;
use bursar_market::node::Standing;
use bursar_node::market::{Acts, Agent, Deed, Execution, Executions, Kind, Point, View, Why};
use bursar_units::causes::chain;
use bursar_units::{INTEGER_MAX, Instant, ObjectName};

use crate::caller::Caller;
use crate::log;
use crate::reporter::Reporter;
use crate::service::{Answer, Service, WriteMode};

/// Prefix of the pod names of executions.
const EXECUTION: &str = "e-";
/// Unmanaged pods that are named per reason.
const UNMANAGED_NAMES_MAX: usize = 20;
/// Time that a restore waits for its report to the ledger.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

impl Service {
    /// Adds the agent of this node's market.
    #[must_use]
    pub fn sharing_cpu(self, agent: Arc<Agent>) -> Self {
        Self {
            market: Some(agent),
            ..self
        }
    }

    /// Reads the market of a node, with its history from `since` on.
    pub(crate) fn market(
        &self,
        caller: &Caller,
        node: &ObjectName,
        since: Option<Since>,
    ) -> Result<Answer<NodeMarket>, Problem> {
        caller.require_view("see who shares the CPU of a node")?;
        let agent = self.agent_of(node)?;
        Ok(Answer::ok(self.record(), node_market(&agent.view(), since)))
    }

    /// Restores every original limit on a node, and stops acting there.
    pub(crate) async fn restore_node(
        &self,
        caller: &Caller,
        node: &ObjectName,
        mode: WriteMode,
    ) -> Result<Answer<RestoreAnswer>, Problem> {
        caller.require_operate("restore the limits of a node")?;
        let agent = Arc::clone(self.agent_of(node)?);
        let deed = match mode {
            WriteMode::Real => Deed::Real,
            WriteMode::DryRun => Deed::DryRun,
        };
        let shared = Arc::clone(&agent);
        let result = match tokio::task::spawn_blocking(move || shared.restore(deed)).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => {
                let detail = format!("the limits cannot be restored: {}", chain(&error));
                return Err(Problem::new(Code::Unavailable, detail));
            }
            Err(_) => {
                let detail = "restoring the limits panicked";
                return Err(Problem::new(Code::Internal, detail));
            }
        };
        if mode == WriteMode::Real {
            self.report(&agent).await;
            let (caller, count) = (caller.name.as_str(), result.restored.len());
            tracing::info!(caller, count, "{}", log::MARKET_RESTORED);
        }
        let restored = result.restored.into_iter();
        let failed = result.failed.into_iter();
        let body = RestoreAnswer {
            node: node.to_string(),
            restored: restored
                .map(|(pod, from, to)| RestoredPod {
                    pod,
                    from_milli: from.milli_ceil(),
                    to_milli: to.milli_ceil(),
                })
                .collect(),
            failed: failed
                .map(|(pod, reason)| FailedPod { pod, reason })
                .collect(),
            dry_run: mode == WriteMode::DryRun,
        };
        Ok(Answer::ok(self.record(), body))
    }

    /// Reports a restore to the ledger, so that the caller finds it there. If the ledger is
    /// unavailable, the reporter does it later.
    async fn report(&self, agent: &Agent) {
        if let Some(reporter) = Reporter::new(&self.ledger, agent.node()) {
            let settled = reporter.settle(agent);
            let _later = tokio::time::timeout(REPORTED_WITHIN, settled).await;
        }
    }

    fn agent_of(&self, node: &ObjectName) -> Result<&Arc<Agent>, Problem> {
        let Some(agent) = &self.market else {
            return Err(Problem {
                changes: vec!["start it with `bursar up --market observe`".to_owned()],
                ..Problem::new(Code::NotFound, "this server has no CPU market")
            });
        };
        if agent.node() == node.as_str() {
            return Ok(agent);
        }
        let detail = format!("no agent reports for node `{node}`");
        Err(Problem {
            suggestion: nearest(node.as_str(), [agent.node()]).map(str::to_owned),
            changes: vec!["`bursar node list` shows the nodes with an agent".to_owned()],
            ..Problem::new(Code::NotFound, detail)
        })
    }
}

/// Returns a source of the running executions, which the agent reads at each clearing.
pub fn executions_to_share(ledger: &Ledger) -> Executions {
    let name = ledger.view().read().spine.ledger.clone();
    let ledger = ledger.clone();
    let list = move || {
        let state = ledger.view().read();
        let running = state.bookings.executions();
        let running = running.filter(|(_, _, progress)| progress.stage == Stage::Running);
        running
            .filter_map(|(id, _, _)| {
                let request = state.bookings.request(id)?;
                let cpu_milli = request.cpu_milli;
                let limit_milli = request.cpu_limit_milli;
                Some(Execution {
                    id: id.to_string(),
                    cpu_milli,
                    limit_milli: limit_milli.or((cpu_milli > 0).then_some(cpu_milli)),
                })
            })
            .collect()
    };
    Executions {
        ledger: name,
        list: Arc::new(list),
    }
}

/// Converts an agent's view.
pub(crate) fn node_market(view: &View, since: Option<Since>) -> NodeMarket {
    let clearing = view.clearing.as_ref();
    let cleared = clearing.map(|clearing| &clearing.cleared);
    let (step, level) = cleared.map_or_else(Default::default, |cleared| step(cleared.step));
    let rung = cleared.and_then(|cleared| cleared.step.rung());
    let (acts, acts_reason) = match &view.acts {
        Acts::Yes => (MarketActs::Act, None),
        Acts::Told => (MarketActs::Observe, None),
        Acts::Cannot(reason) => (MarketActs::Observe, Some(reason.clone())),
    };
    let standings = view.standings.iter();
    let from_ms = since.map(|since| since.ms(view.at_ms));
    let points = view.history.iter();
    let points = points.filter(|point| from_ms.is_some_and(|from_ms| from_ms <= point.at_ms));
    NodeMarket {
        node: view.node.clone(),
        at: Instant::from_ms(view.cleared_ms.unwrap_or(view.at_ms)),
        mode: clearing.map_or_else(Default::default, |last| last.label),
        cleared_mode: cleared.map_or_else(Default::default, |cleared| cleared.mode),
        capacity_milli: cleared.map_or(0, |cleared| cleared.capacity_milli),
        price_ppm: cleared.map_or(0, |cleared| cleared.price_ppm),
        allocatable_milli: clearing.map_or(0, |last| last.allocatable_milli),
        unmanaged_milli: clearing.map_or(0, |last| last.unmanaged_milli),
        held_milli: clearing.map_or(0, |last| last.held_milli),
        min_milli: cleared.map_or(0, |cleared| cleared.min_milli),
        need_milli: cleared.map_or(0, |cleared| cleared.need_milli),
        over_milli: view.over_milli,
        policy: view.settings.policy,
        quantum_milli: view.settings.quantum_milli,
        step,
        level,
        rung: rung.and_then(|rung| u64::try_from(rung).ok()),
        windows: u64::try_from(view.settings.windows).unwrap_or(u64::MAX),
        acts,
        acts_reason,
        pods: standings.map(|standing| pod(view, standing)).collect(),
        observed: observed(view),
        unmanaged: unmanaged(&view.unmanaged),
        agent: agent(view),
        history: points.map(|point| past(point)).collect(),
    }
}

fn pod(view: &View, standing: &Standing) -> MarketPod {
    let share = view
        .clearing
        .as_ref()
        .and_then(|clearing| clearing.cleared.share(&standing.id));
    let (bidder, params) = (&standing.bidder, standing.bidder.params);
    let limit_milli = bidder.limit_milli;
    let asked = standing.estimate.map(|estimate| MarketAsk {
        ask_milli: estimate.ask_milli,
        firm_milli: estimate.firm_milli,
        used_milli: estimate.reading.used_milli,
        throttled_permille: estimate
            .reading
            .throttled
            .map(|throttled| throttled.permille()),
        size_milli: estimate.size_milli,
        asks: estimate.asks,
        stepped: estimate.is_stepped,
    });
    let at = |at_us| Instant::from_ms(view.wall_ms(at_us));
    MarketPod {
        pod: standing.id.clone(),
        kind: kind(view, &standing.id),
        wrote: Wrote {
            request_milli: params.min_milli,
            limit_milli: params.max_milli,
        },
        original_milli: standing.original.milli_ceil(),
        weight: params.weight,
        need_milli: share.map_or(limit_milli, |share| share.need_milli),
        allocated_milli: share.map_or(limit_milli, |share| share.allocated_milli),
        applied_milli: limit_milli,
        used_milli: standing.used_milli,
        throttled_permille: standing.throttled_permille.unwrap_or(0),
        pressure_hundredths: view
            .pressures
            .get(&standing.id)
            .map(|pressure| pressure.last_10s_hundredths),
        since: standing.changed_us.map(at),
        bound_by: share.map(|share| share.bound_by),
        left_out: standing.left_out,
        held: standing.held.map(|held| MarketHeld {
            reason: held.word().to_owned(),
            words: held.sentence().to_owned(),
        }),
        asked,
        bid: share.map_or(0, |share| share.bid),
    }
}

/// Origin of a pod; for one that is gone only its name shows it.
fn kind(view: &View, id: &str) -> MarketKind {
    match view.kinds.get(id) {
        Some(Kind::Execution) => MarketKind::Execution,
        None if id.starts_with(EXECUTION) => MarketKind::Execution,
        Some(Kind::Declared) | None => MarketKind::Declared,
    }
}

fn observed(view: &View) -> Vec<ObservedGroup> {
    let groups = view.observed.iter();
    groups
        .map(|group| ObservedGroup {
            pod: format!("/{}", group.group.display()),
            limit_milli: group.quota.and_then(|quota| quota.milli_ceil()),
            used_milli: group.used_milli,
            peak_milli: group.peak_milli,
            throttled_permille: group.throttled_permille,
        })
        .collect()
}

fn unmanaged(named: &[(String, Why)]) -> Vec<UnmanagedPods> {
    let mut by_reason: BTreeMap<Why, Vec<&str>> = BTreeMap::new();
    for (name, why) in named {
        by_reason.entry(*why).or_default().push(name);
    }
    let rows = by_reason.into_iter().map(|(why, names)| UnmanagedPods {
        reason: why.word().to_owned(),
        words: why.sentence().to_owned(),
        count: u64::try_from(names.len()).unwrap_or(u64::MAX),
        pods: names
            .into_iter()
            .take(UNMANAGED_NAMES_MAX)
            .map(str::to_owned)
            .collect(),
    });
    rows.collect()
}

fn agent(view: &View) -> MarketAgent {
    let settings = &view.settings;
    MarketAgent {
        interval_ms: view.interval_ms,
        size_ms: settings
            .size_block
            .saturating_mul(view.interval_ms)
            .saturating_mul(2),
        writes_per_hour: settings.writes_per_hour,
        cooldown_ms: settings.cooldown_us / 1_000,
        max_step: settings.max_step,
        cleared_at: view.cleared_ms.map(Instant::from_ms),
        clearings: view.clearings,
        writes: view.writes,
        over_ms: view.over_ms,
        error: view.error.clone(),
    }
}

fn past(point: &Point) -> MarketPoint {
    let pods = point.pods.iter();
    MarketPoint {
        at: Instant::from_ms(point.at_ms),
        mode: point.label,
        price_ppm: point.price_ppm,
        capacity_milli: point.capacity_milli,
        pods: pods
            .map(|pod| MarketPodPoint {
                pod: pod.pod.to_string(),
                need_milli: pod.need_milli,
                limit_milli: pod.limit_milli,
                used_milli: pod.used_milli,
            })
            .collect(),
    }
}

fn step(step: Step) -> (MarketStep, Option<MarketLevel>) {
    match step {
        Step::Overload => (MarketStep::Overload, None),
        Step::Rung(_) => (MarketStep::Rung, None),
        Step::Shared(Level::Full) => (MarketStep::Shared, None),
        Step::Shared(Level::At {
            numerator,
            denominator,
        }) => {
            // A number that a double cannot hold exactly is omitted.
            let denominator = u64::try_from(denominator).ok();
            let denominator = denominator.filter(|denominator| *denominator <= INTEGER_MAX);
            let level = denominator.map(|denominator| MarketLevel {
                numerator,
                denominator,
            });
            (MarketStep::Shared, level)
        }
    }
}
