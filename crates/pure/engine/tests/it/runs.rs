//! Budgets, runs and leases for the other tests, and a script in which every kind of event of the
//! cluster happens.

use std::collections::BTreeMap;

use bursar_engine::cluster::budget::spec::{OnExhaustion, Sharing};
use bursar_engine::cluster::budget::{
    AggregateCap, Budget, BudgetId, Envelope, EnvelopeId, Lending, Pattern, Renew, RunUid, Selector,
};
use bursar_engine::cluster::{self, Change, Exit, Funding, Policy, Run};
use bursar_engine::{Class, Command, Node, spine};
use bursar_journal::hash::Hash;
use bursar_units::{Instant, Millis, ScopedName};

use crate::world::{World, change, label, name};

pub(crate) fn gpu_node(text: &str, domain: &str, gpus: u64) -> Node {
    let labels = [
        (bursar_plane::inventory::REGION, "us"),
        (bursar_plane::inventory::CLUSTER, "west"),
        (bursar_plane::inventory::DOMAIN, domain),
        (bursar_plane::inventory::FLAVOR, "h100"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Node {
        name: name(text),
        cpu_milli: 96_000,
        memory_bytes: 1 << 40,
        gpus,
        labels: BTreeMap::from(labels),
        unschedulable: false,
    }
}

pub(crate) fn envelope(text: &str, gpus: u64) -> Envelope {
    Envelope {
        name: name(text),
        flavor: label("h100"),
        selector: Selector::default(),
        concurrency: gpus,
        gpu_hours_max: None,
        start: None,
        end: None,
        renew: None,
        sharing: Sharing::Family,
        lending: None,
        on_exhaustion: OnExhaustion::Demote,
        admission_horizon: None,
    }
}

/// The budget `OWNER/gpus`.
pub(crate) fn budget(owner: &str, parents: &[&str], envelopes: Vec<Envelope>) -> Budget {
    Budget {
        namespace: name(owner),
        name: name("gpus"),
        owner: label(owner),
        parents: parents.iter().map(|parent| label(parent)).collect(),
        envelopes,
        aggregate_caps: Vec::new(),
        paused: false,
    }
}

/// The run `OWNER/NAME`, in pods of two GPUs.
pub(crate) fn run(owner: &str, text: &str, gpus: u64) -> Run {
    Run {
        namespace: name(owner),
        name: name(text),
        owner: label(owner),
        flavor: label("h100"),
        total_gpus: gpus,
        pod_gpus: Some(gpus.min(2)),
        group_gpus: None,
        spread: false,
        location: Selector::default(),
        funding: Funding::default(),
        expected_duration: None,
        max_duration: None,
        priority: 0,
        grace: None,
        template: None,
    }
}

pub(crate) fn set_run(run: Run) -> Command {
    change([Change::SetRun(run)])
}

pub(crate) fn set_budget(budget: Budget) -> Command {
    change([Change::SetBudget(budget)])
}

pub(crate) fn cancel_run(text: &str) -> Command {
    let run = ScopedName::new(text).unwrap();
    cluster::Command::CancelRun { run, uid: None }.into()
}

/// Identity of the newest run of a name.
pub(crate) fn uid(world: &World, text: &str) -> RunUid {
    let run = ScopedName::new(text).unwrap();
    world.state.clusters.uid(&run).unwrap().clone()
}

pub(crate) fn run_started(world: &World, text: &str) -> Command {
    let uid = uid(world, text);
    let incarnation = 0;
    cluster::Command::RunStarted { uid, incarnation }.into()
}

pub(crate) fn run_exited(world: &World, text: &str, pods: &[u64], exit: Exit) -> Command {
    let command = cluster::Command::RunExited {
        uid: uid(world, text),
        incarnation: 0,
        pods: pods.to_vec(),
        exit,
    };
    command.into()
}

/// Every kind of command and event of the cluster; at last a run is at every stage.
pub(crate) fn cluster(world: &mut World) {
    let declared = declare(world);
    world.run(declared).expect("the script is taken");
    // A run of eight GPUs: extended, overrunning, demoted, refunded, and failed in one pod.
    let first = run_started(world, "rai/train");
    world.run(first).unwrap();
    let raised = Run {
        priority: 7,
        max_duration: Some(Millis::from_hours(8)),
        ..train()
    };
    world.run(set_run(raised)).unwrap();
    for _ in 0..24 {
        world.advance(300_000);
    }
    let failed = Exit::Failed { code: Some(7) };
    let command = run_exited(world, "rai/train", &[2], failed);
    world.run(command).unwrap();
    let command = run_exited(world, "rai/train", &[], Exit::Failed { code: None });
    world.run(command).unwrap();
    ends(world);
    absence(world);
    stages(world);
}

fn train() -> Run {
    Run {
        spread: true,
        group_gpus: Some(4),
        location: Selector {
            region: Some(label("us")),
            ..Selector::default()
        },
        funding: Funding {
            allow_borrow: true,
            borrow_gpus_max: Some(4),
            sponsors: vec![label("lab")],
        },
        expected_duration: Some(Millis::from_secs(600)),
        grace: Some(Millis::from_secs(20)),
        template: Some(Hash([0xCD; 32])),
        ..run("rai", "train", 8)
    }
}

/// Policy, nodes, three budgets and the first run, which starts in the record that declares them.
fn declare(world: &mut World) -> Command {
    let policy = cluster::Command::SetPolicy(Policy::default());
    world.run(policy).expect("the script is taken");
    let day = Envelope {
        gpu_hours_max: Some(8),
        end: Some(world.now.after(Millis::from_hours(48))),
        renew: Some(Renew::Day),
        admission_horizon: Some(Millis::from_secs(1_200)),
        ..envelope("day", 6)
    };
    let lab = Envelope {
        sharing: Sharing::None,
        lending: Some(Lending {
            allow: true,
            to: vec![Pattern::new("r*").unwrap()],
            concurrency_max: Some(3),
            gpu_hours_max: Some(100),
        }),
        ..envelope("pool", 16)
    };
    let cap = AggregateCap {
        name: name("both"),
        flavor: label("h100"),
        envelopes: vec![
            EnvelopeId::new("rai/gpus/day").unwrap(),
            EnvelopeId::new("org/gpus/all").unwrap(),
        ],
        concurrency_max: Some(7),
        gpu_hours_max: None,
        start: None,
        end: None,
        renew: None,
    };
    let org = Budget {
        aggregate_caps: vec![cap],
        ..budget("org", &[], vec![envelope("all", 4)])
    };
    change([
        bursar_engine::Change::from(spine::Change::SetNode(gpu_node("g01", "d1", 4))),
        spine::Change::SetNode(gpu_node("g02", "d2", 4)).into(),
        spine::Change::SetNode(gpu_node("g03", "d3", 2)).into(),
        Change::SetBudget(budget("rai", &["org"], vec![day])).into(),
        Change::SetBudget(org).into(),
        Change::SetBudget(budget("lab", &[], vec![lab])).into(),
        Change::SetRun(train()).into(),
    ])
}

/// The other ends of runs, a rotated envelope, and a dropped budget.
fn ends(world: &mut World) {
    let mut play = |command: Command| {
        world.run(command).expect("the script is taken");
    };
    let envelope = EnvelopeId::new("rai/gpus/day").unwrap();
    play(
        cluster::Command::RotateEnvelope {
            envelope,
            idempotency: None,
            reason: None,
        }
        .into(),
    );
    play(change([
        Change::SetRun(run("rai", "well", 2)),
        Change::SetRun(run("rai", "never", 2)),
    ]));
    let well = run_exited(world, "rai/well", &[], Exit::Ok {});
    world.run(well).unwrap();
    let reason = "no \"image\"".to_owned();
    let never = run_exited(world, "rai/never", &[], Exit::NotStarted { reason });
    world.run(never).unwrap();
    let hard = Run {
        max_duration: Some(Millis::from_secs(100)),
        ..run("rai", "hard", 2)
    };
    world.run(set_run(hard)).unwrap();
    world.run(set_run(run("lab", "late", 2))).unwrap();
    world.advance(130_000);
    for text in ["rai/hard", "lab/late"] {
        let gone = run_exited(world, text, &[], Exit::Failed { code: None });
        world.run(gone).unwrap();
    }
    let once = Envelope {
        gpu_hours_max: Some(1),
        on_exhaustion: OnExhaustion::End,
        admission_horizon: Some(Millis::from_secs(900)),
        ..crate::runs::envelope("once", 2)
    };
    world
        .run(set_budget(budget("eve", &[], vec![once])))
        .unwrap();
    world.run(set_run(run("eve", "long", 2))).unwrap();
    let long = run_started(world, "eve/long");
    world.run(long).unwrap();
    world.advance(3_600_000);
    let gone = run_exited(world, "eve/long", &[], Exit::Failed { code: None });
    world.run(gone).unwrap();
    let budget = BudgetId::new("eve/gpus").unwrap();
    world.run(change([Change::DropBudget { budget }])).unwrap();
}

/// Deadlines pass while the server is away: money moves at its instants, and starting is owed.
fn absence(world: &mut World) {
    let end = world.now.after(Millis::from_secs(60));
    let old = Envelope {
        end: Some(end),
        ..envelope("old", 2)
    };
    let new = Envelope {
        start: Some(end),
        ..envelope("new", 2)
    };
    let own = budget("ops", &[], vec![old, new]);
    world.run(set_budget(own)).unwrap();
    world.run(set_run(run("ops", "stays", 2))).unwrap();
    let stays = run_started(world, "ops/stays");
    world.run(stays).unwrap();
    world.now = world.now.after(Millis::from_hours(2));
    let tick = spine::Command::Tick {
        renewed: Vec::new(),
        until: Some(world.now.before(Millis::from_ms(1))),
        class: Some(Class::Clock),
    };
    world.commit(tick).unwrap();
    let wall = Instant::from_ms(world.now.ms());
    world.commit(spine::Command::Resume { wall }).unwrap();
    world.tick();
}

/// A run that waits, one that starts, one that runs with a pod less and unfunded, one that stops.
fn stages(world: &mut World) {
    world.run(set_run(run("lab", "stops", 2))).unwrap();
    world.run(cancel_run("lab/stops")).unwrap();
    world.run(set_run(run("rai", "thin", 4))).unwrap();
    let thin = run_started(world, "rai/thin");
    world.run(thin).unwrap();
    let part = run_exited(world, "rai/thin", &[1], Exit::Ok {});
    world.run(part).unwrap();
    world.run(set_run(run("lab", "starts", 2))).unwrap();
    world.run(set_run(run("lab", "waits", 4))).unwrap();
    world.run(set_run(run("lab", "leaves", 4))).unwrap();
    world.run(cancel_run("lab/leaves")).unwrap();
    let less = budget("ops", &[], vec![envelope("new", 1)]);
    world.run(set_budget(less)).unwrap();
}
