//! Who pays for which GPUs: claims laid over the pods of a run (A1).

use std::collections::BTreeSet;

use bursar_budget::{Class, EnvelopeId, RunUid};

use super::{Clusters, Held, Live};
use crate::Pod;
use crate::shown::{PaidPod, Payer};

impl Clusters {
    /// Who pays for each pod of a run, by group and pod. The GPUs of a live run stand in the order of
    /// group, pod and ordinal, and the funded claims are laid over them, oldest first; so the unfunded
    /// GPUs are those of the highest pods. A pod of an ended run has all payers that the run had.
    pub fn paid_by(&self, uid: &RunUid) -> Vec<PaidPod> {
        if let Some((_, live)) = self.live_run(uid) {
            let held = live.held.as_ref();
            return held.map_or_else(Vec::new, |held| self.lay(live, held));
        }
        let Some(ended) = self.ended.get(uid) else {
            return Vec::new();
        };
        let debits = self.accounts.debits(ended.end.at, uid);
        let payers: BTreeSet<(Class, Option<EnvelopeId>)> = debits
            .into_iter()
            .map(|debit| (debit.class, debit.envelope))
            .collect();
        let payers = payers.into_iter().map(|(class, envelope)| Payer {
            envelope,
            class,
            gpus: 0,
        });
        let payers: Vec<Payer> = payers.collect();
        let pods = ended.pods.iter().map(|closed| PaidPod {
            pod: closed.pod.pod,
            payers: payers.clone(),
        });
        pods.collect()
    }

    fn lay(&self, live: &Live, held: &Held) -> Vec<PaidPod> {
        let claims = self.accounts.claims(&live.work()).into_iter();
        let mut claims = claims.map(|claim| Payer {
            class: claim.id.pool.class(),
            envelope: Some(claim.id.envelope),
            gpus: claim.gpus,
        });
        let mut pods: Vec<&Pod> = held.pods.values().collect();
        pods.sort_by_key(|pod| (pod.group, pod.pod));
        let mut claim = claims.next();
        let pods = pods.into_iter().map(|pod| {
            let (mut left, mut payers) = (pod.width(), Vec::new());
            while left > 0
                && let Some(payer) = &mut claim
            {
                let gpus = payer.gpus.min(left);
                payers.push(Payer {
                    gpus,
                    ..payer.clone()
                });
                payer.gpus -= gpus;
                left -= gpus;
                if payer.gpus == 0 {
                    claim = claims.next();
                }
            }
            if left > 0 {
                payers.push(Payer {
                    envelope: None,
                    class: Class::Unfunded,
                    gpus: left,
                });
            }
            PaidPod {
                pod: pod.pod,
                payers,
            }
        });
        pods.collect()
    }
}
