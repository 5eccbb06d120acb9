//! Carries out what the ledger says of executions, as the server's runner does (X2, X5).
//!
//! Every process of the service looks at its own view, whether it leads or only believes so: what
//! should be done is read off the committed state each time, and what was found is sent as
//! commands over the same bad network. What gets lost is found again by the next look.

use std::collections::BTreeMap;

use bursar_booking::execution::{Exit, Isolation, STOPS_UNTIL_STUCK, Wanted};
use bursar_booking::{Command as BookingCommand, Fence, Standing};
use bursar_engine::Command;
use bursar_units::{BookingId, Millis};

use super::World;
use super::action::Action;
use super::host::Seen;
use crate::violation::{Violation, demand};

/// How far apart two looks must be that both find something unknown, before it is cleaned (X5).
const TWICE_MS: u64 = 30_000;
/// How far apart two looks are at least.
const LOOK_MS: u64 = 15;
/// So many results always travel together.
const TOGETHER: usize = 6;
/// The longest pause between two stops.
const STOP_PAUSE_MAX_MS: u64 = 30_000;

/// What one process remembers of its looks; it is gone with the process.
#[derive(Debug, Default)]
pub(super) struct Runner {
    /// When it looks next.
    look_at_ms: Option<u64>,
    /// Until when an execution is left alone.
    quiet_until_ms: BTreeMap<BookingId, u64>,
    /// Since when something is there that the ledger does not know.
    unknown_since_ms: BTreeMap<BookingId, u64>,
    has_looked: bool,
}

impl Runner {
    /// Whether a look was planned for then.
    pub(super) fn looks_at(&self, at_ms: u64) -> bool {
        self.look_at_ms == Some(at_ms)
    }

    pub(super) fn look_later(&mut self, at_ms: u64) {
        self.look_at_ms = Some(at_ms);
    }
}

/// An execution that holds a slot, and what should be done for it.
struct Task {
    id: BookingId,
    fence: Fence,
    grace: Millis,
    wanted: Wanted,
}

/// Something on the machine that no execution with a slot explains.
struct Residue {
    id: BookingId,
    /// Whether the ledger knows that it has ended.
    is_known: bool,
}

/// What one look came to.
#[derive(Default)]
struct Found {
    commands: Vec<Command>,
    /// When there is more to see.
    next_ms: Option<u64>,
}

impl Found {
    fn look_at(&mut self, at_ms: u64) {
        self.next_ms = Some(self.next_ms.map_or(at_ms, |next_ms| next_ms.min(at_ms)));
    }
}

impl World<'_> {
    pub(super) fn plan_attend(&mut self, replica: usize, at_ms: u64) {
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        let look_at_ms = &mut one.runner.look_at_ms;
        if look_at_ms.is_some_and(|planned| planned <= at_ms) {
            return;
        }
        *look_at_ms = Some(at_ms);
        self.schedule
            .plan(at_ms, Action::Attend(replica, one.incarnation));
    }

    /// The runner of a replica looks at the state and at the machine, and does what it should.
    pub(super) fn attend(&mut self, replica: usize) -> Result<(), Violation> {
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        let mut runner = std::mem::take(&mut one.runner);
        runner.look_at_ms = None;
        let Some(process) = &one.process else {
            return Ok(());
        };
        let term = process.epoch;
        let (tasks, residues) = self.compare_with_host(replica);
        if !self.host.obeys(term) {
            self.tally.add("stale leader not obeyed by the machine", 1);
            return Ok(());
        }
        if !runner.has_looked {
            runner.has_looked = true;
            let lives = |task: &&Task| self.host.is_alive(&task.id, task.fence, self.now_ms);
            let adopted = tasks.iter().filter(lives).count();
            let adopted = u64::try_from(adopted).unwrap_or(u64::MAX);
            self.tally.add("executions adopted after a crash", adopted);
        }
        let mut found = Found::default();
        for task in &tasks {
            self.do_task(task, &mut runner, &mut found)?;
        }
        runner
            .unknown_since_ms
            .retain(|id, _| residues.iter().any(|residue| residue.id == *id));
        for residue in &residues {
            self.clear(residue, &mut runner, &mut found)?;
        }
        let now_ms = self.now_ms;
        runner
            .quiet_until_ms
            .retain(|_, until_ms| now_ms < *until_ms);
        if let Some(one) = self.replicas.get_mut(replica) {
            one.runner = runner;
        }
        self.report(replica, found.commands);
        if let Some(next_ms) = found.next_ms {
            self.plan_attend(replica, next_ms.max(self.now_ms + LOOK_MS));
        }
        Ok(())
    }

    /// What a process sees in its view, beside what is on the machine.
    fn compare_with_host(&self, replica: usize) -> (Vec<Task>, Vec<Residue>) {
        let process = self.replicas.get(replica);
        let Some(process) = process.and_then(|one| one.process.as_ref()) else {
            return (Vec::new(), Vec::new());
        };
        let state = process.ledger.view().read();
        let task = |id: &BookingId, fence| {
            Some(Task {
                id: id.clone(),
                fence,
                grace: state.bookings.order(id)?.grace,
                wanted: state.bookings.wanted(id)?,
            })
        };
        let tasks: Vec<Task> = state
            .bookings
            .executions()
            .filter_map(|(id, granted, _)| task(id, granted.fence))
            .collect();
        let residues = self
            .host
            .ids()
            .filter_map(|id| match state.bookings.standing(id) {
                Some(Standing::Granted(_) | Standing::Queued { .. }) => None,
                Some(Standing::Ended(_)) => Some((id, true)),
                None => Some((id, false)),
            })
            .map(|(id, is_known)| Residue {
                id: id.clone(),
                is_known,
            })
            .collect();
        (tasks, residues)
    }

    fn do_task(
        &mut self,
        task: &Task,
        runner: &mut Runner,
        found: &mut Found,
    ) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        if let Some(until_ms) = runner.quiet_until_ms.get(&task.id)
            && now_ms < *until_ms
        {
            found.look_at(*until_ms);
            return Ok(());
        }
        let id = task.id.clone();
        let command = match (task.wanted, self.host.look(&id, now_ms)) {
            (_, Seen::Gone(exit)) => BookingCommand::Exited { id, exit },
            (Wanted::Start, Seen::Absent) => {
                self.check_start(task)?;
                let next_ms = self.host.start(&id, task.fence, now_ms, &mut self.rng);
                found.look_at(next_ms);
                return Ok(());
            }
            (Wanted::Start | Wanted::Watch, Seen::Beginning(next_ms))
            | (Wanted::Watch, Seen::Running(next_ms)) => {
                found.look_at(next_ms);
                return Ok(());
            }
            (Wanted::Start, Seen::Running(_)) => {
                let isolation = Isolation::Cgroup;
                BookingCommand::Started { id, isolation }
            }
            // Nothing is there of what ran: nobody will ever know.
            (Wanted::Watch, Seen::Absent) => {
                let exit = Exit::Lost;
                BookingCommand::Exited { id, exit }
            }
            (Wanted::Stop { failed }, _) => {
                let grace = task.grace;
                let rng = &mut self.rng;
                let Some(ends_ms) = self.host.stop(&id, task.fence, grace, now_ms, rng) else {
                    let pause_ms = (200 << failed.min(STOPS_UNTIL_STUCK)).min(STOP_PAUSE_MAX_MS);
                    runner.quiet_until_ms.insert(id.clone(), now_ms + pause_ms);
                    found.look_at(now_ms + pause_ms);
                    if failed < STOPS_UNTIL_STUCK {
                        let attempt = failed + 1;
                        let failed = BookingCommand::StopFailed { id, attempt };
                        found.commands.push(failed.into());
                    }
                    return Ok(());
                };
                runner.quiet_until_ms.insert(id, ends_ms);
                found.look_at(ends_ms);
                return Ok(());
            }
        };
        // Should it get lost, a later look finds it again.
        let patience_ms = 2 * self.habits.delay_ms;
        let again_ms = now_ms + patience_ms + self.rng.between(100, 2_000);
        runner.quiet_until_ms.insert(task.id.clone(), again_ms);
        found.look_at(again_ms);
        found.commands.push(command.into());
        Ok(())
    }

    /// Nothing begins without a slot, and no grant begins twice.
    fn check_start(&self, task: &Task) -> Result<(), Violation> {
        let Task { id, fence, .. } = task;
        demand(
            self.checker.holds_or_was_forced(id, *fence),
            "only what holds its slot is started",
            || format!("`{id}` was to be started under {fence:?}"),
        )?;
        // An id is granted at most once while it is remembered, so its process is the only one.
        demand(
            self.host.exit_of(id, *fence).is_none(),
            "a grant has at most one process, ever",
            || format!("`{id}` was started again under {fence:?}"),
        )
    }

    /// Ends and cleans what the ledger says has ended, or has not known for long.
    fn clear(
        &mut self,
        residue: &Residue,
        runner: &mut Runner,
        found: &mut Found,
    ) -> Result<(), Violation> {
        let (now_ms, id) = (self.now_ms, &residue.id);
        let Some(fence) = self.host.fence_of(id) else {
            return Ok(());
        };
        if !residue.is_known {
            let since_ms = *runner.unknown_since_ms.entry(id.clone()).or_insert(now_ms);
            if now_ms < since_ms + TWICE_MS {
                found.look_at(since_ms + TWICE_MS);
                return Ok(());
            }
        }
        demand(
            !self.checker.holds(id, fence),
            "what holds its slot is never cleaned away",
            || format!("`{id}` holds under {fence:?}"),
        )?;
        if !self.host.is_alive(id, fence, now_ms) {
            self.host.clean(id);
            return Ok(());
        }
        let quiet_until_ms = match runner.quiet_until_ms.get(id) {
            Some(until_ms) if now_ms < *until_ms => *until_ms,
            _ => {
                let (grace, rng) = (Millis::from_ms(500), &mut self.rng);
                let ends_ms = self.host.stop(id, fence, grace, now_ms, rng);
                let is_heard = u64::from(ends_ms.is_some());
                self.tally.add("processes ended after a force", is_heard);
                ends_ms.unwrap_or(now_ms + STOP_PAUSE_MAX_MS)
            }
        };
        runner.quiet_until_ms.insert(id.clone(), quiet_until_ms);
        found.look_at(quiet_until_ms);
        Ok(())
    }

    /// Sends what was found, together or one by one, mostly to its own process.
    fn report(&mut self, replica: usize, commands: Vec<Command>) {
        let count = self.replicas.len();
        let replica = if self.rng.once_in(4) {
            self.rng.place(count)
        } else {
            replica
        };
        if commands.is_empty() {
            return;
        }
        if commands.len() >= TOGETHER || self.rng.once_in(2) {
            self.send_result(replica, commands);
        } else {
            for command in commands {
                self.send_result(replica, vec![command]);
            }
        }
    }

    /// What the ledger said in this step of processes that are gone, against the machine.
    pub(super) fn check_gone(&mut self) -> Result<(), Violation> {
        for gone in self.checker.take_gone() {
            let (id, fence) = (&gone.id, gone.fence);
            demand(
                !self.host.is_alive(id, fence, self.now_ms),
                "the slot of a live process is never free",
                || format!("`{id}` lives, and the ledger says {gone:?}"),
            )?;
            let truth = self.host.exit_of(id, fence);
            demand(
                truth.is_some_and(|truth| gone.tells(truth)),
                "what is recorded of an end is what became of the process",
                || format!("{gone:?}, and in truth {truth:?}"),
            )?;
        }
        Ok(())
    }

    /// After everybody stopped no process lives and nothing is left of any.
    pub(super) fn check_machine_is_empty(&self) -> Result<(), Violation> {
        let left: Vec<_> = self.host.ids().collect();
        demand(
            left.is_empty(),
            "when everybody has stopped, nothing is left on the machine",
            || format!("{left:?}"),
        )
    }
}
