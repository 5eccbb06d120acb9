//! Effects of changes to budgets and runs, in one sentence each.

use std::collections::{BTreeMap, BTreeSet};

use bursar_client::api::FieldChange;
use bursar_engine::cluster::budget::{BudgetId, Funded, MeterId, RunUid};
use bursar_engine::cluster::{self, Event as ClusterEvent, Shown, Stage};
use bursar_engine::explain::Mood;
use bursar_engine::inventory::LABELS;
use bursar_engine::words::{count, hours, number};
use bursar_engine::{Event, Node, State};
use bursar_units::{Instant, ObjectName};

use super::answers::without_nodes;

/// Facts behind the effects.
pub(crate) struct Effects<'a> {
    /// State after the changes.
    pub(crate) state: &'a State,
    pub(crate) now: Instant,
    /// Events of the changes.
    pub(crate) events: &'a [Event],
    pub(crate) mood: Mood,
}

impl Effects<'_> {
    /// `in use 40, 8 GPUs go on unfunded`.
    pub(crate) fn of_budget(&self, budget: &BudgetId, fields: &[FieldChange]) -> Option<String> {
        let declared = self.state.clusters.accounts().budget(budget);
        let without_nodes = declared.map(|budget| without_nodes(self.state, budget));
        let parts: Vec<String> = self
            .in_use(budget, fields)
            .into_iter()
            .chain(self.unfunded(budget))
            .chain(without_nodes.into_iter().flatten())
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// `starts on 24 GPUs`, or what it waits for.
    pub(crate) fn of_run(&self, run: &Shown) -> Option<String> {
        let would = self.mood == Mood::Would;
        let gpus = count(run.run.total_gpus, "GPU");
        Some(match run.stage {
            Stage::Waiting => {
                let reason = self.state.clusters.wait_reason_of(self.now, &run.uid)?;
                let what = reason.waits_for();
                let verb = if would { "would wait" } else { "waits" };
                format!("{verb} for {what}")
            }
            Stage::Starting => {
                let verb = if would { "would start" } else { "starts" };
                format!("{verb} on {gpus}")
            }
            Stage::Running | Stage::Ending | Stage::Ended => return None,
        })
    }

    /// `8 GPUs in use, 6 above its 2: their runs go on`, for a node that lost GPUs below its leases or
    /// got another flavor or place.
    pub(crate) fn of_node(&self, before: &Node, after: &Node) -> Option<String> {
        let leased = self.state.clusters.nodes().leased(after.name.as_str());
        let leased = u64::try_from(leased.count()).unwrap_or(u64::MAX);
        let labels = |node: &Node| LABELS.map(|key| node.labels.get(key).cloned());
        let is_less = after.gpus < before.gpus && after.gpus < leased;
        if leased == 0 || (!is_less && labels(before) == labels(after)) {
            return None;
        }
        let above = match leased.saturating_sub(after.gpus) {
            0 => String::new(),
            above => format!(", {} above its {}", number(above), number(after.gpus)),
        };
        let go = match self.mood {
            Mood::Would => "would go",
            Mood::Did => "go",
        };
        let as_before = if labels(before) == labels(after) {
            ""
        } else {
            ", paid as before"
        };
        let in_use = count(leased, "GPU");
        Some(format!(
            "{in_use} in use{above}: their runs {go} on{as_before}"
        ))
    }

    /// Use of the meters whose bounds changed.
    fn in_use(&self, budget: &BudgetId, fields: &[FieldChange]) -> Vec<String> {
        let bounded: BTreeSet<(&str, &str, &str)> = fields
            .iter()
            .filter(|field| field.from.is_some() && field.to.is_some())
            .filter_map(|field| bound_of(&field.path))
            .collect();
        let is_one = bounded.len() == 1;
        let texts = bounded.into_iter().filter_map(|(list, name, field)| {
            let object = ObjectName::new(name).ok()?;
            let meter = match (list, field.starts_with("lending.")) {
                ("envelopes", false) => MeterId::Envelope(budget.envelope(&object)),
                ("envelopes", true) => MeterId::Lending(budget.envelope(&object)),
                _ => MeterId::Cap(budget.cap(&object)),
            };
            let view = self.state.clusters.accounts().meter(self.now, &meter)?;
            let whose = if is_one {
                String::new()
            } else {
                format!("{name} ")
            };
            Some(if field.ends_with("GPUHours") {
                let used = hours(view.accrued_gpu_ms);
                format!("{whose}used {used} GPU-hours")
            } else {
                format!("{whose}in use {}", number(view.gpus_used))
            })
        });
        texts.collect()
    }

    /// GPUs that lose an envelope of this budget and find no payer in the same record. A run that was
    /// unfunded before, or finds payers for as many GPUs as it loses, is not counted.
    fn unfunded(&self, budget: &BudgetId) -> Option<String> {
        let mut lost: BTreeMap<&RunUid, Lost> = BTreeMap::new();
        for event in self.events {
            match event {
                Event::Cluster(ClusterEvent::RunDemoted { of, claims, .. }) => {
                    let lost = lost.entry(&of.uid).or_default();
                    for claim in claims {
                        lost.all = lost.all.saturating_add(claim.gpus);
                        if claim.envelope.budget() == *budget {
                            lost.here = lost.here.saturating_add(claim.gpus);
                        }
                    }
                }
                Event::Cluster(ClusterEvent::RunFunded {
                    of,
                    claims,
                    cause: Funded::Refund,
                    ..
                }) => {
                    let gpus = claims.iter().map(|claim| claim.gpus).sum();
                    let lost = lost.entry(&of.uid).or_default();
                    lost.refunded = lost.refunded.saturating_add(gpus);
                }
                _ => {}
            }
        }
        let gpus: u64 = lost.values().map(Lost::unfunded).sum();
        let go = match (self.mood, gpus) {
            (_, 0) => return None,
            (Mood::Would, _) => "would go",
            (Mood::Did, 1) => "goes",
            (Mood::Did, _) => "go",
        };
        Some(format!("{} {go} on unfunded", count(gpus, "GPU")))
    }
}

/// GPUs of a run that lost their payers in a record.
#[derive(Default)]
struct Lost {
    all: u64,
    /// Those that one budget paid for.
    here: u64,
    /// GPUs that found payers again.
    refunded: u64,
}

impl Lost {
    fn unfunded(&self) -> u64 {
        self.all.saturating_sub(self.refunded).min(self.here)
    }
}

/// List, name and field of the path of a bound, as in `envelopes[h100].concurrency`.
fn bound_of(path: &str) -> Option<(&str, &str, &str)> {
    let (list, rest) = path.split_once('[')?;
    let (name, field) = rest.split_once("].")?;
    let is_bound = field.ends_with("oncurrency") || field.ends_with("GPUHours");
    is_bound.then_some((list, name, field))
}

/// The run of a change of one run, as the change left it.
pub(crate) fn only_run(answer: &bursar_engine::Answer) -> Option<&cluster::Shown> {
    match answer {
        bursar_engine::Answer::Changed(changed) => changed.first()?.run.as_deref(),
        bursar_engine::Answer::Run { run, .. } => Some(run),
        _ => None,
    }
}
