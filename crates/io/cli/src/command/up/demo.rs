//! `bursar up --demo`: a small organisation that books and runs programs in real time, so that
//! there is something to see. It has a directory, a port and a socket of its own and touches
//! nothing else. Its programs are real, short and held to small limits; some fail, hang, do not
//! listen or are cancelled, and [`Tally`] says what was left behind.

mod booking;
mod execution;
mod tally;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{Limit, LimitSpec};
use bursar_client::client::Mode;
use bursar_engine::token::Role;
use bursar_ledger::index;
use bursar_ledger::key::{self, Signer};
use bursar_ledger::lock::{self, Lock};
use bursar_ledger::snapshots;
use bursar_ledger::store::sqlite::FILE_NAME;
use bursar_node::executor::{Executor as _, Left};
use bursar_server::Service;
use bursar_units::ObjectName;
use bursar_units::causes::chain;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{client_as, executor};
use crate::failure::{Failure, Stop};
use booking::HABITS;
use execution::SUBMITTERS;
pub(super) use tally::Tally;

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

/// How often it is said what became of everything.
pub(super) const TALLY_EVERY: Duration = Duration::from_secs(30);
/// How long everyone has to get home.
const HOME_WITHIN: Duration = Duration::from_secs(20);

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

/// Removes what an earlier demo left, and nothing else, unless one still runs.
pub(super) fn clear(data: &Path) -> Result<(), Stop> {
    if !data.exists() {
        return Ok(());
    }
    let held = Lock::take(data).map_err(|error| {
        Failure::unavailable(format!("the demo runs already: {}", chain(&error)))
            .hint("`bursar --context demo bookings` looks at it")
    })?;
    end_executions(data)?;
    let files = [
        FILE_NAME,
        "ledger.db-wal",
        "ledger.db-shm",
        "ledger.checkpoint",
        index::FILE_NAME,
        "ledger.index-journal",
        key::NEW_FILE_NAME,
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
    // A directory that is not there needs no removing.
    for directory in [snapshots::DIRECTORY_NAME, executor::DIRECTORY] {
        let _absent = std::fs::remove_dir_all(data.join(directory));
    }
    drop(held);
    Ok(())
}

/// Ends what a demo that was killed left running: nobody else ever would, since the next one has
/// a ledger of its own.
fn end_executions(data: &Path) -> Result<(), Stop> {
    let directory = data.join(executor::DIRECTORY);
    let failed = |reason: String| Failure::unavailable(format!("an earlier demo: {reason}"));
    let signer = Signer::load(&data.join(key::FILE_NAME)).map_err(|error| failed(chain(&error)))?;
    let Some(ledger) = signer.as_ref().and_then(Signer::ledger_begun) else {
        return Ok(());
    };
    if !directory.exists() {
        return Ok(());
    }
    let local = executor::open(directory, ledger, false)?;
    let left = local.list().map_err(|error| failed(chain(&error)))?;
    for id in left {
        let cleaned = local.clean(&id, Left::Nothing);
        cleaned.map_err(|error| failed(chain(&error)))?;
    }
    Ok(())
}

/// What is said once it runs.
pub(super) fn words(data: &str) -> String {
    format!(
        "
the demo: 5 tenants book and run programs; its data is in {data},
which starts fresh each time
try, in another terminal:
  bursar --context demo bookings -w                                who holds, who waits
  bursar --context demo bookings --where state=ended,class=python  how programs ended
  bursar --context demo limits                                     how full each limit is
  bursar --context demo top                                        who uses CPU, and how much
  bursar --context demo ledger tail -w                             what happens, in sentences
  bursar --context demo limit set python --slots 4 --dry-run       what a bound would do
"
    )
}

/// Everyone who plays.
pub(super) struct Players {
    /// They hold slots only: they may be dropped at any moment.
    bookers: JoinSet<()>,
    submitters: JoinSet<()>,
    home: watch::Sender<bool>,
}

/// Declares the limits and lets everyone begin.
pub(super) async fn start(service: &Arc<Service>, operator: &Client) -> Result<Players, Stop> {
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
    let mut players = Players {
        bookers: JoinSet::new(),
        submitters: JoinSet::new(),
        home: watch::Sender::new(false),
    };
    for habit in HABITS {
        let client = client_as(service, habit.tenant, Role::Use, habit.tenant)?;
        for _ in 0..habit.workers {
            players.bookers.spawn(booking::live(client.clone(), *habit));
        }
    }
    for submitter in SUBMITTERS {
        let client = client_as(service, submitter.tenant, Role::Use, submitter.tenant)?;
        for _ in 0..submitter.workers {
            let home = players.home.subscribe();
            let life = execution::live(client.clone(), *submitter, home);
            players.submitters.spawn(life);
        }
    }
    Ok(players)
}

impl Players {
    /// Sends everyone home: what runs is cancelled and seen to its end, if that comes in time.
    pub(super) async fn finish(mut self) {
        self.bookers.abort_all();
        self.home.send_replace(true);
        let all_home = async { while self.submitters.join_next().await.is_some() {} };
        // Whoever is later is shown as running.
        let _late = tokio::time::timeout(HOME_WITHIN, all_home).await;
    }
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
