//! Every state of an execution against every trouble, on the real kernel (X1 to X5).
//!
//! Method: one table says how each ends, the same as `docs/executions.md` does. Cells are brought
//! into their state, many at a time under one server, and then met by their trouble. Afterwards
//! each has ended as the table says, its program has begun as often as it should, and nothing is
//! left: no slot, no process, no cgroup, no zombie, and the ledger checks.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bursar_client::api::{ExecutionOutcome as Outcome, ExecutionState, LogStream};
use bursar_client::client::Follow;
use tokio::task::JoinSet;

use super::rig::{BEGIN, Kept, Mounted, Rig, members, name, until};

/// Where an execution is when trouble comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// It waits for a slot.
    Queued,
    /// It starts: its shim lives, and has done nothing yet.
    Unborn,
    /// It starts: its process is in its cgroup, and is not its program yet.
    Born,
    /// It runs.
    Running,
    /// It was cancelled, and takes its time.
    Stopping,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trouble {
    ExitZero,
    ExitOther,
    Signal,
    Cancel,
    /// Of waiting, starting, running or ending, by the state.
    Timeout,
    ServerKilled,
    ShimKilled,
    BothKilled,
    SwitchedOff,
    DiskFull,
    CgroupBusy,
    Flood,
    ForkBomb,
    Daemon,
    OwnSession,
    StoreAway,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It ends like this, and its program has begun so often.
    Ends(Outcome, Exit, usize),
    /// The two cannot meet, and why.
    Impossible(&'static str),
}

/// What is told of its process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Exit {
    Code(i32),
    Signal(i32),
    /// Nobody knows, or it never ran.
    None,
}

/// What trouble needs of the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Group {
    /// Nothing: it goes on.
    Calm,
    /// To be killed.
    Killed,
    /// A disk without room.
    Full,
    /// A store that does not answer.
    Away,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    state: State,
    trouble: Trouble,
}

const STATES: [State; 5] = [
    State::Queued,
    State::Unborn,
    State::Born,
    State::Running,
    State::Stopping,
];

const TROUBLES: [Trouble; 16] = [
    Trouble::ExitZero,
    Trouble::ExitOther,
    Trouble::Signal,
    Trouble::Cancel,
    Trouble::Timeout,
    Trouble::ServerKilled,
    Trouble::ShimKilled,
    Trouble::BothKilled,
    Trouble::SwitchedOff,
    Trouble::DiskFull,
    Trouble::CgroupBusy,
    Trouble::Flood,
    Trouble::ForkBomb,
    Trouble::Daemon,
    Trouble::OwnSession,
    Trouble::StoreAway,
];

/// The table.
fn fate(state: State, trouble: Trouble) -> Fate {
    use Fate::{Ends, Impossible};
    let by_itself = match trouble {
        Trouble::ExitZero | Trouble::Daemon => Exit::Code(0),
        Trouble::Signal => Exit::Signal(USR1),
        _ => Exit::Code(code(trouble)),
    };
    let judged = match by_itself {
        Exit::Code(0) => Outcome::Completed,
        _ => Outcome::Failed,
    };
    match (state, trouble) {
        (State::Queued, Trouble::Cancel) => Ends(Outcome::Cancelled, Exit::None, 0),
        (State::Queued, Trouble::Timeout) => Ends(Outcome::WaitOver, Exit::None, 0),
        (
            State::Queued,
            Trouble::ServerKilled | Trouble::SwitchedOff | Trouble::DiskFull | Trouble::StoreAway,
        ) => Ends(judged, by_itself, 1),
        (State::Queued, Trouble::ShimKilled | Trouble::BothKilled) => {
            Impossible("whoever waits has no shim")
        }
        (State::Queued, Trouble::CgroupBusy) => Impossible("whoever waits has no cgroup"),
        (State::Queued, _) => Impossible("whoever waits has no process that could do it"),

        (State::Unborn, Trouble::Cancel) => Ends(Outcome::Cancelled, Exit::None, 0),
        (State::Unborn, Trouble::Timeout | Trouble::DiskFull) => {
            Ends(Outcome::Failed, Exit::None, 0)
        }
        // What was not begun can be, whoever dies.
        (State::Unborn, _) => Ends(judged, by_itself, 1),

        (State::Born, Trouble::Cancel) => Ends(Outcome::Cancelled, Exit::Signal(TERM), 0),
        (State::Born, Trouble::Timeout) => Ends(Outcome::Failed, Exit::Signal(TERM), 0),
        (State::Born, Trouble::ShimKilled | Trouble::BothKilled | Trouble::SwitchedOff) => {
            Ends(Outcome::Lost, Exit::None, 0)
        }
        (State::Running, Trouble::Cancel) => Ends(Outcome::Cancelled, Exit::Signal(TERM), 1),
        (State::Running, Trouble::Timeout) => Ends(Outcome::TimedOut, Exit::Signal(TERM), 1),
        (State::Running, Trouble::ShimKilled | Trouble::BothKilled | Trouble::SwitchedOff) => {
            Ends(Outcome::Lost, Exit::None, 1)
        }
        (State::Born | State::Running, _) => Ends(judged, by_itself, 1),

        (State::Stopping, Trouble::Timeout) => Ends(Outcome::Cancelled, Exit::Signal(KILL), 1),
        (State::Stopping, Trouble::ShimKilled | Trouble::BothKilled | Trouble::SwitchedOff) => {
            Ends(Outcome::Cancelled, Exit::None, 1)
        }
        (State::Stopping, _) => Ends(Outcome::Cancelled, by_itself, 1),
    }
}

const USR1: i32 = 10;
const TERM: i32 = 15;
const KILL: i32 = 9;
/// How many processes a fork bomb may have.
const BOMB_PIDS: u32 = 40;
/// So much is written by one who floods, to each stream.
const FLOOD_BYTES: u64 = 11_000_000;
/// So much of it is kept.
const KEPT_BYTES: u64 = 10 * 1024 * 1024;

/// The code with which a program ends by itself under a trouble, so that no two are mixed up.
fn code(trouble: Trouble) -> i32 {
    let place = TROUBLES.iter().position(|one| *one == trouble).unwrap();
    20 + i32::try_from(place).unwrap()
}

impl Cell {
    fn id(self) -> String {
        format!("{:?}-{:?}", self.state, self.trouble)
    }

    fn fate(self) -> Fate {
        fate(self.state, self.trouble)
    }

    fn group(self) -> Group {
        match (self.state, self.trouble) {
            (_, Trouble::DiskFull) => Group::Full,
            (_, Trouble::StoreAway) => Group::Away,
            (_, Trouble::ServerKilled | Trouble::BothKilled | Trouble::SwitchedOff) => {
                Group::Killed
            }
            // What a program does while the ledger still says that it starts nobody may tell it:
            // only then is the state what the table says.
            (
                State::Unborn | State::Born,
                Trouble::ExitZero
                | Trouble::ExitOther
                | Trouble::Signal
                | Trouble::Flood
                | Trouble::ForkBomb
                | Trouble::Daemon
                | Trouble::OwnSession,
            ) => Group::Killed,
            _ => Group::Calm,
        }
    }

    /// Whether it says anything where nothing is kept apart.
    fn needs_cgroup(self) -> bool {
        self.state == State::Born || matches!(self.trouble, Trouble::CgroupBusy | Trouble::ForkBomb)
    }

    /// What its program does in the end.
    fn act(self, rig: &Rig) -> String {
        let code = code(self.trouble);
        match self.trouble {
            Trouble::ExitZero => "exit 0".to_owned(),
            Trouble::Signal => "kill -USR1 $$".to_owned(),
            Trouble::Flood => format!(
                "head -c {FLOOD_BYTES} /dev/zero; head -c {FLOOD_BYTES} /dev/zero >&2; exit {code}"
            ),
            Trouble::ForkBomb => {
                let gate = rig.gate(&format!("bomb-{}", self.id()));
                format!(
                    "python3 -c '{BOMB}' &\nread -r go < {}; exit {code}",
                    gate.display()
                )
            }
            // The one in the middle is gone before the first one ends.
            Trouble::Daemon => "setsid sh -c 'setsid sleep 1000 & exit 0'; exit 0".to_owned(),
            Trouble::OwnSession => format!("setsid sleep 1000 & exit {code}"),
            _ => format!("exit {code}"),
        }
    }

    /// Its program: it waits at its gate if trouble is to find it there.
    fn script(self, rig: &Rig) -> String {
        let act = self.act(rig);
        if !matches!(self.state, State::Running | State::Stopping) {
            return format!("{BEGIN}{act}");
        }
        let gate = rig.gate(&self.id());
        let deaf = match self.state {
            State::Stopping => "trap '' TERM",
            _ => "",
        };
        // Somebody who would outlive a shim that is killed.
        let child = match (self.trouble, rig.kept) {
            (Trouble::ShimKilled | Trouble::BothKilled | Trouble::SwitchedOff, Kept::Apart) => {
                "setsid sleep 1000 &"
            }
            _ => "",
        };
        let gate = gate.display();
        format!("{deaf}\n{child}\n{BEGIN}read -r go < {gate}\n{act}")
    }

    async fn submit(self, rig: &Rig) {
        let script = self.script(rig);
        let is_late = self.trouble == Trouble::Timeout;
        rig.submit(&self.id(), &script, |request| {
            request.grace_ms = Some(120_000);
            match self.state {
                State::Queued => {
                    request.class = super::rig::label("full");
                    request.wait_ms = Some(if is_late { 1_000 } else { 600_000 });
                }
                State::Unborn | State::Born if is_late => request.start_timeout_ms = Some(1_000),
                State::Running if is_late => request.max_time_ms = Some(1_000),
                State::Stopping if is_late => request.grace_ms = Some(300),
                _ => {}
            }
            if self.trouble == Trouble::ForkBomb {
                request.pids = Some(BOMB_PIDS);
            }
        })
        .await;
    }

    /// Brings it into its state.
    async fn prepare(self, rig: &Rig, freezer: &Freezer) {
        let id = self.id();
        match self.state {
            State::Queued => self.submit(rig).await,
            State::Unborn => {
                rig.gate(&format!("shim-{id}"));
                self.submit(rig).await;
                let has_shim = || (!rig.shims_of(&id).is_empty()).then_some(());
                until(&format!("{id} has a shim"), has_shim).await;
            }
            State::Born => {
                let group = freezer.freeze(&id);
                self.submit(rig).await;
                let is_born = || (!members(&group).is_empty()).then_some(());
                until(&format!("{id} is born"), is_born).await;
            }
            State::Running | State::Stopping => {
                self.submit(rig).await;
                rig.wait_until_begun(&id).await;
                if self.trouble != Trouble::Timeout {
                    rig.wait_for(&id, ExecutionState::Running).await;
                }
                if self.state == State::Stopping {
                    assert_eq!(rig.cancel(&id).await.applied, Some(true), "{id}");
                }
            }
        }
        if self.trouble != Trouble::Timeout {
            assert_eq!(rig.look(&id).await.course.state, self.told(), "{id}");
        }
    }

    /// The state that the ledger tells.
    fn told(self) -> ExecutionState {
        match self.state {
            State::Queued => ExecutionState::Queued,
            State::Unborn | State::Born => ExecutionState::Starting,
            State::Running => ExecutionState::Running,
            State::Stopping => ExecutionState::Stopping,
        }
    }

    /// Lets it go on to what its program does.
    async fn release(self, rig: &Rig, freezer: &Freezer) {
        let id = self.id();
        match self.state {
            State::Queued => {}
            State::Unborn => rig.open(&format!("shim-{id}")).await,
            State::Born => freezer.thaw(&id),
            State::Running | State::Stopping => rig.open(&id).await,
        }
        if self.trouble == Trouble::ForkBomb {
            let count = usize::try_from(BOMB_PIDS).unwrap() - 4;
            let is_full = || (count <= rig.members(&id).len()).then_some(());
            until(&format!("the bomb of {id} has gone off"), is_full).await;
            rig.open(&format!("bomb-{id}")).await;
        }
    }

    /// The trouble, where the server goes on.
    async fn strike(self, rig: &Rig, freezer: &Freezer) {
        let id = self.id();
        match self.trouble {
            Trouble::Timeout => {}
            Trouble::Cancel => {
                let is_first = self.state != State::Stopping;
                assert_eq!(rig.cancel(&id).await.applied, Some(is_first), "{id}");
                if !is_first {
                    self.release(rig, freezer).await;
                }
            }
            Trouble::ShimKilled => self.lose_shim(rig).await,
            Trouble::CgroupBusy => self.hold_cgroup(rig, freezer).await,
            _ => self.release(rig, freezer).await,
        }
    }

    async fn lose_shim(self, rig: &Rig) {
        let id = self.id();
        if self.state == State::Unborn {
            // The next one is not held.
            std::fs::remove_file(rig.house.path("gates").join(format!("shim-{id}"))).unwrap();
        }
        rig.kill_shim(&id).await;
    }

    /// Something in its cgroup keeps that from being removed, and somebody is in there who is not
    /// its child: it is not over before both are gone.
    async fn hold_cgroup(self, rig: &Rig, freezer: &Freezer) {
        let id = self.id();
        let group = freezer.base.join(format!("e-{id}"));
        let _made = std::fs::create_dir(&group);
        let held = Mounted::new(&group.join("held"), 1);
        std::fs::create_dir(group.join("below")).unwrap();
        let mut stranger = Stranger::in_group(&group.join("below"));
        self.release(rig, freezer).await;
        until(&format!("the stranger in {id} is gone"), || {
            stranger.is_gone()
        })
        .await;
        let client = rig.client();
        let step = Duration::from_millis(500);
        let mut execution = client.execution_wait(&name(&id), step).await.unwrap();
        if execution.course.state == ExecutionState::Starting {
            execution = client.execution_wait(&name(&id), step).await.unwrap();
        }
        assert_ne!(execution.course.state, ExecutionState::Ended, "{id}");
        drop(held);
    }

    /// That it ended as the table says.
    async fn judge(self, rig: &Rig) {
        let id = self.id();
        let Fate::Ends(outcome, exit, _) = self.fate() else {
            panic!("{id} cannot be");
        };
        let ended = rig.ended(&id).await;
        let told = match (ended.exit_code, ended.course.signal) {
            (Some(code), None) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::None,
            both => panic!("{id}: {both:?}"),
        };
        assert_eq!(
            (ended.course.outcome, told),
            (Some(outcome), exit),
            "{id}: {ended:?}"
        );
        assert_eq!(rig.members(&id).len(), 0, "{id} has processes left");
        if self.trouble == Trouble::Flood {
            for stream in [LogStream::Stdout, LogStream::Stderr] {
                let size = size(rig, &id, stream).await;
                assert!(
                    (KEPT_BYTES..KEPT_BYTES + 100).contains(&size),
                    "{id}: {size}"
                );
            }
        }
        if self.state == State::Unborn && outcome != Outcome::Completed && exit == Exit::None {
            // The shim that comes too late starts nothing.
            let gate = rig.house.path("gates").join(format!("shim-{id}"));
            if gate.exists() && !rig.shims_of(&id).is_empty() {
                rig.open(&format!("shim-{id}")).await;
            }
        }
    }
}

/// Forks, and whoever cannot any more waits: they are as many as they may be.
const BOMB: &str = "
import os, time
while True:
    try: os.fork()
    except OSError: time.sleep(0.2)
";

async fn size(rig: &Rig, id: &str, stream: LogStream) -> u64 {
    let client = rig.client();
    let mut logs = client.logs(&name(id), stream, Follow::Now).await.unwrap();
    let mut size = 0;
    while let Some(bytes) = logs.chunk().await.unwrap() {
        size += u64::try_from(bytes.len()).unwrap();
    }
    size
}

/// A process of the test's own.
struct Stranger(Child);

impl Stranger {
    fn in_group(group: &Path) -> Self {
        let child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let stranger = Self(child);
        std::fs::write(group.join("cgroup.procs"), stranger.0.id().to_string()).unwrap();
        stranger
    }

    fn is_gone(&mut self) -> Option<()> {
        self.0.try_wait().unwrap().map(drop)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Where cgroups can be made to hold still before anybody is in them.
struct Freezer {
    base: PathBuf,
}

impl Freezer {
    /// Found by an execution that waits in all its cgroups; it goes on as long as the test wants,
    /// so that the directories stay.
    async fn find(rig: &Rig) -> Self {
        let gate = rig.gate("probe");
        let script = format!("{BEGIN}read -r go < {}", gate.display());
        rig.submit("probe", &script, |request| {
            request.cpu_limit_milli = Some(1_000);
            request.memory_limit_bytes = Some(64 << 20);
            request.pids = Some(16);
        })
        .await;
        rig.wait_until_begun("probe").await;
        let base = match rig.kept {
            Kept::Nowhere => PathBuf::new(),
            Kept::Apart => {
                let bases = rig.bases();
                let freezes = |base: &PathBuf| switch(&base.join("e-probe")).is_some();
                let base = bases.iter().find(|base| freezes(base)).cloned();
                base.unwrap_or_else(|| panic!("no freezer in {bases:?}"))
            }
        };
        Self { base }
    }

    fn freeze(&self, id: &str) -> PathBuf {
        let group = self.base.join(format!("e-{id}"));
        std::fs::create_dir(&group).unwrap();
        let (file, on, _) = switch(&group).unwrap();
        std::fs::write(file, on).unwrap();
        group
    }

    fn thaw(&self, id: &str) {
        let (file, _, off) = switch(&self.base.join(format!("e-{id}"))).unwrap();
        std::fs::write(file, off).unwrap();
    }
}

/// The file of a cgroup by which it is made to hold still, with the words for on and off.
fn switch(group: &Path) -> Option<(PathBuf, &'static str, &'static str)> {
    let files = [
        ("cgroup.freeze", "1", "0"),
        ("freezer.state", "FROZEN", "THAWED"),
    ];
    let found = files
        .into_iter()
        .map(|(file, on, off)| (group.join(file), on, off));
    found.into_iter().find(|(file, ..)| file.exists())
}

/// How executions are kept apart here: a machine without any cgroups runs what makes sense there.
fn kept() -> Kept {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let has_cgroups = mounts.lines().any(|line| {
        line.split(' ')
            .nth(2)
            .is_some_and(|kind| kind.starts_with("cgroup"))
    });
    if has_cgroups {
        return Kept::Apart;
    }
    eprintln!("this machine has no cgroups at all: only what needs none is tried");
    Kept::Nowhere
}

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
async fn each<F: Future<Output = ()> + Send + 'static>(
    cells: &[Cell],
    mut act: impl FnMut(Cell) -> F,
) {
    let mut tasks = JoinSet::new();
    let mut names = std::collections::BTreeMap::new();
    for cell in cells {
        let task = tasks.spawn(act(*cell));
        names.insert(task.id(), cell.id());
    }
    let mut failed = Vec::new();
    while let Some(ended) = tasks.join_next_with_id().await {
        if let Err(error) = ended {
            failed.push(names.remove(&error.id()).unwrap());
        }
    }
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
    each(&cells, |cell| {
        let (rig, freezer) = (Arc::clone(&rig), Arc::clone(&freezer));
        async move {
            cell.prepare(&rig, &freezer).await;
            cell.strike(&rig, &freezer).await;
            cell.judge(&rig).await;
        }
    })
    .await;
    rig.empty("full").await.unwrap();
    finish(&rig, &cells).await;
}

#[tokio::test]
async fn whatever_a_program_does_its_slot_comes_back() {
    calm(kept()).await;
}

#[tokio::test]
async fn whatever_a_program_does_its_slot_comes_back_where_nothing_is_kept_apart() {
    calm(Kept::Nowhere).await;
}

#[test]
fn every_state_meets_every_trouble_or_says_why_not() {
    let fates = STATES.into_iter().flat_map(|state| {
        TROUBLES
            .into_iter()
            .map(move |trouble| fate(state, trouble))
    });
    let impossible = fates
        .filter(|fate| matches!(fate, Fate::Impossible(_)))
        .count();
    assert_eq!((STATES.len() * TROUBLES.len(), impossible), (80, 10));
}
