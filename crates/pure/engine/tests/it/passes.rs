//! The pass of a record that changes budgets (R7), as the engine composes it: each change has events of
//! its own, and settling comes after them.

use bursar_engine::cluster::{Change, Event as ClusterEvent};
use bursar_engine::{Command, Event, Events, plan, spine};

use crate::runs::{budget, envelope, gpu_node, run, set_run};
use crate::world::{World, change};

fn kinds(events: &Events) -> Vec<&'static str> {
    let kind = |event: &Event| match event {
        Event::Cluster(ClusterEvent::BudgetSet(_)) => "budgetSet",
        Event::Cluster(ClusterEvent::MeterNear { .. }) => "meterNear",
        Event::Cluster(ClusterEvent::RunFunded { .. }) => "runFunded",
        Event::Cluster(ClusterEvent::LeasesOpened { .. }) => "leasesOpened",
        _ => "other",
    };
    events.iter().map(kind).collect()
}

/// The first budget falls to 80 % of its GPUs in the record in which the second one grows.
#[test]
fn a_share_that_a_budget_change_reaches_puts_no_start_off() {
    let mut world = World::new();
    let budgets = |own: u64, other: u64| -> Command {
        change([
            Change::SetBudget(budget("own", &[], vec![envelope("e", own)])),
            Change::SetBudget(budget("other", &[], vec![envelope("e", other)])),
        ])
    };
    let node = gpu_node("g1", "d1", 16);
    world.run(change([spine::Change::SetNode(node)])).unwrap();
    world.run(budgets(10, 4)).unwrap();
    for run in [
        run("own", "holds", 4),
        run("other", "holds", 2),
        run("other", "waits", 4),
    ] {
        world.run(set_run(run)).unwrap();
    }
    world.tick();
    let command = budgets(5, 20);
    let (_, planned, _) = plan(&world.state, world.now, &command);
    let events = world.events(command);
    assert_eq!(planned, events, "the dry run shows the start");
    let expected = [
        "budgetSet",
        "budgetSet",
        "meterNear",
        "runFunded",
        "leasesOpened",
    ];
    assert_eq!(kinds(&events), expected);
}
