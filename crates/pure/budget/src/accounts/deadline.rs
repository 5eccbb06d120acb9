//! Clock deadlines: window edges, promise ends, depletions (B2, B3, R8).
//!
//! The plane carries out the deadlines of one instant and kind together, then refunds. Each of them
//! is stamped with its own instant, whether the server ran at that time or not.

use std::collections::BTreeSet;

use bursar_units::Instant;

use super::pad::{Moment, Pad};
use super::{Accounts, ClaimState, EpochClosed, Kind};
use crate::claim::{ClaimId, ClaimLine, Demoted, Demotion, Pool, Promise};
use crate::cover::{Dimension, Relation};
use crate::id::MeterId;
use crate::meter::saturated;
use crate::spec::Sharing;

/// Claims to demote, and the meters on which they failed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Demotions {
    /// The claims, in keep order.
    pub list: Vec<Demotion>,
    /// Meters for `meterNear` 100; see [`Accounts::exhausted`].
    pub exhausted: Vec<(MeterId, Dimension)>,
}

/// Fate of a claim at its promise end (B2).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PromiseEnd {
    /// It is promised one more horizon.
    Extended(ClaimLine),
    /// It goes on from uncommitted time.
    Overruns {
        /// The claim.
        line: ClaimLine,
        /// Meters on which the extension failed.
        exhausted: Vec<(MeterId, Dimension)>,
    },
    /// The envelope does not permit it any more.
    Demoted(Demotion),
}

impl Accounts {
    /// The earliest deadline with its kind.
    pub fn next_deadline(&self) -> Option<(Instant, Kind)> {
        let first = self.deadlines.first().map(|(at, kind, _)| (*at, *kind));
        let opening = self.openings.first().map(|(at, _)| (*at, Kind::WindowEdge));
        first.into_iter().chain(opening).min()
    }

    /// The earliest deadline of a kind. It reads the deadlines before it.
    pub fn next_deadline_of(&self, kind: Kind) -> Option<Instant> {
        let mut of_kind = self.deadlines.iter().filter(|(_, other, _)| *other == kind);
        let first = of_kind.next().map(|(at, ..)| *at);
        let opening = self.openings.first().map(|(at, _)| *at);
        let opening = opening.filter(|_| kind == Kind::WindowEdge);
        first.into_iter().chain(opening).min()
    }

    /// Whether a deadline of a kind before this one is due.
    pub fn is_due_before(&self, kind: Kind, at: Instant) -> bool {
        let mut due = self.deadlines.iter().take_while(|(when, ..)| *when <= at);
        let opens = self.openings.first().is_some_and(|(when, _)| *when <= at);
        (opens && Kind::WindowEdge < kind) || due.any(|(_, other, _)| *other < kind)
    }

    /// The epochs that end at an instant, by meter. Empty if windows only open then.
    pub fn edges(&self, at: Instant) -> Vec<EpochClosed> {
        let due = self.due_meters(at, Kind::WindowEdge).into_iter();
        let mut list: Vec<EpochClosed> = due
            .filter_map(|number| {
                let meter = self.meters.get(number)?;
                Some(EpochClosed {
                    meter: meter.id.clone(),
                    epoch: meter.epoch,
                    accrued: saturated(meter.accrued(at)),
                    next: meter.schedule.current(meter.window?.end?),
                })
            })
            .collect();
        list.sort_by(|one, other| one.meter.cmp(&other.meter));
        list
    }

    /// The claims whose promise ends at an instant, in keep order.
    pub fn promise_ends(&self, at: Instant) -> Vec<ClaimId> {
        let due = self.deadlines.iter().take_while(|(when, ..)| *when <= at);
        let numbers = due.filter(|(_, kind, _)| *kind == Kind::PromiseEnd);
        let claims = numbers.filter_map(|(.., n)| Some((*n, self.claims.get(n)?)));
        let mut claims: Vec<(u64, &ClaimState)> = claims.collect();
        claims.sort_by_key(|(number, claim)| (claim.pool.keep(), *number));
        let id = |(_, claim)| self.claim_id(claim);
        claims.into_iter().filter_map(id).collect()
    }

    /// Decides the promise end of one claim. The plane applies it before it decides the next one,
    /// because an extension takes room.
    pub fn promise_end(&self, at: Instant, id: &ClaimId) -> Option<PromiseEnd> {
        let (envelope, state) = self.envelope(&id.envelope)?;
        let (number, claim) = self.claim_of(&id.work, envelope, id.pool)?;
        let Promise::Until(end) = claim.promise else {
            return None;
        };
        if !self.permits(claim) {
            let demotion = self.demotion(number, claim.gpus, Demoted::PromiseEnd)?;
            return Some(PromiseEnd::Demoted(demotion));
        }
        let terms = &self.works.get(&id.work)?.terms;
        let until = at.after(self.horizon(state));
        let until = terms.hard_end.map_or(until, |hard_end| until.min(hard_end));
        let mut line = ClaimLine {
            envelope: id.envelope.clone(),
            pool: id.pool,
            gpus: claim.gpus,
            until,
        };
        let exhausted = self.bounds_extension(at, claim, until);
        if at < until && exhausted.is_empty() {
            return Some(PromiseEnd::Extended(line));
        }
        line.until = end;
        let exhausted = if at < until { exhausted } else { Vec::new() };
        Some(PromiseEnd::Overruns { line, exhausted })
    }

    /// The meters without room for an extension until an instant.
    fn bounds_extension(
        &self,
        at: Instant,
        claim: &ClaimState,
        until: Instant,
    ) -> Vec<(MeterId, Dimension)> {
        let moment = Moment::live(at);
        let payer = (claim.envelope, claim.pool);
        let mut pad = Pad::default();
        pad.charge(self, moment, payer, claim.gpus, claim.promise, -1);
        let mut list = Vec::new();
        for number in self.charged(payer.0, payer.1) {
            let room = pad.room(self, moment, number, Promise::Until(until));
            let parts = [(Dimension::Gpus, room.gpus), (Dimension::Hours, room.hours)];
            for (dimension, room) in parts {
                if let (Some(room), Some(meter)) = (room, self.meters.get(number))
                    && room < claim.gpus
                {
                    list.push((meter.id.clone(), dimension));
                }
            }
        }
        list
    }

    /// Whether ACL, sharing and kinship permit a claim now.
    fn permits(&self, claim: &ClaimState) -> bool {
        let Some(declared) = self
            .envelopes
            .get(claim.envelope)
            .and_then(|envelope| envelope.declared.as_ref())
        else {
            return false;
        };
        let Some(owner) = self.owner_of(&claim.work) else {
            return false;
        };
        match claim.pool {
            Pool::Own => declared.owner_name == *owner,
            Pool::Lent => declared.spec.lends_to(owner),
            Pool::Family => {
                let relation = self
                    .family
                    .find(owner)
                    .and_then(|of| self.family.relation(of, declared.owner));
                let is_kin = relation.is_some_and(|relation| relation != Relation::Owner);
                is_kin && declared.spec.sharing == Sharing::Family
            }
        }
    }

    /// Every overrunning claim on a meter that is depleted at an instant, and no other (B2).
    pub fn depletions(&self, at: Instant) -> Demotions {
        let mut claims = BTreeSet::new();
        let mut demotions = Demotions::default();
        for number in self.due_meters(at, Kind::Depletion) {
            let Some(meter) = self.meters.get(number) else {
                continue;
            };
            demotions
                .exhausted
                .push((meter.id.clone(), Dimension::Hours));
            let overrunning = meter.claims.iter().filter_map(|number| {
                let claim = self.claims.get(number)?;
                let overruns = matches!(claim.promise, Promise::Overruns(_));
                overruns.then_some((claim.pool.keep(), *number, claim.gpus))
            });
            claims.extend(overrunning);
        }
        let demotion = |(_, number, gpus)| self.demotion(number, gpus, Demoted::Depletion);
        demotions.list = claims.into_iter().filter_map(demotion).collect();
        demotions.exhausted.sort();
        demotions
    }

    pub(super) fn claim_id(&self, claim: &ClaimState) -> Option<ClaimId> {
        Some(ClaimId {
            work: claim.work.clone(),
            envelope: self.envelopes.get(claim.envelope)?.id.clone(),
            pool: claim.pool,
        })
    }
}
