//! A plane driven as the engine drives it. After every record the state is checked, and compared with
//! a fold of the events and with a state that is restored from its facts.

use std::collections::BTreeMap;

use bursar_cluster::budget::spec::{OnExhaustion, Sharing};
use bursar_cluster::budget::{
    AggregateCap, Budget, BudgetId, Demoted, Envelope, EnvelopeId, Funded, Lending, Pattern,
    RunUid, Selector,
};
use bursar_cluster::fact::Fact;
use bursar_cluster::{
    Change, Clusters, Command, Event, Exit, Funding, Refusal, Reply, Run, Shown, Stage,
};
use bursar_plane::inventory::{CLUSTER, DOMAIN, FLAVOR, REGION};
use bursar_plane::{Class, Decided, Due, Node, Plane, Steps};
use bursar_units::{Instant, Label, Millis, ObjectName, ScopedName};

use crate::naive::Model;

pub(crate) const HOUR: u64 = 3_600_000;

pub(crate) fn at(ms: u64) -> Instant {
    Instant::from_ms(ms)
}

pub(crate) fn ms(length: u64) -> Millis {
    Millis::from_ms(length)
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

pub(crate) fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

pub(crate) fn envelope_id(text: &str) -> EnvelopeId {
    EnvelopeId::new(text).unwrap()
}

pub(crate) fn envelope(text: &str, gpus: u64) -> Envelope {
    Envelope {
        name: name(text),
        flavor: label("h100"),
        selector: Selector::default(),
        concurrency: gpus,
        gpu_hours_max: None,
        start: None,
        end: None,
        renew: None,
        sharing: Sharing::Family,
        lending: None,
        on_exhaustion: OnExhaustion::Demote,
        admission_horizon: None,
    }
}

pub(crate) fn lends(to: &str, gpus_max: Option<u64>) -> Lending {
    Lending {
        allow: true,
        to: vec![Pattern::new(to).unwrap()],
        concurrency_max: gpus_max,
        gpu_hours_max: None,
    }
}

pub(crate) fn cap(text: &str, envelopes: &[&str], gpus: u64) -> AggregateCap {
    AggregateCap {
        name: name(text),
        flavor: label("h100"),
        envelopes: envelopes.iter().map(|text| envelope_id(text)).collect(),
        concurrency_max: Some(gpus),
        gpu_hours_max: None,
        start: None,
        end: None,
        renew: None,
    }
}

/// The budget `OWNER/b`.
pub(crate) fn budget(owner: &str, parents: &[&str], envelopes: Vec<Envelope>) -> Budget {
    Budget {
        namespace: name(owner),
        name: name("b"),
        owner: label(owner),
        parents: parents.iter().map(|text| label(text)).collect(),
        envelopes,
        aggregate_caps: Vec::new(),
        paused: false,
    }
}

/// The run `OWNER/NAME`, in pods of one GPU.
pub(crate) fn run(owner: &str, text: &str, gpus: u64) -> Run {
    Run {
        namespace: name(owner),
        name: name(text),
        owner: label(owner),
        flavor: label("h100"),
        total_gpus: gpus,
        pod_gpus: Some(1),
        group_gpus: None,
        spread: false,
        location: Selector::default(),
        funding: Funding::default(),
        expected_duration: None,
        max_duration: None,
        priority: 0,
        grace: None,
        template: None,
    }
}

pub(crate) fn node(text: &str, place: &str, gpus: u64) -> Node {
    let parts: Vec<&str> = place.split('/').collect();
    let labels = [
        (REGION, parts[0]),
        (CLUSTER, parts[1]),
        (DOMAIN, parts[2]),
        (FLAVOR, "h100"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Node {
        name: name(text),
        cpu_milli: 1_000,
        memory_bytes: 1 << 30,
        gpus,
        labels: BTreeMap::from(labels),
        unschedulable: false,
    }
}

/// One record: its time, its events, and whether a tick made it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) time: Instant,
    pub(crate) events: Vec<Event>,
    pub(crate) is_tick: bool,
}

/// An input of a world. Runs go by name: their identities depend on the number of records.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Node(Node),
    Change(Vec<Change>),
    Command(Command),
    Started(ScopedName),
    Exited(ScopedName, Vec<u64>, Exit),
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clusters: Clusters,
    /// The fold of all events.
    folded: Clusters,
    pub(crate) nodes: BTreeMap<ObjectName, Node>,
    pub(crate) now: Instant,
    pub(crate) records: Vec<Record>,
    /// The inputs that were not refused, with their instants.
    pub(crate) script: Vec<(Instant, Input)>,
    /// Whether starts are reported at once.
    pub(crate) reports_starts: bool,
    /// Whether every record is compared with a fold and a restored state.
    is_compared: bool,
    /// The naive model, if the world has one.
    pub(crate) model: Option<Model>,
}

impl World {
    /// A cluster with one node for each domain, of that many GPUs.
    pub(crate) fn new(domains: &[u64]) -> Self {
        let mut world = Self {
            clusters: Clusters::default(),
            folded: Clusters::default(),
            nodes: BTreeMap::new(),
            now: at(0),
            records: Vec::new(),
            script: Vec::new(),
            reports_starts: true,
            is_compared: true,
            model: None,
        };
        for (number, gpus) in domains.iter().enumerate() {
            world.set_node(node(
                &format!("n{number}"),
                &format!("us/west/d{number}"),
                *gpus,
            ));
        }
        world
    }

    /// The same without the comparisons after each record, for large worlds.
    pub(crate) fn plain(domains: &[u64]) -> Self {
        Self {
            is_compared: false,
            ..Self::new(domains)
        }
    }

    /// Makes a record, unless nothing happens.
    fn record<R>(
        &mut self,
        is_tick: bool,
        act: impl FnOnce(&mut Clusters, &mut Decided<Event>) -> R,
    ) -> R {
        let number = u64::try_from(self.records.len()).unwrap();
        let mut out = Decided::new(self.now, number);
        let result = act(&mut self.clusters, &mut out);
        let events = out.into_list();
        if events.is_empty() {
            return result;
        }
        let before = self.model.is_some().then(|| self.folded.clone());
        for event in &events {
            self.folded.apply(event.time().unwrap_or(self.now), event);
        }
        self.clusters
            .check(self.now)
            .expect("a record keeps the invariants");
        self.records.push(Record {
            time: self.now,
            events,
            is_tick,
        });
        if let (Some(model), Some(before)) = (&mut self.model, before) {
            let record = self.records.last().unwrap();
            model.take(record, &self.nodes, &before, &self.folded);
        }
        self.compare();
        result
    }

    /// A fold of the events, and a state from the facts, are the same state (L12).
    fn compare(&self) {
        if !self.is_compared {
            return;
        }
        let facts = facts(&self.clusters);
        let shown = |clusters: &Clusters| {
            let deadlines = Class::ALL.map(|class| Plane::next_deadline(clusters, class));
            let leased: Vec<(ObjectName, u32, RunUid)> = clusters
                .nodes()
                .all_leased()
                .map(|(node, gpu, uid)| (node.clone(), gpu, uid.clone()))
                .collect();
            let runs: Vec<Shown> = clusters.runs().collect();
            (deadlines, leased, clusters.queue(), runs)
        };
        for (what, other) in [("fold", &self.folded), ("facts", &self.restored())] {
            assert_eq!(facts, self::facts(other), "{what}");
            assert_eq!(shown(&self.clusters), shown(other), "{what}");
        }
    }

    pub(crate) fn restored(&self) -> Clusters {
        let mut restored = Clusters::default();
        for node in self.nodes.values() {
            restored.take_node(&node.name, Some(node));
        }
        for fact in facts(&self.clusters) {
            let line = serde_json::to_string(&fact).unwrap();
            Plane::restore(&mut restored, serde_json::from_str(&line).unwrap());
        }
        restored
    }

    /// The process dies, and the next one begins from the facts.
    pub(crate) fn crash(&mut self) {
        self.clusters = self.restored();
    }

    pub(crate) fn set_node(&mut self, node: Node) {
        self.clusters.take_node(&node.name, Some(&node));
        self.folded.take_node(&node.name, Some(&node));
        self.script.push((self.now, Input::Node(node.clone())));
        self.nodes.insert(node.name.clone(), node);
        let now = self.now;
        self.record(false, |clusters, out| {
            clusters.stir();
            Plane::settle(clusters, now, out);
        });
        self.report_starts();
    }

    pub(crate) fn change(&mut self, changes: &[Change]) -> Result<(), Refusal> {
        let list: Vec<&Change> = changes.iter().collect();
        self.clusters.check_changes(self.now, &list)?;
        let now = self.now;
        self.record(false, |clusters, out| {
            for change in changes {
                Plane::change(clusters, now, change, out);
            }
            // The engine settles with events of its own.
            let mut settled = Decided::new(now, out.record());
            Plane::settle(clusters, now, &mut settled);
            for event in settled.into_list() {
                out.push(event);
            }
        });
        self.script.push((now, Input::Change(changes.to_vec())));
        self.report_starts();
        Ok(())
    }

    pub(crate) fn set(&mut self, budget: Budget) {
        self.change(&[Change::SetBudget(budget)]).unwrap();
    }

    pub(crate) fn drop_budget(&mut self, text: &str) -> Result<(), Refusal> {
        let budget = BudgetId::new(text).unwrap();
        self.change(&[Change::DropBudget { budget }])
    }

    pub(crate) fn submit(&mut self, run: Run) {
        self.change(&[Change::SetRun(run)]).unwrap();
    }

    pub(crate) fn command(&mut self, command: &Command) -> Result<Reply, Refusal> {
        let input = self.input(command);
        let reply = self.decide(command);
        if reply.is_ok() {
            self.script.push((self.now, input));
        }
        self.report_starts();
        reply
    }

    fn input(&self, command: &Command) -> Input {
        let run = |uid| self.clusters.run(uid).unwrap().run.id();
        match command.clone() {
            Command::RunStarted { uid, .. } => Input::Started(run(&uid)),
            Command::RunExited {
                uid, pods, exit, ..
            } => Input::Exited(run(&uid), pods, exit),
            Command::CancelRun { run, .. } => Input::Command(Command::CancelRun { run, uid: None }),
            other => Input::Command(other),
        }
    }

    fn decide(&mut self, command: &Command) -> Result<Reply, Refusal> {
        let now = self.now;
        self.record(false, |clusters, out| {
            Plane::decide(clusters, now, command, out)
        })
    }

    /// Plays an input of a script; whether it was not refused.
    pub(crate) fn play(&mut self, input: &Input) -> bool {
        let command = match input {
            Input::Node(node) => {
                self.set_node(node.clone());
                return true;
            }
            Input::Change(changes) => return self.change(changes).is_ok(),
            Input::Command(command) => command.clone(),
            Input::Started(run) | Input::Exited(run, ..) => {
                let Some(uid) = self.clusters.uid(run).cloned() else {
                    return false;
                };
                let incarnation = 0;
                match input {
                    Input::Exited(_, pods, exit) => Command::RunExited {
                        uid,
                        incarnation,
                        pods: pods.clone(),
                        exit: exit.clone(),
                    },
                    _ => Command::RunStarted { uid, incarnation },
                }
            }
        };
        self.command(&command).is_ok()
    }

    pub(crate) fn cancel(&mut self, text: &str) -> Reply {
        let run = ScopedName::new(text).unwrap();
        self.command(&Command::CancelRun { run, uid: None })
            .unwrap()
    }

    pub(crate) fn rotate(&mut self, text: &str) -> Result<Reply, Refusal> {
        let envelope = envelope_id(text);
        self.command(&Command::RotateEnvelope {
            envelope,
            idempotency: None,
            reason: None,
        })
    }

    pub(crate) fn started(&mut self, text: &str) {
        let (uid, incarnation) = (self.uid(text), 0);
        self.command(&Command::RunStarted { uid, incarnation })
            .unwrap();
    }

    pub(crate) fn exited(
        &mut self,
        text: &str,
        pods: &[u64],
        exit: Exit,
    ) -> Result<Reply, Refusal> {
        self.command(&Command::RunExited {
            uid: self.uid(text),
            incarnation: 0,
            pods: pods.to_vec(),
            exit,
        })
    }

    fn report_starts(&mut self) {
        let incarnation = 0;
        while self.reports_starts
            && let Some(uid) = self.first_start()
        {
            self.decide(&Command::RunStarted { uid, incarnation })
                .unwrap();
        }
    }

    fn first_start(&self) -> Option<RunUid> {
        let mut runs = self.clusters.runs();
        let starting = runs.find(|run| run.stage == Stage::Starting);
        starting.map(|run| run.uid)
    }

    /// The earliest deadline, or the instant since which starting is owed.
    pub(crate) fn next(&self) -> Option<Instant> {
        let classes = Class::ALL.into_iter();
        let deadlines = classes.filter_map(|class| Plane::next_deadline(&self.clusters, class));
        deadlines.chain(Plane::owed_last(&self.clusters)).min()
    }

    /// Ticks until nothing is due.
    pub(crate) fn tick(&mut self) {
        let mut ticks = 0;
        while self.next().is_some_and(|next| next <= self.now) {
            self.tick_of(None);
            self.report_starts();
            ticks += 1;
            assert!(ticks < 10_000, "time stands still at {:?}", self.next());
        }
    }

    pub(crate) fn tick_of(&mut self, class: Option<Class>) {
        // Ticks before a resume leave the deadlines of now to the tick after it.
        let before = class.map_or(0, |_| 1);
        let until = self.now.before(ms(before));
        let due = Due { until, class };
        self.record(true, |clusters, out| {
            let steps = &mut { Steps::FULL };
            Plane::tick(clusters, due, &|_| None, steps, out);
            Plane::finish(clusters, due, steps, out);
        });
    }

    /// Goes to an instant, with a tick `late` after each deadline.
    pub(crate) fn go_late(&mut self, until: Instant, late: u64) {
        while let Some(next) = self.next()
            && next.after(ms(late)) <= until
        {
            self.now = next.after(ms(late)).max(self.now);
            self.tick();
        }
        self.now = until;
        self.tick();
    }

    /// Goes to an instant, with a tick at each deadline.
    pub(crate) fn go(&mut self, until: u64) {
        self.go_late(at(until), 0);
    }

    /// The server is away until an instant: money moves, then it resumes, then it starts (L5).
    pub(crate) fn away(&mut self, until: u64) {
        self.now = at(until);
        while Plane::next_deadline(&self.clusters, Class::Clock).is_some_and(|next| next < self.now)
        {
            self.tick_of(Some(Class::Clock));
        }
        self.clusters.resume(self.now);
        self.folded.resume(self.now);
        self.tick();
    }

    pub(crate) fn uid(&self, text: &str) -> RunUid {
        let run = ScopedName::new(text).unwrap();
        self.clusters.uid(&run).unwrap().clone()
    }

    pub(crate) fn shown(&self, text: &str) -> Shown {
        self.clusters.run(&self.uid(text)).unwrap()
    }

    pub(crate) fn stage(&self, text: &str) -> Stage {
        self.shown(text).stage
    }

    /// All events with their times.
    pub(crate) fn dated(&self) -> impl Iterator<Item = (Instant, &Event)> {
        self.records.iter().flat_map(|record| {
            let events = record.events.iter();
            events.map(|event| (event.time().unwrap_or(record.time), event))
        })
    }

    /// The events that move money, each as `TIME TEXT`.
    pub(crate) fn money(&self) -> Vec<String> {
        let events = self.dated();
        events
            .filter_map(|(at, event)| Some(format!("{} {}", at.ms(), money(event)?)))
            .collect()
    }
}

pub(crate) fn facts(clusters: &Clusters) -> Vec<Fact> {
    Plane::facts(clusters, 2).collect()
}

/// A word and the numbers of an event that moves money or GPUs.
pub(crate) fn money(event: &Event) -> Option<String> {
    match event {
        Event::EpochClosed { epoch, .. } => {
            Some(format!("closed {} {}", epoch.meter, epoch.accrued))
        }
        Event::MeterNear { near, .. } => Some(format!(
            "near {} {} {}",
            near.meter, near.dimension, near.percent
        )),
        Event::RunFunded {
            of, claims, cause, ..
        } => {
            let claims = claims.iter().map(|claim| {
                let (name, gpus, until) = (claim.envelope.name(), claim.gpus, claim.until.ms());
                format!("{name} {gpus} until {until}")
            });
            let claims: Vec<String> = claims.collect();
            Some(format!("{cause} {} {}", of.run, claims.join(", ")))
        }
        Event::RunDemoted {
            of, claims, cause, ..
        } => {
            let claims = claims.iter();
            let claims = claims.map(|claim| format!("{} {}", claim.envelope.name(), claim.gpus));
            let claims: Vec<String> = claims.collect();
            Some(format!("demoted {} {} {cause}", of.run, claims.join(", ")))
        }
        Event::RunEnding { of, reason, .. } => Some(format!("ending {} {reason}", of.run)),
        Event::LeasesClosed {
            of, gpus, reason, ..
        } => Some(format!("closed {} {gpus} {reason}", of.run)),
        Event::PassUnfinished { .. } => Some("unfinished".to_owned()),
        _ => None,
    }
}

pub(crate) fn is_take(event: &Event) -> bool {
    matches!(event, Event::RunFunded { cause, .. } if *cause == Funded::Take)
}

pub(crate) fn is_refund(event: &Event) -> bool {
    matches!(event, Event::RunFunded { cause, .. } if *cause == Funded::Refund)
}

pub(crate) fn is_recall(event: &Event) -> bool {
    matches!(event, Event::RunDemoted { cause, .. } if *cause == Demoted::Recall)
}
