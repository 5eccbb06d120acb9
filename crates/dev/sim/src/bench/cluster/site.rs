//! The measured cluster: nodes in domains, ten teams with an envelope each, and their runs.

use std::path::Path;

use anyhow::Context as _;
use bursar_budget::spec::{OnExhaustion, Sharing};
use bursar_budget::{Budget, Envelope, RunUid, Selector};
use bursar_cluster::{Change, Command, Exit, Run};
use bursar_engine::inventory::{CLUSTER, DOMAIN, FLAVOR, Node, REGION};
use bursar_engine::{Change as AnyChange, spine};
use bursar_units::ObjectName;

use super::super::world::{World, label};

/// GPUs of each run.
pub(super) const RUN_GPUS: u64 = 8;
/// Namespace of budgets and runs.
pub(super) const NAMESPACE: &str = "bench";
/// Flavor of all GPUs.
pub(super) const H100: &str = "H100";
/// Number of owners; each has at most 1,000 waiting runs.
const TEAMS: u64 = 10;
/// Nodes of a domain.
const DOMAIN_NODES: u64 = 50;
/// GPUs of an envelope: no number of runs here reaches it.
const ENVELOPE_GPUS: u64 = 1_000_000;
/// GPU-hours of an envelope. With a limit on time, every claim has a promise end.
const ENVELOPE_HOURS: u64 = 1_000_000_000;

/// Nodes of the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) nodes: u64,
    pub(super) node_gpus: u64,
}

impl Site {
    /// Creates a ledger with the nodes and the budgets.
    pub(super) fn begin(self, directory: &Path) -> anyhow::Result<World> {
        let world = World::open(directory)?;
        let nodes = (0..self.nodes).map(|number| self.node(number));
        let budgets = (0..TEAMS).map(budget);
        let changes: anyhow::Result<Vec<AnyChange>> = nodes.chain(budgets).collect();
        world.submit(spine::Command::change(changes?))?;
        Ok(world)
    }

    fn node(self, number: u64) -> anyhow::Result<AnyChange> {
        let domain = format!("rack-{}", number / DOMAIN_NODES);
        let labels = [
            (REGION, "eu"),
            (CLUSTER, "a"),
            (DOMAIN, &domain),
            (FLAVOR, H100),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let node = Node {
            name: ObjectName::new(&format!("n-{number}"))?,
            cpu_milli: 64_000,
            memory_bytes: 1 << 40,
            gpus: self.node_gpus,
            labels: labels.into(),
            unschedulable: false,
        };
        Ok(spine::Change::SetNode(node).into())
    }
}

/// Owner of a run by its number.
pub(super) fn owner(number: u64) -> String {
    format!("org:team-{}", number % TEAMS)
}

fn budget(team: u64) -> anyhow::Result<AnyChange> {
    let envelope = Envelope {
        name: ObjectName::known("h100"),
        flavor: label(H100)?,
        selector: Selector::default(),
        concurrency: ENVELOPE_GPUS,
        gpu_hours_max: Some(ENVELOPE_HOURS),
        start: None,
        end: None,
        renew: None,
        sharing: Sharing::Family,
        lending: None,
        on_exhaustion: OnExhaustion::Demote,
        admission_horizon: None,
    };
    let budget = Budget {
        namespace: ObjectName::new(NAMESPACE)?,
        name: ObjectName::new(&format!("team-{team}"))?,
        owner: label(&owner(team))?,
        parents: vec![label("org")?],
        envelopes: vec![envelope],
        aggregate_caps: Vec::new(),
        paused: false,
    };
    Ok(Change::SetBudget(budget).into())
}

/// Submission of a run by its number.
pub(super) fn submission(number: u64) -> anyhow::Result<spine::Command> {
    let run = Run {
        namespace: ObjectName::new(NAMESPACE)?,
        name: ObjectName::new(&format!("r-{number}"))?,
        owner: label(&owner(number))?,
        flavor: label(H100)?,
        total_gpus: RUN_GPUS,
        pod_gpus: None,
        group_gpus: None,
        spread: false,
        location: Selector::default(),
        funding: bursar_cluster::Funding::default(),
        expected_duration: None,
        max_duration: None,
        priority: 0,
        grace: None,
        template: None,
    };
    Ok(spine::Command::change([Change::SetRun(run)]))
}

/// Identity of the run that a record submitted.
pub(super) fn submitted(record: u64) -> anyhow::Result<RunUid> {
    RunUid::new(&format!("run-{record}")).context("the uid of a run")
}

/// The report of an executor that the processes of a run have started.
pub(super) fn started(uid: RunUid) -> Command {
    Command::RunStarted {
        uid,
        incarnation: 0,
    }
}

/// The report of an executor that the processes of a run ended well.
pub(super) fn exited(uid: RunUid) -> Command {
    Command::RunExited {
        uid,
        incarnation: 0,
        pods: Vec::new(),
        exit: Exit::Ok {},
    }
}
