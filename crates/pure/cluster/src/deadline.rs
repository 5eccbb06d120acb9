//! Deadlines, carried out at their own instants (R8).
//!
//! At one instant the kinds go in this order: window edges, promise ends, depletions, thresholds,
//! walltimes, starts that are overdue. The deadlines of one kind are carried out together, then
//! refunding follows at the same instant; starting comes at the end of the record (R7). The end of a
//! grace is no deadline of the engine: the state says when a process is killed, and its executor does it.

use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::accounts::{Demotions, Kind, PromiseEnd};
use bursar_budget::{ClaimLine, Funded, RunUid, Work};
use bursar_plane::{Class, Decided, Due, Steps};
use bursar_units::Instant;

use crate::clusters::Clusters;
use crate::{Event, Reason};

/// Kind of a deadline, in the order of one instant.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) enum Step {
    /// Of money.
    Money(Kind),
    /// A run with a hard limit is stopped.
    Walltime,
    /// A start was not reported in time.
    Start,
}

/// Cause of a stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) reason: Reason,
    /// Exit code of the process that failed.
    pub(crate) code: Option<i32>,
    /// Cause of a failed start, for people.
    pub(crate) detail: Option<String>,
}

impl Stop {
    pub(crate) const fn of(reason: Reason) -> Self {
        Self {
            reason,
            code: None,
            detail: None,
        }
    }
}

impl Step {
    const fn class(self) -> Class {
        match self {
            Self::Money(_) | Self::Walltime => Class::Clock,
            Self::Start => Class::Patience,
        }
    }
}

impl Clusters {
    /// The earliest deadline of a class.
    pub(crate) fn next_of(&self, class: Class) -> Option<(Instant, Step)> {
        let money = self.accounts.next_deadline();
        let money = money.map(|(at, kind)| (at, Step::Money(kind)));
        let walltime = self.walltimes.first().map(|(at, _)| (*at, Step::Walltime));
        let start = self.starts.first().map(|(at, _)| (*at, Step::Start));
        let steps = [money, walltime, start].into_iter().flatten();
        steps.filter(|(_, step)| step.class() == class).min()
    }

    /// The earliest deadline.
    pub(crate) fn next_step(&self) -> Option<(Instant, Step)> {
        let classes = Class::ALL.into_iter();
        classes.filter_map(|class| self.next_of(class)).min()
    }

    /// Carries out the deadlines that are due, as long as the steps last.
    pub(crate) fn carry_out(&mut self, due: Due, steps: &mut Steps, out: &mut Decided<Event>) {
        while steps.deadlines > 0 {
            let classes = Class::ALL.into_iter().filter(|class| due.includes(*class));
            let next = classes.filter_map(|class| self.next_of(class)).min();
            let Some((at, step)) = next.filter(|(at, _)| *at <= due.until) else {
                return;
            };
            let before = out.len();
            self.carry_out_step(at, step, out);
            let done = out.len() - before;
            if done == 0 {
                debug_assert!(false, "a deadline of {at:?} changes nothing: {step:?}");
                return;
            }
            steps.deadlines = steps.deadlines.saturating_sub(done);
        }
    }

    fn carry_out_step(&mut self, at: Instant, step: Step, out: &mut Decided<Event>) {
        match step {
            Step::Money(Kind::WindowEdge) => self.pass_edges(at, out),
            Step::Money(Kind::PromiseEnd) => self.end_promises(at, out),
            Step::Money(Kind::Depletion) => return self.deplete(at, out),
            Step::Money(Kind::Threshold) => return self.note_near(at, out),
            Step::Walltime => return self.stop_overdue(at, out),
            Step::Start => return self.give_up_starts(at, out),
        }
        self.refund(at, out);
    }

    /// Window edges (B3). A window that opens has no event: the pass is owed instead.
    fn pass_edges(&mut self, at: Instant, out: &mut Decided<Event>) {
        let closed = self.accounts.edges(at);
        if closed.is_empty() {
            self.emit(at, Event::PassUnfinished { t: None }, out);
        }
        for epoch in closed {
            self.open.refit.insert(epoch.meter.clone());
            self.emit(at, Event::EpochClosed { epoch, t: None }, out);
        }
        self.refit(at, out);
    }

    /// Promise ends (B2), in keep order.
    fn end_promises(&mut self, at: Instant, out: &mut Decided<Event>) {
        for claim in self.accounts.promise_ends(at) {
            match self.accounts.promise_end(at, &claim) {
                Some(PromiseEnd::Extended(line)) => {
                    self.promise(at, &claim.work, line, Funded::Extension, out);
                }
                Some(PromiseEnd::Overruns { line, exhausted }) => {
                    self.promise(at, &claim.work, line, Funded::Overrun, out);
                    self.note_exhausted(at, &exhausted, out);
                }
                Some(PromiseEnd::Demoted(demotion)) => self.demote(at, vec![demotion], out),
                None => {}
            }
        }
    }

    fn promise(
        &mut self,
        at: Instant,
        work: &Work,
        line: ClaimLine,
        cause: Funded,
        out: &mut Decided<Event>,
    ) {
        let Some((_, known)) = self.live_run(&work.run) else {
            return;
        };
        let event = Event::RunFunded {
            of: known.who(),
            incarnation: work.incarnation,
            claims: vec![line],
            cause,
            unfunded: None,
            t: None,
        };
        self.emit(at, event, out);
    }

    /// Depletion (B2): overrunning claims are demoted; where their envelope says so, work that
    /// refunding does not fund ends.
    fn deplete(&mut self, at: Instant, out: &mut Decided<Event>) {
        let Demotions {
            list: demotions,
            exhausted,
        } = self.accounts.depletions(at);
        let mut ending: BTreeSet<(Work, u64)> = BTreeSet::new();
        for demotion in demotions {
            let work = demotion.ends.then(|| demotion.work.clone());
            self.demote(at, vec![demotion], out);
            // The demotion made an unfunded claim, which has the last number.
            ending.extend(work.map(|work| (work, self.accounts.last_claim())));
        }
        self.note_exhausted(at, &exhausted, out);
        self.refund(at, out);
        for (work, claim) in ending {
            let unfunded = self.accounts.unfunded(&work);
            if unfunded.iter().any(|unfunded| unfunded.number == claim) {
                let number = self.numbers.get(&work.run).copied();
                self.stop(at, number, Stop::of(Reason::BudgetEnd), out);
            }
        }
    }

    fn stop_overdue(&mut self, at: Instant, out: &mut Decided<Event>) {
        for number in self.due(&self.walltimes, at) {
            self.stop(at, Some(number), Stop::of(Reason::Walltime), out);
        }
    }

    fn give_up_starts(&mut self, at: Instant, out: &mut Decided<Event>) {
        for number in self.due(&self.starts, at) {
            self.stop(at, Some(number), Stop::of(Reason::StartFailed), out);
        }
    }

    /// Runs whose deadline has come, by identity (R8).
    fn due(&self, deadlines: &BTreeSet<(Instant, u64)>, at: Instant) -> Vec<u64> {
        let due = deadlines.iter().take_while(|(due, _)| *due <= at);
        let live = due.filter_map(|(_, number)| Some((&self.live.get(number)?.uid, *number)));
        let live: BTreeMap<&RunUid, u64> = live.collect();
        live.into_values().collect()
    }

    /// Begins the stop of a run with GPUs that is not being stopped yet.
    pub(crate) fn stop(
        &mut self,
        at: Instant,
        number: Option<u64>,
        cause: Stop,
        out: &mut Decided<Event>,
    ) {
        let Some(live) = number.and_then(|number| self.live.get(&number)) else {
            return;
        };
        let Some(held) = live.held.as_ref().filter(|_| !live.is_ending()) else {
            return;
        };
        let grace = live.run.grace().min(self.policy.grace_max);
        let hard_end = live.hard_end(held.opened).map(|end| end.max(at));
        let deadline = match cause.reason {
            Reason::StartFailed => at,
            // The stop begins one grace before the hard end; after an edit it may begin later.
            Reason::Walltime => at.after(grace),
            _ => hard_end.map_or(at.after(grace), |end| at.after(grace).min(end)),
        };
        let event = Event::RunEnding {
            of: live.who(),
            reason: cause.reason,
            deadline,
            code: cause.code,
            detail: cause.detail,
            t: None,
        };
        self.emit(at, event, out);
    }
}
