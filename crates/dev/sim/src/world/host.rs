//! The machine that runs work: simulated processes on virtual time.
//!
//! It obeys only the process of the newest term, so that a stale leader starts nothing (X6).
//! While anything of an id is there, it starts the id at most once; an execution that was stopped
//! before it began never begins (X2). The checker believes this machine, and not the ledger, about
//! the processes that live.

use std::collections::BTreeMap;

use bursar_booking::Fence;
use bursar_booking::execution::Exit;
use bursar_units::{BookingId, Millis};

use crate::rng::Rng;

#[derive(Debug)]
pub(super) struct Host {
    rng: Rng,
    processes: BTreeMap<BookingId, Process>,
    /// Exits of executions that were cleaned.
    past: BTreeMap<(BookingId, Fence), Exit>,
    term: u64,
    effects: Vec<Effect>,
}

/// An effect on the machine that the world has not yet checked or counted.
#[derive(Debug)]
pub(super) enum Effect {
    /// A process was started under a grant; `again` if the grant had one before.
    Started {
        id: BookingId,
        fence: Fence,
        again: bool,
    },
    /// The rest of an execution was removed.
    Cleaned { id: BookingId, fence: Fence },
    /// A process without a slot was ended.
    EndedAfterForce,
    /// A process of an older term was not obeyed.
    NotObeyed,
}

/// Process and files of an id.
#[derive(Debug)]
struct Process {
    fence: Fence,
    begins_ms: u64,
    ends_ms: u64,
    exit: Exit,
    /// Number of stops that the process ignores.
    deaf: u32,
}

/// The state of an id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ProcessState {
    Absent,
    /// It runs from this time on.
    Beginning(u64),
    /// It runs until this time, unless it is stopped.
    Running(u64),
    Gone(Exit),
}

impl Host {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            rng,
            processes: BTreeMap::new(),
            past: BTreeMap::new(),
            term: 0,
            effects: Vec::new(),
        }
    }

    /// Obeys the process of a term from now on, and none of an older one.
    pub(super) fn obey(&mut self, term: u64) {
        self.term = self.term.max(term);
    }

    /// Whether it obeys the process of that term.
    pub(super) fn obeys(&mut self, term: u64) -> bool {
        let obeys = self.term == term;
        if !obeys {
            self.effects.push(Effect::NotObeyed);
        }
        obeys
    }

    /// The effects since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn state(&self, id: &BookingId, now_ms: u64) -> ProcessState {
        match self.processes.get(id) {
            None => ProcessState::Absent,
            Some(process) if now_ms < process.begins_ms => {
                ProcessState::Beginning(process.begins_ms)
            }
            Some(process) if now_ms < process.ends_ms => ProcessState::Running(process.ends_ms),
            Some(process) => ProcessState::Gone(process.exit.clone()),
        }
    }

    /// Ids with a process or files.
    pub(super) fn ids(&self) -> impl Iterator<Item = &BookingId> {
        self.processes.keys()
    }

    /// Whether a process runs or will begin.
    pub(super) fn is_alive(&self, id: &BookingId, fence: Fence, now_ms: u64) -> bool {
        let process = self.processes.get(id);
        process.is_some_and(|process| process.fence == fence && now_ms < process.ends_ms)
    }

    /// The ids whose process runs.
    pub(super) fn running(&self, now_ms: u64) -> Vec<BookingId> {
        let runs = |process: &Process| process.begins_ms <= now_ms && now_ms < process.ends_ms;
        let running = self.processes.iter().filter(|(_, process)| runs(process));
        running.map(|(id, _)| id.clone()).collect()
    }

    /// The exit of an id under a grant, if it has or will have one.
    pub(super) fn exit_of(&self, id: &BookingId, fence: Fence) -> Option<&Exit> {
        let process = self
            .processes
            .get(id)
            .filter(|process| process.fence == fence);
        let past = self.past.get(&(id.clone(), fence));
        process.map(|process| &process.exit).or(past)
    }

    /// Begins a process, unless the grant has one already. The rest of an earlier grant of the same
    /// id is removed first, as on a real machine.
    pub(super) fn start(&mut self, id: &BookingId, fence: Fence, now_ms: u64) {
        let earlier = self
            .processes
            .get(id)
            .filter(|process| process.fence != fence);
        if earlier.is_some_and(|process| process.ends_ms <= now_ms) {
            self.remove(id);
        }
        if self.processes.contains_key(id) {
            return;
        }
        let again = self.exit_of(id, fence).is_some();
        let process = Process::draw(fence, now_ms, &mut self.rng);
        self.processes.insert(id.clone(), process);
        let id = id.clone();
        self.effects.push(Effect::Started { id, fence, again });
    }

    /// Stops a process; returns the time of its end, or `None` if it ignores the stop. An id that
    /// holds its slot under `grant` and was not started cannot start afterwards.
    pub(super) fn stop(
        &mut self,
        id: &BookingId,
        grant: Option<Fence>,
        grace: Millis,
        now_ms: u64,
    ) -> Option<u64> {
        if let (Some(fence), false) = (grant, self.processes.contains_key(id)) {
            let never = Process::never(fence, now_ms);
            self.processes.insert(id.clone(), never);
        }
        let Some(process) = self.processes.get_mut(id) else {
            return Some(now_ms);
        };
        if now_ms < process.begins_ms {
            *process = Process::never(process.fence, now_ms);
        } else if now_ms < process.ends_ms {
            if process.deaf > 0 {
                process.deaf -= 1;
                return None;
            }
            if grant.is_none() {
                self.effects.push(Effect::EndedAfterForce);
            }
            let ends_ms = now_ms + self.rng.below(grace.ms() + 1);
            if ends_ms < process.ends_ms {
                process.ends_ms = ends_ms;
                // Some exit with 0, most end by SIGTERM, some must be killed.
                process.exit = match self.rng.below(4) {
                    0 => Exit::Code(0),
                    1 => Exit::Signal(9),
                    _ => Exit::Signal(15),
                };
            }
        }
        Some(process.ends_ms)
    }

    /// Kills the process of an id and removes its files; returns whether that worked.
    pub(super) fn clean(&mut self, id: &BookingId, now_ms: u64) -> bool {
        let Some(process) = self.processes.get_mut(id) else {
            return true;
        };
        if now_ms < process.begins_ms {
            *process = Process::never(process.fence, now_ms);
        } else if now_ms < process.ends_ms {
            if process.deaf > 0 {
                process.deaf -= 1;
                return false;
            }
            (process.ends_ms, process.exit) = (now_ms, Exit::Signal(9));
            self.effects.push(Effect::EndedAfterForce);
        }
        let (id, fence) = (id.clone(), process.fence);
        self.remove(&id);
        self.effects.push(Effect::Cleaned { id, fence });
        true
    }

    /// The machine goes down: all running processes are lost, and those that have not begun
    /// disappear.
    pub(super) fn reboot(&mut self, now_ms: u64) {
        self.processes
            .retain(|_, process| process.begins_ms <= now_ms);
        for process in self.processes.values_mut() {
            process.lose(now_ms);
        }
    }

    /// The shim of a process is killed, and the process with it.
    pub(super) fn lose(&mut self, id: &BookingId, now_ms: u64) {
        if let Some(process) = self.processes.get_mut(id) {
            process.lose(now_ms);
        }
    }

    /// From now on every process obeys a stop.
    pub(super) fn heal(&mut self) {
        for process in self.processes.values_mut() {
            process.deaf = 0;
        }
    }

    fn remove(&mut self, id: &BookingId) {
        if let Some(process) = self.processes.remove(id) {
            self.past.insert((id.clone(), process.fence), process.exit);
        }
    }
}

impl Process {
    fn draw(fence: Fence, now_ms: u64, rng: &mut Rng) -> Self {
        if rng.once_in(25) {
            let reason = "no such file".to_owned();
            return Self {
                exit: Exit::NotStarted(reason),
                ..Self::never(fence, now_ms)
            };
        }
        let longest_ms = if rng.once_in(12) { 6_000 } else { 200 };
        let delay_ms = rng.below(longest_ms);
        let deaf = match rng.below(16) {
            0 | 1 => 1 + u32::try_from(rng.below(3)).unwrap_or(0),
            2 => u32::MAX,
            _ => 0,
        };
        let length_ms = match rng.below(6) {
            _ if deaf == u32::MAX => rng.between(60_000, 1_200_000),
            0 => rng.between(1, 60_000),
            1 => rng.between(1, 300),
            _ => rng.between(1, 4_000),
        };
        let exit = match rng.below(8) {
            0 => Exit::Signal(11),
            1 => Exit::OutOfMemory {
                code: None,
                signal: Some(9),
            },
            2 => Exit::Code(7),
            _ => Exit::Code(0),
        };
        let begins_ms = now_ms + delay_ms;
        Self {
            fence,
            begins_ms,
            ends_ms: begins_ms + length_ms,
            exit,
            deaf,
        }
    }

    /// An execution that was stopped before its start.
    fn never(fence: Fence, now_ms: u64) -> Self {
        let reason = "stopped before it started".to_owned();
        Self {
            fence,
            begins_ms: now_ms,
            ends_ms: now_ms,
            exit: Exit::NotStarted(reason),
            deaf: 0,
        }
    }

    fn lose(&mut self, now_ms: u64) {
        if now_ms < self.ends_ms {
            self.ends_ms = now_ms;
            self.exit = Exit::Lost;
        }
    }
}
