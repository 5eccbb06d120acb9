//! Refit: which claims stay when the room of meters fell (B4).

use std::collections::BTreeSet;

use bursar_units::Instant;

use super::deadline::Demotions;
use super::pad::{Moment, Pad};
use super::{Accounts, ClaimState};
use crate::claim::{Demoted, Promise};
use crate::id::MeterId;

impl Accounts {
    /// Takes the claims of the meters off, walks them in keep order (Own, Lent, Family; earlier
    /// funded first), puts back those that fit all their meters, and demotes the rest. Claims of
    /// fixed runs go whole, those of elastic runs pod by pod. Holds stay.
    pub fn refit(&self, at: Instant, meters: &BTreeSet<MeterId>) -> Demotions {
        let moment = Moment::live(at);
        let mut pad = Pad::default();
        let claims = self.claims_to_refit(meters);
        for (_, claim) in &claims {
            let payer = (claim.envelope, claim.pool);
            pad.charge(self, moment, payer, claim.gpus, claim.promise, -1);
        }
        let mut demotions = Demotions::default();
        for (number, claim) in claims {
            let payer = (claim.envelope, claim.pool);
            let (room, bound) = match self.envelopes.get(claim.envelope) {
                Some(envelope) if self.is_open(envelope, at) => {
                    pad.fit(self, moment, payer, claim.promise)
                }
                _ => (0, None),
            };
            let stays = self.part_that_stays(claim, room);
            pad.charge(self, moment, payer, stays, claim.promise, 1);
            if stays < claim.gpus {
                let demotion = self.demotion(number, claim.gpus - stays, Demoted::Refit);
                demotions.list.extend(demotion);
                let bound = bound.and_then(|(m, d)| Some((self.meters.get(m)?.id.clone(), d)));
                demotions.exhausted.extend(bound);
            }
        }
        demotions
    }

    /// The claims of the meters, in keep order.
    fn claims_to_refit(&self, meters: &BTreeSet<MeterId>) -> Vec<(u64, &ClaimState)> {
        let meters = meters.iter().filter_map(|id| self.meter_state(id));
        let numbers: BTreeSet<u64> = meters.flat_map(|m| m.claims.iter().copied()).collect();
        let claims = numbers.into_iter().filter_map(|n| Some((n, self.claims.get(&n)?)));
        let funded = claims.filter(|(_, c)| !matches!(c.promise, Promise::Held { .. }));
        let mut claims: Vec<_> = funded.collect();
        claims.sort_by_key(|(number, claim)| (claim.pool.keep(), *number));
        claims
    }

    /// GPUs of a claim that stay in a room.
    fn part_that_stays(&self, claim: &ClaimState, room: u64) -> u64 {
        let missing = claim.gpus.saturating_sub(room);
        if missing == 0 {
            return claim.gpus;
        }
        let work = self.works.get(&claim.work);
        let pod_gpus = work.and_then(|work| work.terms.pod_gpus).unwrap_or(0);
        if pod_gpus == 0 {
            return 0;
        }
        let pods_ceil = missing.div_ceil(pod_gpus);
        claim.gpus.saturating_sub(pods_ceil.saturating_mul(pod_gpus))
    }
}
