//! A second, naive model of the plane, written from the rules: lists and loops, no indexes. It folds
//! the events and checks each record. It asks the budgets' own functions only for cover and placement,
//! which have naive copies in their own tests.

use std::collections::{BTreeMap, BTreeSet};

use bursar_cluster::budget::cover::{Borrowing, Group, Request};
use bursar_cluster::budget::placement::{Gang, Host, Hosts};
use bursar_cluster::budget::{
    Budget, ClaimLine, Class, Demoted, EnvelopeId, Funded, Place, Pool, RunUid, Work,
};
use bursar_cluster::{Clusters, Event, Pod, Run};
use bursar_plane::Node;
use bursar_plane::inventory::{CLUSTER, DOMAIN, FLAVOR, REGION};
use bursar_units::{Instant, Label, ObjectName};

use crate::world::{Record, is_recall, is_take};

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
        // State and model before the recalls that a start needs.
        let mut asked: Option<(Clusters, Self)> = None;
        // A record starts once, in the order of the queue before the first start (R7).
        let mut order: Option<Vec<RunUid>> = None;
        for event in &record.events {
            let at = event.time().unwrap_or(record.time);
            assert!(at <= record.time);
            if is_recall(event) {
                asked.get_or_insert_with(|| (state.clone(), self.clone()));
            }
            if is_take(event) {
                let (state, model) = asked
                    .take()
                    .unwrap_or_else(|| (state.clone(), self.clone()));
                let uid = &event.who().unwrap().uid;
                let queue = || model.queue().into_iter().cloned().collect();
                let order = order.get_or_insert_with(queue);
                model.check_turn(at, (uid, order), &state, nodes);
            }
            state.apply(at, event);
            self.fold(at, event, nodes);
        }
        self.check(record.time, after);
    }

    fn fold(&mut self, at: Instant, event: &Event, nodes: &BTreeMap<ObjectName, Node>) {
        if let Some(who) = event.who() {
            self.reach(at, &who.uid);
        }
        match event {
            Event::BudgetSet(budget) => {
                self.budgets.retain(|other| other.id() != budget.id());
                self.budgets.push(budget.clone());
            }
            Event::BudgetDropped { budget } => {
                self.budgets.retain(|other| other.id() != *budget);
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
                });
            }
            Event::RunEdited { of, edit } => {
                let live = self.find(&of.uid).unwrap();
                live.run = live.run.clone().edited(*edit);
                // No promise goes beyond the hard end.
            }
            Event::RunFunded {
                of,
                claims,
                cause,
                unfunded,
                ..
            } => self.fund(&of.uid, claims, *cause, *unfunded),
            Event::RunDemoted {
                of, claims, cause, ..
            } => self.demote(at, &of.uid, claims, *cause),
            Event::LeasesOpened { of, pods, .. } => self.open(&of.uid, pods, nodes),
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
            Event::RunRunning { of } | Event::RunEnding { of, .. } => {
                assert!(!self.find(&of.uid).unwrap().pods.is_empty());
            }
            Event::PolicySet(_)
            | Event::EpochClosed { .. }
            | Event::MeterNear { .. }
            | Event::PassUnfinished { .. }
            | Event::PassFinished {} => {}
        }
    }

    fn find(&mut self, uid: &RunUid) -> Option<&mut Live> {
        self.live.iter_mut().find(|live| live.uid == *uid)
    }

    /// Adds the time of a run since its last event.
    fn reach(&mut self, at: Instant, uid: &RunUid) {
        let Some(live) = self.live.iter_mut().find(|live| live.uid == *uid) else {
            return;
        };
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
    }

    fn fund(&mut self, uid: &RunUid, lines: &[ClaimLine], cause: Funded, of: Option<u64>) {
        let mut last = self.last;
        let live = self.find(uid).unwrap();
        for line in lines {
            let mut claims = live.claims.iter_mut();
            let claim =
                claims.find(|claim| claim.envelope == line.envelope && claim.pool == line.pool);
            match (cause, claim) {
                (Funded::Extension, Some(claim)) => {
                    assert_eq!(claim.gpus, line.gpus);
                    assert!(!claim.overruns, "an overrunning claim is never extended");
                    claim.until = line.until;
                }
                (Funded::Overrun, Some(claim)) => claim.overruns = true,
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
        let live = self.find(uid).unwrap();
        for line in lines {
            let mut claims = live.claims.iter_mut();
            let claim = claims
                .find(|claim| claim.envelope == line.envelope && claim.pool == line.pool)
                .unwrap();
            // A promise is never broken by depletion (B2).
            match cause {
                Demoted::Depletion => assert!(claim.overruns, "{uid} at {at:?}"),
                Demoted::PromiseEnd => assert_ne!(claim.pool, Pool::Own),
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
    fn open(&mut self, uid: &RunUid, pods: &[Pod], nodes: &BTreeMap<ObjectName, Node>) {
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

    /// A run starts only if no run before it in the queue can.
    fn check_turn(
        &self,
        at: Instant,
        (uid, order): (&RunUid, &[RunUid]),
        state: &Clusters,
        nodes: &BTreeMap<ObjectName, Node>,
    ) {
        let waiting = self.queue();
        assert!(waiting.contains(&uid) && order.contains(uid));
        let before = order.iter().take_while(|other| *other != uid);
        for other in before.filter(|other| waiting.contains(other)) {
            assert!(
                !self.could_start(at, other, state, nodes),
                "{other} stands before {uid} and could start"
            );
        }
    }

    /// Whether a waiting run is placed and covered now (D1).
    pub(crate) fn could_start(
        &self,
        at: Instant,
        uid: &RunUid,
        state: &Clusters,
        nodes: &BTreeMap<ObjectName, Node>,
    ) -> bool {
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
        let Some(seating) = seating else { return false };
        let groups = seating.groups.into_iter();
        let request = Request {
            work: Some(Work {
                run: uid.clone(),
                incarnation: 0,
            }),
            owner: run.owner.clone(),
            flavor: run.flavor.clone(),
            groups: groups.map(|place| Group { place, gpus: size }).collect(),
            duration: run.expected_duration.or(run.max_duration),
            hard_end: run.max_duration.map(|length| at.after(length)),
            borrowing: Borrowing {
                allow: run.funding.allow_borrow,
                gpus_max: run.funding.borrow_gpus_max,
                sponsors: run.funding.sponsors.clone(),
            },
        };
        state.accounts().plan_recalling(at, &request).is_ok()
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
        let uids: Vec<RunUid> = self.live.iter().map(|live| live.uid.clone()).collect();
        for uid in &uids {
            self.reach(now, uid);
        }
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

impl Live {
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
