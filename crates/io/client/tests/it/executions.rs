//! Executions: their JSON, their calls and their output.

use std::time::Duration;

use bursar_client::Code;
use bursar_client::api::{
    Booking, Execution, ExecutionOutcome, ExecutionRequest, ExecutionState, ListExecutions,
    LogStream, StepState,
};
use bursar_client::client::{Follow, Logs, Mode};
use bursar_units::{BookingId, Label};
use proptest::prelude::{any, proptest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fake::{Reply, on_socket, problem, script, within};

/// Reads a value as a type and writes it again; the result must be equal.
fn survives<T: DeserializeOwned + Serialize>(shown: &Value) -> T {
    let typed: T = serde_json::from_value(shown.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), shown);
    typed
}

fn id() -> BookingId {
    BookingId::new("job-1").unwrap()
}

#[test]
fn a_submission_is_read_with_its_defaults() {
    let request: ExecutionRequest = survives(&json!({
        "class": "python", "tenant": "acme", "slots": 2, "command": "python3",
        "args": ["-c", "print(1)"], "env": {"PATH": "/usr/bin"}, "directory": "/srv",
        "allowPrivilegeEscalation": true,
        "cpuMilli": 500, "memoryBytes": 1024, "gpus": 1, "cpuLimitMilli": 1000,
        "memoryLimitBytes": 2048, "pids": 64, "priority": "high", "waitMs": 60000,
        "startTimeoutMs": 60000, "maxTimeMs": 3_600_000, "graceMs": 10000, "retryOf": "job-0"
    }));
    assert_eq!(request.mistakes(), []);
    let least: ExecutionRequest =
        serde_json::from_value(json!({"class": "python", "command": "true"})).unwrap();
    assert_eq!(
        least,
        ExecutionRequest::new(Label::new("python").unwrap(), "true".to_owned())
    );
}

#[test]
fn an_answer_is_flat_and_reads_back() {
    let running: Execution = survives(&json!({
        "id": "job-1", "state": "running", "isolation": "none", "fence": 7,
        "startedAt": "2026-11-16T10:00:01.000Z", "grantedAt": "2026-11-16T10:00:00.000Z",
        "steps": [
            {"name": "validate", "state": "done", "at": "2026-11-16T10:00:00.000Z", "tookMs": 0},
            {"name": "finish", "state": "pending"}
        ],
        "record": 9
    }));
    assert_eq!(running.course.state, ExecutionState::Running);
    assert_eq!(running.course.steps[1].state, StepState::Pending);
    let ended: Execution = survives(&json!({
        "id": "job-1", "state": "ended", "outcome": "timed-out", "signal": 15,
        "stoppingAt": "2026-11-16T11:00:01.000Z", "cause": "timed-out",
        "endedAt": "2026-11-16T11:00:02.000Z", "retryOf": "job-0",
        "compensations": [{"name": "release", "state": "done"}]
    }));
    assert_eq!(ended.course.outcome, Some(ExecutionOutcome::TimedOut));
    let booking: Booking = survives(&json!({
        "id": "job-1", "state": "granted",
        "execution": {"state": "stopping", "cause": "cancelled", "stopsFailed": 3}
    }));
    assert_eq!(booking.execution.unwrap().stops_failed, Some(3));
    let newer = json!({"id": "job-1", "state": "queued", "somethingNew": [1]});
    let known: Execution = serde_json::from_value(newer).unwrap();
    assert_eq!(known.course.state, ExecutionState::Queued);
}

#[test]
fn displayed_words_are_those_of_json() {
    for state in ExecutionState::ALL {
        assert_eq!(serde_json::to_value(state).unwrap(), state.word());
    }
    for outcome in ExecutionOutcome::ALL {
        assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.word());
    }
}

proptest! {
    #[test]
    fn a_program_that_cannot_be_started_is_a_mistake(
        command in any::<String>(), args in any::<Vec<String>>(),
        env in any::<std::collections::BTreeMap<String, String>>(),
    ) {
        let request = ExecutionRequest { args, env, ..ExecutionRequest::new(Label::new("a").unwrap(), command) };
        let texts = request.args.iter().chain(request.env.values()).chain([&request.command]);
        let is_wrong = texts.chain(request.env.keys()).any(|text| text.contains('\0'))
            || request.command.is_empty()
            || request.env.keys().any(|name| name.is_empty() || name.contains('='));
        assert_eq!(!request.mistakes().is_empty(), is_wrong);
    }
}

#[tokio::test]
async fn calls_have_their_paths_and_methods() {
    let (client, log) = within(|_| Reply::Json(200, json!({})));
    let request = ExecutionRequest::new(Label::new("python").unwrap(), "true".to_owned());
    // The answers are empty, so all but the last fail after they were sent.
    let _ = client.submit(&id(), &request, Mode::DryRun).await;
    let _ = client.execution(&id()).await;
    let _ = client.execution_wait(&id(), Duration::from_secs(30)).await;
    let _ = client.cancel_execution(&id(), Mode::Do).await;
    let query = ListExecutions {
        state: Some([ExecutionState::Running].into()),
        ..ListExecutions::default()
    };
    let _ = client.all_executions(&query).await;
    client
        .logs(&id(), LogStream::Stderr, Follow::Now)
        .await
        .unwrap();
    assert_eq!(
        log.lines(),
        [
            "PUT /v1/executions/job-1?dryRun=true",
            "GET /v1/executions/job-1",
            "GET /v1/executions/job-1?wait=30s",
            "POST /v1/executions/job-1/cancel",
            "GET /v1/executions?state=running&limit=1000",
            "GET /v1/executions/job-1/logs?stream=stderr",
        ]
    );
}

async fn read_to_end(logs: &mut Logs) -> String {
    let mut text = String::new();
    while let Some(bytes) = logs.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    text
}

#[tokio::test]
async fn interrupted_output_continues_at_its_next_byte() {
    let server = on_socket(script([
        Reply::Part("one ".to_owned()),
        Reply::Vanish,
        Reply::Part("two ".to_owned()),
        Reply::Text(200, "three"),
    ]));
    let logs = server
        .client
        .logs(&id(), LogStream::Stdout, Follow::UntilEnded)
        .await;
    assert_eq!(read_to_end(&mut logs.unwrap()).await, "one two three");
    let first = "GET /v1/executions/job-1/logs?stream=stdout&follow=true";
    assert_eq!(
        server.log.lines(),
        [
            first.to_owned(),
            format!("{first}&from=4"),
            format!("{first}&from=4"),
            format!("{first}&from=8"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn reading_of_output_ends_after_its_attempts_and_at_a_refusal() {
    let (client, log) = within(|_| problem(Code::NotFound));
    let refused = client.logs(&id(), LogStream::Stdout, Follow::Now).await;
    assert_eq!(
        refused.err().unwrap().problem().unwrap().code,
        Code::NotFound
    );
    assert_eq!(log.lines().len(), 1);
    // A stream within the process cannot break, so the server is gone after its first answer.
    let server = on_socket(script([Reply::Part("one".to_owned()), problem(Code::Busy)]));
    let logs = server
        .client
        .logs(&id(), LogStream::Stdout, Follow::Now)
        .await;
    let mut logs = logs.unwrap();
    assert_eq!(logs.chunk().await.unwrap().unwrap(), "one");
    assert_eq!(
        logs.chunk().await.unwrap_err().problem().unwrap().code,
        Code::Busy
    );
}
