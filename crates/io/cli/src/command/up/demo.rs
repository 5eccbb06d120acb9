//! `bursar up --demo`: a small organisation that books in real time, so that there is something
//! to see. It has a directory, a port and a socket of its own and touches nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{
    BookingRequest, Limit, LimitSpec, Outcome, Priority, ReleaseRequest, RenewRequest, State,
};
use bursar_client::client::Mode;
use bursar_engine::token::Role;
use bursar_ledger::key;
use bursar_ledger::lock::{self, Lock};
use bursar_ledger::snapshots;
use bursar_ledger::store::sqlite::FILE_NAME;
use bursar_server::Service;
use bursar_units::{Label, ObjectName};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client_as;
use crate::failure::{Failure, Stop, chain};

/// A limit of the organisation.
struct Bound {
    name: &'static str,
    class: Option<&'static str>,
    tenant: Option<&'static str>,
    slots: u64,
    weight: Option<u64>,
}

const fn of_class(name: &'static str, slots: u64) -> Bound {
    Bound {
        name,
        class: Some(name),
        tenant: None,
        slots,
        weight: None,
    }
}

const LIMITS: &[Bound] = &[
    of_class("python", 12),
    of_class("node", 8),
    of_class("train", 8),
    Bound {
        name: "everything",
        class: None,
        tenant: None,
        slots: 24,
        weight: None,
    },
    Bound {
        name: "tenant",
        class: None,
        tenant: Some("each"),
        slots: 14,
        weight: None,
    },
    Bound {
        name: "acme",
        class: None,
        tenant: Some("acme"),
        slots: 14,
        weight: Some(300),
    },
];

/// The habits of a tenant.
#[derive(Clone, Copy)]
struct Habit {
    tenant: &'static str,
    class: &'static str,
    /// How many of its workers are at it at once.
    workers: u64,
    slots: (u64, u64),
    /// How long it holds, in milliseconds, from and to.
    holds: (u64, u64),
    /// How long it rests between two bookings.
    rests: (u64, u64),
    priority: Priority,
    manner: Manner,
}

/// What a tenant is like.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Manner {
    /// Renews and gives back.
    Tidy,
    /// Does not renew and never gives back: its bookings expire.
    Forgetful,
    /// Loses patience in the queue.
    Impatient,
}

const HABITS: &[Habit] = &[
    Habit {
        tenant: "acme",
        class: "python",
        workers: 8,
        slots: (1, 1),
        holds: (3_000, 9_000),
        rests: (200, 1_500),
        priority: Priority::Normal,
        manner: Manner::Tidy,
    },
    Habit {
        tenant: "zeta",
        class: "python",
        workers: 10,
        slots: (1, 1),
        holds: (1_000, 4_000),
        rests: (0, 12_000),
        priority: Priority::Low,
        manner: Manner::Tidy,
    },
    Habit {
        tenant: "zeta",
        class: "node",
        workers: 6,
        slots: (1, 2),
        holds: (2_000, 6_000),
        rests: (1_000, 6_000),
        priority: Priority::Normal,
        manner: Manner::Tidy,
    },
    Habit {
        tenant: "deep",
        class: "train",
        workers: 3,
        slots: (3, 6),
        holds: (8_000, 20_000),
        rests: (2_000, 8_000),
        priority: Priority::Batch,
        manner: Manner::Tidy,
    },
    Habit {
        tenant: "oops",
        class: "node",
        workers: 3,
        slots: (1, 1),
        holds: (5_000, 8_000),
        rests: (3_000, 9_000),
        priority: Priority::Normal,
        manner: Manner::Forgetful,
    },
    Habit {
        tenant: "rush",
        class: "python",
        workers: 4,
        slots: (1, 2),
        holds: (1_000, 3_000),
        rests: (1_000, 5_000),
        priority: Priority::High,
        manner: Manner::Impatient,
    },
];

/// How long a tidy one may wait in the queue.
const WAIT_MS: u64 = 60_000;
/// How long an impatient one does.
const PATIENCE: Duration = Duration::from_secs(3);
/// The ttl of all: short, so that there is something to renew.
const TTL_MS: u64 = 6_000;

/// Removes what an earlier demo left, and nothing else, unless one still runs.
pub(super) fn clear(data: &Path) -> Result<(), Stop> {
    if !data.exists() {
        return Ok(());
    }
    let held = Lock::take(data).map_err(|error| {
        Failure::unavailable(format!("the demo runs already: {}", chain(&error)))
            .hint("`bursar --context demo bookings` looks at it")
    })?;
    let files = [
        FILE_NAME,
        "ledger.db-wal",
        "ledger.db-shm",
        key::FILE_NAME,
        lock::FILE_NAME,
        super::SOCKET,
    ];
    for file in files {
        match std::fs::remove_file(data.join(file)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::file("remove", data.join(file).display(), &error).into());
            }
            _ => {}
        }
    }
    // A directory of snapshots that is not there needs no removing.
    let _absent = std::fs::remove_dir_all(data.join(snapshots::DIRECTORY_NAME));
    drop(held);
    Ok(())
}

/// What is said once it runs.
pub(super) fn words(data: &str) -> String {
    format!(
        "
the demo: 5 tenants book on 3 classes; its data is in {data} and starts fresh each time
try, in another terminal:
  bursar --context demo bookings -w           who holds, who waits
  bursar --context demo limits                how full each limit is
  bursar --context demo ledger tail -w        what happens, sentence by sentence
  bursar --context demo limit set python --slots 4 --dry-run
"
    )
}

/// Declares the limits and lets everyone begin. Dropping the set sends everyone home.
pub(super) async fn start(service: &Arc<Service>, operator: &Client) -> Result<JoinSet<()>, Stop> {
    for bound in LIMITS {
        let name =
            ObjectName::new(bound.name).map_err(|error| Failure::usage(error.to_string()))?;
        let spec = LimitSpec {
            class: bound.class.map(ToOwned::to_owned),
            tenant: bound.tenant.map(ToOwned::to_owned),
            slots: Some(bound.slots),
            weight: bound.weight,
            ..LimitSpec::default()
        };
        operator
            .put_limit(&Limit::new(name, spec), Mode::Do)
            .await?;
    }
    let mut players = JoinSet::new();
    for habit in HABITS {
        let client = client_as(service, habit.tenant, Role::Use, habit.tenant)?;
        for _ in 0..habit.workers {
            players.spawn(live(client.clone(), *habit));
        }
    }
    Ok(players)
}

/// One worker's life: rest, ask, hold, give back, for ever.
async fn live(client: Client, habit: Habit) {
    let mut chance = Chance::new();
    loop {
        sleep(Duration::from_millis(chance.between(habit.rests))).await;
        // What goes wrong here goes wrong for this worker only, and it tries again.
        let _refused = once(&client, habit, &mut chance).await;
    }
}

async fn once(client: &Client, habit: Habit, chance: &mut Chance) -> Option<()> {
    let id = bursar_client::ids::new(habit.tenant).ok()?;
    let request = BookingRequest {
        slots: chance.between(habit.slots),
        ttl_ms: Some(TTL_MS),
        wait_ms: Some(WAIT_MS),
        priority: Some(habit.priority),
        ..BookingRequest::new(Label::new(habit.class).ok()?)
    };
    let mut booking = client.reserve(&id, &request, Mode::Do).await.ok()?;
    if booking.state == State::Queued && habit.manner == Manner::Impatient {
        booking = client.booking_wait(&id, PATIENCE).await.ok()?;
        if booking.state == State::Queued {
            client.cancel(&id, Mode::Do).await.ok()?;
            return Some(());
        }
    }
    while booking.state == State::Queued {
        booking = client
            .booking_wait(&id, Duration::from_secs(30))
            .await
            .ok()?;
    }
    let (State::Granted, Some(fence)) = (booking.state, booking.fence) else {
        return None;
    };
    let mut left = chance.between(habit.holds);
    if habit.manner == Manner::Forgetful {
        sleep(Duration::from_millis(left)).await;
        return Some(());
    }
    while left > 0 {
        let step = left.min(TTL_MS / 3);
        sleep(Duration::from_millis(step)).await;
        left -= step;
        client
            .renew(
                &id,
                &RenewRequest {
                    fence,
                    ttl_ms: None,
                },
                Mode::Do,
            )
            .await
            .ok()?;
    }
    let is_failed = chance.between((0, 9)) == 0;
    let release = ReleaseRequest {
        fence: Some(fence),
        outcome: Some(if is_failed {
            Outcome::Failed
        } else {
            Outcome::Ok
        }),
        exit_code: Some(i32::from(is_failed)),
        ..ReleaseRequest::default()
    };
    client.release(&id, &release, Mode::Do).await.ok()?;
    Some(())
}

/// Enough chance to look like life: `SplitMix64` from a random seed.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let mut seed = [0; 8];
        // Without randomness all workers move in step, which is dull but harmless.
        let _absent = getrandom::fill(&mut seed);
        Self(u64::from_le_bytes(seed))
    }

    /// A whole number from the first to the last.
    fn between(&mut self, (first, last): (u64, u64)) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        first + (mixed ^ (mixed >> 31)) % (last - first + 1)
    }
}
