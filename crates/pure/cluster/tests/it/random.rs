//! Random worlds against the naive model.

use std::collections::{BTreeMap, BTreeSet};

use bursar_cluster::budget::accounts::{Debit, UsageRow};
use bursar_cluster::budget::spec::{OnExhaustion, Sharing};
use bursar_cluster::budget::{Budget, Demoted, Funded, MeterId, Renew, RunUid};
use bursar_cluster::{Change, Command, Event, Exit, Funding, Policy, Reason, Run, Stage};
use bursar_plane::{Class, Decided, Plane};
use bursar_units::Millis;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::naive::Model;
use crate::world::{HOUR, World, at, budget, cap, envelope, facts, label, lends, node, run};

/// Worlds of one test. All tests of the crate take less than a minute.
const CASES: u32 = 64;

/// One step of a world. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Wait(u64),
    Away(u64),
    Late(u64, u64),
    Crash,
    Budget(usize, Shape),
    DropBudget(usize),
    Submit(usize, Wish),
    Edit(usize, i32, Option<u64>),
    Cancel(usize),
    Start(usize),
    Exit(usize, Option<u64>, u8),
    Node(usize, u64, bool),
    Rotate(usize),
    Policy(u64, u64),
}

/// A budget of an owner.
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    gpus: [u64; 2],
    hours: Option<u64>,
    /// Length of the first window from now, in minutes.
    window: Option<u64>,
    renews: bool,
    ends: bool,
    shares: bool,
    lends: Option<u64>,
    cap: Option<u64>,
    horizon: Option<u64>,
    paused: bool,
}

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pods: u64,
    pod: u64,
    spreads: bool,
    expected: Option<u64>,
    max: Option<u64>,
    grace: Option<u64>,
    priority: i32,
    borrows: Option<u64>,
}

pub(crate) const OWNERS: [&str; 3] = ["alpha", "beta", "root"];

pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    let limits = ([1_u64..9, 0_u64..6], proptest::option::of(1_u64..8));
    let window = (proptest::option::of(1_u64..200), any::<bool>());
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    let others = (
        proptest::option::of(1_u64..6),
        proptest::option::of(1_u64..9),
        proptest::option::of(1_u64..60),
    );
    (limits, window, flags, others).prop_map(|(limits, window, flags, others)| Shape {
        gpus: limits.0,
        hours: limits.1,
        window: window.0,
        renews: window.1,
        ends: flags.0,
        shares: flags.1,
        paused: flags.2,
        lends: others.0,
        cap: others.1,
        horizon: others.2,
    })
}

pub(crate) fn wish() -> impl Strategy<Value = Wish> {
    let minutes = || proptest::option::of(1_u64..120);
    let widths = (1_u64..5, 1_u64..3, any::<bool>());
    let times = (minutes(), minutes(), proptest::option::of(0_u64..3));
    (widths, times, -2_i32..3, proptest::option::of(0_u64..5)).prop_map(
        |((pods, pod, spreads), (expected, max, grace), priority, borrows)| Wish {
            pods,
            pod,
            spreads,
            expected,
            max: max.map(|max| max + 4),
            grace,
            priority,
            borrows,
        },
    )
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_u64..3_000_000).prop_map(Step::Wait),
        1 => (1_u64..9_000_000).prop_map(Step::Away),
        1 => (1_u64..3_000_000, 1_u64..10_000).prop_map(|(length, late)| Step::Late(length, late)),
        1 => Just(Step::Crash),
        3 => (0_usize..3, shape()).prop_map(|(owner, shape)| Step::Budget(owner, shape)),
        1 => (0_usize..3).prop_map(Step::DropBudget),
        7 => (0_usize..3, wish()).prop_map(|(owner, wish)| Step::Submit(owner, wish)),
        1 => (0_usize..9, -3_i32..4, proptest::option::of(5_u64..300))
            .prop_map(|(run, priority, max)| Step::Edit(run, priority, max)),
        1 => (0_usize..9).prop_map(Step::Cancel),
        4 => (0_usize..9).prop_map(Step::Start),
        4 => (0_usize..9, proptest::option::of(0_u64..4), 0_u8..3)
            .prop_map(|(run, pod, exit)| Step::Exit(run, pod, exit)),
        1 => (0_usize..3, 1_u64..9, prop::bool::weighted(0.3))
            .prop_map(|(node, gpus, cordoned)| Step::Node(node, gpus, cordoned)),
        1 => (0_usize..3).prop_map(Step::Rotate),
        1 => (0_u64..700, 1_u64..90).prop_map(|(grace, horizon)| Step::Policy(grace, horizon)),
    ]
}

/// A change of budgets.
fn edit() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_usize..3, shape()).prop_map(|(owner, shape)| Step::Budget(owner, shape)),
        1 => (0_usize..3).prop_map(Step::DropBudget),
        2 => (0_usize..3).prop_map(Step::Rotate),
    ]
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..40)
}

fn minutes(count: u64) -> Millis {
    Millis::from_secs(60 * count)
}

pub(crate) fn to_budget(world: &World, owner: usize, shape: &Shape) -> Budget {
    let mut first = envelope("first", shape.gpus[0]);
    first.gpu_hours_max = shape.hours;
    first.end = shape.window.map(|length| world.now.after(minutes(length)));
    first.renew = first.end.filter(|_| shape.renews).map(|_| Renew::Day);
    first.admission_horizon = shape.horizon.map(minutes);
    if shape.ends {
        first.on_exhaustion = OnExhaustion::End;
    }
    if !shape.shares {
        first.sharing = Sharing::None;
    }
    first.lending = shape.lends.map(|gpus| lends("*", Some(gpus)));
    let mut list = vec![first];
    if shape.gpus[1] > 0 {
        list.push(envelope("second", shape.gpus[1]));
    }
    let text = OWNERS[owner];
    let parents: &[&str] = if text == "root" { &[] } else { &["root"] };
    let mut budget = budget(text, parents, list);
    budget.paused = shape.paused;
    if let Some(gpus) = shape.cap {
        let members: Vec<String> = budget
            .envelopes
            .iter()
            .map(|envelope| budget.envelope_id(envelope).to_string())
            .collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        budget.aggregate_caps = vec![cap("cap", &members, gpus)];
    }
    budget
}

pub(crate) fn to_run(number: usize, owner: usize, wish: &Wish) -> Run {
    Run {
        total_gpus: wish.pods * wish.pod,
        pod_gpus: Some(wish.pod),
        group_gpus: Some(wish.pod),
        spread: wish.spreads,
        funding: Funding {
            allow_borrow: wish.borrows.is_some(),
            borrow_gpus_max: wish.borrows,
            sponsors: OWNERS.iter().map(|owner| label(owner)).collect(),
        },
        expected_duration: wish.expected.map(minutes),
        max_duration: wish.max.map(minutes),
        priority: wish.priority,
        grace: wish.grace.map(minutes),
        ..run(OWNERS[owner], &format!("r{number}"), 1)
    }
}

/// Names of the runs that are at one of these stages.
fn at_stage(world: &World, stages: &[Stage]) -> Vec<String> {
    let runs = world.clusters.runs();
    runs.filter(|run| stages.contains(&run.stage))
        .map(|run| run.run.id().to_string())
        .collect()
}

fn pick(list: &[String], number: usize) -> Option<String> {
    let count = list.len();
    (count > 0).then(|| list[number % count].clone())
}

/// Carries out a step.
pub(crate) fn play(world: &mut World, number: usize, step: &Step) {
    use Stage::{Ending, Running, Starting, Waiting};
    match step {
        Step::Wait(length) => world.go(world.now.ms() + length),
        Step::Away(length) => world.away(world.now.ms() + length),
        Step::Late(length, late) => world.go_late(at(world.now.ms() + length), *late),
        Step::Crash => world.crash(),
        Step::Budget(owner, shape) => {
            let budget = to_budget(world, *owner, shape);
            // A cap of another budget may name an envelope that would go.
            let _refused = world.change(&[Change::SetBudget(budget)]);
        }
        Step::DropBudget(owner) => {
            let _refused = world.drop_budget(&format!("{}/b", OWNERS[*owner]));
        }
        Step::Submit(owner, wish) => {
            let _refused = world.change(&[Change::SetRun(to_run(number, *owner, wish))]);
        }
        Step::Edit(run, priority, max) => {
            let live = at_stage(world, &[Waiting, Starting, Running, Ending]);
            if let Some(text) = pick(&live, *run) {
                let edited = Run {
                    priority: *priority,
                    max_duration: max.map(minutes),
                    ..world.shown(&text).run
                };
                let _refused = world.change(&[Change::SetRun(edited)]);
            }
        }
        Step::Cancel(run) => {
            let live = at_stage(world, &[Waiting, Starting, Running, Ending]);
            if let Some(text) = pick(&live, *run) {
                world.cancel(&text);
            }
        }
        Step::Start(run) => {
            if let Some(text) = pick(&at_stage(world, &[Starting]), *run) {
                world.started(&text);
            }
        }
        Step::Exit(run, pod, exit) => {
            let held = at_stage(world, &[Starting, Running, Ending]);
            if let Some(text) = pick(&held, *run) {
                let pods: Vec<u64> = pod.iter().copied().collect();
                let exit = match exit {
                    0 => Exit::Ok {},
                    1 => Exit::Failed { code: Some(3) },
                    _ => Exit::NotStarted {
                        reason: "no image".to_owned(),
                    },
                };
                world.exited(&text, &pods, exit).unwrap();
            }
        }
        Step::Node(number, gpus, cordoned) => {
            let mut node = node(&format!("n{number}"), &format!("us/west/d{number}"), *gpus);
            node.unschedulable = *cordoned;
            world.set_node(node);
        }
        Step::Rotate(owner) => {
            let _refused = world.rotate(&format!("{}/b/first", OWNERS[*owner]));
        }
        Step::Policy(grace, horizon) => {
            let policy = Policy {
                grace_max: Millis::from_secs(*grace),
                admission_horizon: minutes(*horizon),
                ..Policy::default()
            };
            world.command(&Command::SetPolicy(policy)).unwrap();
        }
    }
}

/// A world with budgets of all owners. Starts are reported by steps.
pub(crate) fn first_world() -> World {
    let mut world = World::new(&[4, 6, 3]);
    world.reports_starts = false;
    world.now = at(1_000);
    world.model = Some(Model::default());
    for owner in OWNERS {
        let parents: &[&str] = if owner == "root" { &[] } else { &["root"] };
        world.set(budget(owner, parents, vec![envelope("first", 5)]));
    }
    world
}

/// After a pass nothing more could start, and a second pass changes nothing. Time alone makes room, as
/// the end of a window comes nearer; so the instant must be that of a pass.
fn check_pass(world: &World) {
    let model = world.model.as_ref().unwrap();
    if world.next().is_some_and(|next| next <= world.now) || !was_passed(world) {
        return;
    }
    for uid in model.queue() {
        assert!(
            model
                .could_start(world.now, uid, &world.clusters, &world.nodes)
                .is_none(),
            "{uid} could start and waits"
        );
    }
    model.check_refunded(world.now, &world.clusters, &world.nodes);
    let mut again = world.clusters.clone();
    let mut out = Decided::new(world.now, 1_000_000);
    again.stir();
    Plane::settle(&mut again, world.now, &mut out);
    let events: Vec<Event> = out
        .into_list()
        .into_iter()
        .filter(|event| !matches!(event, Event::MeterNear { .. }))
        .collect();
    assert_eq!(events, [], "a second pass does something");
}

/// Whether a record of this instant had a pass.
fn was_passed(world: &World) -> bool {
    let records = world.records.iter().rev();
    let mut records = records.take_while(|record| record.time == world.now);
    let stirs = |event: &Event| {
        matches!(
            event,
            Event::BudgetSet(_)
                | Event::BudgetDropped { .. }
                | Event::EpochClosed { .. }
                | Event::RunSubmitted { .. }
                | Event::RunEdited { .. }
                | Event::RunDemoted { .. }
                | Event::LeasesClosed { .. }
                | Event::PassFinished {}
        )
    };
    records.any(|record| record.events.iter().any(stirs))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_random_world_keeps_the_rules_of_the_naive_model(steps in steps()) {
        let mut world = first_world();
        for (number, step) in steps.iter().enumerate() {
            play(&mut world, number, step);
            check_pass(&world);
        }
    }
}

/// The sums of a world at an instant.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Past {
    used: Vec<UsageRow>,
    debits: Vec<(RunUid, Debit)>,
    /// Epoch and accrued time of each declared meter.
    meters: BTreeMap<MeterId, (u64, u64)>,
}

impl Past {
    /// The sums of these runs, and of all usage.
    fn of(world: &World, runs: &[RunUid]) -> Self {
        let accounts = world.clusters.accounts();
        let used = accounts.usage(world.now).filter(|row| row.gpu_ms > 0);
        let debits = runs.iter().flat_map(|uid| {
            let debits = accounts.debits(world.now, uid).into_iter();
            debits.map(|debit| (uid.clone(), debit))
        });
        let views = accounts
            .budgets()
            .flat_map(|budget| accounts.meters(world.now, &budget.id()));
        Self {
            used: used.collect(),
            debits: debits.filter(|(_, debit)| debit.gpu_ms > 0).collect(),
            meters: views
                .map(|view| (view.meter, (view.epoch, view.accrued_gpu_ms)))
                .collect(),
        }
    }

    /// The sums that are final since that day and these epochs.
    fn before(mut self, day: u64, meters: &BTreeMap<MeterId, (u64, u64)>) -> Self {
        self.used.retain(|row| row.day < day);
        self.debits.retain(|(_, debit)| {
            let meter = debit.envelope.clone().map(MeterId::Envelope);
            let epoch = meter.and_then(|meter| Some(meters.get(&meter)?.0));
            debit.day < day || epoch.is_some_and(|epoch| debit.epoch < epoch)
        });
        self.meters.clear();
        self
    }
}

/// All runs are cancelled, and all ends are reported.
fn end_all(world: &mut World) {
    use Stage::{Ending, Running, Starting, Waiting};
    for text in at_stage(world, &[Waiting, Starting, Running]) {
        world.cancel(&text);
    }
    for text in at_stage(world, &[Starting, Running, Ending]) {
        world
            .exited(&text, &[], Exit::Failed { code: None })
            .unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Method: all runs are cancelled, and all ends are reported.
    #[test]
    fn every_terminal_path_releases_every_lease_and_claim(steps in steps()) {
        let mut world = first_world();
        for (number, step) in steps.iter().enumerate() {
            play(&mut world, number, step);
        }
        end_all(&mut world);
        prop_assert_eq!(world.clusters.nodes().all_leased().count(), 0);
        prop_assert_eq!(world.clusters.accounts().unfunded_work().count(), 0);
        for budget in world.clusters.accounts().budgets() {
            for meter in world.clusters.accounts().meters(world.now, &budget.id()) {
                prop_assert_eq!(meter.gpus_used, 0);
            }
        }
        let stages = [Stage::Waiting, Stage::Starting, Stage::Running, Stage::Ending];
        for stage in stages {
            prop_assert_eq!(world.clusters.count(stage), 0);
        }
        prop_assert_eq!(Plane::next_deadline(&world.clusters, Class::Patience), None);
    }

    /// Method: one world changes a budget at an instant, the other does not, and both go on for days.
    /// The sums of days and epochs before that instant are the same at the end of both.
    #[test]
    fn a_change_moves_nothing_of_the_past(
        steps in steps(),
        hours in 0_u64..60,
        edits in prop::collection::vec(edit(), 1..3),
        later in steps(),
    ) {
        let mut world = first_world();
        for (number, step) in steps.iter().enumerate() {
            play(&mut world, number, step);
        }
        world.go(world.now.ms() + HOUR * hours);
        let runs: Vec<RunUid> = world.clusters.runs().map(|run| run.uid).collect();
        let (day, before) = (world.now.ms() / (24 * HOUR), Past::of(&world, &runs));
        let mut other = world.clone();
        for (number, edit) in edits.iter().enumerate() {
            play(&mut other, 1_000 + number, edit);
        }
        let changed = Past::of(&other, &runs);
        prop_assert_eq!(&before.used, &changed.used);
        prop_assert_eq!(&before.debits, &changed.debits);
        // What was accrued stays in the meter, or stands in the epoch that the change closed.
        for (meter, (epoch, accrued)) in &before.meters {
            let view = other.clusters.accounts().meter(other.now, meter).unwrap();
            let closed = other.clusters.accounts().closed_epochs(meter);
            let closed = closed.iter().find(|closed| closed.epoch == *epoch);
            let after = closed.map_or(view.accrued_gpu_ms, |closed| closed.accrued);
            prop_assert_eq!(after, *accrued, "{}", meter);
        }
        for world in [&mut world, &mut other] {
            for (number, step) in later.iter().enumerate() {
                play(world, 2_000 + number, step);
            }
            world.go(world.now.ms() + 30 * HOUR);
        }
        for (world, at) in [(world, before), (other, changed)] {
            let meters = at.meters.clone();
            let after = Past::of(&world, &runs).before(day, &meters);
            prop_assert_eq!(at.before(day, &meters), after);
        }
    }

    /// Method: three budgets in every order, with runs on them; facts are the whole state.
    #[test]
    fn the_order_of_budgets_in_one_change_changes_nothing(
        steps in steps(),
        shapes in [shape(), shape(), shape()],
    ) {
        let mut world = first_world();
        for (number, step) in steps.iter().enumerate() {
            play(&mut world, number, step);
        }
        let budgets: Vec<Change> = (0..3)
            .map(|owner| Change::SetBudget(to_budget(&world, owner, &shapes[owner])))
            .collect();
        let mut results = Vec::new();
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut other = world.clone();
            let changes = order.map(|at: usize| budgets[at].clone());
            let result = other.change(&changes).is_ok();
            let near = |event: &&Event| !matches!(event, Event::BudgetSet(_) | Event::EpochClosed { .. });
            let last = other.records.last().unwrap();
            let events: Vec<Event> = last.events.iter().filter(near).cloned().collect();
            results.push((result, facts(&other.clusters), events));
        }
        for other in &results[1..] {
            prop_assert_eq!(&results[0], other);
        }
    }
}

/// The random worlds leave no kind of money and no end out. Method: worlds of fixed seeds.
#[test]
fn the_random_worlds_have_every_cause_and_reason() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for _ in 0..150 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let mut world = first_world();
        world.model = None;
        for (number, step) in steps.iter().enumerate() {
            play(&mut world, number, step);
        }
        end_all(&mut world);
        for (_, event) in world.dated() {
            match event {
                Event::RunFunded { cause, .. } => seen.insert(cause.to_string()),
                Event::RunDemoted { cause, .. } => seen.insert(cause.to_string()),
                Event::RunEnding { reason, .. } => seen.insert(format!("ending {reason}")),
                Event::RunEnded { reason, .. } => seen.insert(format!("ended {reason}")),
                Event::PassUnfinished { .. } => seen.insert("unfinished".to_owned()),
                Event::PassFinished {} => seen.insert("finished".to_owned()),
                _ => false,
            };
        }
    }
    let funded = Funded::ALL.iter().map(ToString::to_string);
    let demoted = Demoted::ALL.iter().map(ToString::to_string);
    let ended = Reason::ALL.iter().map(|reason| format!("ended {reason}"));
    let stopped = Reason::ALL.iter().skip(1);
    let ending = stopped.map(|reason| format!("ending {reason}"));
    let passes = ["finished", "unfinished"].map(str::to_owned);
    let all = funded
        .chain(demoted)
        .chain(ended)
        .chain(ending)
        .chain(passes);
    let missing: Vec<String> = all.filter(|word| !seen.contains(word)).collect();
    assert_eq!(missing, Vec::<String>::new());
}
