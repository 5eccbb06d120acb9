//! Simulated runs on virtual time: start, end, stop, and a server that is away.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_engine::cluster::{self, Exit, Outcome, Policy, Reason, Shown, Stage};
use bursar_engine::{Change, Command, State, spine};
use bursar_ledger::clock::Clock;
use bursar_ledger::data::signs_with;
use bursar_ledger::key::Signer;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::store::memory::{Fault, MemoryStore};
use bursar_ledger::term::{Hand, begin};
use bursar_ledger::writer::own_principal;
use bursar_server::policy;
use bursar_server::runs::{Attendant, Simulated};
use bursar_units::{Instant, Millis, ScopedName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::world::{LEDGER, Quiet, RuntimeClock};

/// A store and a machine of runs, with a server that can be away.
struct Scene {
    clock: Arc<dyn Clock>,
    store: MemoryStore,
    machine: Arc<Simulated>,
    directory: TempDir,
    term: Option<Term>,
}

struct Term {
    ledger: Ledger,
    tasks: Vec<JoinHandle<()>>,
}

impl Scene {
    /// A scene with a node of eight GPUs and an envelope for all of them.
    async fn new() -> Self {
        let mut scene = Self {
            clock: Arc::new(RuntimeClock(tokio::time::Instant::now())),
            store: MemoryStore::new(),
            machine: Arc::default(),
            directory: tempfile::tempdir().unwrap(),
            term: None,
        };
        scene.begin();
        let labels = json!({"topology.kubernetes.io/region": "west", "bursar.dev/cluster": "one",
            "bursar.dev/domain": "rack", "bursar.dev/flavor": "h100"});
        let node = json!({"name": "a01", "cpuMilli": 96_000, "memoryBytes": 1, "gpus": 8,
            "labels": labels});
        let budget = json!({"namespace": "default", "name": "lab", "owner": "lab", "envelopes":
            [{"name": "h100", "flavor": "h100", "concurrency": 8}]});
        let node = spine::Change::SetNode(serde_json::from_value(node).unwrap());
        let budget = cluster::Change::SetBudget(serde_json::from_value(budget).unwrap());
        scene.change(vec![node.into(), budget.into()]).await;
        scene
    }

    /// Begins a term with an attendant of runs.
    fn begin(&mut self) {
        self.begin_alone();
        let term = self.term.as_mut().unwrap();
        let attendant = Attendant::new(term.ledger.clone(), Arc::clone(&self.machine));
        term.tasks.push(tokio::spawn(attendant.run()));
    }

    /// Begins a term in which nobody attends runs.
    fn begin_alone(&mut self) {
        let key = self.directory.path().join("ledger.key");
        let hand = |id: &str, generation| {
            if !key.exists() {
                Signer::create_new(&key, id, generation)?.promote_new()?;
            }
            let signer = Signer::load_for(&key, id, generation)?;
            let verifiers = signer.verifiers();
            let sign = signs_with(Arc::new(Mutex::new(signer)), Arc::clone(&self.clock));
            Ok(Hand { verifiers, sign })
        };
        let store = Box::new(self.store.clone());
        let begun = begin(
            store,
            State::default(),
            &self.clock,
            || LEDGER.to_owned(),
            hand,
            |_, _| {},
        );
        let clock = Arc::clone(&self.clock);
        let (ledger, stages) = Ledger::inline(begun.unwrap(), clock, Arc::new(Quiet));
        let tasks = vec![tokio::spawn(stages.run())];
        self.term = Some(Term { ledger, tasks });
    }

    /// The server is gone for that long; then a term begins.
    async fn away(&mut self, length: Duration) {
        self.stop().await;
        tokio::time::sleep(length).await;
        self.begin();
    }

    async fn stop(&mut self) {
        for task in self.term.take().unwrap().tasks {
            task.abort();
            let _aborted = task.await;
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.term.as_ref().unwrap().ledger
    }

    async fn send(&self, command: impl Into<Command>) {
        let sent = self.ledger().submit(own_principal(), vec![command.into()]);
        for outcome in sent.await.unwrap() {
            outcome.result.unwrap();
        }
    }

    async fn change(&self, changes: Vec<Change>) {
        let expect = Vec::new();
        self.send(spine::Command::Change { changes, expect }).await;
    }

    /// Submits a run of four GPUs with more fields.
    async fn submit(&self, name: &str, more: Value) {
        let mut run = json!({"namespace": "default", "name": name, "owner": "lab",
            "flavor": "h100", "totalGPUs": 4, "podGPUs": 2});
        let fields = more.as_object().unwrap().clone();
        run.as_object_mut().unwrap().extend(fields);
        let run = cluster::Change::SetRun(serde_json::from_value(run).unwrap());
        self.change(vec![run.into()]).await;
    }

    async fn cancel(&self, name: &str) {
        let run = id(name);
        self.send(cluster::Command::CancelRun { run, uid: None })
            .await;
    }

    fn run(&self, name: &str) -> Shown {
        let state = self.ledger().view().read();
        state.clusters.run_named(&id(name)).unwrap()
    }

    /// Waits, on virtual time, until a run is at a stage.
    async fn until(&self, name: &str, stage: Stage) -> Shown {
        let waiting = async {
            let mut head = self.ledger().view().head();
            while self.run(name).stage != stage {
                head.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_hours(1_000), waiting).await;
        assert!(waited.is_ok(), "{name} is {:?}", self.run(name));
        self.run(name)
    }

    /// Waits for the end of a run; its cause, and the time from the opening of its leases.
    async fn ended(&self, name: &str) -> (Reason, Millis) {
        let shown = self.until(name, Stage::Ended).await;
        let end = shown.end.unwrap();
        (end.reason, end.at.since(shown.started.unwrap()))
    }

    fn now(&self) -> Instant {
        self.ledger().now()
    }
}

fn id(name: &str) -> ScopedName {
    ScopedName::new(&format!("default/{name}")).unwrap()
}

fn seconds(seconds: u64) -> Millis {
    Millis::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_run_starts_at_once_and_ends_after_its_expected_duration() {
    let scene = Scene::new().await;
    let before = scene.ledger().view().read().spine.head;
    scene
        .submit("a", json!({"expectedDurationMs": 90_061_007}))
        .await;
    let began = scene.now();
    assert_eq!(
        scene.until("a", Stage::Running).await.running,
        Some(began),
        "the start takes no time"
    );
    let ended = scene.ended("a").await;
    assert_eq!(ended, (Reason::Completed, Millis::from_ms(90_061_007)));
    let head = scene.ledger().view().read().spine.head;
    assert_eq!(head - before, 3, "submitted, running, ended");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_one_run_starts_the_next_whose_time_begins_then() {
    let scene = Scene::new().await;
    let wide = json!({"totalGPUs": 8, "expectedDurationMs": 60_000});
    scene.submit("a", wide.clone()).await;
    scene.submit("b", wide).await;
    let first = scene.ended("a").await;
    let second = scene.ended("b").await;
    assert_eq!(first, (Reason::Completed, seconds(60)));
    assert_eq!(second, first);
    let (a, b) = (scene.run("a"), scene.run("b"));
    assert_eq!(b.started, Some(a.end.unwrap().at));
}

#[tokio::test(start_paused = true)]
async fn a_run_without_an_expected_duration_goes_on_until_it_is_stopped_with_its_grace() {
    let scene = Scene::new().await;
    scene.submit("a", json!({"graceMs": 7_000})).await;
    scene.until("a", Stage::Running).await;
    tokio::time::sleep(Duration::from_hours(500)).await;
    assert_eq!(scene.run("a").stage, Stage::Running);
    scene.cancel("a").await;
    let ended = scene.ended("a").await;
    let length = Millis::from_ms(Millis::from_hours(500).ms() + 7_000);
    assert_eq!(ended, (Reason::Cancelled, length));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_may_end_by_itself_before_its_deadline() {
    let scene = Scene::new().await;
    let fields = json!({"graceMs": 30_000, "expectedDurationMs": 10_000});
    scene.submit("a", fields).await;
    scene.until("a", Stage::Running).await;
    scene.cancel("a").await;
    assert_eq!(
        scene.ended("a").await,
        (Reason::Cancelled, seconds(10)),
        "it says why it was stopped"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hard_limit_is_kept_to_the_millisecond() {
    let scene = Scene::new().await;
    let fields = json!({"maxDurationMs": 100_001, "expectedDurationMs": 200_000});
    scene.submit("a", fields).await;
    let ended = scene.ended("a").await;
    assert_eq!(ended, (Reason::Walltime, Millis::from_ms(100_001)));
}

#[tokio::test(start_paused = true)]
async fn ends_and_overruns_by_hand() {
    let scene = Scene::new().await;
    scene
        .submit("a", json!({"expectedDurationMs": 60_000}))
        .await;
    scene
        .submit("b", json!({"expectedDurationMs": 60_000}))
        .await;
    let a = scene.until("a", Stage::Running).await;
    let b = scene.until("b", Stage::Running).await;
    scene.machine.overrun(a.uid.clone(), a.incarnation, None);
    let longer = Some(seconds(5));
    scene.machine.overrun(b.uid, b.incarnation, longer);
    assert_eq!(scene.ended("b").await, (Reason::Completed, seconds(65)));
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert_eq!(scene.run("a").stage, Stage::Running);
    let failed = Exit::Failed { code: Some(3) };
    scene.machine.end(a.uid, a.incarnation, failed);
    assert_eq!(scene.ended("a").await, (Reason::Failed, seconds(100)));
    let end = scene.run("a").end.unwrap();
    assert_eq!((end.outcome, end.code), (Outcome::Failed, Some(3)));
}

#[tokio::test(start_paused = true)]
async fn an_end_while_the_server_is_away_is_recorded_at_its_return() {
    let mut scene = Scene::new().await;
    scene
        .submit("a", json!({"expectedDurationMs": 60_000}))
        .await;
    scene
        .submit("b", json!({"expectedDurationMs": 600_000}))
        .await;
    scene.until("b", Stage::Running).await;
    scene.away(Duration::from_mins(2)).await;
    assert_eq!(scene.ended("a").await, (Reason::Completed, seconds(120)));
    assert_eq!(
        scene.ended("b").await,
        (Reason::Completed, seconds(600)),
        "a restart does not move the other"
    );
}

#[tokio::test(start_paused = true)]
async fn words_by_hand_outlive_the_server() {
    let mut scene = Scene::new().await;
    scene
        .submit("a", json!({"expectedDurationMs": 60_000}))
        .await;
    let a = scene.until("a", Stage::Running).await;
    scene
        .machine
        .overrun(a.uid, a.incarnation, Some(seconds(60)));
    scene.away(Duration::from_secs(100)).await;
    assert_eq!(scene.ended("a").await, (Reason::Completed, seconds(120)));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_not_reported_is_reported_by_the_next_term() {
    let mut scene = Scene::new().await;
    scene.stop().await;
    scene.begin_alone();
    scene
        .submit("a", json!({"expectedDurationMs": 5_000}))
        .await;
    scene
        .submit("b", json!({"expectedDurationMs": 50_000}))
        .await;
    assert_eq!(scene.run("a").stage, Stage::Starting);
    scene.away(Duration::from_secs(10)).await;
    assert_eq!(scene.ended("a").await, (Reason::Completed, seconds(10)));
    assert!(scene.run("a").running.is_some(), "it has run");
    scene.until("b", Stage::Running).await;
    assert_eq!(scene.ended("b").await, (Reason::Completed, seconds(50)));
}

#[tokio::test(start_paused = true)]
async fn a_result_is_submitted_until_the_store_accepts_it() {
    let scene = Scene::new().await;
    scene
        .submit("a", json!({"expectedDurationMs": 60_000}))
        .await;
    scene.until("a", Stage::Running).await;
    for fault in [Fault::Error, Fault::CommitThenError, Fault::Error] {
        scene.store.inject(fault);
    }
    let (reason, length) = scene.ended("a").await;
    assert_eq!(reason, Reason::Completed);
    assert!(
        (60_000..70_000).contains(&length.ms()),
        "{length:?} is not soon after its end"
    );
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_runs_end_in_time() {
    let scene = Scene::new().await;
    // More than a subscriber may lag behind, and more than one report holds.
    for number in 0..600 {
        let fields = json!({"totalGPUs": 8, "podGPUs": 8, "expectedDurationMs": 1_000});
        scene.submit(&format!("run-{number}"), fields).await;
    }
    let last = scene.until("run-599", Stage::Ended).await;
    let first = scene.run("run-0").started.unwrap();
    assert_eq!(last.end.unwrap().at.since(first), seconds(600));
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_recorded_once_and_follows_its_file() {
    let scene = Scene::new().await;
    let head = || scene.ledger().view().read().spine.head;
    let before = head();
    let record = async |wanted: &Policy| policy::record(scene.ledger(), wanted).await.unwrap();
    record(&Policy::default()).await;
    assert_eq!(head(), before, "the default needs no record");
    let patient = Policy {
        patience: Millis::from_hours(23),
        ..Policy::default()
    };
    record(&patient).await;
    record(&patient).await;
    assert_eq!(head(), before + 1);
    record(&Policy::default()).await;
    assert_eq!(head(), before + 2, "the recorded policy follows");
    let state = scene.ledger().view().read();
    assert_eq!(*state.clusters.policy(), Policy::default());
}
