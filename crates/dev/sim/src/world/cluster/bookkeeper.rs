//! A naive bookkeeper: it adds up GPU time from events alone, without meters, windows or prices.
//!
//! It knows which GPUs a run holds and how many of them are paid for. Conservation: the time of all
//! held GPUs is the time that envelopes paid for and the unfunded time, to the millisecond.

use std::collections::BTreeMap;

use bursar_budget::{Accounts, ClaimLine, Funded, RunUid};
use bursar_cluster::{Event, ProcessId};
use bursar_units::Instant;

use crate::violation::{Violation, demand};

#[derive(Debug, Default)]
pub(super) struct Bookkeeper {
    runs: BTreeMap<RunUid, Held>,
    /// GPU-milliseconds of runs that have ended, and of all runs until their last event.
    total: Time,
}

/// GPU-milliseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Time {
    paid: u128,
    unfunded: u128,
}

/// A run with GPUs.
#[derive(Debug, Default)]
struct Held {
    incarnation: u64,
    /// GPUs of each pod.
    pods: BTreeMap<u64, u64>,
    /// GPUs that envelopes pay for.
    paid: u64,
    since: Instant,
}

impl Held {
    fn gpus(&self) -> u64 {
        self.pods.values().sum()
    }

    /// Time from its last event to an instant.
    fn until(&self, at: Instant) -> Time {
        let length = u128::from(at.since(self.since).ms());
        let unfunded = self.gpus().saturating_sub(self.paid);
        Time {
            paid: u128::from(self.paid) * length,
            unfunded: u128::from(unfunded) * length,
        }
    }
}

impl Time {
    fn and(self, more: Self) -> Self {
        Self {
            paid: self.paid + more.paid,
            unfunded: self.unfunded + more.unfunded,
        }
    }
}

impl Bookkeeper {
    /// Notes an event; returns the processes whose leases it closes.
    pub(super) fn note(&mut self, at: Instant, event: &Event) -> Result<Vec<ProcessId>, Violation> {
        let mut gone = Vec::new();
        match event {
            Event::RunFunded {
                of,
                claims,
                cause: Funded::Take | Funded::Refund,
                ..
            } => {
                self.turn(at, &of.uid)?.paid += gpus(claims);
            }
            Event::RunDemoted { of, claims, .. } => {
                let held = self.turn(at, &of.uid)?;
                held.paid = held.paid.saturating_sub(gpus(claims));
            }
            Event::LeasesOpened {
                of,
                incarnation,
                pods,
                ..
            } => {
                let held = self.turn(at, &of.uid)?;
                held.incarnation = *incarnation;
                held.pods
                    .extend(pods.iter().map(|pod| (pod.pod, pod.width())));
            }
            Event::LeasesClosed { of, pods, .. } => {
                let held = self.turn(at, &of.uid)?;
                let unfunded = held.gpus().saturating_sub(held.paid);
                let before = held.gpus();
                let is_gone = |pod: &u64| pods.is_empty() || pods.contains(pod);
                gone.extend(
                    held.pods
                        .keys()
                        .filter(|pod| is_gone(pod))
                        .map(|pod| ProcessId {
                            uid: of.uid.clone(),
                            incarnation: held.incarnation,
                            pod: *pod,
                        }),
                );
                held.pods.retain(|pod, _| !is_gone(pod));
                // Closing GPUs leave the unfunded ones first (A1).
                let left = unfunded.saturating_sub(before - held.gpus());
                held.paid = held.gpus() - left;
            }
            Event::RunEnded { of, .. } => {
                self.turn(at, &of.uid)?;
                self.runs.remove(&of.uid);
            }
            _ => {}
        }
        Ok(gone)
    }

    /// The entry of a run, with its time added up to an instant.
    fn turn(&mut self, at: Instant, uid: &RunUid) -> Result<&mut Held, Violation> {
        let held = self.runs.entry(uid.clone()).or_default();
        demand(
            held.since <= at,
            "the events of a run are in the order of time",
            || {
                format!(
                    "{uid:?} has an event at {at:?} after one at {:?}",
                    held.since
                )
            },
        )?;
        self.total = self.total.and(held.until(at));
        held.since = at;
        Ok(held)
    }

    /// Compares the sums with the accounts.
    pub(super) fn check(&self, now: Instant, accounts: &Accounts) -> Result<(), Violation> {
        for (uid, held) in &self.runs {
            demand(
                held.paid <= held.gpus(),
                "no envelope pays for a GPU that nobody holds",
                || {
                    format!(
                        "{uid:?} has {} GPUs, {} are paid for",
                        held.gpus(),
                        held.paid
                    )
                },
            )?;
        }
        let held = self.runs.values().map(|held| held.until(now));
        let ours = held.fold(self.total, Time::and);
        let mut theirs = Time::default();
        for row in accounts.usage(now) {
            let time = u128::from(row.gpu_ms);
            match row.envelope {
                Some(_) => theirs.paid += time,
                None => theirs.unfunded += time,
            }
        }
        demand(
            ours == theirs,
            "the time of all held GPUs is paid time and unfunded time",
            || format!("the events give {ours:?}, the accounts {theirs:?}"),
        )
    }
}

fn gpus(claims: &[ClaimLine]) -> u64 {
    claims.iter().map(|claim| claim.gpus).sum()
}
