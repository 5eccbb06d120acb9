//! The cluster: people change budgets and nodes and submit runs, and a simulated executor keeps the
//! processes of runs.
//!
//! The executor survives every crash of a server. Each server compares its own view with the executor:
//! it starts and stops processes and reports their starts and exits, over a bad network. The
//! [`bookkeeper`](super::bookkeeper) follows the money.

mod draws;

use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::{Budget, BudgetId};
use bursar_cluster::{Change, Command, Exit, ProcessId, Stage, Wanted};
use bursar_engine::{Command as AnyCommand, spine};
use bursar_units::{Instant, ScopedName};

use super::World;
use super::action::Action;
use crate::rng::Rng;
use crate::violation::{Violation, demand};

/// Live runs from which on no new ones are submitted.
const LIVE_MAX: usize = 24;

/// The people and the executor.
#[derive(Default)]
pub(super) struct Cluster {
    processes: BTreeMap<ProcessId, Process>,
    /// Number of submitted runs.
    runs: u64,
    /// Number of commands of people.
    uses: u64,
    /// Servers, with the numbers of their processes, whose comparison is planned.
    planned: BTreeSet<(usize, u64)>,
}

/// A process that the executor has seen. It never starts one twice.
#[derive(Clone, Debug)]
enum Process {
    /// It runs until this time of the world.
    Running { until_ms: u64, exit: Exit },
    /// It is gone, or was never started.
    Gone(Exit),
}

/// A process as a view has it.
struct Seen {
    id: ProcessId,
    is_running: bool,
    stop: Option<Instant>,
}

impl Seen {
    fn of(wanted: &Wanted<'_>) -> Self {
        Self {
            id: wanted.id.clone(),
            is_running: wanted.is_running,
            stop: wanted.stop,
        }
    }
}

impl Process {
    fn begin(rng: &mut Rng, now_ms: u64) -> Self {
        if rng.once_in(20) {
            let reason = "the image is missing".to_owned();
            return Self::Gone(Exit::NotStarted { reason });
        }
        let exit = if rng.once_in(5) {
            Exit::Failed { code: Some(7) }
        } else {
            Exit::Ok {}
        };
        let length_ms = rng.one_of([500, 5_000, 60_000, 600_000]);
        Self::Running {
            until_ms: now_ms + rng.between(1, length_ms),
            exit,
        }
    }
}

impl Cluster {
    /// Lets the processes of a view start, run and stop, at a time of the world and of the ledger.
    fn keep(&mut self, seen: &[Seen], rng: &mut Rng, now_ms: u64, now: Instant, is_stopping: bool) {
        for one in seen {
            let next = match (self.processes.get(&one.id), one.stop) {
                (None, Some(_)) => {
                    let reason = "it was stopped before its start".to_owned();
                    Process::Gone(Exit::NotStarted { reason })
                }
                (None, None) => Process::begin(rng, now_ms),
                (Some(Process::Running { until_ms, exit }), _)
                    if *until_ms <= now_ms || is_stopping =>
                {
                    Process::Gone(exit.clone())
                }
                (Some(Process::Running { .. }), Some(stop)) if stop <= now || rng.once_in(3) => {
                    Process::Gone(Exit::Failed { code: None })
                }
                _ => continue,
            };
            self.processes.insert(one.id.clone(), next);
        }
    }

    /// Reports on the processes of a view whose starts or exits are not on record there.
    fn reports(&self, seen: &[Seen]) -> Vec<Command> {
        let mut reports = Vec::new();
        for of_run in seen.chunk_by(|a, b| a.id.uid == b.id.uid) {
            let is_up = |one: &Seen| {
                let process = self.processes.get(&one.id);
                matches!(process, Some(Process::Running { .. })) && !one.is_running
            };
            let is_up = of_run.iter().all(|one| is_up(one) && one.stop.is_none());
            if let Some(one) = of_run.first().filter(|_| is_up) {
                reports.push(Command::RunStarted {
                    uid: one.id.uid.clone(),
                    incarnation: one.id.incarnation,
                });
            }
            for one in of_run {
                if let Some(Process::Gone(exit)) = self.processes.get(&one.id) {
                    reports.push(Command::RunExited {
                        uid: one.id.uid.clone(),
                        incarnation: one.id.incarnation,
                        pods: vec![one.id.pod],
                        exit: exit.clone(),
                    });
                }
            }
        }
        reports
    }

    /// Checks that the processes of closed leases are gone.
    fn check_closed(&self, gone: &[ProcessId]) -> Result<(), Violation> {
        let alive = gone
            .iter()
            .find(|id| !matches!(self.processes.get(id), Some(Process::Gone(_))));
        demand(
            alive.is_none(),
            "a lease closes only when its process is gone",
            || format!("{alive:?} is alive"),
        )
    }
}

impl World<'_> {
    /// A person changes a budget, a node or a run, and the next one is planned.
    pub(super) fn use_cluster(&mut self) {
        if self.is_stopping {
            return;
        }
        let later = self.now_ms.max(self.quiet_until_ms);
        let later = later + self.rng.between(1, self.habits.use_ms);
        self.schedule.plan(later, Action::Use);
        self.cluster.uses += 1;
        let live = self.checker.live_runs();
        let now = self.checker.time();
        let command = match live.len() {
            LIVE_MAX.. => self.draw_cancel(&live),
            _ => self.draw_use(&live, now),
        };
        if let Some(command) = command {
            self.send(None, Vec::new(), vec![command]);
        }
        self.plan_keeps();
    }

    /// Plans the comparison of every process with the executor.
    pub(super) fn plan_keeps(&mut self) {
        for replica in 0..self.replicas.len() {
            self.plan_keep(replica);
        }
    }

    /// Plans the comparison of a process with the executor, unless it is planned already.
    pub(super) fn plan_keep(&mut self, replica: usize) {
        let Some(one) = self.replicas.get(replica) else {
            return;
        };
        if self.cluster.planned.insert((replica, one.incarnation)) {
            let keep = Action::Keep(replica, one.incarnation);
            let delay = 2 * self.habits.delay_ms + self.rng.between(10, 500);
            self.schedule.plan(self.now_ms + delay, keep);
        }
    }

    /// A server compares its view with the executor, and reports starts and exits. Reports may be lost,
    /// so it compares again later.
    pub(super) fn keep_processes(&mut self, replica: usize) {
        let Some(one) = self.replicas.get(replica) else {
            return;
        };
        self.cluster.planned.remove(&(replica, one.incarnation));
        let process = one.process.as_ref();
        let Some(process) = process.filter(|process| !process.is_over()) else {
            return;
        };
        let state = process.ledger.view().read();
        let seen: Vec<Seen> = state.clusters.wanted().map(|one| Seen::of(&one)).collect();
        let waiting: Vec<ScopedName> = state
            .clusters
            .runs()
            .filter(|run| run.stage == Stage::Waiting)
            .map(|run| run.run.id())
            .collect();
        let budgets = state.clusters.accounts().budgets();
        let budgets: Vec<BudgetId> = budgets.map(Budget::id).collect();
        let now = process.ledger.now();
        drop(state);
        let is_stopping = self.is_stopping;
        self.cluster
            .keep(&seen, &mut self.rng, self.now_ms, now, is_stopping);
        let mut commands: Vec<AnyCommand> = Vec::new();
        commands.extend(
            self.cluster
                .reports(&seen)
                .into_iter()
                .map(AnyCommand::from),
        );
        if is_stopping {
            let cancels = waiting.iter().cloned();
            commands.extend(cancels.map(|run| Command::CancelRun { run, uid: None }.into()));
            // A window that repeats has an edge every day, and the world comes to no rest.
            let drops = budgets.iter().cloned();
            let drops = drops.map(|budget| Change::DropBudget { budget });
            commands.extend(drops.map(|drop| spine::Command::change([drop]).into()));
        }
        let is_empty = waiting.is_empty() && budgets.is_empty();
        let is_over = seen.is_empty() && (is_empty || !is_stopping);
        self.tally
            .add("reports of the executor", u64::from(!commands.is_empty()));
        for command in commands {
            let to = if self.rng.once_in(4) {
                self.rng.place(self.replicas.len())
            } else {
                replica
            };
            self.send_result(to, vec![command]);
        }
        if !is_over {
            self.plan_keep(replica);
        }
    }

    /// Compares the leases that were closed in this step with the executor.
    pub(super) fn check_cluster(&mut self) -> Result<(), Violation> {
        let Some(closed) = self.checker.take_closed() else {
            return Ok(());
        };
        if self.is_stopping {
            // A late request may have started a run.
            self.plan_keeps();
        }
        self.cluster.check_closed(&closed)
    }

    /// Whether all runs have ended in the committed state.
    pub(super) fn runs_are_over(&self) -> bool {
        self.checker.live_runs().is_empty()
    }

    /// Checks that every run has ended and no GPU is leased after all clients have stopped.
    pub(super) fn check_runs_are_over(&self) -> Result<(), Violation> {
        let live = self.checker.live_runs();
        let leased = self.checker.clusters().nodes().all_leased().count();
        demand(
            live.is_empty() && leased == 0,
            "when everybody has stopped, every GPU comes back",
            || format!("{live:?} are live and {leased} GPUs leased"),
        )
    }
}
