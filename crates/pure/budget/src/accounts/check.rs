//! Invariants of the accounts, recomputed from the claims alone.

use std::collections::BTreeMap;

use bursar_units::Instant;
use thiserror::Error;

use super::Accounts;
use crate::claim::{Class, Promise};
use crate::id::MeterId;
use crate::meter::saturated;

/// A broken invariant.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Broken {
    /// The widths of a meter are not those of its claims.
    #[error("{meter} counts {counted} GPUs, its claims have {claimed}")]
    Width {
        /// The meter.
        meter: MeterId,
        /// GPUs that the meter counts.
        counted: u64,
        /// GPUs of its claims.
        claimed: u64,
    },
    /// A meter has more GPUs than its limit.
    #[error("{meter} has {gpus} GPUs, its limit is {limit}")]
    Gpus {
        /// The meter.
        meter: MeterId,
        /// GPUs of claims and holds.
        gpus: u64,
        /// The limit.
        limit: u64,
    },
    /// A meter with claims has committed more time than its limit.
    #[error("{meter} has committed {committed} GPU-ms, its limit is {limit}")]
    Committed {
        /// The meter.
        meter: MeterId,
        /// Committed GPU-milliseconds.
        committed: u64,
        /// The limit.
        limit: u64,
    },
    /// A claim has no GPUs, or a work in the state has no claims.
    #[error("a claim or work without GPUs is in the state")]
    Empty,
    /// The usage of an envelope is not the accrued time of all its epochs.
    #[error("{meter} accrued {accrued} GPU-ms, its usage is {used}")]
    Usage {
        /// The meter.
        meter: MeterId,
        /// Accrued GPU-milliseconds of all epochs.
        accrued: u64,
        /// Used GPU-milliseconds of all owners.
        used: u64,
    },
}

impl Accounts {
    /// Checks the invariants; `now` is the time of the last event.
    pub fn check(&self, now: Instant) -> Result<(), Broken> {
        self.check_widths()?;
        for (id, number) in &self.meter_index {
            self.check_limits(id, *number, now)?;
        }
        let is_empty = self.claims.values().any(|claim| claim.gpus == 0)
            || (self.works.values()).any(|work| work.claims.is_empty() && work.unfunded.is_empty());
        if is_empty {
            return Err(Broken::Empty);
        }
        self.check_usage(now)
    }

    /// Widths of all meters, from one pass over the claims.
    fn check_widths(&self) -> Result<(), Broken> {
        let mut claimed = vec![(0_u64, 0_u64, 0_u64); self.meters.len()];
        for claim in self.claims.values() {
            for number in self.charged(claim.envelope, claim.pool) {
                let Some(widths) = claimed.get_mut(number) else {
                    continue;
                };
                match claim.promise {
                    Promise::Until(_) => widths.0 += claim.gpus,
                    Promise::Overruns(_) => widths.1 += claim.gpus,
                    Promise::Held { .. } => widths.2 += claim.gpus,
                }
            }
        }
        let mut meters = self.meters.iter().zip(claimed);
        match meters.find(|(meter, claimed)| meter.widths() != *claimed) {
            None => Ok(()),
            Some((meter, claimed)) => Err(Broken::Width {
                meter: meter.id.clone(),
                counted: meter.gpus(),
                claimed: claimed.0 + claimed.1 + claimed.2,
            }),
        }
    }

    fn check_limits(&self, id: &MeterId, number: usize, now: Instant) -> Result<(), Broken> {
        let Some(meter) = self.meters.get(number) else {
            return Ok(());
        };
        let gpus = meter.gpus();
        if let Some(limit) = meter.gpus_limit.filter(|limit| *limit < gpus) {
            return Err(Broken::Gpus {
                meter: id.clone(),
                gpus,
                limit,
            });
        }
        // Accrued time is final, even above a lowered limit; then no claim is left.
        let committed = saturated(meter.committed(now));
        let limit = meter.time_limit_in_force().filter(|_| 0 < gpus);
        match limit.filter(|limit| *limit < committed) {
            Some(limit) => Err(Broken::Committed {
                meter: id.clone(),
                committed,
                limit,
            }),
            None => Ok(()),
        }
    }

    /// Usage by envelope equals the accrued time of its epochs.
    fn check_usage(&self, now: Instant) -> Result<(), Broken> {
        let mut used: BTreeMap<MeterId, u64> = BTreeMap::new();
        for row in self.usage_totals(now) {
            if let Some(envelope) = row.envelope.filter(|_| row.class != Class::Unfunded) {
                *used.entry(MeterId::Envelope(envelope)).or_default() += row.gpu_ms;
            }
        }
        for (id, number) in &self.meter_index {
            let Some(meter) = self.meters.get(*number) else {
                continue;
            };
            let closed: u64 = meter.closed.iter().map(|epoch| epoch.accrued).sum();
            let accrued = closed.saturating_add(saturated(meter.accrued(now)));
            let used = used.get(id).copied().unwrap_or_default();
            if matches!(id, MeterId::Envelope(_)) && accrued != used {
                return Err(Broken::Usage {
                    meter: id.clone(),
                    accrued,
                    used,
                });
            }
        }
        Ok(())
    }
}
