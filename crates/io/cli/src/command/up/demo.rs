//! `bursar up --demo`: a small organisation that books slots and runs programs in real time. It
//! has its own data directory, port and socket and touches nothing else. Its programs are real and
//! short, and have small limits. Some fail, hang, ignore signals or are cancelled; [`Tally`] counts
//! the processes, cgroups and slots that were left behind.

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
use bursar_node::executor::Left;
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

/// Interval of the tally.
pub(super) const TALLY_EVERY: Duration = Duration::from_secs(30);
/// Time limit for the workers to finish.
const FINISH_WITHIN: Duration = Duration::from_secs(20);

/// Name, class, tenant, slots and weight of each limit.
type Bound = (
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
    u64,
    Option<u64>,
);

const LIMITS: [Bound; 6] = [
    ("python", Some("python"), None, 12, None),
    ("node", Some("node"), None, 8, None),
    ("train", Some("train"), None, 8, None),
    ("everything", None, None, 24, None),
    ("tenant", None, Some("each"), 14, None),
    ("acme", None, Some("acme"), 14, Some(300)),
];

/// Removes the files of an earlier demo, and no others. Fails if a demo is running.
pub(super) fn clear(data: &Path) -> Result<(), Stop> {
    if !data.exists() {
        return Ok(());
    }
    let lock = Lock::take(data).map_err(|error| {
        Failure::unavailable(format!("the demo is already running: {}", chain(&error)))
            .hint("`bursar --context demo bookings` shows its bookings")
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
    for directory in [snapshots::DIRECTORY_NAME, executor::DIRECTORY] {
        let _absent = std::fs::remove_dir_all(data.join(directory));
    }
    drop(lock);
    Ok(())
}

/// Ends executions of an earlier demo that was killed. No other server would: every demo starts a
/// new ledger.
fn end_executions(data: &Path) -> Result<(), Stop> {
    let directory = data.join(executor::DIRECTORY);
    let failed = |reason: String| {
        Failure::unavailable(format!("the earlier demo cannot be removed: {reason}"))
    };
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

/// The text below the start message.
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

/// The workers of the demo.
pub(super) struct Players {
    /// They only hold slots, so they may be dropped at any moment.
    bookers: JoinSet<()>,
    submitters: JoinSet<()>,
    finish: watch::Sender<bool>,
}

/// Declares the limits and starts the workers.
pub(super) async fn start(service: &Arc<Service>, operator: &Client) -> Result<Players, Stop> {
    for (name, class, tenant, slots, weight) in LIMITS {
        let name = ObjectName::new(name).map_err(|error| Failure::usage(error.to_string()))?;
        let spec = LimitSpec {
            class: class.map(ToOwned::to_owned),
            tenant: tenant.map(ToOwned::to_owned),
            slots: Some(slots),
            weight,
            ..LimitSpec::default()
        };
        let limit = Limit::new(name, spec);
        operator.put_limit(&limit, Mode::Do).await?;
    }
    let mut players = Players {
        bookers: JoinSet::new(),
        submitters: JoinSet::new(),
        finish: watch::Sender::new(false),
    };
    for habit in HABITS {
        let client = client_as(service, habit.tenant, Role::Use, habit.tenant)?;
        for _ in 0..habit.workers {
            players.bookers.spawn(booking::work(client.clone(), *habit));
        }
    }
    for submitter in SUBMITTERS {
        let client = client_as(service, submitter.tenant, Role::Use, submitter.tenant)?;
        for _ in 0..submitter.workers {
            let finish = players.finish.subscribe();
            let worker = execution::work(client.clone(), *submitter, finish);
            players.submitters.spawn(worker);
        }
    }
    Ok(players)
}

impl Players {
    /// Stops the workers: executions are cancelled and awaited, up to a time limit.
    pub(super) async fn finish(mut self) {
        self.bookers.abort_all();
        self.finish.send_replace(true);
        let all_finished = async { while self.submitters.join_next().await.is_some() {} };
        // Executions that take longer count as running in the tally.
        let _late = tokio::time::timeout(FINISH_WITHIN, all_finished).await;
    }
}

/// Random numbers by `SplitMix64` from a random seed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let mut seed = [0; 8];
        // Without a random seed all workers act at the same times, which is harmless.
        let _absent = getrandom::fill(&mut seed);
        Self(u64::from_le_bytes(seed))
    }

    /// A whole number in the inclusive range.
    fn between(&mut self, (first, last): (u64, u64)) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        first + (mixed ^ (mixed >> 31)) % (last - first + 1)
    }
}
