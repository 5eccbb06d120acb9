//! Decisions on commands and changes.

use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::accounts::Edit;
use bursar_budget::cover::{Request, Trace};
use bursar_budget::{Budget, BudgetId, EnvelopeId, MeterId, RunUid};
use bursar_plane::{Decided, STEPS_PER_RECORD_MAX};
use bursar_units::{Instant, Label, ObjectName, ScopedName};

use crate::clusters::Clusters;
use crate::deadline::Stop;
use crate::pass::{Starting, gang, request_at, start_request};
use crate::{Change, Command, Event, Exit, Policy, Reason, Refusal, Reply, Run};

impl Clusters {
    /// Answers a command and applies its events.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        command: &Command,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        let before = out.len();
        let reply = match command {
            Command::CancelRun { run, uid } => self.cancel(now, run, uid.as_ref(), out)?,
            Command::RotateEnvelope { envelope, .. } => self.rotate(now, envelope, out)?,
            Command::RunStarted { uid, incarnation } => {
                self.started(now, uid, *incarnation, out)?
            }
            Command::RunExited {
                uid,
                incarnation,
                pods,
                exit,
            } => self.exited(now, uid, *incarnation, pods, exit, out)?,
            Command::SetPolicy(policy) => self.set_policy(now, policy, out)?,
        };
        if before < out.len() {
            self.pass(now, out);
        }
        Ok(reply)
    }

    /// The pass of a command's record (R7): refit, refunding, starting.
    pub(crate) fn pass(&mut self, now: Instant, out: &mut Decided<Event>) {
        self.refit(now, out);
        if self.open.is_stirred {
            self.refund(now, out);
        }
        // Shares that the record itself reached are no deadline that its starts wait for.
        if self.open.is_stirred || !out.is_empty() {
            self.note_near_early(now, out);
        }
        // Starting that is owed belongs to the tick that leaves no deadline.
        let no_deadline = Instant::default();
        let grants = &mut { STEPS_PER_RECORD_MAX };
        self.finish(Starting::Allowed, no_deadline, grants, out);
        if !out.is_empty() {
            self.note_near_early(now, out);
        }
    }

    /// Refuses to remove a node with leases.
    pub fn check_node_drop(&self, node: &ObjectName) -> Result<(), Refusal> {
        let runs = self.runs_on(node);
        if runs.is_empty() {
            return Ok(());
        }
        let node = node.clone();
        Err(Refusal::NodeInUse { node, runs })
    }

    /// Checks changes: the budgets together, then each run on what they and the runs before it leave,
    /// so that the order of budgets and runs does not matter.
    pub(crate) fn check_all(&self, now: Instant, changes: &[&Change]) -> Result<(), Refusal> {
        self.check_budgets(changes)?;
        if let [change] = changes {
            return change
                .run()
                .map_or(Ok(()), |run| self.check_change(now, change, run));
        }
        if changes.iter().all(|change| change.run().is_none()) {
            return Ok(());
        }
        self.clone().check_runs(now, changes)
    }

    /// The same on a scratch copy of the state, which has the nodes of the command.
    pub fn check_on_scratch(self, now: Instant, changes: &[&Change]) -> Result<(), Refusal> {
        self.check_budgets(changes)?;
        self.check_runs(now, changes)
    }

    /// Checks each run on what the budgets and the runs before it leave.
    fn check_runs(mut self, now: Instant, changes: &[&Change]) -> Result<(), Refusal> {
        let mut out = Decided::new(now, self.open.record);
        let budgets = changes.iter().filter(|change| change.run().is_none());
        budgets.for_each(|change| self.declare(now, change, &mut out));
        for change in changes {
            if let Some(run) = change.run() {
                self.check_change(now, change, run)?;
                self.declare(now, change, &mut out);
            }
        }
        Ok(())
    }

    fn check_change(&self, now: Instant, change: &Change, run: &Run) -> Result<(), Refusal> {
        self.check_run(now, run)?;
        let Change::StartRun(_) = change else {
            return Ok(());
        };
        let known = self.names.get(&run.id()).and_then(|uid| self.live_run(uid));
        let wait = match known {
            Some((_, live)) => self.wait(now, &live.uid),
            None => self.wait_before(now, run),
        };
        let refusal = wait.map(|wait| Refusal::WouldWait {
            run: run.id(),
            wait: Box::new(wait),
        });
        refusal.map_or(Ok(()), Err)
    }

    /// Applies one checked change; one that changes nothing has no event.
    pub(crate) fn declare(&mut self, at: Instant, change: &Change, out: &mut Decided<Event>) {
        match change {
            Change::SetBudget(budget) => self.set_budget(at, budget, out),
            Change::DropBudget { budget } => {
                let meters = self.accounts.removal(budget);
                self.open.refit.extend(meters);
                let budget = budget.clone();
                self.emit(at, Event::BudgetDropped { budget }, out);
            }
            Change::SetRun(run) | Change::StartRun(run) => self.set_run(at, run, out),
        }
    }

    fn set_budget(&mut self, at: Instant, budget: &Budget, out: &mut Decided<Event>) {
        if self.accounts.budget(&budget.id()) == Some(budget) {
            return;
        }
        let Edit { closed, refit } = self.accounts.edit(at, budget);
        self.open.refit.extend(refit);
        for epoch in closed {
            self.emit(at, Event::EpochClosed { epoch, t: None }, out);
        }
        self.emit(at, Event::BudgetSet(budget.clone()), out);
    }

    fn set_run(&mut self, at: Instant, run: &Run, out: &mut Decided<Event>) {
        let live = self.names.get(&run.id()).and_then(|uid| self.live_run(uid));
        if let Some((_, live)) = live {
            if live.run.editable() != run.editable() {
                let (of, edit) = (live.who(), run.editable());
                self.emit(at, Event::RunEdited { of, edit }, out);
            }
            return;
        }
        let place = if self.open.record == out.record() {
            self.open.runs
        } else {
            0
        };
        let name = match place {
            0 => format!("run-{}", out.record()),
            _ => format!("run-{}.{}", out.record(), place + 1),
        };
        let Ok(uid) = RunUid::new(&name) else { return };
        let run = run.clone();
        self.emit(at, Event::RunSubmitted { uid, run }, out);
    }

    fn check_budgets(&self, changes: &[&Change]) -> Result<(), Refusal> {
        let mut set: BTreeMap<BudgetId, &Budget> = BTreeMap::new();
        let mut dropped: BTreeSet<&BudgetId> = BTreeSet::new();
        let mut mistakes = Vec::new();
        for change in changes {
            match change {
                Change::SetBudget(budget) => {
                    let id = budget.id();
                    let own = budget.mistakes().into_iter();
                    mistakes.extend(own.map(|mistake| (id.clone(), mistake)));
                    dropped.remove(&id);
                    set.insert(id, budget);
                }
                Change::DropBudget { budget } => {
                    let is_known =
                        self.accounts.budget(budget).is_some() && !dropped.contains(budget);
                    if set.remove(budget).is_none() && !is_known {
                        let budget = budget.clone();
                        return Err(Refusal::NoSuchBudget { budget });
                    }
                    dropped.insert(budget);
                }
                Change::SetRun(_) | Change::StartRun(_) => {}
            }
        }
        let set: Vec<&Budget> = set.into_values().collect();
        let dropped: Vec<&BudgetId> = dropped.into_iter().collect();
        if mistakes.is_empty() && !(set.is_empty() && dropped.is_empty()) {
            mistakes = self.accounts.mistakes(&set, &dropped);
        }
        if mistakes.is_empty() {
            return Ok(());
        }
        Err(Refusal::BudgetMistakes { mistakes })
    }

    fn check_run(&self, now: Instant, run: &Run) -> Result<(), Refusal> {
        let known = self.names.get(&run.id()).and_then(|uid| self.live_run(uid));
        let live = known.map(|(_, live)| live);
        // A policy may have changed since a run was submitted: its repeat is no mistake.
        if live.is_none_or(|live| live.run.editable() != run.editable()) {
            let mistakes = run.mistakes(self.policy.grace_max);
            if !mistakes.is_empty() {
                let run = run.id();
                return Err(Refusal::RunMistakes { run, mistakes });
            }
        }
        if let Some(live) = live {
            let field = live.run.other_field(run);
            let run = run.id();
            return field.map_or(Ok(()), |field| Err(Refusal::IdReused { run, field }));
        }
        let (waiting, max) = (self.queue.waiting(&run.owner), self.policy.pending_max);
        if max <= waiting {
            let owner: Label = run.owner.clone();
            return Err(Refusal::OverLimit {
                owner,
                waiting,
                max,
            });
        }
        self.check_fits(now, run)
    }

    /// Refuses a run that can never start.
    fn check_fits(&self, now: Instant, run: &Run) -> Result<(), Refusal> {
        if let Err(trace) = self.could_ever_be_covered(now, run) {
            let most = self.most_that_fits(now, run);
            let run = run.id();
            return Err(Refusal::NeverCovered { run, trace, most });
        }
        if self.nodes.ever_fits(&gang(run)) {
            return Ok(());
        }
        Err(Refusal::NeverPlaced {
            run: run.id(),
            flavor: run.flavor.clone(),
            gpus: run.total_gpus,
            pod_gpus: run.pod(),
            declared: self.nodes.declared_gpus(&run.flavor, &run.location),
            largest: self.nodes.largest_domain(&gang(run)),
            most: self.most_that_fits(now, run),
        })
    }

    /// A smaller width with which a run could start: whole groups, or whole pods without groups; 0
    /// without any. It is the largest one unless a wider run fits where a narrower one does not.
    fn most_that_fits(&self, now: Instant, run: &Run) -> u64 {
        let step = run.group_gpus.unwrap_or_else(|| run.pod());
        let fits = |gpus: u64| {
            let fewer = Run {
                total_gpus: gpus,
                ..run.clone()
            };
            fewer.mistakes(self.policy.grace_max).is_empty()
                && self.could_ever_be_covered(now, &fewer).is_ok()
                && self.nodes.ever_fits(&gang(&fewer))
        };
        // Below a pod, a run that states no size of pods is one smaller pod.
        let is_one_pod = run.pod_gpus.is_none() && run.group_gpus.is_none();
        let below_pod = if is_one_pod { run.pod() } else { 0 };
        match most(1, run.total_gpus.checked_div(step).unwrap_or(0), |count| {
            fits(count.saturating_mul(step))
        }) {
            0 => most(1, below_pod, fits),
            count => count.saturating_mul(step),
        }
    }

    /// Whether envelopes may pay for a run at some place, now or on empty meters. The walk depends on
    /// the place, and it is greedy: it may cover on the present meters and not on empty ones. The
    /// error is the walk at the first place.
    pub(crate) fn could_ever_be_covered(&self, now: Instant, run: &Run) -> Result<(), Box<Trace>> {
        let cover = |request: &Request| match self.accounts.plan(now, request) {
            Ok(_) => Ok(()),
            Err(_) => self.accounts.could_ever_cover(now, request),
        };
        let mut places = self.nodes.places(&run.flavor, &run.location);
        let Some(first) = places.next() else {
            return Ok(());
        };
        let Err(trace) = cover(&request_at(now, run, first)) else {
            return Ok(());
        };
        let seating = self.nodes.place(&gang(run));
        let seated = seating.map(|seating| start_request(now, None, run, &seating));
        let others = places.map(|place| request_at(now, run, place));
        let mut requests = seated.into_iter().chain(others);
        if requests.any(|request| cover(&request).is_ok()) {
            return Ok(());
        }
        Err(trace)
    }

    fn cancel(
        &mut self,
        now: Instant,
        run: &ScopedName,
        expected: Option<&RunUid>,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        let no_run = || Refusal::NoSuchRun { run: run.clone() };
        let uid = self.names.get(run).cloned();
        let uid = uid.filter(|uid| expected.is_none_or(|expected| expected == uid));
        let uid = uid.ok_or_else(no_run)?;
        let before = out.len();
        if let Some((number, live)) = self.live_run(&uid) {
            if live.held.is_some() {
                self.stop(now, Some(number), Stop::of(Reason::Cancelled), out);
            } else {
                let of = live.who();
                self.end_run(now, of, Reason::Cancelled, None, None, out);
            }
        }
        let shown = self.run(&uid).ok_or_else(no_run)?;
        Ok(Reply::Run {
            run: Box::new(shown),
            changed: before < out.len(),
        })
    }

    fn rotate(
        &mut self,
        now: Instant,
        envelope: &EnvelopeId,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        let meter = MeterId::Envelope(envelope.clone());
        let is_declared = self
            .accounts
            .budget(&envelope.budget())
            .is_some_and(|budget| {
                budget
                    .envelopes
                    .iter()
                    .any(|own| own.name.as_str() == envelope.name())
            });
        if !is_declared || self.accounts.meter(now, &meter).is_none() {
            let envelope = envelope.clone();
            return Err(Refusal::NoSuchEnvelope { envelope });
        }
        for epoch in self.accounts.rotate(now, envelope) {
            self.open.refit.insert(epoch.meter.clone());
            self.emit(now, Event::EpochClosed { epoch, t: None }, out);
        }
        Ok(Reply::Done)
    }

    fn started(
        &mut self,
        now: Instant,
        uid: &RunUid,
        incarnation: u64,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        let live = self.held_run(uid, incarnation)?;
        let held = live.held.as_ref();
        let is_new = held.is_some_and(|held| held.running.is_none() && held.ending.is_none());
        if !is_new {
            return Ok(Reply::Unchanged);
        }
        let of = live.who();
        self.emit(now, Event::RunRunning { of }, out);
        Ok(Reply::Done)
    }

    fn exited(
        &mut self,
        now: Instant,
        uid: &RunUid,
        incarnation: u64,
        pods: &[u64],
        exit: &Exit,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        let live = self.held_run(uid, incarnation)?;
        let Some(held) = &live.held else {
            return Ok(Reply::Unchanged);
        };
        let listed: BTreeSet<u64> = pods.iter().copied().collect();
        let is_gone = |pod: &u64| listed.is_empty() || listed.contains(pod);
        let gone: Vec<u64> = held.pods.keys().copied().filter(is_gone).collect();
        if gone.is_empty() {
            return Ok(Reply::Unchanged);
        }
        let gpus = gone.iter().filter_map(|pod| held.pods.get(pod));
        let gpus = gpus.map(crate::Pod::width).sum();
        let is_last = gone.len() == held.pods.len();
        let (own, code, detail) = match exit {
            Exit::Ok {} => (Reason::Completed, None, None),
            Exit::Failed { code } => (Reason::Failed, *code, None),
            Exit::NotStarted { reason } => (Reason::StartFailed, None, Some(reason.clone())),
        };
        let (reason, code, detail) = match &held.ending {
            Some(ending) => {
                let known = ending.detail.clone();
                (ending.reason, ending.code.or(code), known.or(detail))
            }
            None => (own, code, detail),
        };
        let (of, number) = (live.who(), self.numbers.get(uid).copied());
        let event = Event::LeasesClosed {
            of: of.clone(),
            incarnation,
            pods: if is_last { Vec::new() } else { gone },
            gpus,
            reason,
            t: None,
        };
        self.emit(now, event, out);
        if is_last {
            self.end_run(now, of, reason, code, detail, out);
        } else if reason != Reason::Completed {
            let stop = Stop {
                reason,
                code,
                detail,
            };
            self.stop(now, number, stop, out);
        }
        Ok(Reply::Done)
    }

    fn set_policy(
        &mut self,
        now: Instant,
        policy: &Policy,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        if let Some(field) = policy.not_yet() {
            let field = format!("resolver.{field}");
            return Err(Refusal::NotYet { field });
        }
        if let Some(field) = policy.zero() {
            let field = format!("resolver.{field}");
            return Err(Refusal::PolicyZero { field });
        }
        if self.policy_set && self.policy == *policy {
            return Ok(Reply::Unchanged);
        }
        self.emit(now, Event::PolicySet(policy.clone()), out);
        Ok(Reply::Done)
    }

    fn end_run(
        &mut self,
        at: Instant,
        of: crate::Who,
        reason: Reason,
        code: Option<i32>,
        detail: Option<String>,
        out: &mut Decided<Event>,
    ) {
        let outcome = reason.outcome();
        let event = Event::RunEnded {
            of,
            outcome,
            reason,
            code,
            detail,
            t: None,
        };
        self.emit(at, event, out);
    }

    fn held_run(&self, uid: &RunUid, incarnation: u64) -> Result<&crate::clusters::Live, Refusal> {
        let live = self.live_run(uid).map(|(_, live)| live);
        let live = live.filter(|live| live.held.is_some() && live.incarnation == incarnation);
        live.ok_or_else(|| Refusal::NotLive {
            uid: uid.clone(),
            incarnation,
        })
    }
}

/// The largest number from `first` to below `end` that fits, by bisection; 0 if none is found.
fn most(first: u64, end: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut found, mut next, mut end) = (0, first, end);
    while next < end {
        let middle = next + (end - next) / 2;
        if fits(middle) {
            (found, next) = (middle, middle + 1);
        } else {
            end = middle;
        }
    }
    found
}
