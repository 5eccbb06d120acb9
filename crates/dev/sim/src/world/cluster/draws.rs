//! Random budgets, nodes and runs, some of them wrong.
//!
//! A family of an organisation and its teams, and a lab of another family that lends to the teams, use
//! two clusters.

use bursar_budget::spec::{OnExhaustion, Pattern, Sharing};
use bursar_budget::{
    AggregateCap, Budget, BudgetId, Envelope, EnvelopeId, Lending, Renew, Selector,
};
use bursar_cluster::{Change, Command, Funding, Run};
use bursar_engine::inventory::{CLUSTER, DOMAIN, FLAVOR, Node, REGION};
use bursar_engine::{Change as AnyChange, Command as AnyCommand, spine};
use bursar_units::{Instant, Label, Millis, ObjectName, ScopedName};

use super::super::World;
use super::super::bookkeeper::WRONG;
use crate::rng::Rng;

const NAMESPACE: &str = "sim";
const H100: &str = "h100";
/// Teams; the next numbers are the organisation and the lab.
const TEAMS: u64 = 3;
const ORGANISATION: u64 = TEAMS;
const LAB: u64 = TEAMS + 1;
const NODES: u64 = 6;
/// Regions with the cluster in each.
const CLUSTERS: [(&str, &str); 2] = [("eu", "a"), ("us", "b")];
/// Kinds of mistakes of a budget.
const MISTAKES: u64 = 8;

impl World<'_> {
    /// A command of a person, for these live runs.
    pub(super) fn draw_use(&mut self, live: &[ScopedName], now: Instant) -> Option<AnyCommand> {
        // A world begins with nodes and budgets.
        let drawn = match self.cluster.uses {
            1..=4 => 3,
            5..=9 => 0,
            _ => self.rng.below(36),
        };
        let changes: Vec<AnyChange> = match drawn {
            0 | 1 => vec![Change::SetBudget(self.draw_budget(now)?).into()],
            2 => vec![Change::SetBudget(self.draw_budget_edit()?).into()],
            3 | 4 => vec![spine::Change::SetNode(self.draw_node()?).into()],
            5 => vec![
                spine::Change::DropNode {
                    name: self.node_name()?,
                }
                .into(),
            ],
            6 => return self.draw_cancel(live),
            7 => return self.draw_rotation(),
            8 => vec![
                Change::DropBudget {
                    budget: self.budget_id()?,
                }
                .into(),
            ],
            9 => return self.draw_edit(live),
            10 => self.draw_wrong(now)?,
            11 => vec![
                Change::SetBudget(self.draw_budget(now)?).into(),
                Change::SetRun(self.draw_run()?).into(),
                spine::Change::SetNode(self.draw_node()?).into(),
            ],
            12 => vec![Change::StartRun(self.draw_run()?).into()],
            _ => vec![Change::SetRun(self.draw_run()?).into()],
        };
        Some(spine::Command::change(changes).into())
    }

    /// The cancel of a live run.
    pub(super) fn draw_cancel(&mut self, live: &[ScopedName]) -> Option<AnyCommand> {
        let run = self.rng.pick(live)?.clone();
        Some(Command::CancelRun { run, uid: None }.into())
    }

    fn draw_rotation(&mut self) -> Option<AnyCommand> {
        let envelope = self.envelope_id()?;
        Some(
            Command::RotateEnvelope {
                envelope,
                idempotency: None,
                reason: None,
            }
            .into(),
        )
    }

    /// An edit of a live run: other values of the fields that may change.
    fn draw_edit(&mut self, live: &[ScopedName]) -> Option<AnyCommand> {
        let name = self.rng.pick(live)?.clone();
        let mut run = self.checker.run(&name)?;
        run.priority = i32::try_from(self.rng.below(5)).ok()?;
        run.max_duration = self.draw_max_duration();
        Some(spine::Command::change([Change::SetRun(run)]).into())
    }

    fn draw_budget(&mut self, now: Instant) -> Option<Budget> {
        let number = self.rng.below(LAB + 1);
        let envelopes = (0..self.rng.between(1, 2)).map(|e| self.draw_envelope(number, e, now));
        let envelopes: Option<Vec<Envelope>> = envelopes.collect();
        let mut budget = Budget {
            namespace: ObjectName::new(NAMESPACE).ok()?,
            name: ObjectName::new(&format!("b{number}")).ok()?,
            owner: owner(number)?,
            parents: if number < TEAMS {
                vec![owner(ORGANISATION)?]
            } else {
                Vec::new()
            },
            envelopes: envelopes?,
            aggregate_caps: Vec::new(),
            paused: self.rng.once_in(12),
        };
        if self.rng.once_in(3) {
            let cap = self.draw_cap(&budget, now)?;
            budget.aggregate_caps.push(cap);
        }
        Some(budget)
    }

    /// A declared budget with one other value.
    fn draw_budget_edit(&mut self) -> Option<Budget> {
        let known = self.checker.clusters().accounts().budgets();
        let known: Vec<Budget> = known.cloned().collect();
        let mut budget = self.rng.pick(&known)?.clone();
        let envelope = budget.envelopes.first_mut()?;
        match self.rng.below(5) {
            0 => envelope.sharing = Sharing::None,
            1 => envelope.lending = None,
            2 => envelope.concurrency = self.rng.between(1, 32),
            3 => envelope.gpu_hours_max = Some(self.rng.between(1, 3)),
            _ => budget.paused = !budget.paused,
        }
        Some(budget)
    }

    /// A cap over the first envelope of a budget, and over some of its other and its owner's
    /// descendants' ones.
    fn draw_cap(&mut self, budget: &Budget, now: Instant) -> Option<AggregateCap> {
        let own = budget.envelopes.iter().map(|e| budget.envelope_id(e));
        let known = self.checker.clusters().accounts().budgets();
        let below = known.filter(|known| known.parents.contains(&budget.owner));
        let below = below.flat_map(|known| known.envelopes.iter().map(|e| known.envelope_id(e)));
        let mut envelopes: Vec<EnvelopeId> = own.chain(below).collect();
        let rng = &mut self.rng;
        let mut number = 0;
        envelopes.retain(|_| {
            number += 1;
            number == 1 || rng.once_in(2)
        });
        let (start, end, renew) = draw_window(rng, now);
        // By hours, by GPUs, or by both.
        let bound = rng.below(3);
        Some(AggregateCap {
            name: ObjectName::new("cap").ok()?,
            flavor: Label::new(H100).ok()?,
            envelopes,
            concurrency_max: (bound != 0).then(|| rng.one_of([2, 8, 20, 60])),
            gpu_hours_max: (bound != 1).then(|| rng.between(1, 3)),
            start,
            end,
            renew,
        })
    }

    /// A change with a budget that has a mistake: nothing of it may be recorded.
    fn draw_wrong(&mut self, now: Instant) -> Option<Vec<AnyChange>> {
        let wrong = ObjectName::new(WRONG).ok()?;
        let mut budget = self.draw_budget(now)?;
        let cap = self.draw_cap(&budget, now)?;
        budget.name = wrong.clone();
        let own = budget.envelope_id(budget.envelopes.first()?);
        let mut cap = AggregateCap {
            envelopes: vec![own],
            ..cap
        };
        let first = budget.envelopes.first_mut()?;
        match self.rng.below(MISTAKES) {
            0 => first.concurrency = 0,
            1 => (first.start, first.end) = (Some(now), Some(now)),
            2 => (first.end, first.renew) = (None, Some(Renew::Day)),
            3 => {
                let again = first.clone();
                budget.envelopes.push(again);
            }
            4 => budget.parents = vec![budget.owner.clone()],
            5 => cap.envelopes.clear(),
            6 => (cap.concurrency_max, cap.gpu_hours_max) = (None, None),
            // Nobody descends from this owner.
            _ => {
                budget.owner = Label::new("stranger").ok()?;
                cap.envelopes.push(self.envelope_id()?);
            }
        }
        budget.aggregate_caps = vec![cap];
        let mut run = self.draw_run()?;
        run.name = wrong;
        let mut changes = vec![Change::SetRun(run).into(), Change::SetBudget(budget).into()];
        if self.rng.once_in(2) {
            changes.reverse();
        }
        Some(changes)
    }

    fn draw_envelope(&mut self, of: u64, number: u64, now: Instant) -> Option<Envelope> {
        let rng = &mut self.rng;
        let lends = of == LAB || rng.once_in(3);
        let to = if lends {
            vec![Pattern::new("org:*").ok()?]
        } else {
            Vec::new()
        };
        let (start, end, renew) = draw_window(rng, now);
        let selector = if rng.once_in(3) {
            draw_selector(rng)?
        } else {
            Selector::default()
        };
        Some(Envelope {
            name: ObjectName::new(&format!("e{number}")).ok()?,
            flavor: Label::new(H100).ok()?,
            selector,
            concurrency: if rng.once_in(2) {
                rng.between(1, 12)
            } else {
                rng.one_of([16, 32, 64])
            },
            gpu_hours_max: rng.once_in(2).then(|| rng.between(1, 3)),
            start,
            end,
            renew,
            sharing: if rng.once_in(4) {
                Sharing::None
            } else {
                Sharing::Family
            },
            lending: lends.then(|| Lending {
                allow: true,
                to,
                concurrency_max: rng.once_in(2).then(|| rng.between(1, 4)),
                gpu_hours_max: rng.once_in(4).then_some(1),
            }),
            on_exhaustion: if rng.once_in(2) {
                OnExhaustion::End
            } else {
                OnExhaustion::Demote
            },
            admission_horizon: Some(Millis::from_secs(rng.one_of([10, 10, 60, 600]))),
        })
    }

    fn draw_node(&mut self) -> Option<Node> {
        let name = self.node_name()?;
        let domain = format!("rack-{}", self.rng.below(2));
        let (region, cluster) = *self.rng.pick(&CLUSTERS)?;
        let labels = [
            (REGION, region),
            (CLUSTER, cluster),
            (DOMAIN, &domain),
            (FLAVOR, H100),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(Node {
            name,
            cpu_milli: 8_000,
            memory_bytes: 1 << 33,
            gpus: self.rng.one_of([2, 4, 8, 32]),
            labels: labels.into(),
            unschedulable: self.rng.once_in(5),
        })
    }

    fn draw_run(&mut self) -> Option<Run> {
        self.cluster.runs += 1;
        let number = self.cluster.runs;
        let rng = &mut self.rng;
        let gpus = rng.one_of([1, 2, 4, 8, 24]);
        let pod = rng.one_of([1, 2, 4]).min(gpus);
        let spread = rng.once_in(4);
        let allow_borrow = rng.once_in(3);
        let sponsor = rng.one_of([0, 1, 2, LAB, LAB]);
        let sponsors = allow_borrow.then(|| owner(sponsor)).flatten();
        let location = if rng.once_in(4) {
            draw_selector(rng)?
        } else {
            Selector::default()
        };
        let run = Run {
            namespace: ObjectName::new(NAMESPACE).ok()?,
            // Names of ended runs may be used again.
            name: ObjectName::new(&format!("r{}", number % 40)).ok()?,
            owner: owner(rng.below(TEAMS))?,
            flavor: Label::new(H100).ok()?,
            total_gpus: gpus,
            pod_gpus: Some(pod),
            group_gpus: spread.then_some(pod),
            spread,
            location,
            funding: Funding {
                allow_borrow,
                borrow_gpus_max: rng.once_in(4).then(|| rng.between(1, 4)),
                sponsors: sponsors.into_iter().collect(),
            },
            expected_duration: rng
                .once_in(2)
                .then(|| Millis::from_secs(rng.between(1, 600))),
            max_duration: None,
            priority: i32::try_from(rng.below(3)).ok()?,
            grace: Some(Millis::from_secs(rng.below(5))),
            template: None,
        };
        let max_duration = self.draw_max_duration();
        Some(Run {
            max_duration,
            ..run
        })
    }

    fn draw_max_duration(&mut self) -> Option<Millis> {
        let rng = &mut self.rng;
        rng.once_in(3)
            .then(|| Millis::from_secs(rng.between(6, 300)))
    }

    fn node_name(&mut self) -> Option<ObjectName> {
        ObjectName::new(&format!("gpu-{}", self.rng.below(NODES))).ok()
    }

    fn budget_id(&mut self) -> Option<BudgetId> {
        BudgetId::new(&format!("{NAMESPACE}/b{}", self.rng.below(LAB + 1))).ok()
    }

    fn envelope_id(&mut self) -> Option<EnvelopeId> {
        let budget = self.budget_id()?;
        EnvelopeId::new(&format!("{}/e{}", budget.as_str(), self.rng.below(2))).ok()
    }
}

/// Start, end and repetition of a window.
fn draw_window(rng: &mut Rng, now: Instant) -> (Option<Instant>, Option<Instant>, Option<Renew>) {
    let minutes = |count: u64| Millis::from_secs(60 * count);
    let start = rng.once_in(8).then(|| now.after(minutes(rng.below(5))));
    let end = rng
        .once_in(3)
        .then(|| now.after(minutes(rng.between(6, 40))));
    let renew = end.is_some() && rng.once_in(2);
    (start, end, renew.then_some(Renew::Day))
}

/// One of the clusters, or its region.
fn draw_selector(rng: &mut Rng) -> Option<Selector> {
    let (region, cluster) = *rng.pick(&CLUSTERS)?;
    Some(Selector {
        region: Some(Label::new(region).ok()?),
        cluster: rng.once_in(2).then(|| Label::new(cluster).ok()).flatten(),
        domain: None,
    })
}

/// A team, the organisation above all teams, or the lab.
fn owner(number: u64) -> Option<Label> {
    let name = match number {
        ORGANISATION => "org".to_owned(),
        LAB => "lab".to_owned(),
        team => format!("org:team-{team}"),
    };
    Label::new(&name).ok()
}
