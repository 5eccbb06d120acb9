//! A second, naive model of the plane, written from the rules: lists and loops, no indexes. It folds
//! the events and checks each record: who starts, on which GPUs, who pays, and when promises change.
//! It asks the budgets' own functions only for cover and placement, which have naive copies in their
//! own tests.

use std::collections::{BTreeMap, BTreeSet};

use bursar_cluster::budget::cover::{Borrowing, Group, Plan, Request};
use bursar_cluster::budget::placement::{Gang, Host, Hosts, Seating};
use bursar_cluster::budget::spec::GPU_MS_PER_HOUR;
use bursar_cluster::budget::{
    Budget, ClaimLine, Class, Demoted, EnvelopeId, Funded, MeterId, Place, Pool, RunUid, Work,
};
use bursar_cluster::{Clusters, Event, Pod, Reason, Run};
use bursar_plane::Node;
use bursar_plane::inventory::{CLUSTER, DOMAIN, FLAVOR, REGION};
use bursar_units::{Instant, Label, Millis, ObjectName};

use crate::world::{Record, is_recall, is_refund, is_take};

/// A claim that is paid.
#[derive(Clone, Debug)]
struct Claim {
    envelope: EnvelopeId,
    pool: Pool,
    gpus: u64,
    until: Instant,
    overruns: bool,
}

/// A run that has not ended.
#[derive(Clone, Debug)]
struct Live {
    uid: RunUid,
    run: Run,
    pods: Vec<Pod>,
    /// Oldest first.
    claims: Vec<Claim>,
    /// Numbers and widths, earliest first.
    unfunded: Vec<(u64, u64)>,
    since: Instant,
    opened: Instant,
    ending: Option<Reason>,
}

/// GPU time of a meter in its epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    accrued: u128,
    /// Highest limit of this epoch in GPU-milliseconds; `None` if it had none for a while.
    peak: Option<u128>,
}

/// A start that the rules demand: the state before it and its recalls.
struct Turn {
    uid: RunUid,
    plan: Plan,
    seating: Seating,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    budgets: Vec<Budget>,
    /// By submission.
    live: Vec<Live>,
    ended: BTreeSet<RunUid>,
    /// Number of the last claim.
    last: u64,
    /// GPU-milliseconds by (owner, envelope, class).
    used: BTreeMap<(Label, Option<EnvelopeId>, Class), u128>,
    occupied: u128,
    epochs: BTreeMap<MeterId, Epoch>,
    /// Time of the last change of a budget. A promise that ended before it had a deadline ends then.
    declared: Instant,
}

impl Live {
    fn width(&self) -> u64 {
        self.pods.iter().map(Pod::width).sum()
    }
}

impl Model {
    /// Folds the events of a record and checks it. `before` is the plane's state before the record,
    /// `after` the state after it; both are only asked for cover.
    pub(crate) fn take(
        &mut self,
        record: &Record,
        nodes: &BTreeMap<ObjectName, Node>,
        before: &Clusters,
        after: &Clusters,
    ) {
        let mut state = before.clone();
        // State and model before the recalls that a start needs, and these recalls.
        let mut asked: Option<(Clusters, Self)> = None;
        let mut recalls: Vec<&Event> = Vec::new();
        let mut turn: Option<Turn> = None;
        // A record starts once, in the order of the queue before the first start (R7).
        let mut order: Option<Vec<RunUid>> = None;
        // The last refund of a sweep: its time, the place of its run, and its claim.
        let mut refunded: Option<(Instant, usize, u64)> = None;
        for event in &record.events {
            let at = event.time().unwrap_or(record.time);
            assert!(at <= record.time);
            if let Some(turn) = turn.take() {
                turn.check_leases(event);
            }
            if is_recall(event) {
                asked.get_or_insert_with(|| (state.clone(), self.clone()));
                recalls.push(event);
            } else if is_take(event) {
                let (state, model) = asked
                    .take()
                    .unwrap_or_else(|| (state.clone(), self.clone()));
                let uid = event.who().unwrap().uid;
                let queue = || model.queue().into_iter().cloned().collect();
                let order = order.get_or_insert_with(queue);
                let next = model.check_turn(at, (&uid, order), &state, nodes);
                next.check_payers(event, &std::mem::take(&mut recalls));
                turn = Some(next);
            } else {
                assert!(asked.is_none(), "a recall belongs to a start: {event:?}");
            }
            if is_refund(event) {
                let before = refunded.filter(|(last, ..)| *last == at);
                let cursor = before.map(|(_, run, claim)| (run, claim));
                let (run, claim) = self.check_refund((at, event), cursor, &state, nodes);
                refunded = Some((at, run, claim));
            } else if !matches!(event, Event::MeterNear { .. }) {
                refunded = None;
            }
            state.apply(at, event);
            self.fold(at, event, nodes);
            self.check_hours();
        }
        assert!(asked.is_none() && turn.is_none());
        self.check(record.time, after);
    }

    fn fold(&mut self, at: Instant, event: &Event, nodes: &BTreeMap<ObjectName, Node>) {
        self.reach_all(at);
        match event {
            Event::BudgetSet(budget) => {
                self.budgets.retain(|other| other.id() != budget.id());
                self.budgets.push(budget.clone());
                self.declared = at;
                for (meter, limit) in hours(budget) {
                    let new = Epoch {
                        accrued: 0,
                        peak: limit,
                    };
                    let epoch = self.epochs.entry(meter).or_insert(new);
                    epoch.peak = epoch.peak.zip(limit).map(|(peak, limit)| peak.max(limit));
                }
            }
            Event::BudgetDropped { budget } => {
                self.budgets.retain(|other| other.id() != *budget);
                self.declared = at;
            }
            Event::EpochClosed { epoch, .. } => {
                let mut limits = self.budgets.iter().flat_map(hours);
                let limit = limits.find(|(meter, _)| *meter == epoch.meter);
                let own = self.epochs.get_mut(&epoch.meter).unwrap();
                assert_eq!(own.accrued, u128::from(epoch.accrued), "{}", epoch.meter);
                let peak = limit.map_or(Some(0), |(_, limit)| limit);
                *own = Epoch { accrued: 0, peak };
            }
            Event::RunSubmitted { uid, run } => {
                assert!(!self.ended.contains(uid) && self.find(uid).is_none());
                self.live.push(Live {
                    uid: uid.clone(),
                    run: run.clone(),
                    pods: Vec::new(),
                    claims: Vec::new(),
                    unfunded: Vec::new(),
                    since: at,
                    opened: at,
                    ending: None,
                });
            }
            Event::RunEdited { of, edit } => {
                let live = self.find(&of.uid).unwrap();
                live.run = live.run.clone().edited(*edit);
                // No promise goes beyond the hard end.
                let hard_end = live.hard_end().map(|end| end.max(at));
                for claim in live.claims.iter_mut().filter(|claim| !claim.overruns) {
                    claim.until = hard_end.map_or(claim.until, |end| claim.until.min(end));
                }
            }
            Event::RunFunded {
                of,
                claims,
                cause,
                unfunded,
                ..
            } => self.fund(at, &of.uid, claims, (*cause, *unfunded)),
            Event::RunDemoted {
                of, claims, cause, ..
            } => self.demote(at, &of.uid, claims, *cause),
            Event::LeasesOpened { of, pods, .. } => self.open(at, &of.uid, pods, nodes),
            Event::LeasesClosed { of, pods, gpus, .. } => {
                let live = self.find(&of.uid).unwrap();
                let (gone, stay): (Vec<Pod>, Vec<Pod>) = live
                    .pods
                    .drain(..)
                    .partition(|pod| pods.is_empty() || pods.contains(&pod.pod));
                live.pods = stay;
                assert_eq!(gone.iter().map(Pod::width).sum::<u64>(), *gpus);
                live.leave(*gpus);
            }
            Event::RunEnded { of, .. } => {
                let live = self.find(&of.uid).unwrap();
                let left = (live.pods.len(), live.claims.len(), live.unfunded.len());
                assert_eq!(left, (0, 0, 0), "{} ends and keeps something", of.run);
                self.live.retain(|live| live.uid != of.uid);
                self.ended.insert(of.uid.clone());
            }
            Event::RunRunning { of } => {
                assert!(!self.find(&of.uid).unwrap().pods.is_empty());
            }
            Event::RunEnding { of, reason, .. } => {
                let live = self.find(&of.uid).unwrap();
                assert!(!live.pods.is_empty() && live.ending.is_none());
                live.ending = Some(*reason);
            }
            Event::PolicySet(_)
            | Event::MeterNear { .. }
            | Event::PassUnfinished { .. }
            | Event::PassFinished {} => {}
        }
    }

    fn find(&mut self, uid: &RunUid) -> Option<&mut Live> {
        self.live.iter_mut().find(|live| live.uid == *uid)
    }

    /// Adds the time of all runs since the last event.
    fn reach_all(&mut self, at: Instant) {
        for run in 0..self.live.len() {
            self.reach(at, run);
        }
    }

    fn reach(&mut self, at: Instant, run: usize) {
        let live = &mut self.live[run];
        let length = u128::from(at.since(live.since).ms());
        live.since = live.since.max(at);
        let owner = live.run.owner.clone();
        let funded = live.claims.iter().map(|claim| {
            let class = claim.pool.class();
            (Some(claim.envelope.clone()), class, claim.gpus)
        });
        let unfunded = live.unfunded.iter();
        let unfunded = unfunded.map(|(_, gpus)| (None, Class::Unfunded, *gpus));
        for (envelope, class, gpus) in funded.chain(unfunded) {
            let used = self.used.entry((owner.clone(), envelope, class));
            *used.or_default() += u128::from(gpus) * length;
        }
        self.occupied += u128::from(live.width()) * length;
        for claim in &live.claims {
            let gpu_ms = u128::from(claim.gpus) * length;
            for meter in meters(&self.budgets, claim) {
                self.epochs.entry(meter).or_default().accrued += gpu_ms;
            }
        }
    }

    fn fund(
        &mut self,
        at: Instant,
        uid: &RunUid,
        lines: &[ClaimLine],
        (cause, of): (Funded, Option<u64>),
    ) {
        let mut last = self.last;
        let declared = self.declared;
        let live = self.find(uid).unwrap();
        for line in lines {
            let mut claims = live.claims.iter_mut();
            let claim =
                claims.find(|claim| claim.envelope == line.envelope && claim.pool == line.pool);
            match (cause, claim) {
                (Funded::Extension, Some(claim)) => {
                    assert_eq!(claim.gpus, line.gpus);
                    claim.check_end(at, declared);
                    assert!(at < line.until);
                    claim.until = line.until;
                }
                (Funded::Overrun, Some(claim)) => {
                    claim.check_end(at, declared);
                    claim.overruns = true;
                }
                (Funded::Extension | Funded::Overrun, None) => panic!("no such claim"),
                (Funded::Take | Funded::Refund, claim) => {
                    assert_eq!(cause == Funded::Refund, of.is_some());
                    if let Some(of) = of {
                        let mut unfunded = live.unfunded.iter_mut();
                        let (_, gpus) = unfunded.find(|(number, _)| *number == of).unwrap();
                        *gpus -= line.gpus;
                    }
                    if let Some(claim) = claim {
                        claim.gpus += line.gpus;
                    } else {
                        last += 1;
                        live.claims.push(Claim {
                            envelope: line.envelope.clone(),
                            pool: line.pool,
                            gpus: line.gpus,
                            until: line.until,
                            overruns: false,
                        });
                    }
                }
            }
        }
        live.unfunded.retain(|(_, gpus)| *gpus > 0);
        self.last = last;
    }

    fn demote(&mut self, at: Instant, uid: &RunUid, lines: &[ClaimLine], cause: Demoted) {
        let mut last = self.last;
        let declared = self.declared;
        let live = self.find(uid).unwrap();
        for line in lines {
            let mut claims = live.claims.iter_mut();
            let claim = claims
                .find(|claim| claim.envelope == line.envelope && claim.pool == line.pool)
                .unwrap();
            // A promise is never broken by depletion (B2).
            match cause {
                Demoted::Depletion => assert!(claim.overruns, "{uid} at {at:?}"),
                Demoted::PromiseEnd => {
                    assert_ne!(claim.pool, Pool::Own);
                    claim.check_end(at, declared);
                }
                Demoted::Recall => assert_eq!(claim.pool, Pool::Family),
                Demoted::Refit => {}
            }
            // Claims of fixed runs go whole.
            assert_eq!(claim.gpus, line.gpus);
            claim.gpus = 0;
            last += 1;
            live.unfunded.push((last, line.gpus));
        }
        live.claims.retain(|claim| claim.gpus > 0);
        self.last = last;
    }

    /// Leases open on usable nodes, each group in one domain, and on no GPU twice.
    fn open(
        &mut self,
        at: Instant,
        uid: &RunUid,
        pods: &[Pod],
        nodes: &BTreeMap<ObjectName, Node>,
    ) {
        let leased = self.leased();
        let live = self.find(uid).unwrap();
        assert!(live.pods.is_empty());
        let mut groups: BTreeMap<u64, BTreeSet<Place>> = BTreeMap::new();
        for pod in pods {
            let node = &nodes[&pod.node];
            assert!(!node.unschedulable);
            assert_eq!(pod.width(), live.run.pod());
            let place = place(node);
            assert!(live.run.location.matches(&place));
            groups.entry(pod.group).or_default().insert(place);
            for gpu in pod.ordinals() {
                assert!(u64::from(gpu) < node.gpus);
                assert!(!leased.contains(&(pod.node.clone(), gpu)), "leased twice");
            }
        }
        assert!(groups.values().all(|places| places.len() == 1));
        live.pods = pods.to_vec();
        live.opened = at;
        assert_eq!(live.width(), live.run.total_gpus);
    }

    fn leased(&self) -> BTreeSet<(ObjectName, u32)> {
        let pods = self.live.iter().flat_map(|live| &live.pods);
        pods.flat_map(|pod| pod.ordinals().map(|gpu| (pod.node.clone(), gpu)))
            .collect()
    }

    /// Waiting runs: an owner's places are those of its waiting submissions; its runs take them by
    /// falling priority, then submission (R2).
    pub(crate) fn queue(&self) -> Vec<&RunUid> {
        let waiting: Vec<&Live> = self.live.iter().filter(|l| l.pods.is_empty()).collect();
        let mut order: Vec<Option<&RunUid>> = vec![None; waiting.len()];
        let owners: BTreeSet<&Label> = waiting.iter().map(|live| &live.run.owner).collect();
        for owner in owners {
            let places = (0..waiting.len()).filter(|at| waiting[*at].run.owner == *owner);
            let places: Vec<usize> = places.collect();
            let mut runs = places.clone();
            runs.sort_by_key(|at| (-waiting[*at].run.priority, *at));
            for (place, run) in places.into_iter().zip(runs) {
                order[place] = Some(&waiting[run].uid);
            }
        }
        order.into_iter().flatten().collect()
    }

    /// A run starts only if no run before it in the queue can; its seats and payers are returned.
    fn check_turn(
        &self,
        at: Instant,
        (uid, order): (&RunUid, &[RunUid]),
        state: &Clusters,
        nodes: &BTreeMap<ObjectName, Node>,
    ) -> Turn {
        let waiting = self.queue();
        assert!(waiting.contains(&uid) && order.contains(uid));
        let before = order.iter().take_while(|other| *other != uid);
        for other in before.filter(|other| waiting.contains(other)) {
            assert!(
                self.could_start(at, other, state, nodes).is_none(),
                "{other} stands before {uid} and could start"
            );
        }
        let (seating, plan) = self.could_start(at, uid, state, nodes).unwrap();
        let uid = uid.clone();
        Turn { uid, plan, seating }
    }

    /// Seats and payers of a waiting run, if it is placed and covered now (D1).
    pub(crate) fn could_start(
        &self,
        at: Instant,
        uid: &RunUid,
        state: &Clusters,
        nodes: &BTreeMap<ObjectName, Node>,
    ) -> Option<(Seating, Plan)> {
        let run = &self.live.iter().find(|live| live.uid == *uid).unwrap().run;
        let leased = self.leased();
        let mut hosts = Hosts::default();
        for node in nodes.values().filter(|node| !node.unschedulable) {
            let gpus = 0..u32::try_from(node.gpus).unwrap();
            hosts.set(Host {
                name: node.name.clone(),
                place: place(node),
                flavor: Label::new(&node.labels[FLAVOR]).unwrap(),
                free: gpus
                    .filter(|gpu| !leased.contains(&(node.name.clone(), *gpu)))
                    .collect(),
            });
        }
        let size = run.group_gpus.filter(|_| run.spread);
        let size = size.unwrap_or(run.total_gpus);
        let count = usize::try_from(run.total_gpus / size).unwrap();
        let seating = hosts.place(&Gang {
            flavor: run.flavor.clone(),
            location: run.location.clone(),
            pod_gpus: run.pod(),
            groups: vec![size / run.pod(); count],
            spares_per_group: 0,
        });
        let seating = seating?;
        let groups = seating.groups.iter();
        let request = Request {
            groups: groups
                .map(|place| Group {
                    place: place.clone(),
                    gpus: size,
                })
                .collect(),
            duration: stated(run),
            hard_end: run.max_duration.map(|length| at.after(length)),
            ..request(uid, run)
        };
        let plan = state.accounts().plan_recalling(at, &request).ok()?;
        Some((seating, plan))
    }

    /// Unfunded claims in the order of refunding (B5): the place of the run by submission, and the
    /// number of the claim. Work that its used up envelope ends is not refunded.
    fn unfunded(&self) -> Vec<(usize, u64)> {
        let live = self.live.iter().enumerate();
        let live = live.filter(|(_, live)| live.ending != Some(Reason::BudgetEnd));
        live.flat_map(|(run, live)| live.unfunded.iter().map(move |(claim, _)| (run, *claim)))
            .collect()
    }

    /// Whether the payers of an unfunded claim are found now.
    fn could_refund(
        &self,
        at: Instant,
        (run, claim): (usize, u64),
        state: &Clusters,
        nodes: &BTreeMap<ObjectName, Node>,
    ) -> Option<Plan> {
        let live = &self.live[run];
        // The funded GPUs stand first, by pod; then the unfunded claims, earliest first (A1).
        let mut pods: Vec<&Pod> = live.pods.iter().collect();
        pods.sort_by_key(|pod| pod.pod);
        let places = pods
            .into_iter()
            .flat_map(|pod| pod.ordinals().map(|_| place(&nodes[&pod.node])));
        let funded: u64 = live.claims.iter().map(|claim| claim.gpus).sum();
        let before = live.unfunded.iter().filter(|(number, _)| *number < claim);
        let first = funded + before.map(|(_, gpus)| gpus).sum::<u64>();
        let (_, gpus) = live.unfunded.iter().find(|(n, _)| *n == claim).unwrap();
        let places = places.skip(usize::try_from(first).unwrap());
        let mut groups: Vec<Group> = Vec::new();
        for place in places.take(usize::try_from(*gpus).unwrap()) {
            match groups.last_mut() {
                Some(group) if group.place == place => group.gpus += 1,
                _ => groups.push(Group { place, gpus: 1 }),
            }
        }
        let left = stated(&live.run).map(|length| live.opened.after(length).since(at));
        let request = Request {
            groups,
            duration: left.filter(|left| left.ms() > 0),
            hard_end: live.hard_end(),
            ..request(&live.uid, &live.run)
        };
        state.accounts().plan(at, &request).ok()
    }

    /// A refund has the payers of the walk, and comes after those that could be paid. `cursor` is the
    /// last refund of the same sweep.
    fn check_refund(
        &self,
        (at, event): (Instant, &Event),
        cursor: Option<(usize, u64)>,
        state: &Clusters,
        nodes: &BTreeMap<ObjectName, Node>,
    ) -> (usize, u64) {
        let Event::RunFunded {
            of,
            claims,
            unfunded,
            ..
        } = event
        else {
            panic!("{event:?}");
        };
        let run = self.live.iter().position(|live| live.uid == of.uid);
        let own = (run.unwrap(), unfunded.unwrap());
        for other in self.unfunded() {
            if cursor.is_none_or(|cursor| cursor < other) && other < own {
                let plan = self.could_refund(at, other, state, nodes);
                assert!(plan.is_none(), "{other:?} is refunded before {own:?}");
            }
        }
        assert!(cursor.is_none_or(|cursor| cursor < own));
        assert!(self.unfunded().contains(&own));
        let plan = self.could_refund(at, own, state, nodes).unwrap();
        assert_eq!(*claims, plan.lines);
        own
    }

    /// No unfunded claim finds payers now.
    pub(crate) fn check_refunded(
        &self,
        at: Instant,
        state: &Clusters,
        nodes: &BTreeMap<ObjectName, Node>,
    ) {
        for claim in self.unfunded() {
            let plan = self.could_refund(at, claim, state, nodes);
            assert!(plan.is_none(), "{claim:?} could be refunded");
        }
    }

    /// No meter accrues more than its highest limit of the epoch.
    fn check_hours(&self) {
        for (meter, epoch) in &self.epochs {
            let is_within = epoch.peak.is_none_or(|peak| epoch.accrued <= peak);
            assert!(is_within, "{meter} {epoch:?}");
        }
    }

    /// Checks that hold after every record.
    fn check(&mut self, now: Instant, after: &Clusters) {
        let gpus: Vec<(ObjectName, u32)> = self
            .live
            .iter()
            .flat_map(|live| &live.pods)
            .flat_map(|pod| pod.ordinals().map(|gpu| (pod.node.clone(), gpu)))
            .collect();
        let distinct: BTreeSet<_> = gpus.iter().collect();
        assert_eq!(distinct.len(), gpus.len(), "a GPU is leased twice");
        self.reach_all(now);
        self.check_hours();
        for live in &self.live {
            let funded: u64 = live.claims.iter().map(|claim| claim.gpus).sum();
            let unfunded: u64 = live.unfunded.iter().map(|(_, gpus)| gpus).sum();
            assert_eq!(live.width(), funded + unfunded, "{}", live.uid);
        }
        self.check_meters();
        self.check_conservation(now, after);
        let queue: Vec<RunUid> = self.queue().into_iter().cloned().collect();
        assert_eq!(after.queue(), queue);
    }

    /// No envelope, cap or lending pool is above its GPU limit.
    fn check_meters(&self) {
        let gpus = |is_on: &dyn Fn(&Claim) -> bool| -> u64 {
            let claims = self.live.iter().flat_map(|live| &live.claims);
            claims.filter(|c| is_on(c)).map(|c| c.gpus).sum()
        };
        for budget in &self.budgets {
            for spec in &budget.envelopes {
                let id = budget.envelope_id(spec);
                assert!(
                    gpus(&|claim| claim.envelope == id) <= spec.concurrency,
                    "{id}"
                );
                let lent = gpus(&|claim| claim.envelope == id && claim.pool == Pool::Lent);
                let max = spec.lending.as_ref().and_then(|l| l.concurrency_max);
                assert!(max.is_none_or(|max| lent <= max), "lending of {id}");
            }
            for cap in &budget.aggregate_caps {
                let used = gpus(&|claim| cap.envelopes.contains(&claim.envelope));
                assert!(
                    cap.concurrency_max.is_none_or(|max| used <= max),
                    "{}",
                    cap.name
                );
            }
        }
    }

    /// Occupied GPU-time = Σ debits + unfunded time, to the millisecond.
    fn check_conservation(&self, now: Instant, after: &Clusters) {
        let mut used: BTreeMap<(Label, Option<EnvelopeId>, Class), u128> = BTreeMap::new();
        for row in after.accounts().usage(now) {
            let key = (row.owner, row.envelope, row.class);
            *used.entry(key).or_default() += u128::from(row.gpu_ms);
        }
        let mut own = self.used.clone();
        own.retain(|_, gpu_ms| *gpu_ms > 0);
        assert_eq!(used, own);
        assert_eq!(own.values().sum::<u128>(), self.occupied);
    }
}

impl Claim {
    /// A promise is looked at when it ends, and not later; a change of budgets may make an end count
    /// that was of no matter before.
    fn check_end(&self, at: Instant, declared: Instant) {
        assert!(!self.overruns, "an overrunning claim has no promise");
        let is_due = self.until == at || (self.until < at && declared == at);
        assert!(is_due, "{self:?} at {at:?}");
    }
}

impl Turn {
    /// The recalls and the payers are those of the plan.
    fn check_payers(&self, event: &Event, recalls: &[&Event]) {
        let Event::RunFunded { claims, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(*claims, self.plan.lines);
        let demoted = self.plan.recalled.iter();
        let demoted: Vec<_> = demoted
            .map(|demotion| (&demotion.work.run, vec![demotion.line.clone()]))
            .collect();
        let recalls: Vec<_> = recalls
            .iter()
            .map(|event| match event {
                Event::RunDemoted { of, claims, .. } => (&of.uid, claims.clone()),
                _ => panic!("{event:?}"),
            })
            .collect();
        assert_eq!(recalls, demoted);
    }

    /// The leases open at once, on the seats of the placement.
    fn check_leases(&self, event: &Event) {
        let Event::LeasesOpened { of, pods, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(of.uid, self.uid);
        let opened = pods
            .iter()
            .map(|pod| (pod.group, pod.pod, &pod.node, pod.ordinals().collect()));
        let opened: Vec<(u64, u64, &ObjectName, Vec<u32>)> = opened.collect();
        let seats = self.seating.pods.iter();
        let seats = seats.map(|seat| (seat.group, seat.pod, &seat.node, seat.ordinals.clone()));
        assert_eq!(opened, seats.collect::<Vec<_>>());
    }
}

impl Live {
    fn hard_end(&self) -> Option<Instant> {
        self.run
            .max_duration
            .map(|length| self.opened.after(length))
    }

    /// Closed GPUs leave unfunded claims first, then the newest funded (A1).
    fn leave(&mut self, gpus: u64) {
        for _ in 0..gpus {
            if let Some((_, width)) = self.unfunded.last_mut() {
                *width -= 1;
            } else {
                self.claims.last_mut().unwrap().gpus -= 1;
            }
            self.unfunded.retain(|(_, width)| *width > 0);
            self.claims.retain(|claim| claim.gpus > 0);
        }
    }
}

fn place(node: &Node) -> Place {
    let label = |key: &str| Label::new(&node.labels[key]).unwrap();
    Place {
        region: label(REGION),
        cluster: label(CLUSTER),
        domain: label(DOMAIN),
    }
}

/// Length that a run states: the expected one, never beyond its hard limit.
fn stated(run: &Run) -> Option<Millis> {
    match (run.expected_duration, run.max_duration) {
        (Some(expected), Some(max)) => Some(expected.min(max)),
        (expected, max) => expected.or(max),
    }
}

/// Request of a run without groups and length.
fn request(uid: &RunUid, run: &Run) -> Request {
    Request {
        work: Some(Work {
            run: uid.clone(),
            incarnation: 0,
        }),
        owner: run.owner.clone(),
        flavor: run.flavor.clone(),
        groups: Vec::new(),
        duration: None,
        hard_end: None,
        borrowing: Borrowing {
            allow: run.funding.allow_borrow,
            gpus_max: run.funding.borrow_gpus_max,
            sponsors: run.funding.sponsors.clone(),
        },
    }
}

/// The meters that a claim is charged to: its envelope, the lending pool, and the caps that name it.
fn meters(budgets: &[Budget], claim: &Claim) -> Vec<MeterId> {
    let mut list = vec![MeterId::Envelope(claim.envelope.clone())];
    if claim.pool == Pool::Lent {
        list.push(MeterId::Lending(claim.envelope.clone()));
    }
    for budget in budgets {
        let caps = budget.aggregate_caps.iter();
        let caps = caps.filter(|cap| cap.envelopes.contains(&claim.envelope));
        list.extend(caps.map(|cap| MeterId::Cap(budget.cap_id(cap))));
    }
    list
}

/// The limits of the meters of a budget, in GPU-milliseconds.
fn hours(budget: &Budget) -> Vec<(MeterId, Option<u128>)> {
    let gpu_ms = |hours: Option<u64>| Some(u128::from(hours? * GPU_MS_PER_HOUR));
    let mut list = Vec::new();
    for spec in &budget.envelopes {
        let id = budget.envelope_id(spec);
        let lent = spec.lending.as_ref().and_then(|pool| pool.gpu_hours_max);
        list.push((MeterId::Envelope(id.clone()), gpu_ms(spec.gpu_hours_max)));
        list.push((MeterId::Lending(id), gpu_ms(lent)));
    }
    for cap in &budget.aggregate_caps {
        let cap_id = budget.cap_id(cap);
        list.push((MeterId::Cap(cap_id), gpu_ms(cap.gpu_hours_max)));
    }
    list
}
