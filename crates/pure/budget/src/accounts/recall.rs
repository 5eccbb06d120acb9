//! Recall: an owner takes its envelopes back from relatives (B6).

use bursar_units::Instant;

use super::Accounts;
use super::pad::{Moment, Pad};
use crate::claim::{ClaimLine, Demoted, Demotion, Pool, Promise};
use crate::cover::{Failure, Plan, Request, Row};

impl Accounts {
    /// The payers of a request that takes GPUs or a hold in this record. If the plan fails, it is
    /// tried again with the k newest Family claims on the owner's own envelopes demoted, for the
    /// smallest k that succeeds. If none does, nobody is demoted.
    pub fn plan_recalling(&self, now: Instant, request: &Request) -> Result<Plan, Failure> {
        self.plan(now, request).or_else(|failure| {
            let recall = self.recall(now, request);
            recall.map(|(plan, _)| plan).ok_or(failure)
        })
    }

    /// The walk of [`Accounts::plan_recalling`] that decides, to its last row.
    pub fn trace_recalling(&self, now: Instant, request: &Request) -> Vec<Row> {
        let trace = self.trace(now, request);
        let recall = match trace.outcome {
            Ok(_) => None,
            Err(_) => self.recall(now, request),
        };
        match recall {
            Some((_, pad)) => {
                let rows = Some(Vec::new());
                let walk = self.walk(pad, Moment::live(now), request, rows);
                walk.1.unwrap_or_default()
            }
            None => trace.rows,
        }
    }

    /// The plan with the fewest recalled claims, and the pad on which they are demoted.
    fn recall(&self, now: Instant, request: &Request) -> Option<(Plan, Pad)> {
        let mut pad = Pad::default();
        let mut recalled = Vec::new();
        for number in self.recallable(request) {
            let Some(claim) = self.claims.get(&number) else {
                continue;
            };
            let payer = (claim.envelope, claim.pool);
            let moment = Moment::live(now);
            pad.charge(self, moment, payer, claim.gpus, claim.promise, -1);
            recalled.extend(self.demotion(number, claim.gpus, Demoted::Recall));
            if let Ok(mut plan) = self.plan_on(pad.clone(), now, request) {
                plan.recalled = recalled;
                return Some((plan, pad));
            }
        }
        None
    }

    /// Family claims on the owner's envelopes of the flavor, newest first.
    fn recallable(&self, request: &Request) -> Vec<u64> {
        let Some(owner) = self.family.find(&request.owner) else {
            return Vec::new();
        };
        let shelves = self.family.shelves(owner, &request.flavor);
        let envelopes = shelves.flat_map(|(_, envelopes)| envelopes);
        let own = envelopes.filter_map(|envelope| {
            let meter = self.envelopes.get(*envelope)?.meters.first()?;
            self.meters.get(*meter)
        });
        let mut claims: Vec<u64> = own.flat_map(|meter| meter.claims.iter().copied()).collect();
        claims.retain(|number| {
            let claim = self.claims.get(number);
            claim.is_some_and(|claim| {
                claim.pool == Pool::Family && !matches!(claim.promise, Promise::Held { .. })
            })
        });
        claims.sort_unstable_by(|one, other| other.cmp(one));
        claims
    }

    /// The demotion of GPUs of a claim.
    pub(super) fn demotion(&self, number: u64, gpus: u64, cause: Demoted) -> Option<Demotion> {
        let claim = self.claims.get(&number)?;
        let envelope = self.envelopes.get(claim.envelope)?;
        let declared = envelope.declared.as_ref();
        let is_end = declared
            .is_some_and(|declared| declared.spec.on_exhaustion == crate::spec::OnExhaustion::End);
        Some(Demotion {
            work: claim.work.clone(),
            line: ClaimLine {
                envelope: envelope.id.clone(),
                pool: claim.pool,
                gpus,
                until: claim.promise.until().unwrap_or(self.time),
            },
            cause,
            ends: is_end && cause == Demoted::Depletion,
        })
    }
}
