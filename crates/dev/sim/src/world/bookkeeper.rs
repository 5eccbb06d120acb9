//! A naive bookkeeper: it adds up GPU time from events alone, one rectangle at a time.
//!
//! It keeps no promises, deadlines or sums of widths: between two events it walks over all claims of
//! all runs. It promises after every record: the time of all held GPUs is paid or unfunded, by owner,
//! envelope and class as the accounts have it; a closed epoch has the time that was paid in it; and
//! no meter accrues beyond the limit that is in force, or pays for more GPUs than that.

use std::collections::BTreeMap;

use bursar_budget::accounts::EpochClosed;
use bursar_budget::calendar::DAY_MS;
use bursar_budget::claim::Class;
use bursar_budget::spec::GPU_MS_PER_HOUR;
use bursar_budget::{
    Accounts, Budget, BudgetId, ClaimLine, EnvelopeId, Funded, MeterId, Pool, Renew, RunUid, Window,
};
use bursar_cluster::{Event, ProcessId, Who};
use bursar_units::{Instant, Label, Millis};

use crate::summary::Tally;
use crate::violation::{Violation, demand};

/// Name of budgets and runs that must be refused.
pub(super) const WRONG: &str = "wrong";

#[derive(Debug, Default)]
pub(super) struct Bookkeeper {
    /// Time of the last event.
    now: Instant,
    budgets: BTreeMap<BudgetId, Budget>,
    runs: BTreeMap<RunUid, Held>,
    meters: BTreeMap<MeterId, Meter>,
    /// GPU-milliseconds by owner of the runs, payer and class.
    used: BTreeMap<(Label, Option<EnvelopeId>, Class), u64>,
    /// Whether an earlier record left starts undone.
    is_owed: bool,
}

/// A run with GPUs.
#[derive(Debug)]
struct Held {
    owner: Label,
    incarnation: u64,
    /// GPUs of each pod.
    pods: BTreeMap<u64, u64>,
    /// Claims with their GPUs, oldest first.
    claims: Vec<(EnvelopeId, Pool, u64)>,
}

/// A meter in its present epoch.
#[derive(Debug, Default)]
struct Meter {
    gpus_max: Option<u64>,
    gpu_ms_max: Option<u64>,
    window: Option<Window>,
    epoch: u64,
    accrued: u64,
}

/// The declaration of a meter.
struct Declared {
    id: MeterId,
    /// Whether the meter exists from now on; a pool that never lent has none.
    begins: bool,
    gpus_max: Option<u64>,
    hours_max: Option<u64>,
    window: Option<Window>,
}

impl Held {
    fn gpus(&self) -> u64 {
        self.pods.values().sum()
    }

    fn paid(&self) -> u64 {
        self.claims.iter().map(|(_, _, gpus)| gpus).sum()
    }

    /// GPUs of the claim of a payer.
    fn claim(&mut self, line: &ClaimLine) -> Option<&mut u64> {
        let mut claims = self.claims.iter_mut();
        let of_line = |claim: &&mut (EnvelopeId, Pool, u64)| {
            (&claim.0, claim.1) == (&line.envelope, line.pool)
        };
        claims.find(of_line).map(|(_, _, gpus)| gpus)
    }
}

impl Bookkeeper {
    /// Notes an event; returns the processes whose leases it closes.
    pub(super) fn note(
        &mut self,
        at: Instant,
        event: &Event,
        tally: &mut Tally,
    ) -> Result<Vec<ProcessId>, Violation> {
        self.pass_time(at)?;
        match event {
            Event::BudgetSet(budget) => self.declare(at, budget)?,
            Event::BudgetDropped { budget } => self.withdraw(budget),
            Event::EpochClosed { epoch, .. } => self.close_epoch(at, epoch, tally)?,
            Event::RunSubmitted { run, .. } => demand(
                run.name.as_str() != WRONG,
                "a change with a mistake changes nothing",
                || format!("{run:?} was submitted"),
            )?,
            Event::RunFunded {
                of,
                claims,
                cause: Funded::Take | Funded::Refund,
                ..
            } => self.fund(of, claims, tally),
            Event::RunDemoted { of, claims, .. } => self.demote(of, claims)?,
            Event::LeasesOpened {
                of,
                incarnation,
                pods,
                ..
            } => {
                let was_owed = std::mem::take(&mut self.is_owed);
                tally.add("starts that were owed", u64::from(was_owed));
                tally.add("passes that were owed", u64::from(was_owed));
                let held = self.held(of);
                held.incarnation = *incarnation;
                held.pods
                    .extend(pods.iter().map(|pod| (pod.pod, pod.width())));
            }
            Event::LeasesClosed { of, pods, .. } => return Ok(self.close(of, pods)),
            Event::RunEnded { of, .. } => {
                let left = self.runs.remove(&of.uid).map_or(0, |held| held.gpus());
                demand(left == 0, "a run that ended holds nothing", || {
                    format!("{of:?} holds {left} GPUs")
                })?;
            }
            Event::PassUnfinished { .. } => self.is_owed = true,
            Event::PassFinished {} => {
                let was_owed = std::mem::take(&mut self.is_owed);
                tally.add("passes that were owed", u64::from(was_owed));
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    /// Compares everything with the accounts at the end of a record.
    pub(super) fn check(&mut self, now: Instant, accounts: &Accounts) -> Result<(), Violation> {
        self.pass_time(now)?;
        for (uid, held) in &self.runs {
            demand(
                held.paid() <= held.gpus(),
                "no envelope pays for a GPU that nobody holds",
                || format!("{uid}: {held:?}"),
            )?;
        }
        let mut theirs: BTreeMap<(Label, Option<EnvelopeId>, Class), u64> = BTreeMap::new();
        for row in accounts.usage(now).filter(|row| row.gpu_ms > 0) {
            *theirs
                .entry((row.owner, row.envelope, row.class))
                .or_default() += row.gpu_ms;
        }
        demand(
            self.used == theirs,
            "the time of all held GPUs is paid time and unfunded time",
            || format!("the events give {:?}, the accounts {theirs:?}", self.used),
        )?;
        let widths = self.widths();
        for (id, meter) in &self.meters {
            let view = accounts.meter(now, id);
            let gpus = widths.get(id).copied().unwrap_or(0);
            let ours = (meter.epoch, meter.accrued, gpus);
            let theirs = view.map(|view| (view.epoch, view.accrued_gpu_ms, view.gpus_used));
            demand(
                theirs == Some(ours),
                "a meter has the epoch, the time and the GPUs of its events",
                || format!("{id}: the events give {ours:?}, the accounts {theirs:?}"),
            )?;
            demand(
                meter.gpus_max.is_none_or(|max| gpus <= max),
                "no meter pays for more GPUs than its limit",
                || format!("{id} pays for {gpus} GPUs: {meter:?}"),
            )?;
        }
        Ok(())
    }

    /// Adds the rectangles since the last event.
    fn pass_time(&mut self, at: Instant) -> Result<(), Violation> {
        let before = self.now;
        demand(before <= at, "events are in the order of time", || {
            format!("an event at {at:?} follows one at {before:?}")
        })?;
        self.now = at;
        let length = at.since(before).ms();
        if length == 0 {
            return Ok(());
        }
        for held in self.runs.values() {
            let unfunded = (
                None,
                Class::Unfunded,
                held.gpus().saturating_sub(held.paid()),
            );
            let claims = held.claims.iter();
            let paid = claims.map(|(envelope, pool, gpus)| (Some(envelope), class(*pool), *gpus));
            for (envelope, class, gpus) in paid.chain([unfunded]).filter(|row| row.2 > 0) {
                let key = (held.owner.clone(), envelope.cloned(), class);
                *self.used.entry(key).or_default() += gpus * length;
            }
        }
        for (id, gpus) in self.widths() {
            let meter = self.meters.entry(id.clone()).or_default();
            let in_window = meter.window.map_or(0, |window| overlap(window, before, at));
            demand(
                in_window == length || matches!(id, MeterId::Cap(_)),
                "an envelope pays in its window only",
                || format!("{id} pays from {before:?} to {at:?}: {meter:?}"),
            )?;
            meter.accrued += gpus * in_window;
            demand(
                in_window == 0 || meter.gpu_ms_max.is_none_or(|max| meter.accrued <= max),
                "no meter accrues beyond its limit",
                || format!("{id} pays for {gpus} GPUs until {at:?}: {meter:?}"),
            )?;
        }
        Ok(())
    }

    /// GPUs of the meters that pay for any.
    fn widths(&self) -> BTreeMap<MeterId, u64> {
        let mut widths = BTreeMap::new();
        for (envelope, pool, gpus) in self.runs.values().flat_map(|held| &held.claims) {
            let own = [MeterId::Envelope(envelope.clone())];
            let lent = (*pool == Pool::Lent).then(|| MeterId::Lending(envelope.clone()));
            let caps = self.budgets.values().flat_map(|budget| {
                let caps = budget.aggregate_caps.iter();
                let caps = caps.filter(|cap| cap.envelopes.contains(envelope));
                caps.map(|cap| MeterId::Cap(budget.cap_id(cap)))
            });
            for id in own.into_iter().chain(lent).chain(caps) {
                *widths.entry(id).or_default() += gpus;
            }
        }
        widths
    }

    fn declare(&mut self, at: Instant, budget: &Budget) -> Result<(), Violation> {
        demand(
            budget.name.as_str() != WRONG,
            "a change with a mistake changes nothing",
            || format!("{budget:?} was recorded"),
        )?;
        self.withdraw(&budget.id());
        for declared in declarations(at, budget) {
            if !declared.begins && !self.meters.contains_key(&declared.id) {
                continue;
            }
            let meter = self.meters.entry(declared.id).or_default();
            meter.gpus_max = declared.gpus_max;
            meter.gpu_ms_max = declared.hours_max.map(|hours| hours * GPU_MS_PER_HOUR);
            meter.window = match (meter.window, declared.window) {
                // A rotation moved the start.
                (Some(old), Some(new)) if old.end == new.end && new.start <= old.start => Some(old),
                (Some(old), new) => {
                    demand(
                        new.is_some_and(|new| new.overlaps(&old)),
                        "an edit that leaves a window closes its epoch",
                        || format!("{old:?} became {new:?} in {budget:?}"),
                    )?;
                    new
                }
                (None, new) => new,
            };
        }
        self.budgets.insert(budget.id(), budget.clone());
        Ok(())
    }

    /// The meters of a budget lose their limits; they go on if it is declared again.
    fn withdraw(&mut self, id: &BudgetId) {
        let Some(before) = self.budgets.remove(id) else {
            return;
        };
        for declared in declarations(self.now, &before) {
            if let Some(meter) = self.meters.get_mut(&declared.id) {
                (meter.gpus_max, meter.gpu_ms_max) = (None, None);
            }
        }
    }

    fn close_epoch(
        &mut self,
        at: Instant,
        closed: &EpochClosed,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        let meter = self.meters.entry(closed.meter.clone()).or_default();
        demand(
            (closed.epoch, closed.accrued) == (meter.epoch, meter.accrued),
            "a closed epoch has the time that was paid in it",
            || format!("{closed:?} closes {meter:?}"),
        )?;
        let is_over = meter.window.is_some_and(|window| window.end == Some(at));
        tally.add("epochs ended by their window", u64::from(is_over));
        (meter.epoch, meter.accrued, meter.window) = (closed.epoch + 1, 0, closed.next);
        Ok(())
    }

    fn held(&mut self, of: &Who) -> &mut Held {
        self.runs.entry(of.uid.clone()).or_insert_with(|| Held {
            owner: of.owner.clone(),
            incarnation: 0,
            pods: BTreeMap::new(),
            claims: Vec::new(),
        })
    }

    fn fund(&mut self, of: &Who, lines: &[ClaimLine], tally: &mut Tally) {
        let loans = lines.iter().filter(|line| line.pool == Pool::Lent).count();
        tally.add("loans", u64::try_from(loans).unwrap_or(0));
        let held = self.held(of);
        for line in lines {
            if let Some(gpus) = held.claim(line) {
                *gpus += line.gpus;
            } else {
                let claim = (line.envelope.clone(), line.pool, line.gpus);
                held.claims.push(claim);
            }
        }
    }

    fn demote(&mut self, of: &Who, lines: &[ClaimLine]) -> Result<(), Violation> {
        let held = self.held(of);
        for line in lines {
            let claim = held.claim(line).filter(|gpus| line.gpus <= **gpus);
            demand(claim.is_some(), "only a claim is demoted", || {
                format!("{of:?} loses {line:?}")
            })?;
            if let Some(gpus) = held.claim(line) {
                *gpus -= line.gpus;
            }
            held.claims.retain(|(_, _, gpus)| *gpus > 0);
        }
        Ok(())
    }

    /// Closing GPUs leave the unfunded ones first, then the newest funded (A1).
    fn close(&mut self, of: &Who, pods: &[u64]) -> Vec<ProcessId> {
        let held = self.held(of);
        let is_gone = |pod: &u64| pods.is_empty() || pods.contains(pod);
        let gone = held.pods.keys().copied().filter(is_gone);
        let gone = gone.map(|pod| ProcessId {
            uid: of.uid.clone(),
            incarnation: held.incarnation,
            pod,
        });
        let gone = gone.collect();
        held.pods.retain(|pod, _| !is_gone(pod));
        while held.gpus() < held.paid()
            && let Some((envelope, pool, gpus)) = held.claims.pop()
        {
            let kept = held.gpus().saturating_sub(held.paid());
            if kept > 0 {
                held.claims.push((envelope, pool, kept.min(gpus)));
            }
        }
        gone
    }
}

/// The meters that a budget declares: envelopes, lending pools and caps.
fn declarations(at: Instant, budget: &Budget) -> Vec<Declared> {
    let mut list = Vec::new();
    for envelope in &budget.envelopes {
        let id = budget.envelope_id(envelope);
        let window = window(at, envelope.start, envelope.end, envelope.renew);
        list.push(Declared {
            id: MeterId::Envelope(id.clone()),
            begins: true,
            gpus_max: Some(envelope.concurrency),
            hours_max: envelope.gpu_hours_max,
            window,
        });
        let lending = envelope.lending.as_ref();
        list.push(Declared {
            id: MeterId::Lending(id),
            begins: lending.is_some(),
            gpus_max: lending.and_then(|lending| lending.concurrency_max),
            hours_max: lending.and_then(|lending| lending.gpu_hours_max),
            window,
        });
    }
    let caps = budget.aggregate_caps.iter();
    list.extend(caps.map(|cap| Declared {
        id: MeterId::Cap(budget.cap_id(cap)),
        begins: true,
        gpus_max: cap.concurrency_max,
        hours_max: cap.gpu_hours_max,
        window: window(at, cap.start, cap.end, cap.renew),
    }));
    list
}

/// Class of the time that a pool pays for (A1).
const fn class(pool: Pool) -> Class {
    match pool {
        Pool::Own => Class::Owned,
        Pool::Family => Class::Shared,
        Pool::Lent => Class::Borrowed,
    }
}

/// The window of an instant, counted from the first one by days; worlds have no longer units.
fn window(
    at: Instant,
    mut start: Option<Instant>,
    end: Option<Instant>,
    renew: Option<Renew>,
) -> Option<Window> {
    let mut end = end;
    while let Some(over) = end.filter(|end| *end <= at) {
        renew?;
        start = Some(over);
        end = Some(over.after(Millis::from_ms(DAY_MS)));
    }
    Some(Window { start, end })
}

/// Length of time from one instant to another that lies in a window.
fn overlap(window: Window, from: Instant, to: Instant) -> u64 {
    let from = window.start.map_or(from, |start| from.max(start));
    let to = window.end.map_or(to, |end| to.min(end));
    to.since(from.min(to)).ms()
}
