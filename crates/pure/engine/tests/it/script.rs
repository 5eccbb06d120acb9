//! A script in which every kind of event happens: the source of the golden journal.

use std::collections::BTreeMap;

use bursar_booking::decide::Change;
use bursar_booking::execution::{Exit, Isolation, Order, STOPS_UNTIL_STUCK};
use bursar_booking::{
    Bound, Command as BookingCommand, Fence, Limit, Outcome, Priority, Request, Scope,
};
use bursar_engine::market::{Labelled, Mode, Original, Position, Present};
use bursar_engine::token::{Role, Token};
use bursar_engine::{Command, LEVEL, Node, State, spine};
use bursar_journal::hash::{Hash, sha256};
use bursar_market::clear::{Mode as Label, Policy};
use bursar_units::{Instant, Millis};

use crate::runs;
use crate::world::{
    START_MS, World, adopt, cancel, change, exited, force, id, label, limit_of, market_report,
    name, note, order, patient, pod, request, reserve, set_limit, settings, started, stop_failed,
    submit, submit_order,
};

/// Every kind of command and of event, in an order that a real ledger could have.
pub(crate) fn everything_happens() -> World {
    let mut world = executions_in_every_stage();
    market(&mut world);
    adopted(&mut world);
    runs::cluster(&mut world);
    world
}

/// A program is found running after the restore, and ends for lack of memory.
fn adopted(world: &mut World) {
    let mut run = |command: Command| {
        world.run(command).expect("the script is taken");
    };
    run(adopt(
        "run-found",
        request("python", "acme"),
        Some(Fence(9)),
        Isolation::Cgroup,
    ));
    run(exited(
        "run-found",
        Exit::OutOfMemory {
            code: None,
            signal: Some(9),
        },
    ));
}

/// The same until hours pass, with an execution in every stage.
pub(crate) fn executions_in_every_stage() -> World {
    let mut world = World::new();
    let mut run = |command: Command| {
        world.run(command).expect("the script is taken");
    };
    run(spine::Command::Level { n: LEVEL }.into());
    let wall = Instant::from_ms(START_MS + 3);
    run(spine::Command::Resume { wall }.into());
    let key = "bursar+7d1c03aa+Ab".to_owned();
    let idempotency = None;
    run(spine::Command::RotateKey { key, idempotency }.into());
    declare(&mut run);
    bookings(&mut world);
    many_grants(&mut world);
    upkeep(&mut world);
    executions(&mut world);
    world
}

/// A state with one of each fact, small enough to be mutated many times.
pub(crate) fn small_state() -> State {
    let mut world = World::new();
    let mut run = |command: Command| {
        world.run(command).expect("the script is taken");
    };
    declare(&mut run);
    bookings(&mut world);
    world
        .run(reserve("waits", patient("rust", "zeta")))
        .unwrap();
    world
        .run(reserve("waits-too", patient("rust", "acme")))
        .unwrap();
    upkeep(&mut world);
    executions(&mut world);
    market(&mut world);
    runs::cluster(&mut world);
    world.state
}

fn declare(run: &mut impl FnMut(Command)) {
    let node = Node {
        name: name("a01"),
        cpu_milli: 96_000,
        memory_bytes: 1_000 << 30,
        gpus: 8,
        labels: std::collections::BTreeMap::new(),
        unschedulable: false,
    };
    let everything = Limit {
        slots: Some(400),
        memory: Some(Bound::Percent(80)),
        queue_max: 1_000,
        ..Limit::unbounded(name("everything"), None, None)
    };
    let heavy = Limit {
        weight: Some(300),
        ..Limit::unbounded(name("zeta"), None, Some(Scope::Named(label("zeta"))))
    };
    let pair = Limit {
        gpus: Some(4),
        wait_max: Millis::from_hours(2),
        ttl_max: Millis::from_hours(3),
        ..Limit::unbounded(name("pair"), Some(Scope::Each), Some(Scope::Each))
    };
    run(change([
        bursar_engine::Change::from(spine::Change::SetNode(node)),
        Change::SetLimit(everything).into(),
        Change::SetLimit(heavy).into(),
        Change::SetLimit(pair).into(),
    ]));
    run(set_limit(limit_of("rust", 1)));
    let token = Token {
        name: name("ci"),
        sha256: sha256(b"secret"),
        roles: [Role::Use, Role::View].into(),
        tenants: [label("acme"), label("größe")].into(),
        owners: std::collections::BTreeSet::new(),
        expires: Instant::from_ms(START_MS + 7_776_000_000),
        created: None,
    };
    let old = Token {
        name: name("old"),
        sha256: sha256(b"x"),
        ..token.clone()
    };
    run(spine::Command::CreateToken(old).into());
    run(spine::Command::CreateToken(token).into());
    run(spine::Command::RevokeToken { name: name("old") }.into());
}

/// Every way to be granted, to wait and to end.
fn bookings(world: &mut World) {
    let large = Request {
        cpu_milli: 500,
        memory_bytes: 256 << 20,
        gpus: 1,
        priority: Priority::High,
        execution_id: Some(id("exec-1")),
        cpu_limit_milli: Some(2_000),
        memory_limit_bytes: Some(u64::MAX),
        ..patient("rust", "acme")
    };
    world.run(reserve("first", large)).unwrap();
    world
        .run(reserve("second", patient("rust", "größe")))
        .unwrap();
    let third = Request {
        wait: Millis::from_secs(5),
        ..patient("rust", "zeta")
    };
    world.run(reserve("third", third)).unwrap();
    world
        .run(reserve("fourth", patient("rust", "zeta")))
        .unwrap();
    world.run(cancel("fourth")).unwrap();
    world.advance(7_000);
    let fence = world.fence("first");
    let outcome = Some(Outcome::Failed);
    world
        .run(BookingCommand::Release {
            id: id("first"),
            fence,
            outcome,
            exit_code: Some(-9),
        })
        .unwrap();
    world
        .evidence
        .insert(id("second"), world.now.after(Millis::from_secs(100)));
    world.advance(61_000);
    world.advance(60_000);
    world
        .run(reserve("fifth", request("rust", "zeta")))
        .unwrap();
    world.run(note("fifth", "the disk is \"slow\"")).unwrap();
    world.run(force("fifth", "stuck \"hard\"\n")).unwrap();
    world.run(note("fifth", "the disk was replaced")).unwrap();
    world
        .run(reserve("sixth", request("rust", "zeta")))
        .unwrap();
    let fence = world.fence("sixth");
    let outcome = Some(Outcome::Ok);
    world
        .run(BookingCommand::Release {
            id: id("sixth"),
            fence,
            outcome,
            exit_code: Some(0),
        })
        .unwrap();
    world
        .run(reserve("holder", request("rust", "zeta")))
        .unwrap();
}

/// More grants than one record may carry.
fn many_grants(world: &mut World) {
    world.run(set_limit(limit_of("go", 0))).unwrap();
    for at in 0..260 {
        let tenant = if at % 3 == 0 { "acme" } else { "zeta" };
        world
            .run(reserve(&format!("go-{at:03}"), patient("go", tenant)))
            .unwrap();
    }
    world.run(set_limit(limit_of("go", 300))).unwrap();
    world.tick();
    for at in (0..260).step_by(50) {
        world.release(&format!("go-{at:03}")).unwrap();
    }
    let drop_limit = Change::DropLimit { name: name("go") };
    let drop_node = spine::Change::DropNode { name: name("a01") };
    let both = [bursar_engine::Change::from(drop_limit), drop_node.into()];
    world.run(change(both)).unwrap();
}

/// Every way of an execution to end; at last one in every stage is left.
fn executions(world: &mut World) {
    let mut run = |command: Command| {
        world.run(command).expect("the script is taken");
    };
    let whole = Order {
        work: Hash([0xCD; 32]),
        pids: Some(64),
        start_timeout: Millis::from_secs(30),
        max_time: Millis::from_hours(2),
        grace: Millis::from_secs(5),
        retry_of: None,
    };
    let large = Request {
        cpu_limit_milli: Some(2_000),
        memory_limit_bytes: Some(1 << 30),
        ..patient("python", "acme")
    };
    run(submit_order("run-well", large, whole));
    run(started("run-well"));
    run(exited("run-well", Exit::Code(0)));
    let again = Order {
        retry_of: Some(id("run-well")),
        ..order()
    };
    run(submit_order("run-again", request("python", "acme"), again));
    let (again, isolation) = (id("run-again"), Isolation::None);
    run(BookingCommand::Started {
        id: again,
        isolation,
    }
    .into());
    run(exited("run-again", Exit::Code(7)));
    for (name, exit) in [
        ("run-signal", Exit::Signal(11)),
        ("run-lost", Exit::Lost),
        ("run-never", Exit::NotStarted("no such file".to_owned())),
    ] {
        run(submit(name, "python", "acme"));
        run(exited(name, exit));
    }
    run(set_limit(limit_of("sh", 1)));
    run(submit("run-stopped", "sh", "acme"));
    run(started("run-stopped"));
    run(submit_order("run-next", patient("sh", "zeta"), order()));
    let hasty = Request {
        wait: Millis::from_secs(5),
        ..request("sh", "zeta")
    };
    run(submit_order("run-over", hasty, order()));
    run(submit_order("run-left", patient("sh", "zeta"), order()));
    run(cancel("run-left"));
    run(cancel("run-stopped"));
    run(stop_failed("run-stopped", 1));
    run(exited("run-stopped", Exit::Signal(9)));
    // `run-next` has the slot, and is not started in time; then one that takes too long.
    world.advance(61_000);
    let mut run = |command: Command| {
        world.run(command).expect("the script is taken");
    };
    let reason = "the executor was busy".to_owned();
    run(exited("run-next", Exit::NotStarted(reason)));
    run(submit("run-stuck", "sh", "acme"));
    run(started("run-stuck"));
    world.advance(3_600_000);
    let mut run = |command: Command| {
        world.run(command).expect("the script is taken");
    };
    for attempt in 1..=STOPS_UNTIL_STUCK {
        run(stop_failed("run-stuck", attempt));
    }
    run(submit_order("run-waits", patient("sh", "zeta"), order()));
    run(submit("run-forced", "python", "acme"));
    run(force("run-forced", "the machine is gone"));
    run(submit("run-starts", "python", "acme"));
    run(submit("run-runs", "python", "acme"));
    run(started("run-runs"));
    run(submit("run-stops", "python", "acme"));
    run(cancel("run-stops"));
    run(stop_failed("run-stops", 1));
}

/// A market that changes in every way; at last one original is kept, and one digest is there.
fn market(world: &mut World) {
    let mut present = Present {
        settings: settings(Mode::Observe, Policy::Proportional, 30_000_000),
        labelled: None,
        originals: BTreeMap::new(),
        position: None,
    };
    let mut tell = |present: &Present, after_ms: u64| {
        world.advance(after_ms);
        let command = market_report(&world.state, "w-17", present, world.now);
        world
            .run(command.expect("something differs"))
            .expect("the script is taken");
    };
    tell(&present, 0);
    present.settings = settings(Mode::Act, Policy::WeightedNash, 30_000_000);
    present.originals = BTreeMap::from([
        (pod("web"), Original { milli: Some(900) }),
        (pod("shop/api-7c9f/größe"), Original { milli: None }),
    ]);
    tell(&present, 5_000);
    present.labelled = Some(Labelled {
        label: Label::Congested,
        pods: 3,
        need_milli: 2_550,
        capacity_milli: 1_500,
    });
    let milli = Some(500);
    present.originals.insert(pod("web"), Original { milli });
    tell(&present, 5_000);
    present.originals.remove("shop/api-7c9f/größe");
    present.position = Some(Position {
        at: Instant::from_ms(START_MS + 4_000_000),
        lines: 720,
        writes: 14,
        head: sha256(b"line 720"),
    });
    tell(&present, 3_600_000);
    present.position = Some(Position {
        at: Instant::from_ms(START_MS + 7_600_000),
        lines: 1_440,
        writes: 15,
        head: sha256(b"line 1440"),
    });
    tell(&present, 3_600_000);
}

fn upkeep(world: &mut World) {
    let mut run = |command: spine::Command| {
        world.run(command).expect("the script is taken");
    };
    run(spine::Command::Anchor {
        record: 5,
        sha256: sha256(b"snapshot"),
    });
    run(spine::Command::Prune {
        below: 4,
        idempotency: Some(id("prune-1")),
    });
    run(spine::Command::RotateKey {
        key: "bursar+00112233+Cd".to_owned(),
        idempotency: Some(id("rotate-1")),
    });
    run(spine::Command::Restore {
        size: 9,
        fence: Some(Fence(1)),
        replaces: None,
        end_tokens: false,
    });
}
