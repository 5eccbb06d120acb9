//! Independent count of money, from the events alone: occupied GPU-time = debits + unfunded time, to
//! the millisecond, after every record; and no meter above its GPU limit after any record.
//!
//! It shares no code with the accounts. A run has a width from its leases, and lines from its claims;
//! at each event the time since the last one is added to three sums. Closed GPUs leave unfunded claims
//! first, the newest first, then the newest funded (A1). The sums are compared with the usage of the
//! state, which is counted by owner and day.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::words::number;
use bursar_units::{Instant, ObjectName};

use super::Finding;
use super::meters::Meters;
use crate::State;
use crate::cluster::budget::{ClaimLine, Class, EnvelopeId, Funded, Pool, RunUid};
use crate::cluster::{Clusters, Event, Pod};

/// Counts of money.
#[derive(Default)]
pub(super) struct Money {
    works: BTreeMap<RunUid, Paid>,
    leased: BTreeMap<(ObjectName, u32), RunUid>,
    /// Number of the last claim, funded or not.
    last: u64,
    /// GPU-milliseconds of leases, of funded claims and of unfunded claims.
    occupied: u128,
    debited: u128,
    unfunded: u128,
    /// Usage of the initial state, funded and unfunded.
    before: (u128, u128),
    is_begun: bool,
    /// Runs with an event in the record.
    touched: BTreeSet<RunUid>,
    meters: Meters,
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
    unfunded: Vec<(u64, u64)>,
    /// Instant until which its time is counted.
    since: Instant,
}

impl Money {
    /// Counts of an initial state: its runs go on, and the sums begin at zero.
    pub(super) fn of(state: &State) -> Self {
        let clusters = &state.clusters;
        let mut money = Self {
            last: clusters.accounts().last_claim(),
            before: used(clusters, state.spine.time),
            is_begun: clusters.accounts().budgets().next().is_some(),
            ..Self::default()
        };
        for budget in clusters.accounts().budgets() {
            money.meters.declare(budget);
        }
        let runs = clusters.runs().filter(|run| run.end.is_none());
        for run in runs.filter(|run| !run.pods.is_empty()) {
            let claims = run.takes().into_iter();
            let claims: Vec<_> = claims
                .map(|take| (take.envelope, take.pool, take.gpus))
                .collect();
            for (envelope, pool, gpus) in &claims {
                money.meters.add(envelope, *pool, *gpus);
            }
            let unfunded = run.unfunded.iter();
            let paid = Paid {
                pods: run.pods.iter().map(|pod| (pod.pod, pod.clone())).collect(),
                claims,
                unfunded: unfunded.map(|claim| (claim.number, claim.gpus)).collect(),
                since: state.spine.time,
            };
            for pod in &run.pods {
                let places = pod.ordinals().map(|gpu| (pod.node.clone(), gpu));
                money
                    .leased
                    .extend(places.map(|place| (place, run.uid.clone())));
            }
            money.is_begun = true;
            money.works.insert(run.uid.clone(), paid);
        }
        money
    }

    /// Counts an event of that time.
    pub(super) fn take(&mut self, seq: u64, at: Instant, event: &Event) {
        if let Some(of) = event.who() {
            self.is_begun = true;
            self.reach(&of.uid, at);
            self.touched.insert(of.uid);
        }
        match event {
            Event::BudgetSet(budget) => {
                self.is_begun = true;
                self.meters.declare(budget);
            }
            Event::BudgetDropped { budget } => self.meters.drop(budget),
            Event::RunFunded {
                of,
                claims,
                cause: Funded::Take | Funded::Refund,
                unfunded,
                ..
            } => self.fund(seq, &of.uid, at, *unfunded, claims),
            Event::RunDemoted { of, claims, .. } => self.demote(seq, &of.uid, claims),
            Event::LeasesOpened { of, pods, .. } => self.open(seq, &of.uid, at, pods),
            Event::LeasesClosed { of, pods, gpus, .. } => self.close(seq, &of.uid, pods, *gpus),
            Event::RunEnded { of, .. } => {
                let left = self.works.remove(&of.uid);
                if left.is_some_and(|paid| paid.width() + paid.funded() + paid.free() > 0) {
                    self.note(seq, &of.uid, "ends while it holds GPUs or claims");
                }
            }
            _ => {}
        }
    }

    /// Checks the runs of a record at its end: widths of claims = live GPUs; and the meters.
    pub(super) fn end_record(&mut self, seq: u64) {
        for uid in std::mem::take(&mut self.touched) {
            let paid = self.works.get(&uid);
            if paid.is_some_and(|paid| paid.width() != paid.funded() + paid.free()) {
                self.note(seq, &uid, "has other claims than GPUs");
            }
        }
        self.meters.end_record(seq);
    }

    /// Whether there were budgets or runs.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// First meter above its limit.
    pub(super) fn above(&self) -> Option<&String> {
        self.meters.above()
    }

    /// Result for the state after the events; `None` if there were neither budgets nor runs.
    pub(super) fn finding(&self, state: &State) -> Option<Finding> {
        if !self.is_begun {
            return None;
        }
        let (occupied, debited, unfunded) = self.sums(state.spine.time);
        let sum = |value: u128| number(u64::try_from(value).unwrap_or(u64::MAX));
        let sums = format!(
            "{} GPU-ms leased = {} debited + {} unfunded",
            sum(occupied),
            sum(debited),
            sum(unfunded)
        );
        if let Some(wrong) = self.wrong.clone().or_else(|| self.unlike(state)) {
            return Some(Finding::failed("conservation", wrong));
        }
        if occupied != debited + unfunded {
            let sums = sums.replace('=', "is not");
            return Some(Finding::failed("conservation", sums));
        }
        Some(Finding::passed("conservation", sums))
    }

    /// The sums at an instant.
    fn sums(&self, now: Instant) -> (u128, u128, u128) {
        let mut sums = (self.occupied, self.debited, self.unfunded);
        for paid in self.works.values() {
            let length = u128::from(now.since(paid.since).ms());
            sums.0 += u128::from(paid.width()) * length;
            sums.1 += u128::from(paid.funded()) * length;
            sums.2 += u128::from(paid.free()) * length;
        }
        sums
    }

    /// The first way in which the state differs from the counts.
    fn unlike(&self, state: &State) -> Option<String> {
        let live: u64 = self.works.values().map(Paid::width).sum();
        let leased = state.clusters.nodes().all_leased().count();
        if u64::try_from(leased) != Ok(live) {
            return Some(format!(
                "the state has {leased} leased GPUs, the records {live}"
            ));
        }
        let (_, debited, unfunded) = self.sums(state.spine.time);
        let (funded, free) = used(&state.clusters, state.spine.time);
        let counted = (self.before.0 + debited, self.before.1 + unfunded);
        (counted != (funded, free)).then(|| {
            format!(
                "the state has used {funded} GPU-ms and {free} unfunded, the records {} and {}",
                counted.0, counted.1
            )
        })
    }

    /// Adds the time of a run since its last event.
    fn reach(&mut self, uid: &RunUid, at: Instant) {
        let Some(paid) = self.works.get_mut(uid) else {
            return;
        };
        let length = u128::from(at.since(paid.since).ms());
        paid.since = paid.since.max(at);
        self.occupied += u128::from(paid.width()) * length;
        self.debited += u128::from(paid.funded()) * length;
        self.unfunded += u128::from(paid.free()) * length;
    }

    /// A take, or a refund of the unfunded claim of that number.
    fn fund(&mut self, seq: u64, uid: &RunUid, at: Instant, of: Option<u64>, lines: &[ClaimLine]) {
        let fresh = || Paid {
            since: at,
            ..Paid::default()
        };
        let paid = self.works.entry(uid.clone()).or_insert_with(fresh);
        let mut is_wrong = false;
        for line in lines {
            if let Some(of) = of {
                is_wrong |= !paid.leave_unfunded(of, line.gpus);
            }
            self.meters.add(&line.envelope, line.pool, line.gpus);
            if let Some((_, _, gpus)) = paid.claim(line) {
                *gpus += line.gpus;
                continue;
            }
            self.last += 1;
            let claim = (line.envelope.clone(), line.pool, line.gpus);
            paid.claims.push(claim);
        }
        if is_wrong {
            self.note(seq, uid, "is refunded for an unfunded claim that it lacks");
        }
    }

    fn demote(&mut self, seq: u64, uid: &RunUid, lines: &[ClaimLine]) {
        for line in lines {
            let claim = self.works.get_mut(uid).and_then(|paid| {
                let claim = paid.claim(line)?;
                claim.2 = claim.2.checked_sub(line.gpus)?;
                Some(paid)
            });
            let Some(paid) = claim else {
                self.note(seq, uid, "loses a claim that it does not have");
                continue;
            };
            self.last += 1;
            paid.unfunded.push((self.last, line.gpus));
            paid.claims.retain(|(_, _, gpus)| *gpus > 0);
            self.meters.remove(&line.envelope, line.pool, line.gpus);
        }
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
        paid.pods
            .extend(pods.iter().map(|pod| (pod.pod, pod.clone())));
    }

    fn close(&mut self, seq: u64, uid: &RunUid, pods: &[u64], gpus: u64) {
        let Some(paid) = self.works.get_mut(uid) else {
            self.note(seq, uid, "closes leases that it does not have");
            return;
        };
        let all: Vec<u64> = paid.pods.keys().copied().collect();
        let gone = if pods.is_empty() { &all } else { pods };
        let mut width = 0;
        for pod in gone.iter().filter_map(|pod| paid.pods.remove(pod)) {
            width += pod.width();
            for gpu in pod.ordinals() {
                self.leased.remove(&(pod.node.clone(), gpu));
            }
        }
        for (envelope, pool, gpus) in paid.leave(width) {
            self.meters.remove(&envelope, pool, gpus);
        }
        if width != gpus {
            self.note(seq, uid, "closes another number of GPUs than it says");
        }
    }

    fn note(&mut self, seq: u64, uid: &RunUid, what: &str) {
        let text = format!("record {}: {uid} {what}", number(seq));
        self.wrong.get_or_insert(text);
    }
}

impl Paid {
    fn width(&self) -> u64 {
        self.pods.values().map(Pod::width).sum()
    }

    fn funded(&self) -> u64 {
        self.claims.iter().map(|(_, _, gpus)| gpus).sum()
    }

    fn free(&self) -> u64 {
        self.unfunded.iter().map(|(_, gpus)| gpus).sum()
    }

    /// The claim of a line.
    fn claim(&mut self, line: &ClaimLine) -> Option<&mut (EnvelopeId, Pool, u64)> {
        let mut claims = self.claims.iter_mut();
        claims.find(|(envelope, pool, _)| *envelope == line.envelope && *pool == line.pool)
    }

    /// GPUs that closed leave unfunded claims first, then the newest funded (A1). Returns what left
    /// funded claims.
    fn leave(&mut self, gpus: u64) -> Vec<(EnvelopeId, Pool, u64)> {
        let mut left = gpus;
        while let Some((number, width)) = self.unfunded.last().copied()
            && left > 0
        {
            self.leave_unfunded(number, width.min(left));
            left = left.saturating_sub(width);
        }
        let mut gone = Vec::new();
        while left > 0
            && let Some((envelope, pool, width)) = self.claims.pop()
        {
            gone.push((envelope.clone(), pool, width.min(left)));
            if left < width {
                self.claims.push((envelope, pool, width - left));
            }
            left = left.saturating_sub(width);
        }
        gone
    }

    /// Takes GPUs off an unfunded claim; whether it had them.
    fn leave_unfunded(&mut self, number: u64, gpus: u64) -> bool {
        let mut claims = self.unfunded.iter_mut();
        let claim = claims.find(|(own, width)| *own == number && gpus <= *width);
        let is_there = claim.is_some();
        if let Some((_, width)) = claim {
            *width -= gpus;
        }
        self.unfunded.retain(|(_, width)| *width > 0);
        is_there
    }
}

/// GPU-milliseconds that a state has used, funded and unfunded.
fn used(clusters: &Clusters, now: Instant) -> (u128, u128) {
    let mut used = (0, 0);
    for row in clusters.accounts().usage(now) {
        match row.class {
            Class::Unfunded => used.1 += u128::from(row.gpu_ms),
            _ => used.0 += u128::from(row.gpu_ms),
        }
    }
    used
}
