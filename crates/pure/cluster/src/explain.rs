//! Why a run waits, and who pays for it: data, from the functions that decide.

use std::collections::BTreeMap;

use bursar_budget::cover::{Dimension, Failure, Plan, Reason as Cover, Request, Row};
use bursar_budget::{MeterId, RunUid, Take, Work};
use bursar_plane::WaitsFor;
use bursar_units::{Instant, Label, ScopedName, vocabulary};

use crate::clusters::{Clusters, Live};
use crate::pass::{gang, request_at, start_request};
use crate::{Pod, Run};

/// Most holders that are named.
pub const HOLDERS_MAX: usize = 10;

vocabulary! {
    /// Reason of a wait. The order is that of the headline: mistake, after, budget, room, turn.
    pub enum WaitReason {
        /// No envelope may pay.
        NoEnvelope = "NoEnvelope",
        /// It does not fit all declared nodes taken empty.
        NeverFits = "NeverFits",
        /// Every envelope that may pay is outside its window.
        OutsideWindow = "OutsideWindow",
        /// Too few GPUs of an envelope or its lending pool are free.
        ConcurrencyCapExceeded = "ConcurrencyCapExceeded",
        /// Too few GPU-hours are uncommitted.
        IntegralCapExceeded = "IntegralCapExceeded",
        /// An aggregate cap has too little room.
        AggregateCapExceeded = "AggregateCapExceeded",
        /// A sponsor does not lend to the owner.
        AclDenied = "ACLDenied",
        /// It may not borrow more.
        BorrowLimitExceeded = "BorrowLimitExceeded",
        /// The budget is paused.
        BudgetPaused = "BudgetPaused",
        /// Too few GPUs are free in one domain.
        NoRoom = "NoRoom",
        /// The GPUs that it needs are on nodes that take nothing new.
        NodesUnusable = "NodesUnusable",
        /// It starts with the next pass.
        QueueOrder = "QueueOrder",
    }
}

/// A run that holds GPUs which a waiting run could use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// Identity.
    pub uid: RunUid,
    /// Name.
    pub run: ScopedName,
    /// Owner.
    pub owner: Label,
    /// GPUs of the wanted flavor at the allowed places.
    pub gpus: u64,
    /// End that it stated, if it is ahead.
    pub stated_end: Option<Instant>,
}

/// Why a run waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wait {
    /// Reason.
    pub reason: WaitReason,
    /// GPUs that it needs.
    pub needed: u64,
    /// Free GPUs of its flavor at the allowed places.
    pub free: u64,
    /// Runs ahead of it in the queue.
    pub ahead: u64,
    /// Holders, most GPUs first; at most [`HOLDERS_MAX`]: of the meters that bind if money binds, else
    /// of the GPUs that it could use.
    pub holders: Vec<Holder>,
    /// Number of further holders, and their GPUs.
    pub more_holders: (u64, u64),
    /// Payers that it would have now.
    pub takes: Vec<Take>,
    /// GPUs that its start would recall from its family (B6).
    pub recalled: u64,
    /// Whether the free GPUs hold it.
    pub is_placed: bool,
    /// The walk to its last row.
    pub trace: Vec<Row>,
    /// The outcome of the walk, if it did not cover the width.
    pub failure: Option<Failure>,
}

/// An attempt to start a waiting run, as of now.
struct Attempt {
    is_placed: bool,
    request: Option<Request>,
    plan: Option<Result<Plan, Failure>>,
}

impl WaitReason {
    /// Category of the wait.
    pub const fn waits_for(self) -> WaitsFor {
        match self {
            Self::NoEnvelope | Self::NeverFits => WaitsFor::Mistake,
            Self::OutsideWindow => WaitsFor::After,
            Self::ConcurrencyCapExceeded
            | Self::IntegralCapExceeded
            | Self::AggregateCapExceeded
            | Self::AclDenied
            | Self::BorrowLimitExceeded
            | Self::BudgetPaused => WaitsFor::Budget,
            Self::NoRoom | Self::NodesUnusable => WaitsFor::Room,
            Self::QueueOrder => WaitsFor::Turn,
        }
    }
}

impl From<Cover> for WaitReason {
    fn from(reason: Cover) -> Self {
        match reason {
            Cover::NoEnvelope => Self::NoEnvelope,
            Cover::OutsideWindow => Self::OutsideWindow,
            Cover::ConcurrencyCapExceeded => Self::ConcurrencyCapExceeded,
            Cover::IntegralCapExceeded => Self::IntegralCapExceeded,
            Cover::AggregateCapExceeded => Self::AggregateCapExceeded,
            Cover::AclDenied => Self::AclDenied,
            Cover::BorrowLimitExceeded => Self::BorrowLimitExceeded,
            Cover::BudgetPaused => Self::BudgetPaused,
        }
    }
}

impl Clusters {
    /// Why a run waits; `None` if it does not wait.
    pub fn wait(&self, now: Instant, uid: &RunUid) -> Option<Wait> {
        let (number, live) = self.live_run(uid).filter(|(_, live)| live.held.is_none())?;
        let queue = self.queue.order();
        let ahead = queue.iter().take_while(|other| **other != number).count();
        Some(self.wait_of(now, &live.run, Some(live.work()), ahead))
    }

    /// Why a run that is not submitted would wait; `None` if it would start now. Runs that wait before
    /// it cannot start, or they would have, unless starting is owed.
    pub(crate) fn wait_before(&self, now: Instant, run: &Run) -> Option<Wait> {
        let is_started = self.attempt(now, run, None).starts();
        if is_started && self.owed.is_none() {
            return None;
        }
        let mut queue = self.queue.clone();
        queue.insert(&run.owner, run.priority, self.next);
        let order = queue.order().into_iter();
        let ahead = order.take_while(|number| *number != self.next).count();
        Some(self.wait_of(now, run, None, ahead))
    }

    fn wait_of(&self, now: Instant, run: &Run, work: Option<Work>, ahead: usize) -> Wait {
        let Attempt {
            is_placed,
            request,
            plan,
        } = self.attempt(now, run, work);
        let (takes, recalled) = match &plan {
            Some(Ok(plan)) => (plan.takes.clone(), plan.recalled.as_slice()),
            _ => (Vec::new(), Default::default()),
        };
        let recalled = recalled.iter().map(|demoted| demoted.line.gpus).sum();
        let failure = plan.and_then(Result::err);
        let trace = request
            .as_ref()
            .map(|request| self.accounts.trace_recalling(now, request));
        let reason = self.wait_reason(now, run, is_placed, failure.as_ref());
        let holders = match (&failure, reason.waits_for()) {
            (Some(failure), WaitsFor::Budget) => self.paid_for(now, &failure.exhausted),
            _ => self.holders(now, run),
        };
        let (holders, more_holders) = largest(holders);
        Wait {
            reason,
            needed: run.total_gpus,
            free: self.nodes.free_gpus(&run.flavor, &run.location),
            ahead: u64::try_from(ahead).unwrap_or(u64::MAX),
            holders,
            more_holders,
            takes,
            recalled,
            is_placed,
            trace: trace.unwrap_or_default(),
            failure,
        }
    }

    /// The reason of [`Clusters::wait`] alone, for lists and metrics: it reads no other run.
    pub fn wait_reason_of(&self, now: Instant, uid: &RunUid) -> Option<WaitReason> {
        let (_, live) = self.live_run(uid).filter(|(_, live)| live.held.is_none())?;
        let attempt = self.attempt(now, &live.run, Some(live.work()));
        let failure = attempt.plan.and_then(Result::err);
        Some(self.wait_reason(now, &live.run, attempt.is_placed, failure.as_ref()))
    }

    /// The failed cover of a waiting run: it reads no other run.
    pub fn failed_cover(&self, now: Instant, uid: &RunUid) -> Option<Failure> {
        let (_, live) = self.live_run(uid).filter(|(_, live)| live.held.is_none())?;
        let attempt = self.attempt(now, &live.run, Some(live.work()));
        attempt.plan.and_then(Result::err)
    }

    /// Positions of all waiting runs in the queue, from 1.
    pub fn places(&self) -> BTreeMap<&RunUid, u64> {
        let order = self.queue.order().into_iter();
        let live = order.filter_map(|number| self.live.get(&number));
        live.zip(1..)
            .map(|(live, place)| (&live.uid, place))
            .collect()
    }

    /// Tries to place and cover a run, as a pass does.
    fn attempt(&self, now: Instant, run: &Run, work: Option<Work>) -> Attempt {
        let seating = self.nodes.place(&gang(run));
        let request = match &seating {
            Some(seating) => Some(start_request(now, work, run, seating)),
            None => self
                .nodes
                .places(&run.flavor, &run.location)
                .next()
                .map(|place| request_at(now, run, place)),
        };
        let plan = request
            .as_ref()
            .map(|request| self.accounts.plan_recalling(now, request));
        Attempt {
            is_placed: seating.is_some(),
            request,
            plan,
        }
    }

    /// The first reason that applies, in the order of the vocabulary.
    fn wait_reason(
        &self,
        now: Instant,
        run: &Run,
        is_placed: bool,
        failure: Option<&Failure>,
    ) -> WaitReason {
        let money = failure.map(|failure| match failure.reason {
            Cover::NoEnvelope => WaitReason::NoEnvelope,
            // No event makes it possible: it waits for a mistake to be corrected (R6).
            _ if self.could_ever_be_covered(now, run).is_err() => WaitReason::NeverFits,
            reason => WaitReason::from(reason),
        });
        let room = (!is_placed).then(|| {
            if !self.nodes.ever_fits(&gang(run)) {
                WaitReason::NeverFits
            } else if self.nodes.would_fit_usable(&gang(run)) {
                WaitReason::NoRoom
            } else {
                WaitReason::NodesUnusable
            }
        });
        money
            .into_iter()
            .chain(room)
            .min()
            .unwrap_or(WaitReason::QueueOrder)
    }

    /// Runs with GPUs of the flavor at the allowed places of a run.
    fn holders(&self, now: Instant, run: &Run) -> Vec<Holder> {
        let is_wanted = |pod: &&Pod| {
            let seat = self.nodes.seat(pod.node.as_str());
            seat.is_some_and(|(place, flavor)| *flavor == run.flavor && run.location.matches(place))
        };
        let live = self.live.values();
        let holders = live.filter_map(|live| {
            let pods = live.held.as_ref()?.pods.values();
            let gpus = pods.filter(is_wanted).map(Pod::width).sum();
            holder(now, live, gpus)
        });
        holders.collect()
    }

    /// Runs that some meters pay for.
    fn paid_for(&self, now: Instant, meters: &[(MeterId, Dimension)]) -> Vec<Holder> {
        let claims = meters.iter();
        let claims = claims.flat_map(|(meter, _)| self.accounts.claims_on(meter));
        let claims: BTreeMap<u64, _> = claims.map(|claim| (claim.number, claim)).collect();
        let mut gpus: BTreeMap<RunUid, u64> = BTreeMap::new();
        for claim in claims.into_values() {
            *gpus.entry(claim.id.work.run).or_default() += claim.gpus;
        }
        let holders = gpus.into_iter();
        let holders = holders.filter_map(|(uid, gpus)| holder(now, self.live_run(&uid)?.1, gpus));
        holders.collect()
    }
}

impl Attempt {
    fn starts(&self) -> bool {
        self.is_placed && self.plan.as_ref().is_some_and(Result::is_ok)
    }
}

/// A run that holds that many GPUs; `None` without any.
fn holder(now: Instant, live: &Live, gpus: u64) -> Option<Holder> {
    let held = live.held.as_ref().filter(|_| gpus > 0)?;
    let stated = live.stated().map(|stated| held.opened.after(stated));
    Some(Holder {
        uid: live.uid.clone(),
        run: live.run.id(),
        owner: live.run.owner.clone(),
        gpus,
        stated_end: stated.filter(|end| now < *end),
    })
}

/// The largest holders, and the number of the others with their GPUs.
fn largest(mut holders: Vec<Holder>) -> (Vec<Holder>, (u64, u64)) {
    holders.sort_by(|a, b| b.gpus.cmp(&a.gpus).then_with(|| a.run.cmp(&b.run)));
    let more = holders.iter().skip(HOLDERS_MAX).map(|holder| holder.gpus);
    let more = more.fold((0, 0), |(count, sum), gpus| (count + 1, sum + gpus));
    holders.truncate(HOLDERS_MAX);
    (holders, more)
}
