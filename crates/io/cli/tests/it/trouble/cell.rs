//! One state of an execution and one trouble: the expected end, and how to produce the case.

use std::time::Duration;

use bursar_client::api::{ExecutionOutcome as Outcome, ExecutionState, LogStream};
use bursar_client::client::Follow;

use super::freezer::{Freezer, Stranger};
use super::rig::{BEGIN, Isolation, Mounted, Rig, members, name, until};

/// State of an execution when the trouble happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Queued,
    /// Starting: its shim is alive and has done nothing yet.
    Unborn,
    /// Starting: its process is in its cgroup and has not executed its program yet.
    Born,
    Running,
    /// Cancelled, but its program ignores SIGTERM.
    Stopping,
}

/// An event that happens to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    ExitZero,
    ExitOther,
    Signal,
    Cancel,
    /// Timeout of waiting, starting, running or stopping, depending on the state.
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

/// Expected result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// Outcome, exit and number of starts of the program.
    Ends(Outcome, Exit, usize),
    /// Reason why the case cannot happen.
    Impossible(&'static str),
}

/// The recorded exit of its process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
    /// Unknown, or it never ran.
    None,
}

/// Condition of the server during the trouble.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Group {
    /// It keeps running.
    Calm,
    /// It is killed.
    Killed,
    /// Its disk is full.
    Full,
    /// Its store does not answer.
    Away,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) state: State,
    pub(super) trouble: Trouble,
}

pub(super) const STATES: [State; 5] = [
    State::Queued,
    State::Unborn,
    State::Born,
    State::Running,
    State::Stopping,
];

pub(super) const TROUBLES: [Trouble; 16] = [
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

/// The table of expected results.
#[expect(clippy::match_same_arms, reason = "a table, state by state")]
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
            Impossible("a queued execution has no shim")
        }
        (State::Queued, Trouble::CgroupBusy) => Impossible("a queued execution has no cgroup"),
        (State::Queued, _) => Impossible("a queued execution has no process that could do it"),

        (State::Unborn, Trouble::Cancel) => Ends(Outcome::Cancelled, Exit::None, 0),
        (State::Unborn, Trouble::Timeout | Trouble::DiskFull) => {
            Ends(Outcome::Failed, Exit::None, 0)
        }
        // A program that has not started can still be started.
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
/// Process limit of the fork bomb.
const BOMB_PIDS: u32 = 40;
/// Bytes that the flood writes to each stream.
const FLOOD_BYTES: u64 = 11_000_000;
/// Bytes of it that are kept.
const KEPT_BYTES: u64 = 10 * 1024 * 1024;

/// Exit code of a program under a trouble, different for each.
fn code(trouble: Trouble) -> i32 {
    let index = TROUBLES.iter().position(|one| *one == trouble).unwrap();
    20 + i32::try_from(index).unwrap()
}

impl Cell {
    pub(super) fn id(self) -> String {
        format!("{:?}-{:?}", self.state, self.trouble)
    }

    pub(super) fn fate(self) -> Fate {
        fate(self.state, self.trouble)
    }

    pub(super) fn group(self) -> Group {
        match (self.state, self.trouble) {
            (_, Trouble::DiskFull) => Group::Full,
            (_, Trouble::StoreAway) => Group::Away,
            (_, Trouble::ServerKilled | Trouble::BothKilled | Trouble::SwitchedOff) => {
                Group::Killed
            }
            // The server is killed, or it would record the start: the program must end while the
            // ledger still has the execution as starting.
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

    /// Whether the case needs cgroups.
    pub(super) fn needs_cgroup(self) -> bool {
        self.state == State::Born || matches!(self.trouble, Trouble::CgroupBusy | Trouble::ForkBomb)
    }

    /// Last part of the program's script.
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
            // The process in the middle ends before the program does.
            Trouble::Daemon => "setsid sh -c 'setsid sleep 1000 & exit 0'; exit 0".to_owned(),
            Trouble::OwnSession => format!("setsid sleep 1000 & exit {code}"),
            _ => format!("exit {code}"),
        }
    }

    /// Script of the program; it waits at its gate if the trouble happens while it runs.
    fn script(self, rig: &Rig) -> String {
        let act = self.act(rig);
        if !matches!(self.state, State::Running | State::Stopping) {
            return format!("{BEGIN}{act}");
        }
        let gate = rig.gate(&self.id());
        let ignores_term = match self.state {
            State::Stopping => "trap '' TERM",
            _ => "",
        };
        // A child that would outlive a killed shim.
        let child = match (self.trouble, rig.isolation) {
            (
                Trouble::ShimKilled | Trouble::BothKilled | Trouble::SwitchedOff,
                Isolation::Cgroup,
            ) => "setsid sleep 1000 &",
            _ => "",
        };
        let gate = gate.display();
        format!("{ignores_term}\n{child}\n{BEGIN}read -r go < {gate}\n{act}")
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

    /// Brings the execution into its state.
    pub(super) async fn prepare(self, rig: &Rig, freezer: &Freezer) {
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
                until(&format!("{id} has a process"), is_born).await;
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
            assert_eq!(
                rig.look(&id).await.course.state,
                self.ledger_state(),
                "{id}"
            );
        }
    }

    /// The state in the ledger.
    pub(super) fn ledger_state(self) -> ExecutionState {
        match self.state {
            State::Queued => ExecutionState::Queued,
            State::Unborn | State::Born => ExecutionState::Starting,
            State::Running => ExecutionState::Running,
            State::Stopping => ExecutionState::Stopping,
        }
    }

    /// Lets the program continue to its last part.
    pub(super) async fn release(self, rig: &Rig, freezer: &Freezer) {
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

    /// Causes the trouble while the server keeps running.
    pub(super) async fn strike(self, rig: &Rig, freezer: &Freezer) {
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
            Trouble::ShimKilled => self.lose_shim(rig),
            Trouble::CgroupBusy => self.hold_cgroup(rig, freezer).await,
            _ => self.release(rig, freezer).await,
        }
    }

    pub(super) fn lose_shim(self, rig: &Rig) {
        let id = self.id();
        if self.state == State::Unborn {
            // The next shim must not wait at the gate.
            std::fs::remove_file(rig.house.path("gates").join(format!("shim-{id}"))).unwrap();
        }
        rig.kill_shim(&id);
    }

    /// Simulates a power failure.
    pub(super) async fn switch_off(self, rig: &Rig) {
        let id = self.id();
        if self.state == State::Unborn {
            std::fs::remove_file(rig.house.path("gates").join(format!("shim-{id}"))).unwrap();
        }
        rig.switch_off(&id).await;
    }

    /// Waits until its shim has written the status and is gone.
    pub(super) async fn wait_for_status(self, rig: &Rig) {
        let status = rig.place(&self.id()).join("status.json");
        let is_there = || status.exists().then_some(());
        until(&format!("{} is over", self.id()), is_there).await;
        self.wait_for_shim_to_leave(rig).await;
    }

    pub(super) async fn wait_for_shim_to_leave(self, rig: &Rig) {
        let id = self.id();
        let is_gone = || rig.shims_of(&id).is_empty().then_some(());
        until(&format!("the shim of {id} is gone"), is_gone).await;
    }

    /// A mount in its cgroup prevents its removal, and a foreign process is in the cgroup: the
    /// execution does not end before both are gone.
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

    /// Asserts that it ended as in the table.
    pub(super) async fn judge(self, rig: &Rig) {
        let id = self.id();
        let Fate::Ends(outcome, exit, _) = self.fate() else {
            panic!("{id} is impossible");
        };
        let ended = rig.ended(&id).await;
        let recorded = match (ended.exit_code, ended.course.signal) {
            (Some(code), None) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::None,
            both => panic!("{id}: {both:?}"),
        };
        assert_eq!(
            (ended.course.outcome, recorded),
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
            // A late shim starts nothing.
            let gate = rig.house.path("gates").join(format!("shim-{id}"));
            if gate.exists() && !rig.shims_of(&id).is_empty() {
                rig.open(&format!("shim-{id}")).await;
            }
        }
    }
}

/// Forks until the process limit is reached, then waits.
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
