//! Independent count of money, from the events alone: occupied GPU-time = debits + unfunded time, to
//! the millisecond, after every record.
//!
//! It shares no code with the accounts. A run has a width from its leases, and lines from its claims;
//! at each event the time since the last one is added to three sums. Closed GPUs leave unfunded claims
//! first, the newest first, then the newest funded (A1).

use std::collections::BTreeMap;

use bursar_units::words::number;
use bursar_units::{Instant, ObjectName};

use super::Finding;
use crate::State;
use crate::cluster::budget::{ClaimLine, Demoted, EnvelopeId, Funded, Pool, RunUid};
use crate::cluster::{Event, Pod};

/// Counts of money.
#[derive(Default)]
pub(super) struct Money {
    works: BTreeMap<RunUid, Paid>,
    leased: BTreeMap<(ObjectName, u32), RunUid>,
    /// GPU-milliseconds of leases, of funded claims and of unfunded claims.
    occupied: u128,
    debited: u128,
    unfunded: u128,
    at: Instant,
    is_begun: bool,
    /// First violation.
    wrong: Option<String>,
}

/// GPUs of a run and their payers.
#[derive(Default)]
struct Paid {
    pods: BTreeMap<u64, Pod>,
    /// Claims, oldest first.
    claims: Vec<(EnvelopeId, Pool, u64)>,
    /// Unfunded claims with their numbers, earliest first.
    unfunded: Vec<u64>,
    /// Order of the unfunded claims in the records.
    since: Instant,
}

impl Paid {
    fn width(&self) -> u64 {
        self.pods.values().map(Pod::width).sum()
    }

    fn funded(&self) -> u64 {
        self.claims.iter().map(|(_, _, gpus)| gpus).sum()
    }

    fn free(&self) -> u64 {
        self.unfunded.iter().sum()
    }
}

impl Money {
    /// Counts of an initial state: its runs go on, and the sums begin at zero.
    pub(super) fn of(state: &State) -> Self {
        let mut money = Self {
            at: state.spine.time,
            ..Self::default()
        };
        let runs = state.clusters.runs().filter(|run| run.end.is_none());
        for run in runs.filter(|run| !run.pods.is_empty()) {
            let paid = Paid {
                pods: run.pods.iter().map(|pod| (pod.pod, pod.clone())).collect(),
                claims: run
                    .claims
                    .iter()
                    .map(|claim| (claim.id.envelope.clone(), claim.id.pool, claim.gpus))
                    .collect(),
                unfunded: run.unfunded.iter().map(|claim| claim.gpus).collect(),
                since: money.at,
            };
            for pod in &run.pods {
                for gpu in pod.ordinals() {
                    money.leased.insert((pod.node.clone(), gpu), run.uid.clone());
                }
            }
            money.is_begun = true;
            money.works.insert(run.uid.clone(), paid);
        }
        money
    }

    /// Counts an event of that time.
    pub(super) fn take(&mut self, seq: u64, at: Instant, event: &Event) {
        self.is_begun = true;
        self.at = self.at.max(at);
        match event {
            Event::RunFunded { of, claims, cause, .. } => {
                self.reach(&of.uid, at);
                let paid = self.works.entry(of.uid.clone()).or_default();
                paid.since = paid.since.max(at);
                paid.fund(claims, *cause);
            }
            Event::RunDemoted { of, claims, cause, .. } => {
                self.reach(&of.uid, at);
                if let Some(paid) = self.works.get_mut(&of.uid) {
                    paid.demote(claims, *cause);
                }
            }
            Event::LeasesOpened { of, pods, .. } => {
                self.reach(&of.uid, at);
                self.open(seq, &of.uid, at, pods);
            }
            Event::LeasesClosed { of, pods, .. } => {
                self.reach(&of.uid, at);
                self.close(&of.uid, pods);
            }
            Event::RunEnded { of, .. } => {
                self.reach(&of.uid, at);
                let left = self.works.remove(&of.uid).map_or(0, |paid| paid.width());
                if left > 0 {
                    self.note(seq, &of.uid, "ends while it holds GPUs");
                }
            }
            _ => {}
        }
    }

    /// Checks every run at the end of a record: widths of claims = live GPUs.
    pub(super) fn end_record(&mut self, seq: u64) {
        if self.wrong.is_some() {
            return;
        }
        let differs = |paid: &Paid| paid.width() != paid.funded() + paid.free();
        let uid = self.works.iter().find(|(_, paid)| differs(paid));
        if let Some(uid) = uid.map(|(uid, _)| uid.clone()) {
            self.note(seq, &uid, "has other claims than GPUs");
        }
    }

    /// Result for the state after the events.
    pub(super) fn finding(&mut self, state: &State) -> Option<Finding> {
        let now = state.spine.time;
        let uids: Vec<RunUid> = self.works.keys().cloned().collect();
        for uid in uids {
            self.reach(&uid, now);
        }
        let live: u64 = self.works.values().map(Paid::width).sum();
        let leased = state.clusters.nodes().all_leased().count();
        if self.wrong.is_none() && u64::try_from(leased) != Ok(live) {
            self.wrong = Some(format!("the state has {leased} leased GPUs, the records {live}"));
        }
        let sum = |value: u128| number(u64::try_from(value).unwrap_or(u64::MAX));
        let detail = format!(
            "{} GPU-ms leased = {} debited + {} unfunded",
            sum(self.occupied),
            sum(self.debited),
            sum(self.unfunded)
        );
        let is_good = self.wrong.is_none() && self.occupied == self.debited + self.unfunded;
        let detail = self.wrong.clone().unwrap_or(detail);
        self.is_begun.then(|| match is_good {
            true => Finding::passed("conservation", detail),
            false => Finding::failed("conservation", detail),
        })
    }

    /// Adds the time of a run since its last event.
    fn reach(&mut self, uid: &RunUid, at: Instant) {
        let Some(paid) = self.works.get_mut(uid) else { return };
        let length = u128::from(at.since(paid.since).ms());
        paid.since = paid.since.max(at);
        self.occupied += u128::from(paid.width()) * length;
        self.debited += u128::from(paid.funded()) * length;
        self.unfunded += u128::from(paid.free()) * length;
    }

    fn open(&mut self, seq: u64, uid: &RunUid, at: Instant, pods: &[Pod]) {
        for pod in pods {
            for gpu in pod.ordinals() {
                let place = (pod.node.clone(), gpu);
                if self.leased.insert(place, uid.clone()).is_some() {
                    self.note(seq, uid, "gets a GPU that is leased already");
                }
            }
        }
        let paid = self.works.entry(uid.clone()).or_default();
        paid.since = paid.since.max(at);
        paid.pods.extend(pods.iter().map(|pod| (pod.pod, pod.clone())));
    }

    fn close(&mut self, uid: &RunUid, pods: &[u64]) {
        let Some(paid) = self.works.get_mut(uid) else { return };
        let all: Vec<u64> = paid.pods.keys().copied().collect();
        let gone = if pods.is_empty() { &all } else { pods };
        for pod in gone {
            let Some(pod) = paid.pods.remove(pod) else { continue };
            paid.leave(pod.width());
            for gpu in pod.ordinals() {
                self.leased.remove(&(pod.node.clone(), gpu));
            }
        }
    }

    fn note(&mut self, seq: u64, uid: &RunUid, what: &str) {
        let text = format!("record {}: {uid} {what}", number(seq));
        self.wrong.get_or_insert(text);
    }
}

impl Paid {
    fn fund(&mut self, lines: &[ClaimLine], cause: Funded) {
        if matches!(cause, Funded::Extension | Funded::Overrun) {
            return;
        }
        if cause == Funded::Refund {
            let gpus = lines.iter().map(|line| line.gpus).sum();
            // A refund names its claim by width here: refunds are complete for fixed runs (B5).
            match self.unfunded.iter().position(|free| *free == gpus) {
                Some(place) => drop(self.unfunded.remove(place)),
                None => self.leave_unfunded(gpus),
            }
        }
        for line in lines {
            let is_it = |(envelope, pool, _): &&mut (EnvelopeId, Pool, u64)| {
                *envelope == line.envelope && *pool == line.pool
            };
            match self.claims.iter_mut().find(is_it) {
                Some((_, _, gpus)) => *gpus += line.gpus,
                None => self.claims.push((line.envelope.clone(), line.pool, line.gpus)),
            }
        }
    }

    fn demote(&mut self, lines: &[ClaimLine], _: Demoted) {
        for line in lines {
            let claims = self.claims.iter_mut();
            for (envelope, pool, gpus) in claims {
                if *envelope == line.envelope && *pool == line.pool {
                    *gpus = gpus.saturating_sub(line.gpus);
                }
            }
            self.claims.retain(|(_, _, gpus)| *gpus > 0);
            self.unfunded.push(line.gpus);
        }
    }

    /// GPUs that closed leave unfunded claims first, then the newest funded (A1).
    fn leave(&mut self, gpus: u64) {
        let left = gpus.saturating_sub(self.free());
        self.leave_unfunded(gpus - left);
        let mut left = left;
        while left > 0
            && let Some((envelope, pool, width)) = self.claims.pop()
        {
            if left < width {
                self.claims.push((envelope, pool, width - left));
            }
            left = left.saturating_sub(width);
        }
    }

    fn leave_unfunded(&mut self, mut gpus: u64) {
        while gpus > 0
            && let Some(width) = self.unfunded.pop()
        {
            if gpus < width {
                self.unfunded.push(width - gpus);
            }
            gpus = gpus.saturating_sub(width);
        }
    }
}
