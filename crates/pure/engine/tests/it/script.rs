//! One life of a ledger in which everything happens once: the source of the golden journal.

use bursar_booking::decide::Change;
use bursar_booking::{Bound, Extras, Limit, Outcome, Priority, Request, Scope};
use bursar_engine::token::{Role, Token};
use bursar_engine::{Command, State};
use bursar_journal::hash::sha256;
use bursar_units::{Amount, Instant, Millis};

use crate::world::{
    START_MS, World, id, label, limit_of, name, patient, request, reserve, set_limit,
};

/// Every kind of command and of event, in an order that a real ledger could have.
pub(crate) fn everything_happens() -> World {
    let mut world = World::new();
    let mut run = |command| {
        world.run(command).expect("the script is taken");
    };
    run(Command::Resume {
        wall: Instant::from_ms(START_MS + 3),
    });
    run(Command::RotateKey {
        key: "bursar+7d1c03aa+Ab".to_owned(),
        idempotency: None,
    });
    declare(&mut run);
    bookings(&mut world);
    many_grants(&mut world);
    upkeep(&mut world);
    world
}

/// A state with one of each fact, small enough to be mutated many times.
pub(crate) fn small_state() -> State {
    let mut world = World::new();
    let mut run = |command| {
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
    world.state
}

fn declare(run: &mut impl FnMut(Command)) {
    let node = Amount {
        slots: 0,
        cpu_milli: 96_000,
        memory_bytes: 1_000 << 30,
        gpus: 8,
    };
    let everything = Limit {
        slots: Some(400),
        memory: Some(Bound::Percent(80)),
        queue_max: 1_000,
        ..Limit::unbounded(None, None)
    };
    let heavy = Limit {
        weight: Some(300),
        ..Limit::unbounded(None, Some(Scope::Named(label("zeta"))))
    };
    let pair = Limit {
        gpus: Some(4),
        wait_max: Millis::from_hours(2),
        ttl_max: Millis::from_hours(3),
        ..Limit::unbounded(Some(Scope::Each), Some(Scope::Each))
    };
    run(Command::Change {
        changes: vec![
            Change::SetNode {
                name: name("a01"),
                capacity: node,
            },
            Change::SetLimit {
                name: name("everything"),
                limit: everything,
            },
            Change::SetLimit {
                name: name("zeta"),
                limit: heavy,
            },
            Change::SetLimit {
                name: name("pair"),
                limit: pair,
            },
        ],
    });
    run(set_limit("rust", limit_of("rust", 1)));
    let token = Token {
        name: name("ci"),
        sha256: sha256(b"secret"),
        roles: [Role::Use, Role::View].into(),
        tenants: [label("acme"), label("größe")].into(),
        expires: Instant::from_ms(START_MS + 7_776_000_000),
    };
    run(Command::CreateToken {
        token: Token {
            name: name("old"),
            sha256: sha256(b"x"),
            ..token.clone()
        },
    });
    run(Command::CreateToken { token });
    run(Command::RevokeToken { name: name("old") });
}

/// Every way to be granted, to wait and to end.
fn bookings(world: &mut World) {
    let extras = Extras {
        execution: Some(id("exec-1")),
        cpu_limit_milli: Some(2_000),
        memory_limit_bytes: Some(u64::MAX),
        order: None,
    };
    let large = Request {
        amount: Amount {
            slots: 1,
            cpu_milli: 500,
            memory_bytes: 256 << 20,
            gpus: 1,
        },
        priority: Priority::High,
        extras: Some(Box::new(extras)),
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
    world.run(Command::Cancel { id: id("fourth") }).unwrap();
    world.advance(7_000);
    let fence = world.fence("first");
    let outcome = Some(Outcome::Failed);
    world
        .run(Command::Release {
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
    world
        .run(Command::Force {
            id: id("fifth"),
            reason: "stuck \"hard\"\n".to_owned(),
        })
        .unwrap();
    world
        .run(reserve("sixth", request("rust", "zeta")))
        .unwrap();
    let fence = world.fence("sixth");
    let outcome = Some(Outcome::Ok);
    world
        .run(Command::Release {
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
    world.run(set_limit("go", limit_of("go", 0))).unwrap();
    for at in 0..260 {
        let tenant = if at % 3 == 0 { "acme" } else { "zeta" };
        world
            .run(reserve(&format!("go-{at:03}"), patient("go", tenant)))
            .unwrap();
    }
    world.run(set_limit("go", limit_of("go", 300))).unwrap();
    world.tick();
    for at in (0..260).step_by(50) {
        world.release(&format!("go-{at:03}")).unwrap();
    }
    let drop_limit = Change::DropLimit { name: name("go") };
    let drop_node = Change::DropNode { name: name("a01") };
    world
        .run(Command::Change {
            changes: vec![drop_limit, drop_node],
        })
        .unwrap();
}

fn upkeep(world: &mut World) {
    let mut run = |command| {
        world.run(command).expect("the script is taken");
    };
    run(Command::Anchor {
        record: 5,
        sha256: sha256(b"snapshot"),
    });
    run(Command::Prune {
        below: 4,
        idempotency: Some(id("prune-1")),
    });
    run(Command::RotateKey {
        key: "bursar+00112233+Cd".to_owned(),
        idempotency: Some(id("rotate-1")),
    });
    run(Command::Restore { size: 9 });
}
