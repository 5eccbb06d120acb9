//! The state is a fold over events: on random worlds, after every record (L1, L3).

use bursar_booking::decide::Change;
use bursar_booking::execution::{Exit, Isolation, Order};
use bursar_booking::{
    Bound, Command as BookingCommand, Fence, Limit, Priority, Request, Scope, Standing,
};
use bursar_engine::Node;
use bursar_engine::cluster::budget::spec::OnExhaustion;
use bursar_engine::cluster::budget::{BudgetId, Envelope, EnvelopeId, Renew};
use bursar_engine::cluster::{self, Run};
use bursar_engine::codec::{decode, decode_events, encode};
use bursar_engine::market::{
    self, Labelled, Mode, Original, Position, Present, Report, difference,
};
use bursar_engine::{
    Command, Events, State, decide, first_fence, invariants, plan, snapshot, spine,
};
use bursar_journal::hash::{Hash, sha256};
use bursar_market::clear::Policy;
use bursar_units::{Amount, Instant, Millis, ScopedName};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::runs::{
    budget, cancel_run, envelope, gpu_node, run, run_exited, run_started, set_budget,
};
use crate::world::{
    World, adopt, cancel, change, exited, force, id, label, limit_of, name, note, order, patient,
    pod, request, reserve, set_limit, settings, started, stop_failed, submit_order,
};

/// A step of a random world, small enough for collisions to be common.
#[derive(Clone, Debug)]
enum Step {
    Reserve {
        id: u8,
        class: u8,
        tenant: u8,
        slots: u64,
        priority: usize,
        ttl_s: u64,
        wait_s: u64,
    },
    Submit {
        id: u8,
        tenant: u8,
        start_s: u64,
        run_s: u64,
        wait_s: u64,
        retry_of: Option<u8>,
    },
    Started {
        id: u8,
    },
    Adopt {
        id: u8,
        tenant: u8,
        fence: Option<u64>,
    },
    Exited {
        id: u8,
        how: u8,
    },
    StopFailed {
        id: u8,
        attempt: u32,
    },
    Release {
        id: u8,
        with_its_fence: bool,
    },
    Cancel {
        id: u8,
    },
    Note {
        id: u8,
        text: u8,
    },
    Force {
        id: u8,
    },
    Renew {
        id: u8,
        for_s: u64,
    },
    Limit {
        which: usize,
        slots: u64,
        weight: u64,
    },
    DropLimit {
        which: usize,
    },
    Node {
        number: u8,
        memory: u64,
    },
    DropNode {
        number: u8,
    },
    Advance {
        ms: u64,
    },
    Resume,
    Anchor,
    Prune {
        below: u64,
        key: u8,
    },
    Rotate {
        key: u8,
    },
    Restore,
    Revoke,
    Market {
        node: u8,
        pods: u8,
        act: bool,
        label: usize,
        lines: u64,
        is_late: bool,
    },
    Cluster(ClusterStep),
}

/// A step of the cluster. Runs and budgets go by owner and number.
#[derive(Clone, Debug)]
enum ClusterStep {
    Node {
        number: u8,
        gpus: u64,
        is_cordoned: bool,
    },
    DropNode {
        number: u8,
    },
    Budget {
        owner: usize,
        gpus: u64,
        hours: Option<u64>,
        window_s: Option<u64>,
        renews: bool,
        ends: bool,
    },
    DropBudget {
        owner: usize,
    },
    Rotate {
        owner: usize,
    },
    Run {
        owner: usize,
        number: u8,
        gpus: u64,
        expected_s: Option<u64>,
        max_s: Option<u64>,
        priority: i32,
        at_once: bool,
    },
    Cancel {
        owner: usize,
        number: u8,
    },
    Started {
        owner: usize,
        number: u8,
    },
    Exited {
        owner: usize,
        number: u8,
        pod: Option<u64>,
        how: u8,
    },
    Policy {
        grace_s: u64,
    },
}

impl ClusterStep {
    /// Whether it names or makes a run.
    const fn is_of_run(&self) -> bool {
        matches!(
            self,
            Self::Run { .. } | Self::Cancel { .. } | Self::Started { .. } | Self::Exited { .. }
        )
    }
}

fn cluster_step() -> impl Strategy<Value = ClusterStep> {
    let run = || (0..3_usize, 0..4_u8);
    let times = || prop::option::of(60..20_000_u64);
    let limits = (prop::option::of(1..9_u64), prop::option::of(60..90_000_u64));
    let wish = (
        1..4_u64,
        times(),
        times(),
        -1..3_i32,
        prop::bool::weighted(0.2),
    );
    prop_oneof![
        2 => (0..3_u8, 1..9_u64, prop::bool::weighted(0.2))
            .prop_map(|(number, gpus, is_cordoned)| ClusterStep::Node { number, gpus, is_cordoned }),
        1 => (0..3_u8).prop_map(|number| ClusterStep::DropNode { number }),
        4 => (0..3_usize, 1..9_u64, limits, any::<bool>(), any::<bool>()).prop_map(
            |(owner, gpus, (hours, window_s), renews, ends)| {
                ClusterStep::Budget { owner, gpus, hours, window_s, renews, ends }
            }
        ),
        1 => (0..3_usize).prop_map(|owner| ClusterStep::DropBudget { owner }),
        1 => (0..3_usize).prop_map(|owner| ClusterStep::Rotate { owner }),
        6 => (run(), wish).prop_map(
            |((owner, number), (pods, expected_s, max_s, priority, at_once))| {
                let gpus = 2 * pods;
                ClusterStep::Run { owner, number, gpus, expected_s, max_s, priority, at_once }
            }
        ),
        1 => run().prop_map(|(owner, number)| ClusterStep::Cancel { owner, number }),
        4 => run().prop_map(|(owner, number)| ClusterStep::Started { owner, number }),
        4 => (run(), prop::option::of(0..3_u64), 0..3_u8).prop_map(
            |((owner, number), pod, how)| ClusterStep::Exited { owner, number, pod, how }
        ),
        1 => (0..90_u64).prop_map(|grace_s| ClusterStep::Policy { grace_s }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let reserve = (
        0..12_u8,
        0..2_u8,
        0..3_u8,
        1..4_u64,
        0..5_usize,
        1..20_u64,
        0..3_u64,
    );
    let retry_of = proptest::option::weighted(0.2, 0..12_u8);
    let submit = (0..12_u8, 0..3_u8, 1..20_u64, 1..40_u64, 0..3_u64, retry_of);
    prop_oneof![
        8 => reserve.prop_map(|(id, class, tenant, slots, priority, ttl_s, wait)| {
            Step::Reserve { id, class, tenant, slots, priority, ttl_s, wait_s: wait * 15 }
        }),
        6 => submit.prop_map(|(id, tenant, start_s, run_s, wait, retry_of)| {
            Step::Submit { id, tenant, start_s, run_s, wait_s: wait * 15, retry_of }
        }),
        4 => (0..12_u8).prop_map(|id| Step::Started { id }),
        1 => (0..12_u8, 0..3_u8, prop::option::of(0..40_u64))
            .prop_map(|(id, tenant, fence)| Step::Adopt { id, tenant, fence }),
        4 => (0..12_u8, 0..6_u8).prop_map(|(id, how)| Step::Exited { id, how }),
        3 => (0..12_u8, 1..3_u32).prop_map(|(id, attempt)| Step::StopFailed { id, attempt }),
        4 => (0..12_u8, prop::bool::weighted(0.9))
            .prop_map(|(id, with_its_fence)| Step::Release { id, with_its_fence }),
        3 => (0..12_u8).prop_map(|id| Step::Cancel { id }),
        1 => (0..12_u8).prop_map(|id| Step::Force { id }),
        1 => (0..12_u8, 0..3_u8).prop_map(|(id, text)| Step::Note { id, text }),
        2 => (0..12_u8, 1..40_u64).prop_map(|(id, for_s)| Step::Renew { id, for_s }),
        2 => (0..6_usize, 0..5_u64, 1..4_u64)
            .prop_map(|(which, slots, weight)| Step::Limit { which, slots, weight }),
        1 => (0..6_usize).prop_map(|which| Step::DropLimit { which }),
        1 => (0..3_u8, 0..4_u64).prop_map(|(number, memory)| Step::Node { number, memory }),
        1 => (0..3_u8).prop_map(|number| Step::DropNode { number }),
        4 => (0..30_000_u64).prop_map(|ms| Step::Advance { ms }),
        1 => Just(Step::Advance { ms: 86_400_000 }),
        3 => (0..7_200_000_u64).prop_map(|ms| Step::Advance { ms }),
        24 => cluster_step().prop_map(Step::Cluster),
        1 => Just(Step::Resume),
        1 => Just(Step::Anchor),
        1 => (0..20_u64, 0..2_u8).prop_map(|(below, key)| Step::Prune { below, key }),
        1 => (0..2_u8).prop_map(|key| Step::Rotate { key }),
        1 => Just(Step::Restore),
        1 => Just(Step::Revoke),
        3 => (0..2_u8, any::<u8>(), any::<bool>(), 0..3_usize, 1..4_u64, prop::bool::weighted(0.1))
            .prop_map(|(node, pods, act, label, lines, is_late)| {
                Step::Market { node, pods, act, label, lines, is_late }
            }),
    ]
}

const CLASSES: [&str; 2] = ["python", "rust"];
const TENANTS: [&str; 3] = ["acme", "zeta", "größe"];
/// The first is the parent of the others.
const OWNERS: [&str; 3] = ["org", "rai", "lab"];
const LIMITS: [&str; 6] = ["everything", "tenant", "acme", "python", "pair", "default"];

fn booking(number: u8) -> String {
    format!("b-{number}")
}

fn limit(which: usize, slots: u64, weight: u64) -> Limit {
    let (class, tenant) = match which {
        0 => (None, None),
        1 => (None, Some(Scope::Each)),
        2 => (None, Some(Scope::Named(label("acme")))),
        3 => (Some(Scope::Named(label("python"))), None),
        4 => (Some(Scope::Each), Some(Scope::Each)),
        _ => (Some(Scope::Each), None),
    };
    let weight = (class.is_none() && tenant.is_some()).then_some(weight * 100);
    let memory = (which == 0).then_some(Bound::Percent(50));
    Limit {
        slots: Some(slots * 2),
        memory,
        weight,
        ..Limit::unbounded(name(LIMITS[which]), class, tenant)
    }
}

/// A market with up to eight originals.
fn market(pods: u8, act: bool, label: usize, lines: u64) -> Present {
    let mode = if act { Mode::Act } else { Mode::Observe };
    let originals = (0..8_u8).filter(|at| pods & (1 << at) != 0);
    Present {
        settings: settings(mode, Policy::Proportional, 0),
        labelled: Some(Labelled {
            label: bursar_market::clear::Mode::ALL[label],
            pods: u64::from(pods),
            need_milli: 2_550,
            capacity_milli: 1_500,
        }),
        originals: originals
            .map(|at| {
                let milli = (at % 2 == 0).then_some(lines);
                (pod(&format!("p{at}")), Original { milli })
            })
            .collect(),
        position: Some(Position {
            at: Instant::from_ms(lines),
            lines,
            writes: lines,
            head: sha256(&lines.to_be_bytes()),
        }),
    }
}

/// Command of a step; `None` if it names a run that never was.
fn cluster_command(world: &World, step: &ClusterStep) -> Option<Command> {
    let run_name = |owner: usize, number: u8| {
        let text = format!("{}/r{number}", OWNERS[owner]);
        let run = ScopedName::new(&text).unwrap();
        let is_known = world.state.clusters.uid(&run).is_some();
        is_known.then_some(text)
    };
    let seconds = |count: Option<u64>| count.map(Millis::from_secs);
    Some(match step {
        ClusterStep::Node {
            number,
            gpus,
            is_cordoned,
        } => {
            let node = gpu_node(&format!("g{number}"), &format!("d{number}"), *gpus);
            change([spine::Change::SetNode(Node {
                unschedulable: *is_cordoned,
                ..node
            })])
        }
        ClusterStep::DropNode { number } => change([spine::Change::DropNode {
            name: name(&format!("g{number}")),
        }]),
        ClusterStep::Budget {
            owner,
            gpus,
            hours,
            window_s,
            renews,
            ends,
        } => {
            let end = window_s.map(|length| world.now.after(Millis::from_secs(length)));
            let on_exhaustion = if *ends {
                OnExhaustion::End
            } else {
                OnExhaustion::Demote
            };
            let first = Envelope {
                gpu_hours_max: *hours,
                end,
                renew: end.filter(|_| *renews).map(|_| Renew::Day),
                on_exhaustion,
                admission_horizon: Some(Millis::from_secs(900)),
                ..envelope("first", *gpus)
            };
            let parents: &[&str] = if *owner == 0 { &[] } else { &OWNERS[..1] };
            set_budget(budget(OWNERS[*owner], parents, vec![first]))
        }
        ClusterStep::DropBudget { owner } => {
            let budget = format!("{}/gpus", OWNERS[*owner]);
            let budget = BudgetId::new(&budget).unwrap();
            change([cluster::Change::DropBudget { budget }])
        }
        ClusterStep::Rotate { owner } => cluster::Command::RotateEnvelope {
            envelope: EnvelopeId::new(&format!("{}/gpus/first", OWNERS[*owner])).unwrap(),
            idempotency: None,
            reason: None,
        }
        .into(),
        ClusterStep::Run {
            owner,
            number,
            gpus,
            expected_s,
            max_s,
            priority,
            at_once,
        } => {
            let run = Run {
                expected_duration: seconds(*expected_s),
                max_duration: seconds(*max_s),
                priority: *priority,
                ..run(OWNERS[*owner], &format!("r{number}"), *gpus)
            };
            change([if *at_once {
                cluster::Change::StartRun(run)
            } else {
                cluster::Change::SetRun(run)
            }])
        }
        ClusterStep::Cancel { owner, number } => cancel_run(&run_name(*owner, *number)?),
        ClusterStep::Started { owner, number } => run_started(world, &run_name(*owner, *number)?),
        ClusterStep::Exited {
            owner,
            number,
            pod,
            how,
        } => {
            let exit = match how {
                0 => cluster::Exit::Ok {},
                1 => cluster::Exit::Failed { code: Some(3) },
                _ => cluster::Exit::NotStarted {
                    reason: "no image".to_owned(),
                },
            };
            let pods: Vec<u64> = pod.iter().copied().collect();
            run_exited(world, &run_name(*owner, *number)?, &pods, exit)
        }
        ClusterStep::Policy { grace_s } => {
            let policy = cluster::Policy {
                grace_max: Millis::from_secs(*grace_s),
                ..cluster::Policy::default()
            };
            cluster::Command::SetPolicy(policy).into()
        }
    })
}

/// Command of a step; `None` if the step is only a tick or a renewal.
fn command(world: &mut World, step: &Step) -> Option<Command> {
    Some(match step {
        Step::Reserve {
            id,
            class,
            tenant,
            slots,
            priority,
            ttl_s,
            wait_s,
        } => {
            let (class, tenant) = (CLASSES[usize::from(*class)], TENANTS[usize::from(*tenant)]);
            let asked = Request {
                slots: *slots,
                memory_bytes: *slots << 20,
                priority: Priority::ALL[*priority],
                ttl: Millis::from_secs(*ttl_s),
                wait: Millis::from_secs(*wait_s),
                ..request(class, tenant)
            };
            reserve(&booking(*id), asked)
        }
        Step::Submit {
            id: number,
            tenant,
            start_s,
            run_s,
            wait_s,
            retry_of,
        } => {
            let asked = Request {
                wait: Millis::from_secs(*wait_s),
                ..request("python", TENANTS[usize::from(*tenant)])
            };
            let order = Order {
                start_timeout: Millis::from_secs(*start_s),
                max_time: Millis::from_secs(*run_s),
                retry_of: retry_of.map(|number| id(&booking(number))),
                ..order()
            };
            submit_order(&booking(*number), asked, order)
        }
        Step::Started { id } => started(&booking(*id)),
        Step::Adopt { id, tenant, fence } => {
            let asked = request("python", TENANTS[usize::from(*tenant)]);
            adopt(&booking(*id), asked, fence.map(Fence), Isolation::None)
        }
        Step::Exited { id, how } => {
            let exit = match how {
                0 | 1 => Exit::Code(i32::from(*how)),
                2 => Exit::Signal(9),
                3 => Exit::Lost,
                4 => Exit::OutOfMemory {
                    code: None,
                    signal: Some(9),
                },
                _ => Exit::NotStarted("no such file".to_owned()),
            };
            exited(&booking(*id), exit)
        }
        Step::StopFailed { id, attempt } => stop_failed(&booking(*id), *attempt),
        Step::Release {
            id: number,
            with_its_fence,
        } => {
            let id = id(&booking(*number));
            let fence = match world.state.bookings.standing(&id) {
                Some(Standing::Granted(granted)) if *with_its_fence => granted.fence,
                _ => Fence(1),
            };
            BookingCommand::Release {
                id,
                fence,
                outcome: None,
                exit_code: None,
            }
            .into()
        }
        Step::Cancel { id } => cancel(&booking(*id)),
        Step::Force { id } => force(&booking(*id), "test"),
        Step::Note { id, text } => note(&booking(*id), &format!("remark {text}")),
        Step::Limit {
            which,
            slots,
            weight,
        } => set_limit(limit(*which, *slots, *weight)),
        Step::DropLimit { which } => change([Change::DropLimit {
            name: name(LIMITS[*which]),
        }]),
        Step::Node { number, memory } => {
            let capacity = Amount {
                memory_bytes: *memory << 22,
                ..Amount::default()
            };
            let name = name(&format!("n{number}"));
            change([spine::Change::SetNode(Node::new(name, &capacity))])
        }
        Step::DropNode { number } => change([spine::Change::DropNode {
            name: name(&format!("n{number}")),
        }]),
        Step::Resume => spine::Command::Resume { wall: world.now }.into(),
        Step::Anchor => spine::Command::Anchor {
            record: world.state.spine.head - 1,
            sha256: sha256(b"snapshot"),
        }
        .into(),
        Step::Prune { below, key } => spine::Command::Prune {
            below: *below,
            idempotency: Some(id(&format!("key-{key}"))),
        }
        .into(),
        Step::Rotate { key } => spine::Command::RotateKey {
            key: format!("key-{}", world.state.spine.head),
            idempotency: Some(id(&format!("key-{key}"))),
        }
        .into(),
        Step::Restore => spine::Command::Restore {
            size: world.state.spine.head,
            fence: Some(first_fence(world.state.spine.time)),
            replaces: None,
            end_tokens: world.state.spine.head.is_multiple_of(2),
        }
        .into(),
        Step::Revoke => spine::Command::RevokeToken {
            name: name("nobody"),
        }
        .into(),
        Step::Market {
            node,
            pods,
            act,
            label,
            lines,
            is_late,
        } => {
            let node = name(&format!("n{node}"));
            let present = market(*pods, *act, *label, *lines);
            let known = world.state.markets.get(node.as_str());
            let report = difference(&node, known, &present, world.now);
            let mut report = report.unwrap_or(Report {
                node,
                basis: 0,
                settings: None,
                labelled: None,
                taken: Vec::new(),
                returned: Vec::new(),
                digest: None,
            });
            if *is_late {
                report.basis = report.basis.saturating_sub(1);
            }
            market::Command::ReportMarket(Box::new(report)).into()
        }
        Step::Cluster(step) => return cluster_command(world, step),
        Step::Renew { id: number, for_s } => {
            let until = world.now.after(Millis::from_secs(*for_s));
            world.evidence.insert(id(&booking(*number)), until);
            return None;
        }
        Step::Advance { ms } => {
            world.now = world.now.after(Millis::from_ms(*ms));
            return None;
        }
    })
}

fn hash(state: &State) -> Hash {
    snapshot::hash(state).unwrap()
}

/// The view: applies the written records and nothing else.
fn follow(view: &mut State, journal: &[Vec<u8>]) {
    let from = usize::try_from(view.spine.head).unwrap();
    for (seq, bytes) in (view.spine.head..).zip(&journal[from..]) {
        let (time, events) = decode_events(seq, bytes, |_| None).unwrap();
        view.apply_record(time, &events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Method: after every step the view, which only folds the journal's bytes, has the hash of
    /// the working state, and every invariant holds.
    #[test]
    fn the_fold_of_the_journal_is_the_working_state(steps in vec(step(), 1..80)) {
        let mut world = World::new();
        let mut view = State::default();
        for step in &steps {
            if let Some(command) = command(&mut world, step) {
                drop(world.run(command));
            }
            world.tick();
            follow(&mut view, &world.journal);
            prop_assert_eq!(hash(&view), hash(&world.state));
            invariants::check(&world.state).unwrap();
        }
        invariants::check_snapshot(&world.state).unwrap();
    }

    /// Method: every command is planned first; the plan changes nothing and comes true.
    #[test]
    fn a_plan_changes_nothing_and_comes_true(steps in vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            let Some(command) = command(&mut world, step) else { continue };
            world.tick();
            let before = hash(&world.state);
            let (planned, planned_events, _) = plan(&world.state, world.now, &command);
            prop_assert_eq!(hash(&world.state), before);
            match world.commit(command) {
                Ok((answer, events)) => {
                    prop_assert_eq!(planned, Ok(answer));
                    prop_assert_eq!(planned_events, events);
                }
                Err(refusal) => {
                    prop_assert_eq!(planned, Err(refusal));
                    prop_assert!(planned_events.is_empty());
                    prop_assert_eq!(hash(&world.state), before, "a refusal leaves no trace");
                }
            }
        }
    }

    /// Method: at a random place the state goes through a snapshot; both copies then live on.
    #[test]
    fn a_state_from_a_snapshot_goes_on_as_the_one_it_was_taken_of(
        before in vec(step(), 1..60),
        after in vec(step(), 1..60),
    ) {
        let mut world = World::new();
        for step in &before {
            if let Some(command) = command(&mut world, step) {
                drop(world.run(command));
            }
        }
        let text = snapshot::write(&world.state).unwrap();
        let mut other = World {
            state: snapshot::read(&text).unwrap(),
            now: world.now,
            journal: world.journal.clone(),
            evidence: world.evidence.clone(),
        };
        for step in &after {
            let (one, two) = (command(&mut world, step), command(&mut other, step));
            prop_assert_eq!(&one, &two);
            if let (Some(one), Some(two)) = (one, two) {
                prop_assert_eq!(world.run(one), other.run(two));
            }
            prop_assert_eq!(&world.journal, &other.journal);
        }
        prop_assert_eq!(hash(&world.state), hash(&other.state));
    }

    /// Method: decide every record's command again, from nothing, and compare the bytes.
    #[test]
    fn deciding_the_journal_again_gives_the_same_bytes(steps in vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            if let Some(command) = command(&mut world, step) {
                drop(world.run(command));
            }
        }
        let mut state = State::default();
        for (seq, bytes) in (0..).zip(&world.journal) {
            let mut record = decode(seq, bytes, |_| None).unwrap();
            let mut events = Events::new();
            decide(&mut state, record.time, &record.command, &mut events).unwrap();
            state.spine.head += 1;
            record.events = events;
            prop_assert_eq!(&encode(&record).unwrap().bytes, bytes);
        }
        prop_assert_eq!(hash(&state), hash(&world.state));
    }

    /// Method: one world ticks only when a command comes, the other also at random moments
    /// between; but for the count of records they are the same.
    #[test]
    fn any_pattern_of_ticks_gives_the_same_state(
        steps in vec((step(), vec(0..30_000_u64, 0..3)), 1..60),
    ) {
        let (mut seldom, mut often) = (World::new(), World::new());
        for (step, pauses) in &steps {
            if matches!(step, Step::Renew { .. } | Step::Anchor | Step::Rotate { .. }) {
                continue;
            }
            // A run has the number of its record, and starts when a tick comes; what does not depend
            // on that, the cluster's own tests compare.
            if matches!(step, Step::Cluster(step) if step.is_of_run()) {
                continue;
            }
            if let Step::Advance { ms } = step {
                let end = often.now.after(Millis::from_ms(*ms));
                for pause in pauses {
                    often.now = end.min(often.now.after(Millis::from_ms(*pause)));
                    often.tick();
                }
                (seldom.now, often.now) = (end, end);
                continue;
            }
            seldom.tick();
            often.tick();
            let (one, two) = (command(&mut seldom, step), command(&mut often, step));
            if let (Some(one), Some(two)) = (one, two) {
                let is_restore = matches!(one, Command::Spine(spine::Command::Restore { .. }));
                prop_assert!(is_restore || one == two);
                prop_assert_eq!(seldom.run(one), often.run(two));
            }
            let mut same_head = often.state.clone();
            same_head.spine.head = seldom.state.spine.head;
            prop_assert_eq!(hash(&seldom.state), hash(&same_head));
        }
    }
}

/// Method: 600 wait, the limit rises at once; each record carries at most 256 grants, and nothing
/// comes between them (L9).
#[test]
fn a_pump_that_outgrows_its_record_goes_on_as_ticks() {
    let mut world = World::new();
    world.run(set_limit(limit_of("go", 0))).unwrap();
    for at in 0..600 {
        world
            .run(reserve(&format!("b-{at}"), patient("go", "acme")))
            .unwrap();
    }
    let before = world.journal.len();
    world.run(set_limit(limit_of("go", 1_000))).unwrap();
    assert!(world.state.bookings.is_unsettled());
    assert_eq!(world.state.next_deadline(), Some(world.state.spine.time));
    let restored = snapshot::read(&snapshot::write(&world.state).unwrap()).unwrap();
    assert!(restored.bookings.is_unsettled());
    world.run(cancel("nobody")).unwrap_err();
    assert!(!world.state.bookings.is_unsettled());
    let grants: Vec<usize> = (before..world.journal.len())
        .map(|seq| {
            let bytes = &world.journal[seq];
            let seq = u64::try_from(seq).unwrap();
            let (_, events) = decode_events(seq, bytes, |_| None).unwrap();
            let is_grant = |event: &bursar_engine::Event| {
                matches!(
                    event,
                    bursar_engine::Event::Booking(bursar_booking::Event::Granted { .. })
                )
            };
            events.iter().filter(|event| is_grant(event)).count()
        })
        .collect();
    assert_eq!(grants, [256, 256, 88]);
}

#[test]
fn a_key_makes_an_action_once_for_a_day() {
    let mut world = World::new();
    let rotate = |key: &str| spine::Command::RotateKey {
        key: key.to_owned(),
        idempotency: Some(id("once")),
    };
    world.run(rotate("one")).unwrap();
    assert_eq!(
        world.run(rotate("two")),
        Ok(bursar_engine::Answer::Unchanged)
    );
    world
        .run(spine::Command::Anchor {
            record: 0,
            sha256: sha256(b"x"),
        })
        .unwrap();
    let prune = spine::Command::Prune {
        below: 1,
        idempotency: Some(id("once")),
    };
    assert_eq!(
        world.run(prune.clone()),
        Err(bursar_engine::Refusal::Spine(spine::Refusal::KeyReused))
    );
    world.now = Instant::from_ms(world.now.ms() + 86_400_000);
    assert_eq!(world.run(prune), Ok(bursar_engine::Answer::Done));
    assert_eq!(world.state.spine.keys.len(), 1);
}
