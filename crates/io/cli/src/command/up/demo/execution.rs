//! Tenants that run programs: short and small ones, some of which misbehave.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{Execution, ExecutionRequest, ExecutionState, Priority};
use bursar_client::client::Mode;
use bursar_units::{BookingId, Label};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Random;

/// Behaviour of a tenant.
#[derive(Clone, Copy)]
pub(super) struct Submitter {
    pub(super) tenant: &'static str,
    class: &'static str,
    /// Number of concurrent workers, each with one execution at most.
    pub(super) workers: u64,
    /// Pause between two executions of a worker: range in milliseconds.
    rests: (u64, u64),
    priority: Priority,
}

pub(super) const SUBMITTERS: &[Submitter] = &[
    Submitter {
        tenant: "acme",
        class: "python",
        workers: 6,
        rests: (300, 1_500),
        priority: Priority::Normal,
    },
    Submitter {
        tenant: "zeta",
        class: "python",
        workers: 4,
        rests: (500, 6_000),
        priority: Priority::Low,
    },
    Submitter {
        tenant: "rush",
        class: "python",
        workers: 2,
        rests: (1_000, 4_000),
        priority: Priority::High,
    },
];

/// A program that workers run.
struct Job {
    /// Shell script; `$1` is a number of seconds.
    script: &'static str,
    /// Relative frequency.
    weight: u64,
    seconds: (u64, u64),
    max_time_ms: u64,
    /// Time until it is cancelled: range in milliseconds.
    cancelled: Option<(u64, u64)>,
}

/// Common values of jobs.
const JOB: Job = Job {
    script: "",
    weight: 1,
    seconds: (0, 0),
    max_time_ms: 30_000,
    cancelled: None,
};

const JOBS: &[Job] = &[
    Job {
        script: "echo working; sleep \"$1\"; echo done",
        weight: 12,
        seconds: (1, 4),
        ..JOB
    },
    Job {
        script: "sleep \"$1\"; echo 'there is no such column' >&2; exit 3",
        weight: 2,
        seconds: (0, 2),
        ..JOB
    },
    // Uses as much CPU as it gets.
    Job {
        script: "timeout \"$1\" sh -c 'while :; do :; done'; echo done",
        weight: 3,
        seconds: (8, 20),
        ..JOB
    },
    // Hangs until its maximum time, and ends by SIGTERM.
    Job {
        script: "echo waiting for a lock; sleep 600",
        max_time_ms: 2_000,
        ..JOB
    },
    // Ignores SIGTERM, and is killed.
    Job {
        script: "trap '' TERM; echo not yet; while :; do sleep 600; done",
        max_time_ms: 1_500,
        ..JOB
    },
    // Leaves a process behind in a session of its own.
    Job {
        script: "(setsid sleep 600 &); sleep \"$1\"; echo done",
        seconds: (1, 2),
        ..JOB
    },
    // Needs more memory than its limit.
    Job {
        script: "head -c 50331648 /dev/zero | tail -c 50331648 > /dev/null",
        ..JOB
    },
    // Is cancelled while it waits or runs.
    Job {
        script: "echo working; sleep \"$1\"; echo done",
        weight: 2,
        seconds: (20, 20),
        cancelled: Some((100, 2_000)),
        ..JOB
    },
];

/// Resources of each execution, small enough for a small machine. It may use twice the CPU if the
/// market acts and CPU is free.
const CPU_MILLI: u64 = 200;
const CPU_LIMIT_MILLI: u64 = 400;
const MEMORY_BYTES: u64 = 24 << 20;
const PIDS: u32 = 16;
/// Maximum wait in the queue.
const WAIT_MS: u64 = 60_000;
/// Time between SIGTERM and SIGKILL.
const GRACE_MS: u64 = 1_000;
/// Time limit of one request that waits for a change.
const LONG_POLL: Duration = Duration::from_secs(20);

/// One worker: pauses, submits and awaits the end in a loop until `finish` is set; then it cancels
/// its execution and awaits the end.
pub(super) async fn work(client: Client, submitter: Submitter, mut finish: watch::Receiver<bool>) {
    let mut random = Random::new();
    loop {
        let pause = Duration::from_millis(random.between(submitter.rests));
        tokio::select! {
            () = sleep(pause) => {}
            _ = finish.wait_for(|finish| *finish) => return,
        }
        // An error affects only this worker, which tries again.
        let _refused = once(&client, submitter, &mut random, &mut finish).await;
    }
}

async fn once(
    client: &Client,
    submitter: Submitter,
    random: &mut Random,
    finish: &mut watch::Receiver<bool>,
) -> Option<()> {
    let job = job(random)?;
    let id = bursar_client::ids::new(submitter.tenant).ok()?;
    let request = request(submitter, job, random)?;
    client.submit(&id, &request, Mode::Do).await.ok()?;
    let patience = job.cancelled.map(|range| random.between(range));
    let is_over = tokio::select! {
        ended = end(client, &id) => ended.is_some(),
        () = until(patience) => false,
        _ = finish.wait_for(|finish| *finish) => false,
    };
    if !is_over {
        client.cancel_execution(&id, Mode::Do).await.ok()?;
        end(client, &id).await?;
    }
    Some(())
}

fn job(random: &mut Random) -> Option<&'static Job> {
    let total: u64 = JOBS.iter().map(|job| job.weight).sum();
    let mut drawn = random.between((1, total));
    JOBS.iter().find(|job| {
        let is_it = drawn <= job.weight;
        drawn = drawn.saturating_sub(job.weight);
        is_it
    })
}

fn request(submitter: Submitter, job: &Job, random: &mut Random) -> Option<ExecutionRequest> {
    let seconds = random.between(job.seconds).to_string();
    let class = Label::new(submitter.class).ok()?;
    let args = ["-c", job.script, "sh", &seconds];
    Some(ExecutionRequest {
        args: args.map(ToOwned::to_owned).to_vec(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        cpu_milli: Some(CPU_MILLI),
        cpu_limit_milli: Some(CPU_LIMIT_MILLI),
        memory_bytes: Some(MEMORY_BYTES),
        pids: Some(PIDS),
        priority: Some(submitter.priority),
        wait_ms: Some(WAIT_MS),
        max_time_ms: Some(job.max_time_ms),
        grace_ms: Some(GRACE_MS),
        ..ExecutionRequest::new(class, "/bin/sh".to_owned())
    })
}

/// Waits for the end of an execution; `None` if a request fails.
async fn end(client: &Client, id: &BookingId) -> Option<Execution> {
    loop {
        let execution = client.execution_wait(id, LONG_POLL).await.ok()?;
        if execution.course.state == ExecutionState::Ended {
            return Some(execution);
        }
    }
}

async fn until(patience_ms: Option<u64>) {
    match patience_ms {
        Some(ms) => sleep(Duration::from_millis(ms)).await,
        None => std::future::pending().await,
    }
}
