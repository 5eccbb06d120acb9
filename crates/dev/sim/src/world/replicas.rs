//! The turns of engine, store and view on every replica, and the checks after each.

use bursar_engine::snapshot;

use super::action::Action;
use super::checker::Checker;
use super::replica::{Committed, Process, StartError};
use super::runner::RunnerTask;
use super::{ABSENCE, COMPARE_ONCE_IN, World};
use crate::violation::{Violation, broken, demand};

impl World<'_> {
    pub(super) fn is_awake(&mut self, replica: usize, action: &Action) -> bool {
        let Some(one) = self.replicas.get_mut(replica) else {
            return false;
        };
        if self.now_ms < one.busy_until_ms {
            if matches!(action, Action::Build(..)) {
                one.build_at_ms = Some(one.busy_until_ms);
            }
            self.schedule.plan(one.busy_until_ms, action.clone());
            self.trace.note("still away");
            return false;
        }
        true
    }

    /// Whether an action is obsolete: its process is gone, or an earlier turn did its work.
    pub(super) fn is_idle(&self, at_ms: u64, action: &Action) -> bool {
        let (replica, incarnation) = match action {
            Action::Wake { client, lease } => {
                let known = self
                    .clients
                    .get(*client)
                    .and_then(|one| one.leases.get(*lease));
                return known.is_none_or(|one| one.wake_at_ms != Some(at_ms));
            }
            Action::Build(replica, incarnation)
            | Action::Commit(replica, incarnation)
            | Action::Publish(replica, incarnation)
            | Action::Resolve(replica, incarnation)
            | Action::Report(replica, incarnation)
            | Action::Keep(replica, incarnation) => (*replica, *incarnation),
            _ => return false,
        };
        self.replicas.get(replica).is_none_or(|one| {
            let has_turn = !matches!(action, Action::Build(..)) || one.build_at_ms == Some(at_ms);
            one.process.is_none() || one.incarnation != incarnation || !has_turn
        })
    }

    /// Plans the engine's turn on every replica where a runner has submitted something.
    pub(super) fn plan_results(&mut self) {
        for replica in 0..self.replicas.len() {
            let Some(one) = self.replicas.get(replica) else {
                continue;
            };
            let has_more = one.process.as_ref().is_some_and(Process::has_more);
            if has_more && one.build_at_ms.is_none() {
                let delay = self.rng.below(3);
                self.plan_build(replica, self.now_ms + delay);
            }
        }
    }

    pub(super) fn plan_build(&mut self, replica: usize, at_ms: u64) {
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        if one.build_at_ms.is_some_and(|planned| planned <= at_ms) {
            return;
        }
        one.build_at_ms = Some(at_ms);
        self.schedule
            .plan(at_ms, Action::Build(replica, one.incarnation));
    }

    /// Plans the engine's turn at its next deadline.
    fn plan_deadline(&mut self, replica: usize) {
        // While the store is busy the batch stays open, with the due deadlines in it.
        let process = self.process(replica);
        let Some(process) = process.filter(|process| process.stages.is_free()) else {
            return;
        };
        if let Some(deadline) = process.stages.writer().working().next_deadline() {
            let wait = deadline.since(process.ledger.now()).ms().max(1);
            let late = if self.rng.once_in(4) {
                self.rng.below(300)
            } else {
                0
            };
            self.plan_build(replica, self.now_ms + wait + late);
        }
    }

    pub(super) fn build(&mut self, replica: usize) -> Result<(), Violation> {
        let most = if self.rng.once_in(3) { 1 } else { usize::MAX };
        let now_ms = self.now_ms;
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        one.build_at_ms = None;
        let Some(process) = one.process.as_mut() else {
            return Ok(());
        };
        // Decisions while the store is away have no effect: the absence continues.
        let away_from = if process.is_recovering() {
            None
        } else {
            one.away_from.take()
        };
        process.build(most, now_ms)?;
        if most == 1 {
            Checker::check_working(process.stages.writer().working())?;
        }
        let now = process.ledger.now();
        if let Some((from, slack)) = away_from
            && process.epoch == self.epoch
            && now.since(from) > ABSENCE
        {
            self.checker.was_away(from, now.before(slack));
        }
        self.after_build(replica)
    }

    fn after_build(&mut self, replica: usize) -> Result<(), Violation> {
        if self.crash_here(replica)? {
            return Ok(());
        }
        let latency = self.rng.one_of([0, 1, 3, 20]);
        self.send_on(replica, latency);
        let again = self.rng.between(1, 5);
        if self.process(replica).is_some_and(Process::has_more) {
            self.plan_build(replica, self.now_ms + again);
        }
        self.plan_deadline(replica);
        Ok(())
    }

    /// Hands the open batch to the store if the store is free.
    fn send_on(&mut self, replica: usize, latency_ms: u64) {
        let incarnation = self.incarnation(replica);
        if self.process_mut(replica).is_some_and(Process::send) {
            let action = Action::Commit(replica, incarnation);
            self.schedule.plan(self.now_ms + latency_ms, action);
        }
    }

    pub(super) fn commit(&mut self, replica: usize) -> Result<(), Violation> {
        if self.crash_here(replica)? {
            return Ok(());
        }
        let (now_ms, incarnation) = (self.now_ms, self.incarnation(replica));
        let is_leader = self.is_leader(replica);
        let process = self.process_mut(replica);
        let Some((committed, decisions)) = process.and_then(Process::commit) else {
            return Ok(());
        };
        self.checker.about_to_commit(&decisions);
        match committed {
            Committed::Done => {
                // A stale leader cannot write, but it can refuse, based on its old state.
                if is_leader {
                    self.checker.follow(&decisions, now_ms, self.tally)?;
                }
                let later = now_ms + self.rng.one_of([0, 1, 10]);
                self.schedule
                    .plan(later, Action::Publish(replica, incarnation));
            }
            Committed::Refused => {
                self.trace.note("refused");
                self.note_end_of_term(replica);
            }
            Committed::Unknown => {
                self.trace.note("outcome unknown");
                if let Some(one) = self.replicas.get_mut(replica) {
                    // Like a process that stalls, it notices only late deadlines.
                    one.leave(ABSENCE);
                }
                if self.rng.once_in(2) {
                    // If the write hangs, it may complete later.
                    let later = now_ms + self.rng.below(300);
                    self.schedule.plan(later, Action::Land);
                }
                let later = now_ms + self.rng.below(400);
                self.schedule
                    .plan(later, Action::Resolve(replica, incarnation));
            }
        }
        self.checker.follow(&[], now_ms, self.tally)?;
        if self.crash_here(replica)? {
            return Ok(());
        }
        let latency = self.rng.below(10);
        self.send_on(replica, latency);
        Ok(())
    }

    pub(super) fn publish(&mut self, replica: usize) -> Result<(), Violation> {
        let Some(process) = self.process_mut(replica) else {
            return Ok(());
        };
        process.publish();
        if self.crash_between_answers(replica)? {
            return Ok(());
        }
        self.compare(replica)?;
        if self.rng.once_in(self.habits.crash_once_in) && !self.is_stopping {
            self.let_answers_out(replica, usize::MAX)?;
            self.tally.add("crash: after publish", 1);
            self.crash(replica);
            return Ok(());
        }
        if self.rng.once_in(50)
            && let Some(process) = self.process_mut(replica)
        {
            process.stages.housekeep();
        }
        self.plan_build(replica, self.now_ms);
        Ok(())
    }

    /// Compares the states of readers and of the engine with the committed records.
    fn compare(&mut self, replica: usize) -> Result<(), Violation> {
        let is_whole_look = self.rng.once_in(COMPARE_ONCE_IN);
        let Some(process) = self.process(replica) else {
            return Ok(());
        };
        let state = process.ledger.view().read();
        self.checker.check_view(&state)?;
        if is_whole_look {
            self.checker.check_same(&state, "the view")?;
            if process.has_nothing_uncommitted() {
                self.checker
                    .check_same(process.stages.writer().working(), "the working state")?;
            }
        }
        Ok(())
    }

    pub(super) fn resolve(&mut self, replica: usize) {
        let (now_ms, incarnation) = (self.now_ms, self.incarnation(replica));
        let Some(process) = self.process_mut(replica) else {
            return;
        };
        let resolved = process.resolve();
        let (is_unknown, is_over) = (process.stages.is_unknown(), process.is_over());
        if let Some(is_committed) = resolved {
            let word = if is_committed {
                "unknown outcomes that were committed"
            } else {
                "unknown outcomes that were not"
            };
            self.tally.add(word, 1);
            let later = now_ms + self.rng.one_of([0, 1, 10]);
            self.schedule
                .plan(later, Action::Publish(replica, incarnation));
        }
        if is_unknown {
            let later = now_ms + self.rng.between(50, 400);
            self.schedule
                .plan(later, Action::Resolve(replica, incarnation));
        }
        if is_over {
            self.note_end_of_term(replica);
        }
    }

    /// Nothing is admitted from an unknown outcome until its records are published and the engine
    /// has started over (L2).
    pub(super) fn check_intake(&self, replica: usize) -> Result<(), Violation> {
        let Some(process) = self.process(replica) else {
            return Ok(());
        };
        demand(
            !process.is_recovering() || process.ledger.refuses().is_some(),
            "nothing is admitted while an outcome is unknown",
            || format!("replica {replica} accepts submissions"),
        )
    }

    pub(super) fn start(&mut self, replica: usize) -> Result<(), Violation> {
        let is_leading = |process: &Process| process.epoch == self.epoch && !process.is_over();
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        one.start_at_ms = None;
        if one.process.as_ref().is_some_and(is_leading) {
            return Ok(());
        }
        if self.now_ms < one.busy_until_ms {
            // Nothing starts on a machine that sleeps.
            let later = one.busy_until_ms;
            self.plan_start(replica, later);
            return Ok(());
        }
        let from_snapshot = one.snapshot.clone().filter(|_| self.rng.once_in(2));
        self.epoch += 1;
        let snapshot = from_snapshot.as_deref();
        let begun = Process::start(&self.store, &one.machine, snapshot, self.epoch);
        self.checker.begins_anew();
        let (records, before) = (self.checker.head(), self.checker.time());
        self.checker.follow(&[], self.now_ms, self.tally)?;
        self.checker.was_away(before, self.checker.time());
        let started = match begun {
            Ok(started) => started,
            Err(StartError::Broken(violation)) => return Err(violation),
            Err(StartError::Away) => {
                self.trace.note("the store is away");
                self.plan_start(replica, self.now_ms + 200);
                return Ok(());
            }
        };
        self.checker
            .check_recovered(&started.state, &started.root)?;
        if records > 0 {
            let word = if from_snapshot.is_some() {
                "recovered from a snapshot"
            } else {
                "recovered from record 0"
            };
            self.tally.add(word, 1);
        }
        // A new process first takes over the machine.
        self.host.lock().obey(self.epoch);
        self.count_adopted(&started.state);
        let (ledger, runtime) = (&started.process.ledger, self.runtime.handle());
        let runner = RunnerTask::spawn(ledger, &self.host, self.epoch, runtime);
        if let Some(one) = self.replicas.get_mut(replica) {
            one.incarnation += 1;
            one.build_at_ms = None;
            one.away_from = None;
            one.busy_until_ms = 0;
            one.process = Some(started.process);
            one.runner = Some(runner);
        }
        self.plan_report(replica);
        self.plan_keep(replica);
        self.plan_build(replica, self.now_ms);
        Ok(())
    }

    /// Restarts a process that may not write any more, after a pause.
    fn note_end_of_term(&mut self, replica: usize) {
        let process = self.process(replica);
        if process.is_some_and(Process::is_over) {
            if process.is_some_and(|process| process.epoch < self.epoch) {
                self.tally.add("stale leader refused", 1);
            }
            // Two processes that replace each other all the time would do nothing else.
            let patience_ms = if self.replicas.len() > 1 {
                90_000
            } else {
                5_000
            };
            let later = self.now_ms + self.rng.between(10, patience_ms);
            self.plan_start(replica, later);
        }
    }

    pub(super) fn plan_start(&mut self, replica: usize, at_ms: u64) {
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        if one.start_at_ms.is_none() {
            one.start_at_ms = Some(at_ms);
            self.schedule.plan(at_ms, Action::Start(replica));
        }
    }

    fn is_leader(&self, replica: usize) -> bool {
        let process = self.process(replica);
        process.is_some_and(|process| process.epoch == self.epoch)
    }

    fn incarnation(&self, replica: usize) -> u64 {
        self.replicas.get(replica).map_or(0, |one| one.incarnation)
    }

    pub(super) fn process(&self, replica: usize) -> Option<&Process> {
        self.replicas.get(replica)?.process.as_ref()
    }

    pub(super) fn process_mut(&mut self, replica: usize) -> Option<&mut Process> {
        self.replicas.get_mut(replica)?.process.as_mut()
    }

    pub(super) fn take_snapshot(&mut self, replica: usize) -> Result<(), Violation> {
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        if let Some(process) = &one.process {
            let text = snapshot::write(&process.ledger.view().read());
            let text =
                text.map_err(|error| broken("every state can be written", error.to_string()))?;
            one.snapshot = Some(text);
        }
        Ok(())
    }
}
