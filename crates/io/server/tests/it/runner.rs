//! The runner over a ledger in memory, with an executor that does what the test says (X2, X5).

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_engine::booking::execution::{Exit, Isolation, Order, Stage, Verdict};
use bursar_engine::booking::{self, Reply, Request, Standing, Submission};
use bursar_engine::{Answer, Command, Refusal, spine};
use bursar_journal::hash::Hash;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::store::memory::Fault;
use bursar_node::executor::{Begun, Doing, Error, Executor, Job, Left, Life, Output, Stream, Work};
use bursar_server::runner::{Counts, Runner};
use bursar_units::{BookingId, Label, Millis};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::world::World;

/// A machine whose processes do what the test says.
#[derive(Default)]
struct Machine {
    state: Mutex<MachineState>,
    changed: Notify,
}

#[derive(Default)]
struct MachineState {
    /// Processes, with the exit of those that ended.
    processes: BTreeMap<BookingId, Option<Exit>>,
    /// Number of starts per id, which must be 1.
    begun: BTreeMap<BookingId, u32>,
    /// Processes that ignore every stop.
    stubborn: BTreeSet<BookingId>,
    /// Number of stops per process.
    stops: BTreeMap<BookingId, u32>,
    /// Directories without a known process.
    residue: BTreeSet<BookingId>,
    /// Note of each started job.
    notes: BTreeMap<BookingId, String>,
    /// Processes without a shim.
    unwatched: BTreeSet<BookingId>,
    /// Processes that were killed without a stop.
    killed: BTreeSet<BookingId>,
    cleaned: Vec<(BookingId, Left)>,
    listings_fail: bool,
    /// True if every process ends at once with 0.
    is_quick: bool,
    /// Ids whose next start panics.
    defective: BTreeSet<BookingId>,
}

impl MachineState {
    fn kill(&mut self, id: &BookingId) {
        if let Some(running) = self.processes.get_mut(id).filter(|exit| exit.is_none()) {
            *running = Some(Exit::Signal(9));
            self.killed.insert(id.clone());
        }
    }
}

impl Machine {
    fn state<T>(&self, change: impl FnOnce(&mut MachineState) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.notify_waiters();
        result
    }

    fn end(&self, id: &str, exit: Exit) {
        self.state(|state| state.processes.insert(name(id), Some(exit)));
    }

    async fn gone(&self, id: &BookingId) -> Exit {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let exit = {
                let mut state = self.state.lock().unwrap();
                if state.unwatched.contains(id) {
                    // As the real one does.
                    state.kill(id);
                    return Exit::Lost;
                }
                state.processes.get(id).cloned()
            };
            match exit {
                Some(Some(exit)) => return exit,
                Some(None) => changed.await,
                None => return Exit::Lost,
            }
        }
    }
}

impl Executor for Machine {
    fn digest(&self, _: &Work) -> Hash {
        Hash([0; 32])
    }

    fn keep(&self, _: &Work) -> Result<Hash, Error> {
        Ok(Hash([0; 32]))
    }

    fn start<'a>(&'a self, id: &'a BookingId, job: &'a Job) -> Doing<'a, Begun> {
        let is_defective = self.state(|state| state.defective.remove(id));
        assert!(!is_defective, "a panic that the test wants");
        let begun = self.state(|state| {
            if state.unwatched.contains(id) {
                let reason = "it runs already".to_owned();
                return Begun::Gone(Exit::NotStarted(reason));
            }
            let exit = state.is_quick.then_some(Exit::Code(0));
            if !state.processes.contains_key(id) {
                *state.begun.entry(id.clone()).or_default() += 1;
                state.notes.insert(id.clone(), job.note.clone());
            }
            state.processes.entry(id.clone()).or_insert(exit);
            Begun::Running(Isolation::Cgroup)
        });
        Box::pin(ready(begun))
    }

    fn exit<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Exit> {
        Box::pin(self.gone(id))
    }

    fn stop<'a>(&'a self, id: &'a BookingId, _: Duration) -> Doing<'a, Result<(), Error>> {
        let stopped = self.state(|state| {
            *state.stops.entry(id.clone()).or_default() += 1;
            if state.stubborn.contains(id) {
                let (id, count) = (id.clone(), 1);
                return Err(Error::Alive { id, count });
            }
            let process = state.processes.entry(id.clone()).or_default();
            process.get_or_insert(Exit::Signal(15));
            Ok(())
        });
        Box::pin(ready(stopped))
    }

    fn list(&self) -> Doing<'_, Result<Vec<BookingId>, Error>> {
        Box::pin(ready(self.state(|state| {
            if state.listings_fail {
                return Err(Error::Alive {
                    id: name("unreadable"),
                    count: 0,
                });
            }
            Ok(state.residue.iter().cloned().collect())
        })))
    }

    fn life<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Result<Life, Error>> {
        let life = self.state(|state| match state.processes.get(id) {
            Some(None) => Life::Running {
                note: state.notes.get(id).cloned().unwrap_or_default(),
                isolation: Isolation::Cgroup,
                has_shim: !state.unwatched.contains(id),
            },
            Some(Some(_)) | None => Life::Nothing,
        });
        Box::pin(ready(Ok(life)))
    }

    fn clean<'a>(&'a self, id: &'a BookingId, left: Left) -> Doing<'a, Result<(), Error>> {
        self.state(|state| {
            state.kill(id);
            state.cleaned.push((id.clone(), left));
            if left == Left::Nothing {
                state.residue.remove(id);
            }
        });
        Box::pin(ready(Ok(())))
    }

    fn forget(&self, _: BTreeSet<Hash>) -> Doing<'_, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    fn output(&self, _: &BookingId, _: Stream, _: u64) -> Result<Option<Output>, Error> {
        Ok(None)
    }
}

/// A ledger, a machine, and a runner between them.
struct Scene {
    world: World,
    machine: Arc<Machine>,
    counts: Arc<Counts>,
    runner: JoinHandle<()>,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let (machine, counts) = (Arc::<Machine>::default(), Arc::<Counts>::default());
        let runner = tokio::spawn(runner(&world, &machine, &counts).run());
        Self {
            world,
            machine,
            counts,
            runner,
        }
    }

    fn ledger(&self) -> &Ledger {
        self.world.service.ledger()
    }

    /// Drops the runner and starts another.
    fn restart(&mut self) {
        self.runner.abort();
        self.runner = tokio::spawn(runner(&self.world, &self.machine, &self.counts).run());
    }

    async fn send(&self, command: impl Into<Command>) -> Result<Answer, Refusal> {
        let by = Label::new("ada").unwrap();
        let mut outcomes = self
            .ledger()
            .submit(by, vec![command.into()])
            .await
            .unwrap();
        outcomes.pop().unwrap().result
    }

    async fn submit(&self, id: &str) {
        let submit = booking::Command::Submit(order(id, "python"));
        self.send(submit).await.unwrap();
    }

    /// Records a restore of the ledger.
    async fn restore(&self) {
        let restore = spine::Command::Restore {
            size: 1,
            fence: None,
            replaces: None,
            end_tokens: false,
        };
        self.send(restore).await.unwrap();
    }

    async fn cancel(&self, id: &str) {
        let cancel = booking::Command::Cancel { id: name(id) };
        self.send(cancel).await.unwrap();
    }

    /// Waits, on virtual time, until an execution has this standing.
    async fn until(&self, id: &str, stands: &str) {
        let id = name(id);
        let waiting = async {
            let mut head = self.ledger().view().head();
            while standing(self.ledger(), &id) != stands {
                head.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_hours(2), waiting)
            .await
            .is_err()
        {
            panic!("{id} is {}, not {stands}", standing(self.ledger(), &id));
        }
    }

    fn held(&self) -> usize {
        self.ledger().view().read().bookings.counts().0
    }
}

fn runner(world: &World, machine: &Arc<Machine>, counts: &Arc<Counts>) -> Runner {
    let executor: Arc<dyn Executor> = Arc::<Machine>::clone(machine);
    Runner::new(world.service.ledger().clone(), executor, Arc::clone(counts))
}

fn name(id: &str) -> BookingId {
    BookingId::new(id).unwrap()
}

fn order(id: &str, class: &str) -> Submission {
    let order = Order {
        work: Hash([0; 32]),
        pids: None,
        start_timeout: Millis::from_secs(60),
        max_time: Millis::from_hours(1),
        grace: Millis::from_secs(10),
        retry_of: None,
    };
    let label = |text| Label::new(text).unwrap();
    let booking = Request {
        ttl: Millis::ZERO,
        wait: Millis::from_hours(1),
        ..Request::new(name(id), label(class), label("ada"))
    };
    Submission { booking, order }
}

/// The stage of an execution, or its verdict.
fn standing(ledger: &Ledger, id: &BookingId) -> &'static str {
    match ledger.view().read().bookings.standing(id) {
        None => "unknown",
        Some(Standing::Queued { .. }) => "queued",
        Some(Standing::Granted(granted)) => match granted.progress().unwrap().stage {
            Stage::Starting => "starting",
            Stage::Running => "running",
            Stage::Stopping { .. } => "stopping",
            Stage::Stuck => "stuck",
        },
        Some(Standing::Ended(ended)) => ended.course().unwrap().verdict.word(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_execution_is_three_records_and_frees_its_slot_at_its_exit() {
    let scene = Scene::new();
    let before = scene.world.service.record();
    scene.submit("job").await;
    scene.until("job", "running").await;
    assert_eq!(scene.held(), 1);
    scene.machine.end("job", Exit::Code(0));
    scene.until("job", Verdict::Completed.word()).await;
    assert_eq!(scene.world.service.record() - before, 3);
    assert_eq!(scene.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_one_starts_the_next() {
    let scene = Scene::new();
    scene
        .world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    scene.submit("first").await;
    scene.submit("second").await;
    scene.until("first", "running").await;
    assert_eq!(standing(scene.ledger(), &name("second")), "queued");
    scene.machine.end("first", Exit::Code(7));
    scene.until("second", "running").await;
    assert_eq!(standing(scene.ledger(), &name("first")), "failed");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_end_is_stuck_after_ten_stops_and_keeps_its_slot() {
    let scene = Scene::new();
    scene
        .machine
        .state(|state| state.stubborn.insert(name("job")));
    scene.submit("job").await;
    scene.until("job", "running").await;
    scene.cancel("job").await;
    scene.until("job", "stuck").await;
    assert_eq!(scene.machine.state(|state| state.stops[&name("job")]), 10);
    assert_eq!(scene.held(), 1, "a slot of a living process is not free");
    // It is stopped again from time to time, without further records.
    let record = scene.world.service.record();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(scene.machine.state(|state| state.stops[&name("job")]) > 12);
    assert_eq!(scene.world.service.record(), record);
    scene.machine.end("job", Exit::Signal(9));
    scene.until("job", "cancelled").await;
    assert_eq!(scene.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_forced_execution_is_stopped_and_cleaned_up() {
    let scene = Scene::new();
    scene.submit("job").await;
    scene.until("job", "running").await;
    let (id, reason) = (name("job"), "maintenance".to_owned());
    let force = booking::Command::Force { id, reason };
    scene.send(force).await.unwrap();
    scene.until("job", "lost").await;
    let cleaned = async {
        while scene.machine.state(|state| state.cleaned.is_empty()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), cleaned)
        .await
        .unwrap();
    assert_eq!(scene.machine.state(|state| state.stops[&name("job")]), 1);
    let expected = vec![(name("job"), Left::Output)];
    assert_eq!(scene.machine.state(|state| state.cleaned.clone()), expected);
}

#[tokio::test(start_paused = true)]
async fn a_process_is_stopped_at_its_maximum_time() {
    let scene = Scene::new();
    scene.submit("job").await;
    scene.until("job", "running").await;
    tokio::time::sleep(Duration::from_mins(59)).await;
    assert_eq!(standing(scene.ledger(), &name("job")), "running");
    scene.until("job", "timed-out").await;
    assert_eq!(scene.held(), 0);
}

/// Method: the runner is dropped at every stage of an execution, and another takes over.
#[tokio::test(start_paused = true)]
async fn a_new_runner_takes_over_and_starts_nothing_twice() {
    let mut scene = Scene::new();
    scene.submit("job").await;
    scene.restart();
    scene.until("job", "running").await;
    scene.restart();
    scene.cancel("job").await;
    scene.restart();
    scene.until("job", "cancelled").await;
    assert_eq!(scene.machine.state(|state| state.begun[&name("job")]), 1);
    assert_eq!(scene.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_a_thousand_queued_and_ten_running_loses_none_and_doubles_none() {
    let mut scene = Scene::new();
    scene
        .world
        .limit("python", r#"{"class":"python","slots":10}"#)
        .await;
    let ids: Vec<String> = (0..1_010).map(|number| format!("job-{number}")).collect();
    for id in &ids {
        scene.submit(id).await;
    }
    for id in &ids[..10] {
        scene.until(id, "running").await;
    }
    scene.restart();
    scene.machine.state(|state| {
        state.is_quick = true;
        for exit in state.processes.values_mut() {
            exit.get_or_insert(Exit::Code(0));
        }
    });
    for id in &ids {
        scene.until(id, "completed").await;
    }
    let begun = scene.machine.state(|state| state.begun.clone());
    assert_eq!(begun.len(), ids.len());
    assert!(begun.values().all(|times| *times == 1));
    assert_eq!(scene.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_and_thirty_runs_one_after_another_all_finish_under_a_limit_of_a_hundred() {
    let scene = Scene::new();
    scene.machine.state(|state| state.is_quick = true);
    for number in 0..130 {
        let id = format!("run-{number}");
        scene.submit(&id).await;
        scene.until(&id, "completed").await;
    }
    assert_eq!(scene.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_result_is_submitted_until_the_store_accepts_it() {
    let scene = Scene::new();
    scene.submit("job").await;
    scene.until("job", "running").await;
    for fault in [Fault::Error, Fault::CommitThenError, Fault::Error] {
        scene.world.store.inject(fault);
    }
    scene.machine.end("job", Exit::Code(3));
    scene.until("job", "failed").await;
    assert_eq!(scene.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_process_is_removed_after_two_listings_half_a_minute_apart() {
    let scene = Scene::new();
    scene.submit("known").await;
    scene.until("known", "running").await;
    scene.machine.state(|state| {
        state.residue.extend([name("stray"), name("known")]);
        state.listings_fail = true;
    });
    tokio::time::sleep(Duration::from_secs(310)).await;
    assert!(
        scene.machine.state(|state| state.cleaned.is_empty()),
        "every listing failed"
    );
    scene.machine.state(|state| state.listings_fail = false);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(
        scene.machine.state(|state| state.cleaned.is_empty()),
        "one listing is not enough"
    );
    tokio::time::sleep(Duration::from_secs(31)).await;
    let cleaned = scene.machine.state(|state| state.cleaned.clone());
    assert_eq!(
        cleaned,
        [(name("stray"), Left::Nothing)],
        "known executions stay"
    );
    scene.machine.end("known", Exit::Code(0));
    scene.until("known", "completed").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let cleaned = scene.machine.state(|state| state.cleaned.clone());
    let expected = [
        (name("stray"), Left::Nothing),
        (name("known"), Left::Output),
    ];
    assert_eq!(cleaned, expected, "ended executions are cleaned up once");
}

/// The notes of executions whose records were lost, taken from another ledger.
async fn notes_of(ids: &[&str]) -> BTreeMap<BookingId, String> {
    let lost = Scene::new();
    for id in ids {
        lost.submit(id).await;
        lost.until(id, "running").await;
    }
    lost.machine.state(|state| state.notes.clone())
}

/// Each booking has the request of its note; `old`, which has none, is unknown.
fn assert_charged_as_they_were(scene: &Scene) {
    let state = scene.ledger().view().read();
    let of = |id: &str| state.bookings.request(&name(id)).unwrap();
    let asked = order("run", "python").booking;
    assert_eq!(of("run"), asked, "it is charged as it was");
    let old = of("old");
    assert_eq!(
        (old.class.as_str(), old.tenant.as_str()),
        ("unknown", "unknown")
    );
    assert_eq!(old.slots, 1);
    let adopted = |id: &str| match state.bookings.standing(&name(id)) {
        Some(Standing::Granted(granted)) => granted.progress().unwrap().is_adopted,
        other => panic!("{other:?}"),
    };
    assert!(adopted("run") && adopted("waits") && adopted("old") && !adopted("held"));
    assert_eq!(state.bookings.counts().0, 4, "above the limit of one");
}

/// Method: two instances of one ledger; the second was restored and does not have the executions
/// that the first started. `old` is of a version that kept no note.
#[tokio::test(start_paused = true)]
async fn after_a_restore_unknown_processes_are_adopted_and_never_started_again() {
    let notes = notes_of(&["run", "waits"]).await;
    let scene = Scene::new();
    scene
        .world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    scene.submit("held").await;
    scene.until("held", "running").await;
    // In the copy this one was queued.
    scene.submit("waits").await;
    scene.restore().await;
    scene.machine.state(|state| {
        state.notes.extend(notes);
        for id in ["run", "waits", "old"] {
            state.processes.insert(name(id), None);
            state.residue.insert(name(id));
        }
        state.processes.insert(name("over"), Some(Exit::Code(0)));
        state.residue.insert(name("over"));
    });
    for id in ["run", "waits", "old"] {
        scene.until(id, "running").await;
    }
    assert_charged_as_they_were(&scene);
    // The same submission finds it.
    let again = booking::Command::Submit(order("run", "python"));
    let again = scene.send(again).await;
    assert!(matches!(again, Ok(Answer::Booking(Reply::Repeated(_)))));
    // Further listings kill and start nothing, and clean up the one that ended.
    tokio::time::sleep(Duration::from_mins(5)).await;
    let begun = scene.machine.state(|state| state.begun.clone());
    assert_eq!(begun, BTreeMap::from([(name("held"), 1)]));
    let cleaned = scene.machine.state(|state| state.cleaned.clone());
    assert_eq!(cleaned, [(name("over"), Left::Nothing)]);
    assert!(scene.machine.state(|state| state.stops.is_empty()));
    // They end like any other.
    scene.machine.end("run", Exit::Code(7));
    scene.until("run", "failed").await;
    scene.cancel("old").await;
    scene.until("old", "cancelled").await;
}

/// A restored ledger, and a process of the lost records without a shim.
async fn scene_with_unwatched(id: &str) -> Scene {
    let scene = Scene::new();
    scene.restore().await;
    scene.machine.state(|state| {
        state.processes.insert(name(id), None);
        state.unwatched.insert(name(id));
    });
    scene
}

/// Checks that the process is charged, never killed or started again, and lost when it ends.
async fn assert_waited_for(scene: &mut Scene, id: &str) {
    scene.until(id, "running").await;
    scene.machine.state(|state| state.residue.insert(name(id)));
    tokio::time::sleep(Duration::from_mins(2)).await;
    scene.restart();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(standing(scene.ledger(), &name(id)), "running");
    assert_eq!(scene.held(), 1);
    scene.machine.end(id, Exit::Code(0));
    scene.until(id, "lost").await;
    let (begun, killed) = scene
        .machine
        .state(|state| (state.begun.len(), state.killed.clone()));
    assert_eq!((begun, killed), (0, BTreeSet::new()));
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_a_process_without_a_shim_is_adopted_and_awaited() {
    let mut scene = scene_with_unwatched("orphan").await;
    scene
        .machine
        .state(|state| state.residue.insert(name("orphan")));
    assert_waited_for(&mut scene, "orphan").await;
}

/// Method: the id is submitted before the first listing.
#[tokio::test(start_paused = true)]
async fn an_id_submitted_before_the_first_listing_adopts_its_process_without_a_shim() {
    let mut scene = scene_with_unwatched("orphan").await;
    scene.submit("orphan").await;
    assert_waited_for(&mut scene, "orphan").await;
}

/// Method: the id is queued and cancelled before the first listing.
#[tokio::test(start_paused = true)]
async fn an_id_that_ended_unstarted_kills_no_process_of_the_lost_records() {
    let scene = scene_with_unwatched("orphan").await;
    scene
        .world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    scene.submit("held").await;
    scene.until("held", "running").await;
    scene.submit("orphan").await;
    scene.cancel("orphan").await;
    scene
        .machine
        .state(|state| state.residue.insert(name("orphan")));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(scene.machine.state(|state| state.killed.is_empty()));
    assert!(scene.machine.state(|state| state.cleaned.is_empty()));
    scene.machine.end("orphan", Exit::Code(0));
    tokio::time::sleep(Duration::from_mins(2)).await;
    let cleaned = scene.machine.state(|state| state.cleaned.clone());
    assert_eq!(cleaned, [(name("orphan"), Left::Output)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_one_task_harms_no_other_and_is_retried() {
    let scene = Scene::new();
    scene.machine.state(|state| {
        state.is_quick = true;
        state.defective.insert(name("unlucky"));
    });
    scene.submit("unlucky").await;
    scene.submit("lucky").await;
    scene.until("lucky", "completed").await;
    scene.until("unlucky", "completed").await;
    assert_eq!(scene.held(), 0);
}
