//! Why a run waits, and who pays for it: data, from the functions that decide.

use std::collections::BTreeMap;

use bursar_budget::cover::{Failure, Plan, Reason as Cover, Request, Row};
use bursar_budget::{RunUid, Take};
use bursar_plane::WaitsFor;
use bursar_units::{Instant, Label, ScopedName, vocabulary};

use crate::clusters::{Clusters, Live};
use crate::pass::{gang, request_at, start_request};

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
    /// Holders of the GPUs that it could use, most GPUs first; at most [`HOLDERS_MAX`].
    pub holders: Vec<Holder>,
    /// Number of further holders, and their GPUs.
    pub more_holders: (u64, u64),
    /// Payers that it would have now.
    pub takes: Vec<Take>,
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
        let (number, live) = self.live_run(uid)?;
        if live.held.is_some() {
            return None;
        }
        let run = &live.run;
        let Attempt {
            is_placed,
            request,
            plan,
        } = self.attempt(now, live);
        let takes = match &plan {
            Some(Ok(plan)) => plan.takes.clone(),
            _ => Vec::new(),
        };
        let failure = plan.and_then(Result::err);
        let trace = request
            .as_ref()
            .map(|request| self.accounts.trace(now, request).rows);
        let queue = self.queue.order();
        let ahead = queue.iter().take_while(|other| **other != number).count();
        let (holders, more_holders) = self.holders(now, live);
        Some(Wait {
            reason: self.wait_reason(now, live, is_placed, failure.as_ref(), request.as_ref()),
            needed: run.total_gpus,
            free: self.nodes.free_gpus(&run.flavor, &run.location),
            ahead: u64::try_from(ahead).unwrap_or(u64::MAX),
            holders,
            more_holders,
            takes,
            trace: trace.unwrap_or_default(),
            failure,
        })
    }

    /// The reason of [`Clusters::wait`] alone, for lists and metrics: it reads no other run.
    pub fn wait_reason_of(&self, now: Instant, uid: &RunUid) -> Option<WaitReason> {
        let (_, live) = self.live_run(uid)?;
        if live.held.is_some() {
            return None;
        }
        let Attempt {
            is_placed,
            request,
            plan,
        } = self.attempt(now, live);
        let failure = plan.and_then(Result::err);
        Some(self.wait_reason(now, live, is_placed, failure.as_ref(), request.as_ref()))
    }

    /// Positions of all waiting runs in the queue, from 1.
    pub fn places(&self) -> BTreeMap<&RunUid, u64> {
        let order = self.queue.order().into_iter();
        let live = order.filter_map(|number| self.live.get(&number));
        live.zip(1..)
            .map(|(live, place)| (&live.uid, place))
            .collect()
    }

    /// Tries to place and cover a waiting run, as a pass does.
    fn attempt(&self, now: Instant, live: &Live) -> Attempt {
        let run = &live.run;
        let seating = self.nodes.place(&gang(run));
        let request = match &seating {
            Some(seating) => Some(start_request(now, Some(live.work()), run, seating)),
            None => self
                .nodes
                .first_place(&run.flavor, &run.location)
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
        live: &Live,
        is_placed: bool,
        failure: Option<&Failure>,
        request: Option<&Request>,
    ) -> WaitReason {
        let run = &live.run;
        let money = failure.map(|failure| match request {
            // No event makes it possible: it waits for a mistake to be corrected (R6).
            Some(request)
                if failure.reason != Cover::NoEnvelope
                    && self.accounts.could_ever_cover(now, request).is_err() =>
            {
                WaitReason::NeverFits
            }
            _ => WaitReason::from(failure.reason),
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

    /// The largest holders, and the number of the others with their GPUs.
    fn holders(&self, now: Instant, waiting: &Live) -> (Vec<Holder>, (u64, u64)) {
        let run = &waiting.run;
        let mut holders: Vec<Holder> = self
            .live
            .values()
            .filter_map(|live| {
                let held = live.held.as_ref()?;
                let is_wanted = |pod: &&crate::Pod| {
                    let seat = self.nodes.seat(pod.node.as_str());
                    seat.is_some_and(|(place, flavor)| {
                        *flavor == run.flavor && run.location.matches(place)
                    })
                };
                let gpus = held
                    .pods
                    .values()
                    .filter(is_wanted)
                    .map(crate::Pod::width)
                    .sum();
                let stated = live.stated().map(|stated| held.opened.after(stated));
                (gpus > 0).then(|| Holder {
                    uid: live.uid.clone(),
                    run: live.run.id(),
                    owner: live.run.owner.clone(),
                    gpus,
                    stated_end: stated.filter(|end| now < *end),
                })
            })
            .collect();
        holders.sort_by(|a, b| b.gpus.cmp(&a.gpus).then_with(|| a.run.cmp(&b.run)));
        let more = holders.iter().skip(HOLDERS_MAX).map(|holder| holder.gpus);
        let more = more.fold((0, 0), |(count, sum), gpus| (count + 1, sum + gpus));
        holders.truncate(HOLDERS_MAX);
        (holders, more)
    }
}
