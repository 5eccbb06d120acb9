//! Many executions: at once, in sequence, repeated, cancelled early, and on two ledgers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bursar_client::Code;
use bursar_client::api::{
    Execution, ExecutionOutcome as Outcome, ExecutionRequest, ExecutionState, ListExecutions, Words,
};
use bursar_client::client::{Error, Mode};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::rig::{BEGIN, Rig, isolation, label, name, until};

/// Submits many requests at once; returns the answers in the order of the requests.
async fn submit_all(
    rig: &Rig,
    requests: Vec<(String, ExecutionRequest)>,
) -> Vec<Result<Execution, Error>> {
    let client = rig.client();
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    let count = requests.len();
    for (index, (id, request)) in requests.into_iter().enumerate() {
        let (client, turns) = (client.clone(), Arc::clone(&turns));
        tasks.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            (index, client.submit(&name(&id), &request, Mode::Do).await)
        });
    }
    let mut answers: Vec<_> = std::iter::repeat_with(|| None).take(count).collect();
    while let Some(answer) = tasks.join_next().await {
        let (index, answer) = answer.unwrap();
        answers[index] = Some(answer);
    }
    answers.into_iter().flatten().collect()
}

/// Maximum number of concurrent requests.
const AT_ONCE: usize = 50;

/// Asserts that exactly these programs have started, each once.
fn assert_each_began_once(rig: &Rig, ids: impl IntoIterator<Item = String>) {
    let mut begun = rig.begun();
    begun.sort_unstable();
    let ids: BTreeSet<String> = ids.into_iter().collect();
    assert_eq!(begun, ids.into_iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn kills_in_one_ledger_do_not_affect_another() {
    let (here, there) = (Rig::new(isolation()), Rig::new(isolation()));
    for rig in [&here, &there] {
        let gate = rig.gate("gate");
        let script = format!("{BEGIN}read -r go < {}\nexit 3", gate.display());
        for id in ["a", "b"] {
            rig.submit(id, &script, |_| ()).await;
        }
        for id in ["a", "b"] {
            rig.wait_for(id, ExecutionState::Running).await;
            rig.wait_until_begun(id).await;
        }
    }
    here.kill();
    for id in ["a", "b"] {
        here.switch_off(id).await;
    }
    here.start();
    for id in ["a", "b"] {
        let ended = here.ended(id).await;
        assert_eq!(ended.course.outcome, Some(Outcome::Lost), "{ended:?}");
        let running = there.look(id).await.course.state;
        assert_eq!(running, ExecutionState::Running);
        assert_eq!(there.shims_of(id).len(), 1);
    }
    // A restarted server finds only its own executions.
    there.kill();
    there.start();
    there.open("gate").await;
    for id in ["a", "b"] {
        let ended = there.ended(id).await;
        assert_eq!(ended.exit_code, Some(3), "{ended:?}");
    }
    for rig in [&here, &there] {
        rig.assert_nothing_left().await;
        assert_each_began_once(rig, ["a", "b"].map(str::to_owned));
    }
}

#[tokio::test]
async fn a_restart_with_1000_queued_and_10_running_loses_and_repeats_none() {
    let rig = Rig::new(isolation());
    rig.limit("python", 10).await;
    let gate = rig.gate("gate");
    let held = format!("{BEGIN}read -r go < {}", gate.display());
    let held = rig.request(&held, |_| ());
    let quick = rig.request(BEGIN, |request| request.wait_ms = Some(3_600_000));
    let first = (0..10).map(|number| (format!("running-{number}"), held.clone()));
    let then = (0..1_000).map(|number| (format!("queued-{number}"), quick.clone()));
    let ids: Vec<String> = first
        .clone()
        .chain(then.clone())
        .map(|(id, _)| id)
        .collect();
    for answer in submit_all(&rig, first.collect()).await {
        assert_eq!(answer.unwrap().course.state, ExecutionState::Starting);
    }
    for answer in submit_all(&rig, then.collect()).await {
        assert_eq!(answer.unwrap().course.state, ExecutionState::Queued);
    }
    for id in ids.iter().take(10) {
        rig.wait_until_begun(id).await;
    }
    rig.kill();
    rig.start();
    let client = rig.client();
    let begun = Words::from([ExecutionState::Starting, ExecutionState::Running]);
    for (state, count) in [(begun, 10), ([ExecutionState::Queued].into(), 1_000)] {
        let query = ListExecutions {
            state: Some(state.clone()),
            ..ListExecutions::default()
        };
        let found = client.all_executions(&query).await.unwrap().items;
        assert_eq!(found.len(), count, "{state}");
    }
    rig.open("gate").await;
    // Once more while some are being started.
    let some_have_begun = || (300 <= rig.begun().len()).then_some(());
    until("some have begun", some_have_begun).await;
    rig.kill();
    rig.start();
    for id in &ids {
        let ended = rig.ended(id).await;
        assert_eq!(ended.course.outcome, Some(Outcome::Completed), "{ended:?}");
    }
    rig.assert_nothing_left().await;
    assert_each_began_once(&rig, ids);
}

#[tokio::test]
async fn a_sequence_of_130_runs_under_a_limit_of_100() {
    let rig = Rig::new(isolation());
    rig.limit("python", 100).await;
    let ids: Vec<String> = (0..130).map(|number| format!("run-{number}")).collect();
    for id in &ids {
        rig.submit(id, BEGIN, |_| ()).await;
        let ended = rig.ended(id).await;
        assert_eq!(ended.exit_code, Some(0), "{ended:?}");
    }
    rig.assert_nothing_left().await;
    assert_each_began_once(&rig, ids);
}

#[tokio::test]
async fn of_fifty_at_once_one_gets_the_slot_and_the_others_wait_or_get_the_name_of_the_limit() {
    let rig = Rig::new(isolation());
    rig.limit("one", 1).await;
    let gate = rig.gate("gate");
    let script = format!("{BEGIN}read -r go < {}", gate.display());
    let request = |number: u64| {
        rig.request(&script, |request| {
            request.class = label("one");
            request.wait_ms = Some(600_000 * (number % 2));
        })
    };
    let requests = (0..50).map(|number| (format!("job-{number}"), request(number)));
    let requests: Vec<_> = requests.collect();
    let ids: Vec<String> = requests.iter().map(|(id, _)| id.clone()).collect();
    let (mut granted, mut queued) = (Vec::new(), Vec::new());
    for (id, answer) in ids.into_iter().zip(submit_all(&rig, requests).await) {
        match answer {
            Ok(execution) if execution.course.state == ExecutionState::Queued => queued.push(id),
            Ok(_) => granted.push(id),
            Err(Error::Problem(problem)) => {
                assert_eq!(problem.code, Code::OverLimit, "{problem:?}");
                assert_eq!(problem.limits[0].name.as_str(), "one", "{problem:?}");
            }
            Err(error) => panic!("{id}: {error}"),
        }
    }
    assert_eq!(granted.len(), 1, "{granted:?}");
    assert!((24..=25).contains(&queued.len()), "{queued:?}");
    rig.open("gate").await;
    granted.extend(queued);
    for id in &granted {
        assert_eq!(rig.ended(id).await.exit_code, Some(0));
    }
    rig.assert_nothing_left().await;
    assert_each_began_once(&rig, granted);
}

#[tokio::test]
async fn a_cancel_before_the_start_leaves_nothing_behind() {
    let rig = Arc::new(Rig::new(isolation()));
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            let id = format!("job-{number}");
            rig.submit(&id, "exec sleep 1000", |_| ()).await;
            // Each a little later than the one before, to hit every step of a start.
            tokio::time::sleep(Duration::from_millis(number)).await;
            rig.cancel(&id).await;
            let ended = rig.ended(&id).await;
            assert_eq!(ended.course.outcome, Some(Outcome::Cancelled), "{ended:?}");
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn an_id_that_is_submitted_many_times_runs_once() {
    let rig = Rig::new(isolation());
    let request = rig.request(&format!("{BEGIN}exit 4"), |_| ());
    let again = || vec![("job".to_owned(), request.clone()); 20];
    for answer in submit_all(&rig, again()).await {
        answer.unwrap();
    }
    assert_eq!(rig.ended("job").await.exit_code, Some(4));
    rig.kill();
    rig.start();
    for answer in submit_all(&rig, again()).await {
        assert_eq!(answer.unwrap().course.state, ExecutionState::Ended);
    }
    let other = rig.request("exit 5", |_| ());
    let other = submit_all(&rig, vec![("job".to_owned(), other)]).await;
    assert!(other[0].is_err(), "{other:?}");
    rig.assert_nothing_left().await;
    assert_each_began_once(&rig, ["job".to_owned()]);
}
