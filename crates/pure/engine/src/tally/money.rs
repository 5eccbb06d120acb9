//! Independent count of money, from the events alone: occupied GPU-time = debits + unfunded time, to
//! the millisecond, after every record; each day of usage and each epoch of a meter; and no meter or
//! node above its limit after any record.
//!
//! It shares no code with the accounts but the calendar. A run has a width from its leases, and lines from its claims;
//! at each event the time since the last one is added to the sums. Closed GPUs leave unfunded claims
//! first, the newest first, then the newest funded (A1). The sums are compared with the state at the
//! end.

use std::collections::{BTreeMap, BTreeSet};

use bursar_plane::Node;
use bursar_units::words::{count, number};
use bursar_units::{Instant, Label, Millis, ObjectName};

use super::Finding;
use super::meters::Meters;
use crate::State;
use crate::cluster::budget::calendar::days_between;
use crate::cluster::budget::{ClaimLine, Class, EnvelopeId, Funded, Pool, RunUid};
use crate::cluster::nodes::NODE_GPUS_MAX;
use crate::cluster::{Clusters, Event, Pod, Who};

/// Counts of money.
#[derive(Clone, Default)]
pub(super) struct Money {
    works: BTreeMap<RunUid, Paid>,
    leased: BTreeMap<(ObjectName, u32), RunUid>,
    /// Number of the last claim, funded or not.
    last: u64,
    /// GPUs of the declared nodes, if they take runs.
    nodes: BTreeMap<ObjectName, u32>,
    sums: Sums,
    /// GPU-milliseconds by owner, envelope, class and UTC day, with those of the initial state.
    usage: BTreeMap<Used, u128>,
    is_begun: bool,
    /// Runs with an event in the record.
    touched: BTreeSet<RunUid>,
    meters: Meters,
    /// First lease on a GPU that its node does not have or give.
    above: Option<String>,
    /// First violation.
    wrong: Option<String>,
}

/// Owner of a run, envelope that paid, class and UTC day.
type Used = (Label, Option<EnvelopeId>, Class, u64);

/// GPU-milliseconds since the beginning.
#[derive(Clone, Default)]
struct Sums {
    /// Of leases.
    occupied: u128,
    /// Of funded claims.
    debited: u128,
    /// Of unfunded claims.
    unfunded: u128,
}

/// GPUs of a run and their payers.
#[derive(Clone)]
struct Paid {
    owner: Label,
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
            usage: used(clusters, state.spine.time),
            meters: Meters::of(clusters.accounts(), state.spine.time),
            is_begun: clusters.accounts().budgets().next().is_some(),
            ..Self::default()
        };
        for node in state.spine.inventory.iter() {
            money.set_node(node);
        }
        let runs = clusters.runs().filter(|run| run.end.is_none());
        for run in runs.filter(|run| !run.pods.is_empty()) {
            let claims = run.takes().into_iter();
            let claims: Vec<_> = claims
                .map(|take| (take.envelope, take.pool, take.gpus))
                .collect();
            for (envelope, pool, gpus) in &claims {
                money.meters.add(state.spine.time, envelope, *pool, *gpus);
            }
            let unfunded = run.unfunded.iter();
            let paid = Paid {
                owner: run.run.owner.clone(),
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
                self.meters.declare(seq, at, budget);
            }
            Event::BudgetDropped { budget } => self.meters.drop(at, budget),
            Event::EpochClosed { epoch, .. } => self.meters.close(seq, at, epoch),
            Event::RunFunded {
                of,
                claims,
                cause: Funded::Take | Funded::Refund,
                unfunded,
                ..
            } => self.fund(seq, of, at, *unfunded, claims),
            Event::RunFunded { of, claims, .. } => self.promise(seq, &of.uid, claims),
            Event::RunDemoted { of, claims, .. } => self.demote(seq, &of.uid, at, claims),
            Event::LeasesOpened { of, pods, .. } => self.open(seq, of, at, pods),
            Event::LeasesClosed { of, pods, gpus, .. } => {
                self.close(seq, &of.uid, at, pods, *gpus);
            }
            Event::RunEnded { of, .. } => {
                let left = self.works.remove(&of.uid);
                if left.is_some_and(|paid| paid.width() > 0 || paid.paid() > 0) {
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
            if paid.is_some_and(|paid| paid.width() != paid.paid()) {
                self.note(seq, &uid, "has other claims than GPUs");
            }
        }
        self.meters.end_record(seq);
    }

    /// Whether there were budgets or runs.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// First meter or node above its limit.
    pub(super) fn above(&self) -> Option<&String> {
        self.meters.above().or(self.above.as_ref())
    }

    /// A node that was declared or changed.
    pub(super) fn set_node(&mut self, node: &Node) {
        let gpus = u32::try_from(node.gpus).unwrap_or(u32::MAX);
        let gpus = gpus.min(NODE_GPUS_MAX);
        let given = if node.unschedulable { 0 } else { gpus };
        self.nodes.insert(node.name.clone(), given);
    }

    /// A node that was removed.
    pub(super) fn drop_node(&mut self, name: &ObjectName) {
        self.nodes.remove(name);
    }

    /// Result for the state after the events; `None` if there were neither budgets nor runs.
    pub(super) fn finding(&self, state: &State) -> Option<Finding> {
        if !self.is_begun {
            return None;
        }
        let mut all = self.clone();
        all.reach_all(state.spine.time);
        let Sums {
            occupied,
            debited,
            unfunded,
        } = all.sums;
        let shown = |value: u128| number(u64::try_from(value).unwrap_or(u64::MAX));
        let sums = format!(
            "{} GPU-ms leased = {} debited + {} unfunded",
            shown(occupied),
            shown(debited),
            shown(unfunded)
        );
        let wrong = self.wrong.as_ref().or(self.meters.wrong()).cloned();
        if let Some(wrong) = wrong.or_else(|| all.unlike(state)) {
            return Some(Finding::failed("conservation", wrong));
        }
        if occupied != debited.saturating_add(unfunded) {
            let sums = sums.replace('=', "is not");
            return Some(Finding::failed("conservation", sums));
        }
        Some(Finding::passed("conservation", sums))
    }

    /// The first way in which the state differs from the counts, which have reached its time.
    fn unlike(&mut self, state: &State) -> Option<String> {
        let live = self.works.values().map(Paid::width);
        let live = live.fold(0, u64::saturating_add);
        let leased = state.clusters.nodes().all_leased().count();
        if u64::try_from(leased) != Ok(live) {
            return Some(format!(
                "the state has {leased} leased GPUs, the records {live}"
            ));
        }
        let in_state = used(&state.clusters, state.spine.time);
        let keys = in_state.keys().chain(self.usage.keys());
        let of = |usage: &BTreeMap<Used, u128>, key: &Used| usage.get(key).copied().unwrap_or(0);
        let mut rows = keys.map(|key| (key, of(&in_state, key), of(&self.usage, key)));
        let other = rows.find(|(_, in_state, counted)| in_state != counted);
        let other = other.map(|((owner, envelope, class, day), in_state, counted)| {
            let payer = envelope.as_ref().map_or("nobody", EnvelopeId::as_str);
            format!(
                "{owner} has used {in_state} GPU-ms {class} of {payer} on day {day} in the state, \
                 {counted} in the records"
            )
        });
        let accounts = state.clusters.accounts();
        other.or_else(|| self.meters.unlike(accounts, state.spine.time))
    }

    /// Adds the time of all runs.
    fn reach_all(&mut self, now: Instant) {
        let works: Vec<RunUid> = self.works.keys().cloned().collect();
        for uid in works {
            self.reach(&uid, now);
        }
    }

    /// Adds the time of a run since its last event.
    fn reach(&mut self, uid: &RunUid, at: Instant) {
        let Some(paid) = self.works.get_mut(uid) else {
            return;
        };
        let days = days_between(paid.since, at);
        paid.since = paid.since.max(at);
        for (today, length_ms) in days {
            let length = Millis::from_ms(length_ms);
            add(&mut self.sums.occupied, paid.width(), length);
            add(&mut self.sums.debited, paid.funded(), length);
            add(&mut self.sums.unfunded, paid.free(), length);
            let mut used = |payer: Option<&EnvelopeId>, class: Class, gpus: u64| {
                let key = (paid.owner.clone(), payer.cloned(), class, today);
                add(self.usage.entry(key).or_default(), gpus, length);
            };
            for (envelope, pool, gpus) in &paid.claims {
                used(Some(envelope), pool.class(), *gpus);
            }
            if !paid.unfunded.is_empty() {
                used(None, Class::Unfunded, paid.free());
            }
        }
    }

    /// A take, or a refund of the unfunded claim of that number.
    fn fund(&mut self, seq: u64, of: &Who, at: Instant, claim: Option<u64>, lines: &[ClaimLine]) {
        let works = self.works.entry(of.uid.clone());
        let paid = works.or_insert_with(|| Paid::of(of, at));
        let (mut is_wrong, mut foreign) = (false, None);
        for line in lines {
            if !self.meters.permits(&line.envelope, line.pool, &of.owner) {
                foreign.get_or_insert(&line.envelope);
            }
            if let Some(claim) = claim {
                is_wrong |= !paid.leave_unfunded(claim, line.gpus);
            }
            self.meters.add(at, &line.envelope, line.pool, line.gpus);
            if let Some((_, _, gpus)) = paid.claim(line) {
                *gpus = gpus.saturating_add(line.gpus);
                continue;
            }
            self.last += 1;
            let claim = (line.envelope.clone(), line.pool, line.gpus);
            paid.claims.push(claim);
        }
        if is_wrong {
            self.note(
                seq,
                &of.uid,
                "is refunded for an unfunded claim that it lacks",
            );
        }
        if let Some(envelope) = foreign {
            let what = format!("is paid by {envelope}, which may not pay for it");
            self.note(seq, &of.uid, &what);
        }
    }

    /// An extension or an overrun, of whole claims.
    fn promise(&mut self, seq: u64, uid: &RunUid, lines: &[ClaimLine]) {
        for line in lines {
            let claim = self.works.get_mut(uid).and_then(|paid| paid.claim(line));
            if claim.is_none_or(|(_, _, gpus)| *gpus != line.gpus) {
                self.note(
                    seq,
                    uid,
                    "is promised time for a claim that it does not have",
                );
            }
        }
    }

    fn demote(&mut self, seq: u64, uid: &RunUid, at: Instant, lines: &[ClaimLine]) {
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
            let payer = &line.envelope;
            self.meters.remove(at, payer, line.pool, line.gpus);
        }
    }

    fn open(&mut self, seq: u64, of: &Who, at: Instant, pods: &[Pod]) {
        for pod in pods {
            let given = self.nodes.get(&pod.node).copied().unwrap_or(0);
            for gpu in pod.ordinals() {
                if given <= gpu && self.above.is_none() {
                    let node = &pod.node;
                    let (seq, given) = (number(seq), count(given.into(), "GPU"));
                    self.above = Some(format!(
                        "record {seq}: node {node} leases GPU {gpu}, it gives {given}"
                    ));
                }
                let place = (pod.node.clone(), gpu);
                if self.leased.insert(place, of.uid.clone()).is_some() {
                    self.note(seq, &of.uid, "gets a GPU that is leased already");
                }
            }
        }
        let works = self.works.entry(of.uid.clone());
        let paid = works.or_insert_with(|| Paid::of(of, at));
        let pods = pods.iter().map(|pod| (pod.pod, pod.clone()));
        paid.pods.extend(pods);
    }

    fn close(&mut self, seq: u64, uid: &RunUid, at: Instant, pods: &[u64], gpus: u64) {
        let Some(paid) = self.works.get_mut(uid) else {
            self.note(seq, uid, "closes leases that it does not have");
            return;
        };
        let all: Vec<u64> = paid.pods.keys().copied().collect();
        let gone = if pods.is_empty() { &all } else { pods };
        let mut width = 0;
        for pod in gone.iter().filter_map(|pod| paid.pods.remove(pod)) {
            width = pod.width().saturating_add(width);
            for gpu in pod.ordinals() {
                self.leased.remove(&(pod.node.clone(), gpu));
            }
        }
        for (envelope, pool, gpus) in paid.leave(width) {
            self.meters.remove(at, &envelope, pool, gpus);
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
    fn of(who: &Who, since: Instant) -> Self {
        Self {
            owner: who.owner.clone(),
            pods: BTreeMap::new(),
            claims: Vec::new(),
            unfunded: Vec::new(),
            since,
        }
    }

    fn width(&self) -> u64 {
        let widths = self.pods.values().map(Pod::width);
        widths.fold(0, u64::saturating_add)
    }

    fn funded(&self) -> u64 {
        let gpus = self.claims.iter().map(|(_, _, gpus)| *gpus);
        gpus.fold(0, u64::saturating_add)
    }

    fn free(&self) -> u64 {
        let gpus = self.unfunded.iter().map(|(_, gpus)| *gpus);
        gpus.fold(0, u64::saturating_add)
    }

    fn paid(&self) -> u64 {
        self.funded().saturating_add(self.free())
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

/// Adds the GPU-milliseconds of a rectangle.
fn add(sum: &mut u128, gpus: u64, length: Millis) {
    *sum = sum.saturating_add(u128::from(gpus) * u128::from(length.ms()));
}

/// GPU-milliseconds that a state has used.
fn used(clusters: &Clusters, now: Instant) -> BTreeMap<Used, u128> {
    let rows = clusters.accounts().usage(now);
    let rows = rows.map(|row| {
        (
            (row.owner, row.envelope, row.class, row.day),
            row.gpu_ms.into(),
        )
    });
    rows.collect()
}
