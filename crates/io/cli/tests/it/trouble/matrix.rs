//! Every state of an execution against every trouble, on the real kernel (X1 to X5).
//!
//! Method: one table has the end of each case, as `docs/executions.md` has. Many cells are brought
//! into their states under one server, and then the troubles happen. Afterwards each execution has
//! ended as in the table, its program has started the expected number of times, no slot, process,
//! cgroup or zombie is left, and the ledger checks.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bursar_client::Code;
use bursar_client::client::{Error, Mode};
use tokio::task::JoinSet;

use super::cell::{Cell, Fate, Group, STATES, State, TROUBLES, Trouble};
use super::freezer::Freezer;
use super::rig::{Isolation, Rig, isolation, name};
use crate::house::House;

/// The cells of a group that are possible with this isolation.
fn cells(group: Group, isolation: Isolation) -> Vec<Cell> {
    let all = STATES.into_iter().flat_map(|state| {
        TROUBLES
            .into_iter()
            .map(move |trouble| Cell { state, trouble })
    });
    all.filter(|cell| cell.group() == group)
        .filter(|cell| matches!(cell.fate(), Fate::Ends(..)))
        .filter(|cell| isolation == Isolation::Cgroup || !cell.needs_cgroup())
        .collect()
}

/// Runs `act` on all cells at once; a failure lists all failed cells.
async fn together<F>(rig: &Arc<Rig>, freezer: &Arc<Freezer>, cells: &[Cell], act: F)
where
    F: AsyncFn(Cell, &Rig, &Freezer) + Clone + 'static,
{
    let local = tokio::task::LocalSet::new();
    let mut tasks = JoinSet::new();
    let mut names = BTreeMap::new();
    for cell in cells.iter().copied() {
        let (rig, freezer, act) = (Arc::clone(rig), Arc::clone(freezer), act.clone());
        let task = async move { act(cell, &rig, &freezer).await };
        names.insert(tasks.spawn_local_on(task, &local).id(), cell.id());
    }
    let mut failed = Vec::new();
    local
        .run_until(async {
            while let Some(ended) = tasks.join_next_with_id().await {
                if let Err(error) = ended {
                    failed.extend(names.remove(&error.id()));
                }
            }
        })
        .await;
    assert!(failed.is_empty(), "of {}: {failed:?}", cells.len());
}

/// A server with a running probe and a class whose only slot is held.
async fn ready(rig: Rig) -> (Arc<Rig>, Arc<Freezer>) {
    let freezer = Freezer::find(&rig).await;
    rig.fill("full").await;
    (Arc::new(rig), Arc::new(freezer))
}

/// Asserts that everything has ended, and how often each program has started.
async fn finish(rig: &Rig, cells: &[Cell]) {
    rig.open("probe").await;
    rig.ended("probe").await;
    rig.assert_nothing_left().await;
    let begun = rig.begun();
    for cell in cells {
        let Fate::Ends(_, _, count) = cell.fate() else {
            panic!("{cell:?} is impossible");
        };
        let id = cell.id();
        assert_eq!(
            begun.iter().filter(|line| **line == id).count(),
            count,
            "{id} began"
        );
    }
}

async fn calm(isolation: Isolation) {
    let (rig, freezer) = ready(Rig::new(isolation)).await;
    let cells = cells(Group::Calm, isolation);
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        cell.prepare(rig, freezer).await;
        cell.strike(rig, freezer).await;
        cell.judge(rig).await;
    })
    .await;
    rig.empty("full").await.unwrap();
    finish(&rig, &cells).await;
}

async fn killed(isolation: Isolation) {
    let (rig, freezer) = ready(Rig::new(isolation)).await;
    let cells = cells(Group::Killed, isolation);
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        cell.prepare(rig, freezer).await;
    })
    .await;
    rig.kill();
    together(
        &rig,
        &freezer,
        &cells,
        async |cell, rig, freezer| match cell.trouble {
            Trouble::ServerKilled => {}
            Trouble::BothKilled => cell.lose_shim(rig),
            Trouble::SwitchedOff => cell.switch_off(rig).await,
            _ => {
                cell.release(rig, freezer).await;
                cell.wait_for_status(rig).await;
            }
        },
    )
    .await;
    rig.start();
    rig.empty("full").await.unwrap();
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        if cell.trouble == Trouble::ServerKilled {
            cell.release(rig, freezer).await;
        }
        cell.judge(rig).await;
    })
    .await;
    finish(&rig, &cells).await;
}

async fn full(isolation: Isolation) {
    let rig = Rig::on(House::new(), Some(DISK_MEBIBYTES), isolation);
    let (rig, freezer) = ready(rig).await;
    let cells = cells(Group::Full, isolation);
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        cell.prepare(rig, freezer).await;
    })
    .await;
    let filler = fill(&rig);
    let refused = rig.request("exit 0", |_| ());
    let refused = rig
        .impatient()
        .submit(&name("refused"), &refused, Mode::Do)
        .await;
    assert!(refused.is_err(), "{refused:?}");
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        cell.release(rig, freezer).await;
        match cell.state {
            State::Queued => {}
            State::Unborn => cell.wait_for_shim_to_leave(rig).await,
            _ => cell.wait_for_status(rig).await,
        }
    })
    .await;
    std::fs::remove_file(filler).unwrap();
    rig.resize_disk(u64::from(DISK_MEBIBYTES) << 10, FILES);
    rig.empty("full").await.unwrap();
    together(&rig, &freezer, &cells, async |cell, rig, _| {
        cell.judge(rig).await;
    })
    .await;
    assert_unknown(&rig, "refused").await;
    finish(&rig, &cells).await;
}

/// More than the free space below which a server refuses new requests.
const DISK_MEBIBYTES: u32 = 400;
/// More files than a test needs.
const FILES: u64 = 10_000;

/// Takes all free space for bytes and files. Space that the store frees in its own files, such as
/// its log, is still the store's only.
fn fill(rig: &Rig) -> std::path::PathBuf {
    let disk = rig.data.parent().unwrap();
    let filler = disk.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    rig.shrink_disk();
    while file.write_all(&[1; 4096]).is_ok() {}
    filler
}

async fn away(isolation: Isolation) {
    let (rig, freezer) = ready(Rig::new(isolation)).await;
    let cells = cells(Group::Away, isolation);
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        cell.prepare(rig, freezer).await;
    })
    .await;
    let holder = Holder::of(&rig.data.join("ledger.db"));
    let refused = refused(&rig).await;
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        cell.release(rig, freezer).await;
        if cell.state != State::Queued {
            cell.wait_for_status(rig).await;
        }
        let state = rig.look(&cell.id()).await.course.state;
        assert_eq!(state, cell.ledger_state(), "{} is not recorded", cell.id());
    })
    .await;
    drop(holder);
    rig.empty("full").await.unwrap();
    together(&rig, &freezer, &cells, async |cell, rig, _| {
        cell.judge(rig).await;
    })
    .await;
    assert_unknown(&rig, &refused).await;
    finish(&rig, &cells).await;
}

/// Submits until the server refuses for lack of its store; returns the refused id.
async fn refused(rig: &Rig) -> String {
    let request = rig.request("exit 0", |_| ());
    for number in 0..20 {
        let id = format!("away-{number}");
        match rig.impatient().submit(&name(&id), &request, Mode::Do).await {
            // The outcome of this one is unknown, because the store may come back.
            Err(Error::Timeout { .. }) => {}
            Err(Error::Problem(problem)) if problem.code == Code::OutcomeUnknown => {}
            Err(Error::Problem(problem)) => {
                assert_eq!(problem.code, Code::Unavailable, "{problem:?}");
                return id;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!(
        "the server does not report that its store is away: {}",
        rig.log()
    );
}

async fn assert_unknown(rig: &Rig, id: &str) {
    match rig.client().execution(&name(id)).await {
        Err(Error::Problem(problem)) => assert_eq!(problem.status, 404, "{problem:?}"),
        other => panic!("{id}: {other:?}"),
    }
}

/// A process that holds the writers' lock of a store, as a program stopped in a transaction does.
struct Holder(Child);

impl Holder {
    fn of(file: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", HOLD])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// In SQLite only the connection that has locked byte 120 of the shared memory may write. The other
/// two locks mark a live connection, so that no other one removes the shared memory.
const HOLD: &str = "
import fcntl, sys
file = open(sys.argv[1], 'r+b')
fcntl.lockf(file, fcntl.LOCK_SH, 510, 0x40000002)
memory = open(sys.argv[1] + '-shm', 'r+b')
fcntl.lockf(memory, fcntl.LOCK_SH, 1, 128)
fcntl.lockf(memory, fcntl.LOCK_EX, 1, 120)
print('held', flush=True)
sys.stdin.read()
";

#[tokio::test]
async fn the_slot_is_released_after_every_trouble() {
    calm(isolation()).await;
}

#[tokio::test]
async fn the_slot_is_released_after_every_trouble_without_isolation() {
    calm(Isolation::None).await;
}

#[tokio::test]
async fn the_next_server_finds_every_execution_after_kills() {
    killed(isolation()).await;
}

#[tokio::test]
async fn the_next_server_finds_every_execution_after_kills_without_isolation() {
    killed(Isolation::None).await;
}

#[tokio::test]
async fn a_full_disk_loses_no_result_and_no_slot() {
    full(isolation()).await;
}

#[tokio::test]
async fn results_wait_for_a_store_that_is_away() {
    away(isolation()).await;
}
