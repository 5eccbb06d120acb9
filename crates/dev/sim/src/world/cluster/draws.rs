//! Random budgets, nodes and runs, some of them wrong.

use bursar_budget::spec::{OnExhaustion, Pattern, Sharing};
use bursar_budget::{Budget, BudgetId, Envelope, EnvelopeId, Lending, Selector};
use bursar_cluster::{Change, Command, Funding, Run};
use bursar_engine::inventory::{CLUSTER, DOMAIN, FLAVOR, Node, REGION};
use bursar_engine::{Change as AnyChange, Command as AnyCommand, spine};
use bursar_units::{Instant, Label, Millis, ObjectName, ScopedName};

use super::super::World;

const NAMESPACE: &str = "sim";
const H100: &str = "h100";
const TEAMS: u64 = 3;
const NODES: u64 = 4;

impl World<'_> {
    /// A command of a person, for these live runs.
    pub(super) fn draw_use(&mut self, live: &[ScopedName], now: Instant) -> Option<AnyCommand> {
        // A world begins with nodes and budgets.
        let drawn = match self.cluster.uses {
            1..=3 => 3,
            4..=7 => 0,
            _ => self.rng.below(32),
        };
        let change: AnyChange = match drawn {
            0..=2 => Change::SetBudget(self.draw_budget(now)?).into(),
            3 | 4 => spine::Change::SetNode(self.draw_node()?).into(),
            5 => spine::Change::DropNode {
                name: self.node_name()?,
            }
            .into(),
            6 => return self.draw_cancel(live),
            7 => return self.draw_rotation(),
            8 => Change::DropBudget {
                budget: self.budget_id()?,
            }
            .into(),
            9 => return self.draw_edit(live),
            _ => Change::SetRun(self.draw_run()?).into(),
        };
        Some(spine::Command::change([change]).into())
    }

    /// The cancel of a live run.
    pub(super) fn draw_cancel(&mut self, live: &[ScopedName]) -> Option<AnyCommand> {
        let run = self.rng.pick(live)?.clone();
        Some(Command::CancelRun { run, uid: None }.into())
    }

    fn draw_rotation(&mut self) -> Option<AnyCommand> {
        let budget = self.budget_id()?;
        let envelope = EnvelopeId::new(&format!("{}/e0", budget.as_str())).ok()?;
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
        let team = self.rng.below(TEAMS + 1);
        let envelopes = (0..self.rng.between(1, 2)).map(|number| self.draw_envelope(number, now));
        let envelopes: Option<Vec<Envelope>> = envelopes.collect();
        Some(Budget {
            namespace: ObjectName::new(NAMESPACE).ok()?,
            name: ObjectName::new(&format!("b{team}")).ok()?,
            owner: owner(team)?,
            parents: if team < TEAMS {
                vec![owner(TEAMS)?]
            } else {
                Vec::new()
            },
            envelopes: envelopes?,
            aggregate_caps: Vec::new(),
            paused: self.rng.once_in(12),
        })
    }

    fn draw_envelope(&mut self, number: u64, now: Instant) -> Option<Envelope> {
        let rng = &mut self.rng;
        let minutes = |count: u64| Millis::from_secs(60 * count);
        let lends = rng.once_in(3);
        let to = if lends {
            vec![Pattern::new("org:*").ok()?]
        } else {
            Vec::new()
        };
        Some(Envelope {
            name: ObjectName::new(&format!("e{number}")).ok()?,
            flavor: Label::new(H100).ok()?,
            selector: Selector::default(),
            concurrency: rng.between(1, 12),
            gpu_hours_max: rng.once_in(2).then(|| rng.between(1, 3)),
            start: rng.once_in(8).then(|| now.after(minutes(rng.below(5)))),
            end: rng
                .once_in(3)
                .then(|| now.after(minutes(rng.between(6, 40)))),
            renew: None,
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
            on_exhaustion: if rng.once_in(3) {
                OnExhaustion::End
            } else {
                OnExhaustion::Demote
            },
            admission_horizon: Some(Millis::from_secs(rng.one_of([10, 60, 600, 3_600]))),
        })
    }

    fn draw_node(&mut self) -> Option<Node> {
        let name = self.node_name()?;
        let domain = format!("rack-{}", self.rng.below(2));
        let labels = [
            (REGION, "eu"),
            (CLUSTER, "a"),
            (DOMAIN, &domain),
            (FLAVOR, H100),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(Node {
            name,
            cpu_milli: 8_000,
            memory_bytes: 1 << 33,
            gpus: self.rng.one_of([2, 4, 8, 8]),
            labels: labels.into(),
            unschedulable: self.rng.once_in(5),
        })
    }

    fn draw_run(&mut self) -> Option<Run> {
        self.cluster.runs += 1;
        let number = self.cluster.runs;
        let rng = &mut self.rng;
        let gpus = rng.one_of([1, 2, 4, 8]);
        let pod = rng.one_of([1, 2, 4]).min(gpus);
        let spread = rng.once_in(4);
        let allow_borrow = rng.once_in(3);
        let sponsors = allow_borrow.then(|| owner(rng.below(TEAMS))).flatten();
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
            location: Selector::default(),
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
        BudgetId::new(&format!("{NAMESPACE}/b{}", self.rng.below(TEAMS + 1))).ok()
    }
}

/// A team, or the organisation above all teams.
fn owner(team: u64) -> Option<Label> {
    let name = if team < TEAMS {
        format!("org:team-{team}")
    } else {
        "org".to_owned()
    };
    Label::new(&name).ok()
}
