//! Failures of stores, clocks, processes and disks, and days without requests.

use bursar_ledger::clock::Clock as _;
use bursar_ledger::store::memory::Fault;
use bursar_units::Millis;

use super::action::Action;
use super::replica::Process;
use super::{ABSENCE, World};
use crate::violation::Violation;

const HOUR_MS: u64 = 3_600_000;
/// Free space that counts as little (L4).
const DISK_LOW_BYTES: u64 = 1 << 20;

impl World<'_> {
    /// Causes one failure, and plans the next.
    pub(super) fn trouble(&mut self) -> Result<(), Violation> {
        if self.is_stopping {
            return Ok(());
        }
        let later = self.now_ms.max(self.quiet_until_ms);
        let later = later + self.rng.between(1, self.habits.trouble_ms);
        self.schedule.plan(later, Action::Trouble);
        let replica = self.rng.place(self.replicas.len());
        match self.rng.below(16) {
            0 => self.inject(Fault::Error, "fault: errors, nothing written"),
            1 => self.inject(Fault::CommitThenError, "fault: commits, then errors"),
            2 => self.inject(Fault::Refuse, "fault: no row changed"),
            3 => self.inject(Fault::Hang, "fault: hangs"),
            4 | 5 => self.step_clock(replica),
            6 => self.suspend(replica),
            7 => self.stall(replica),
            8 => {
                if let Some(stage) = self.process(replica).map(Process::stage) {
                    self.tally.add(stage, 1);
                    self.crash(replica);
                }
            }
            9 => self.fill_disk(),
            10 => self.starve_disk(replica),
            11 => self.usurp(),
            12 => return self.take_snapshot(replica),
            13 => self.lose_shim(),
            14 if self.rng.once_in(3) => self.reboot(),
            _ if self.habits.has_days => self.let_a_day_pass(),
            _ => {}
        }
        Ok(())
    }

    /// Crashes the process here, at random.
    pub(super) fn crash_here(&mut self, replica: usize) -> Result<bool, Violation> {
        if self.is_stopping || !self.rng.once_in(self.habits.crash_once_in) {
            return Ok(false);
        }
        // Answers that have left the process still arrive.
        self.let_answers_out(replica, usize::MAX)?;
        if let Some(stage) = self.process(replica).map(Process::stage) {
            self.tally.add(stage, 1);
        }
        self.crash(replica);
        Ok(true)
    }

    /// Crashes the process after some answers of a batch have left.
    pub(super) fn crash_between_answers(&mut self, replica: usize) -> Result<bool, Violation> {
        if self.is_stopping || !self.rng.once_in(self.habits.crash_once_in) {
            return Ok(false);
        }
        let most = self.rng.place(4);
        self.let_answers_out(replica, most)?;
        self.tally.add("crash: between answers", 1);
        self.crash(replica);
        Ok(true)
    }

    /// Ends the process; only the records in the store survive. Another one starts later.
    pub(super) fn crash(&mut self, replica: usize) {
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        self.trace.note(&format!("replica {replica} crashes"));
        (one.process, one.runner) = (None, None);
        self.tally.add("crashes", 1);
        if self.rng.once_in(6) {
            let back_ms = i64::try_from(self.rng.between(1_000, HOUR_MS)).unwrap_or(0);
            one.machine.step_wall(-back_ms);
            self.tally.add("restarts with an older wall clock", 1);
        }
        let later = self.now_ms + self.rng.one_of([0, 10, 50, 400, 2_000, 9_000]);
        self.plan_start(replica, later);
    }

    pub(super) fn land(&mut self) -> Result<(), Violation> {
        let landed = self.store.land();
        self.trace.note(&format!("{landed:?}"));
        if landed == bursar_ledger::store::Appended::Done {
            self.tally.add("hung writes that landed", 1);
        }
        self.checker.follow(&[], self.now_ms, self.tally)
    }

    pub(super) fn free_disk(&mut self) {
        self.store.set_free_bytes(None);
        for process in self
            .replicas
            .iter_mut()
            .filter_map(|one| one.process.as_mut())
        {
            process.stages.housekeep();
        }
        for number in 0..self.replicas.len() {
            self.plan_build(number, self.now_ms);
        }
    }

    fn inject(&mut self, fault: Fault, word: &'static str) {
        self.trace.note(word);
        self.tally.add(word, 1);
        self.store.inject(fault);
    }

    fn step_clock(&mut self, replica: usize) {
        let by_ms = self.rng.one_of([6_000, 20_000, HOUR_MS]);
        let is_forward = self.rng.once_in(2);
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        let signed = i64::try_from(by_ms).unwrap_or(0);
        if is_forward {
            one.leave(Millis::ZERO);
            one.machine.step_wall(signed);
            self.tally.add("clock set forward", 1);
        } else {
            one.machine.step_wall(-signed);
            self.tally.add("clock set back", 1);
        }
        let wall = one.machine.wall();
        self.trace
            .note(&format!("the clock of {replica} is set to {}", wall.ms()));
        // The engine reads the clock at least once a second.
        let later = self.now_ms + self.rng.below(1_000);
        self.plan_build(replica, later);
    }

    fn suspend(&mut self, replica: usize) {
        let length_ms = self.rng.one_of([2_000, 7_000, 60_000, 2 * HOUR_MS]);
        let now_ms = self.now_ms;
        let awake = |one: &&mut super::Replica| one.busy_until_ms <= now_ms;
        let Some(one) = self.replicas.get_mut(replica).filter(awake) else {
            return;
        };
        one.leave(Millis::ZERO);
        one.machine.sleep(length_ms);
        one.hold_until(now_ms + length_ms);
        self.skip(length_ms);
        self.trace
            .note(&format!("machine {replica} sleeps for {length_ms} ms"));
        self.tally.add("machine suspended", 1);
        self.plan_build(replica, now_ms + length_ms);
    }

    fn stall(&mut self, replica: usize) {
        let length_ms = self.rng.one_of([300, 4_000, 12_000, 90_000]);
        let now_ms = self.now_ms;
        let awake = |one: &&mut super::Replica| one.busy_until_ms <= now_ms;
        let Some(one) = self.replicas.get_mut(replica).filter(awake) else {
            return;
        };
        one.leave(ABSENCE);
        one.hold_until(now_ms + length_ms);
        self.skip(length_ms);
        self.trace.note(&format!(
            "process {replica} stands still for {length_ms} ms"
        ));
        self.tally.add("process stalled", 1);
        self.plan_build(replica, now_ms + length_ms);
    }

    /// Clients do nothing for most of a long absence, or they would only repeat requests: actions that
    /// are planned in that time happen late.
    fn skip(&mut self, length_ms: u64) {
        self.skip_ms += length_ms.saturating_sub(15_000);
    }

    fn fill_disk(&mut self) {
        self.store.set_free_bytes(Some(0));
        self.trace.note("the disk is full");
        self.tally.add("disk full", 1);
        let later = self.now_ms + self.rng.between(10, 6_000);
        self.schedule.plan(later, Action::FreeDisk);
    }

    fn starve_disk(&mut self, replica: usize) {
        self.store.set_free_bytes(Some(DISK_LOW_BYTES));
        if let Some(process) = self.process_mut(replica) {
            process.stages.housekeep();
            self.trace.note("the disk is nearly full");
            self.tally.add("disk low", 1);
            let later = self.now_ms + self.rng.between(10, 3_000);
            self.schedule.plan(later, Action::FreeDisk);
        }
    }

    /// Another replica begins to lead while the first one still believes that it does.
    fn usurp(&mut self) {
        if self.replicas.len() < 2 {
            return;
        }
        let leads = |one: &super::Replica| {
            one.process
                .as_ref()
                .is_some_and(|process| process.epoch == self.epoch)
        };
        let leader = self.replicas.iter().position(leads);
        let other = leader.map_or(0, |leader| (leader + 1) % self.replicas.len());
        self.tally.add("leader usurped", 1);
        self.plan_start(other, self.now_ms);
    }

    /// Kills the shim of a process, so that its exit cannot be known.
    fn lose_shim(&mut self) {
        let running = self.host.lock().running(self.now_ms);
        if let Some(id) = self.rng.pick(&running) {
            self.trace.note(&format!("the shim of {id} is killed"));
            self.tally.add("shims killed", 1);
            self.host.lock().lose(id, self.now_ms);
            self.host.wake();
        }
    }

    /// Restarts the machine; all processes on it end.
    fn reboot(&mut self) {
        self.trace.note("the machine reboots");
        self.tally.add("machine rebooted", 1);
        self.host.lock().reboot(self.now_ms);
        self.host.wake();
        for replica in 0..self.replicas.len() {
            let process = self.replicas.get(replica);
            if process.is_some_and(|one| one.process.is_some()) {
                self.crash(replica);
            }
        }
    }

    fn let_a_day_pass(&mut self) {
        self.trace.note("nobody wants anything for a day");
        self.tally.add("days that passed", 1);
        self.quiet_until_ms = self.now_ms + 25 * HOUR_MS;
    }
}

impl super::Replica {
    /// The process and its runner do nothing until that time.
    fn hold_until(&mut self, at_ms: u64) {
        self.busy_until_ms = at_ms;
        if let Some(runner) = &self.runner {
            runner.hold_until(at_ms);
        }
    }

    /// Notes that the ledger is away until its engine's next turn.
    pub(super) fn leave(&mut self, slack: Millis) {
        if let Some(process) = &self.process
            && self.away_from.is_none()
        {
            self.away_from = Some((process.ledger.now(), slack));
        }
    }
}
