//! The pass (R7): refunding at each instant of money, starting once per record at its own time.

use std::collections::BTreeMap;

use bursar_budget::accounts::{Demotions, Kind};
use bursar_budget::cover::{Borrowing, Dimension, Group, Plan, Request};
use bursar_budget::placement::{Gang, Seating};
use bursar_budget::{Demotion, Funded, MeterId, Place, Unfunded, Work};
use bursar_plane::Decided;
use bursar_units::{Instant, Millis};

use crate::clusters::{Clusters, Held, Live, Open};
use crate::{Event, Pod, Reason, Run};

/// Most gangs without a place that a pass remembers; a longer list costs more than it saves.
const UNPLACED_MAX: usize = 16;

/// Whether a record may start runs (R7).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Starting {
    /// It may, unless a deadline at its instant is still to come.
    Allowed,
    /// Ticks before a resume start nothing.
    Forbidden,
}

impl Clusters {
    /// Applies an event and adds it to the record.
    pub(crate) fn emit(&mut self, at: Instant, event: Event, out: &mut Decided<Event>) {
        self.turn_to(out.record());
        // A window that opens has no event of its own; the first event after it passes its instant.
        let opens = self.accounts.next_deadline();
        let opens = opens.is_some_and(|(edge, kind)| edge <= at && kind == Kind::WindowEdge);
        self.apply(at, &event);
        self.open.at = at;
        match &event {
            Event::RunSubmitted { .. } => self.open.runs += 1,
            Event::LeasesOpened { pods, .. } => {
                self.open.leases += pods.iter().map(Pod::width).sum::<u64>();
            }
            _ => {}
        }
        self.open.is_stirred |= opens || stirs(&event);
        out.push(if at == out.time() {
            event
        } else {
            event.at(at)
        });
    }

    /// Begins the notes on a record.
    fn turn_to(&mut self, record: u64) {
        if self.open.record != record {
            self.open = Open {
                record,
                refit: std::mem::take(&mut self.open.refit),
                is_stirred: self.open.is_stirred,
                ..Open::default()
            };
        }
    }

    /// Records demotions.
    pub(crate) fn demote(
        &mut self,
        at: Instant,
        demotions: Vec<Demotion>,
        out: &mut Decided<Event>,
    ) {
        for Demotion {
            work, line, cause, ..
        } in demotions
        {
            let Some((_, live)) = self.live_run(&work.run) else {
                continue;
            };
            let event = Event::RunDemoted {
                of: live.who(),
                incarnation: work.incarnation,
                claims: vec![line],
                cause,
                t: None,
            };
            self.emit(at, event, out);
        }
    }

    /// Refits the meters of the record, once (B4).
    pub(crate) fn refit(&mut self, at: Instant, out: &mut Decided<Event>) {
        let meters = std::mem::take(&mut self.open.refit);
        if !meters.is_empty() {
            let Demotions { list, exhausted } = self.accounts.refit(at, &meters);
            self.demote(at, list, out);
            self.note_exhausted(at, &exhausted, out);
        }
    }

    /// Refunding (B5): runs by submission, in a run the earliest demotion first, each claim complete
    /// or not at all. A run that its used up envelope ends is not refunded.
    pub(crate) fn refund(&mut self, at: Instant, out: &mut Decided<Event>) {
        let works = self.accounts.unfunded_work();
        let works: BTreeMap<u64, Work> = works
            .filter_map(|work| {
                let (number, live) = self.live_run(&work.run)?;
                let ending = live.held.as_ref().and_then(|held| held.ending.as_ref());
                let is_over = ending.is_some_and(|ending| ending.reason == Reason::BudgetEnd);
                (!is_over).then(|| (number, work.clone()))
            })
            .collect();
        for (number, work) in works {
            for claim in self.accounts.unfunded(&work) {
                self.refund_claim(at, number, &claim, out);
            }
        }
    }

    fn refund_claim(
        &mut self,
        at: Instant,
        number: u64,
        claim: &Unfunded,
        out: &mut Decided<Event>,
    ) {
        let Some(live) = self.live.get(&number) else {
            return;
        };
        let Some(request) = self.refund_request(at, live, claim) else {
            return;
        };
        match self.accounts.plan(at, &request) {
            Ok(plan) => {
                let event = Event::RunFunded {
                    of: live.who(),
                    incarnation: live.incarnation,
                    claims: plan.lines,
                    cause: Funded::Refund,
                    unfunded: Some(claim.number),
                    t: None,
                };
                self.emit(at, event, out);
            }
            Err(failure) => self.note_exhausted(at, &failure.exhausted, out),
        }
    }

    /// Records that meters had no room, once per epoch.
    pub(crate) fn note_exhausted(
        &mut self,
        at: Instant,
        failed: &[(MeterId, Dimension)],
        out: &mut Decided<Event>,
    ) {
        for near in self.accounts.exhausted(failed) {
            self.emit(at, Event::MeterNear { near, t: None }, out);
        }
    }

    /// Records the shares of limits that were reached.
    pub(crate) fn note_near(&mut self, at: Instant, out: &mut Decided<Event>) {
        for near in self.accounts.thresholds(at) {
            self.emit(at, Event::MeterNear { near, t: None }, out);
        }
    }

    /// The same before the other deadlines of an instant: if one is still to come that goes before
    /// shares (R8), then shares of hours wait for it.
    pub(crate) fn note_near_early(&mut self, at: Instant, out: &mut Decided<Event>) {
        let is_due = self.accounts.is_due_before(Kind::Threshold, at);
        for near in self.accounts.thresholds(at) {
            if !is_due || near.dimension == Dimension::Gpus {
                self.emit(at, Event::MeterNear { near, t: None }, out);
            }
        }
    }

    /// Ends a record: starts, or records that starting is owed. `until` is the last deadline that the
    /// record carries out.
    pub(crate) fn finish(
        &mut self,
        starting: Starting,
        until: Instant,
        grants: &mut usize,
        out: &mut Decided<Event>,
    ) {
        let now = out.time();
        self.turn_to(out.record());
        let is_stirred = std::mem::take(&mut self.open.is_stirred);
        let is_owed = self.owed.is_some_and(|owed| owed <= until);
        if !is_stirred && !is_owed {
            return;
        }
        // What is owed from an earlier instant waits for no deadline of this one.
        let last = if is_owed { until } else { now };
        let is_last = self.next_step().is_none_or(|(at, _)| last < at);
        let is_its_turn = is_owed || self.owed.is_none();
        if starting == Starting::Allowed && is_last && is_its_turn && *grants > 0 {
            let leases = self.open.leases;
            self.start(now, grants, out);
            if is_owed && self.open.leases == leases {
                self.emit(now, Event::PassFinished {}, out);
            }
        } else if self.owed.is_none() {
            let at = match starting {
                Starting::Allowed => now,
                Starting::Forbidden => self.open.at,
            };
            self.emit(at, Event::PassUnfinished { t: None }, out);
        }
        self.open.is_stirred = false;
    }

    /// Starting: waiting runs in queue order, each that is placed and covered (D1).
    fn start(&mut self, now: Instant, grants: &mut usize, out: &mut Decided<Event>) {
        let mut is_recalled = false;
        let mut unplaced = Vec::new();
        for number in self.queue.order() {
            if *grants == 0 {
                self.emit(now, Event::PassUnfinished { t: None }, out);
                break;
            }
            if let Some(recalls) = self.try_start(now, number, &mut unplaced, out) {
                *grants -= 1;
                is_recalled |= recalls;
            }
        }
        if is_recalled {
            self.refund(now, out);
            // A recall frees a claim as a whole: a run that was tried before may have room now.
            if self.owed.is_none() && !self.queue.is_empty() {
                self.emit(now, Event::PassUnfinished { t: None }, out);
            }
        }
    }

    /// Starts a run, if it is placed and covered; returns whether relatives lost payers for it (B6).
    /// `unplaced` are gangs that found no place in this pass: room only shrinks in a pass, so an equal
    /// gang finds none either.
    fn try_start(
        &mut self,
        now: Instant,
        number: u64,
        unplaced: &mut Vec<Gang>,
        out: &mut Decided<Event>,
    ) -> Option<bool> {
        let version = self.nodes.version();
        let live = self.live.get_mut(&number)?;
        if live.unplaced == Some(version) {
            return None;
        }
        // Most runs wait while hardly a GPU is free: then no gang is made and compared.
        if self.nodes.free_anywhere(&live.run.flavor) < live.run.total_gpus {
            live.unplaced = Some(version);
            return None;
        }
        let gang = gang(&live.run);
        if unplaced.contains(&gang) {
            live.unplaced = Some(version);
            return None;
        }
        let Some(seating) = self.nodes.place(&gang) else {
            live.unplaced = Some(version);
            if unplaced.len() < UNPLACED_MAX {
                unplaced.push(gang);
            }
            return None;
        };
        let live = self.live.get(&number)?;
        let request = start_request(now, Some(live.work()), &live.run, &seating);
        match self.accounts.plan_recalling(now, &request) {
            Ok(plan) => {
                let is_recalled = !plan.recalled.is_empty();
                self.begin(now, number, plan, &seating, out);
                Some(is_recalled)
            }
            Err(failure) => {
                self.note_exhausted(now, &failure.exhausted, out);
                None
            }
        }
    }

    fn begin(
        &mut self,
        now: Instant,
        number: u64,
        plan: Plan,
        seating: &Seating,
        out: &mut Decided<Event>,
    ) {
        self.demote(now, plan.recalled, out);
        let Some(live) = self.live.get(&number) else {
            return;
        };
        let (of, incarnation) = (live.who(), live.incarnation);
        let event = Event::RunFunded {
            of: of.clone(),
            incarnation,
            claims: plan.lines,
            cause: Funded::Take,
            unfunded: None,
            t: None,
        };
        self.emit(now, event, out);
        let pods = seating.pods.iter().map(|seat| Pod {
            pod: seat.pod,
            group: seat.group,
            node: seat.node.clone(),
            gpus: Pod::ranges(&seat.ordinals),
        });
        let event = Event::LeasesOpened {
            of,
            incarnation,
            record: out.record(),
            first: self.open.leases,
            pods: pods.collect(),
        };
        self.emit(now, event, out);
    }

    /// Request for the payers of an unfunded claim. The funded GPUs of a run stand first, by pod; the
    /// unfunded claims follow, earliest first (A1).
    fn refund_request(&self, at: Instant, live: &Live, claim: &Unfunded) -> Option<Request> {
        let held = live.held.as_ref()?;
        let work = live.work();
        let funded: u64 = self
            .accounts
            .claims(&work)
            .iter()
            .map(|claim| claim.gpus)
            .sum();
        let unfunded = self.accounts.unfunded(&work);
        let before = unfunded
            .iter()
            .take_while(|other| other.number != claim.number);
        let first = funded + before.map(|claim| claim.gpus).sum::<u64>();
        let mut groups: Vec<Group> = Vec::new();
        let (mut position, last) = (0, first + claim.gpus);
        for pod in held.pods.values() {
            let (from, to) = (position, position + pod.width());
            position = to;
            let gpus = to.min(last).saturating_sub(from.max(first));
            if gpus > 0 {
                add(&mut groups, self.place_of(live, held, pod)?, gpus);
            }
        }
        let left = live
            .stated()
            .map(|stated| held.opened.after(stated).since(at));
        Some(Request {
            work: Some(work),
            groups,
            duration: left.filter(|left| *left > Millis::ZERO),
            hard_end: live.hard_end(held.opened),
            ..request(&live.run)
        })
    }
}

impl Clusters {
    /// Place of a pod. If its node has lost its labels, that of its group, or the first that the run
    /// allows: a label on a node takes nobody's payer.
    fn place_of(&self, live: &Live, held: &Held, pod: &Pod) -> Option<&Place> {
        let group = held.pods.values().filter(|other| other.group == pod.group);
        let pods = std::iter::once(pod).chain(group);
        let mut seats = pods.filter_map(|pod| self.nodes.seat(pod.node.as_str()));
        let run = &live.run;
        let place = seats.next().map(|(place, _)| place);
        place.or_else(|| self.nodes.places(&run.flavor, &run.location).next())
    }
}

/// Request for the payers of a run that starts now; `work` is absent before its submission.
pub(crate) fn start_request(
    now: Instant,
    work: Option<Work>,
    run: &Run,
    seating: &Seating,
) -> Request {
    let pod = run.pod();
    let places = seating.groups.iter();
    let groups = places.zip(run.groups()).map(|(place, pods)| Group {
        place: place.clone(),
        gpus: pods.saturating_mul(pod),
    });
    Request {
        work,
        groups: groups.collect(),
        duration: run.stated(),
        hard_end: run.max_duration.map(|length| now.after(length)),
        ..request(run)
    }
}

/// Request of a run without claims for all its GPUs at one place.
pub(crate) fn request_at(now: Instant, run: &Run, place: &Place) -> Request {
    let group = Group {
        place: place.clone(),
        gpus: run.total_gpus,
    };
    Request {
        groups: vec![group],
        duration: run.stated(),
        hard_end: run.max_duration.map(|length| now.after(length)),
        ..request(run)
    }
}

/// The gang of a run.
pub(crate) fn gang(run: &Run) -> Gang {
    Gang {
        flavor: run.flavor.clone(),
        location: run.location.clone(),
        pod_gpus: run.pod(),
        groups: run.groups(),
        spares_per_group: 0,
    }
}

fn request(run: &Run) -> Request {
    Request {
        work: None,
        owner: run.owner.clone(),
        flavor: run.flavor.clone(),
        groups: Vec::new(),
        duration: None,
        hard_end: None,
        borrowing: Borrowing {
            allow: run.funding.allow_borrow,
            gpus_max: run.funding.borrow_gpus_max,
            sponsors: run.funding.sponsors.clone(),
        },
    }
}

/// Adds GPUs to the last group, if it is at the same place.
fn add(groups: &mut Vec<Group>, place: &Place, gpus: u64) {
    match groups.last_mut().filter(|group| group.place == *place) {
        Some(group) => group.gpus += gpus,
        None => groups.push(Group {
            place: place.clone(),
            gpus,
        }),
    }
}

/// Whether an event can raise headroom or room, or adds a run (R7).
fn stirs(event: &Event) -> bool {
    match event {
        Event::PolicySet(_)
        | Event::BudgetSet(_)
        | Event::BudgetDropped { .. }
        | Event::EpochClosed { .. }
        | Event::RunSubmitted { .. }
        | Event::RunEdited { .. }
        | Event::RunDemoted { .. }
        | Event::LeasesClosed { .. } => true,
        Event::MeterNear { .. }
        | Event::RunFunded { .. }
        | Event::LeasesOpened { .. }
        | Event::RunEnding { .. }
        | Event::RunRunning { .. }
        | Event::RunEnded { .. }
        | Event::PassUnfinished { .. }
        | Event::PassFinished {} => false,
    }
}
