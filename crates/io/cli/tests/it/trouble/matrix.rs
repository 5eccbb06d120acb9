//! Every state of an execution against every trouble, on the real kernel (X1 to X5).
//!
//! Method: one table says how each ends, the same as `docs/executions.md` does. Cells are brought
//! into their state, many at a time under one server, and then met by their trouble. Afterwards
//! each has ended as the table says, its program has begun as often as it should, and nothing is
//! left: no slot, no process, no cgroup, no zombie, and the ledger checks.

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
use super::rig::{Kept, Rig, kept, name};
use crate::house::House;

/// The cells of a group that can be, here.
fn cells(group: Group, kept: Kept) -> Vec<Cell> {
    let all = STATES.into_iter().flat_map(|state| {
        TROUBLES
            .into_iter()
            .map(move |trouble| Cell { state, trouble })
    });
    all.filter(|cell| cell.group() == group)
        .filter(|cell| matches!(cell.fate(), Fate::Ends(..)))
        .filter(|cell| kept == Kept::Apart || !cell.needs_cgroup())
        .collect()
}

/// Does something with every cell at once; whoever fails says so, and all are heard.
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

/// A server with a probe that runs and a class in which everybody waits.
async fn ready(rig: Rig) -> (Arc<Rig>, Arc<Freezer>) {
    let freezer = Freezer::find(&rig).await;
    rig.fill("full").await;
    (Arc::new(rig), Arc::new(freezer))
}

/// That all is over and nothing is left.
async fn finish(rig: &Rig, cells: &[Cell]) {
    rig.open("probe").await;
    rig.ended("probe").await;
    rig.assert_nothing_left().await;
    let begun = rig.begun();
    for cell in cells {
        let Fate::Ends(_, _, count) = cell.fate() else {
            panic!("{cell:?} cannot be");
        };
        let id = cell.id();
        assert_eq!(
            begun.iter().filter(|line| **line == id).count(),
            count,
            "{id} began"
        );
    }
}

async fn calm(kept: Kept) {
    let (rig, freezer) = ready(Rig::new(kept)).await;
    let cells = cells(Group::Calm, kept);
    together(&rig, &freezer, &cells, async |cell, rig, freezer| {
        cell.prepare(rig, freezer).await;
        cell.strike(rig, freezer).await;
        cell.judge(rig).await;
    })
    .await;
    rig.empty("full").await.unwrap();
    finish(&rig, &cells).await;
}

async fn killed(kept: Kept) {
    let (rig, freezer) = ready(Rig::new(kept)).await;
    let cells = cells(Group::Killed, kept);
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

async fn full(kept: Kept) {
    let rig = Rig::on(House::new(), Some(DISK_MEBIBYTES), kept);
    let (rig, freezer) = ready(rig).await;
    let cells = cells(Group::Full, kept);
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

/// More than the room below which a server takes nothing new.
const DISK_MEBIBYTES: u32 = 400;
/// More than anybody needs.
const FILES: u64 = 10_000;

/// Takes all the room that is left, for bytes and for files: a store that gives some of its room
/// back, as a log does that is emptied, makes none for others.
fn fill(rig: &Rig) -> std::path::PathBuf {
    let disk = rig.data.parent().unwrap();
    let filler = disk.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    rig.shrink_disk();
    while file.write_all(&[1; 4096]).is_ok() {}
    filler
}

async fn away(kept: Kept) {
    let (rig, freezer) = ready(Rig::new(kept)).await;
    let cells = cells(Group::Away, kept);
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
        let told = rig.look(&cell.id()).await.course.state;
        assert_eq!(told, cell.told(), "{} is not on record", cell.id());
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

/// Submits until the server says that it takes nothing; which one it said that of.
async fn refused(rig: &Rig) -> String {
    let request = rig.request("exit 0", |_| ());
    for number in 0..20 {
        let id = format!("away-{number}");
        match rig.impatient().submit(&name(&id), &request, Mode::Do).await {
            // The store may yet come back: nothing is known of this one.
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
        "a server whose store is away does not say so: {}",
        rig.log()
    );
}

async fn assert_unknown(rig: &Rig, id: &str) {
    match rig.client().execution(&name(id)).await {
        Err(Error::Problem(problem)) => assert_eq!(problem.status, 404, "{problem:?}"),
        other => panic!("{id}: {other:?}"),
    }
}

/// Somebody who holds the lock that every writer of a store needs, as a program does that was
/// stopped in the middle of its work.
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
        let mut said = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// One connection of SQLite writes at a time: the one that has locked byte 120 of its shared
/// memory. The other two locks say that it lives, so that nobody takes that memory away.
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
async fn whatever_a_program_does_its_slot_comes_back() {
    calm(kept()).await;
}

#[tokio::test]
async fn whatever_a_program_does_its_slot_comes_back_where_nothing_is_kept_apart() {
    calm(Kept::Nowhere).await;
}

#[tokio::test]
async fn whoever_is_killed_and_whatever_ends_meanwhile_the_next_server_finds_it() {
    killed(kept()).await;
}

#[tokio::test]
async fn the_next_server_finds_what_runs_where_nothing_is_kept_apart() {
    killed(Kept::Nowhere).await;
}

#[tokio::test]
async fn a_full_disk_costs_no_result_and_no_slot() {
    full(kept()).await;
}

#[tokio::test]
async fn results_wait_for_a_store_that_is_away() {
    away(kept()).await;
}
