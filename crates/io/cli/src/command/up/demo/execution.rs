//! Tenants that have real programs run: short, small, and not all of them well behaved.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{Execution, ExecutionRequest, ExecutionState, Priority};
use bursar_client::client::Mode;
use bursar_units::{BookingId, Label};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Chance;

/// A tenant and how busy it is.
#[derive(Clone, Copy)]
pub(super) struct Submitter {
    /// Who it is.
    pub(super) tenant: &'static str,
    class: &'static str,
    /// How many of its workers are at it at once: so many executions it has at most.
    pub(super) workers: u64,
    /// How long a worker rests between two, in milliseconds, from and to.
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

/// What a worker has run.
struct Job {
    /// For a shell; `$1` is a number of seconds.
    script: &'static str,
    /// How often it is chosen, against the others.
    weight: u64,
    seconds: (u64, u64),
    max_time_ms: u64,
    /// After how many milliseconds somebody cancels it, if anybody does.
    cancelled: Option<(u64, u64)>,
}

const JOBS: &[Job] = &[
    Job {
        script: "echo working; sleep \"$1\"; echo done",
        weight: 12,
        seconds: (1, 4),
        max_time_ms: 30_000,
        cancelled: None,
    },
    Job {
        script: "sleep \"$1\"; echo 'there is no such column' >&2; exit 3",
        weight: 2,
        seconds: (0, 2),
        max_time_ms: 30_000,
        cancelled: None,
    },
    // It calculates, as fast as it is let.
    Job {
        script: "timeout \"$1\" sh -c 'while :; do :; done'; echo done",
        weight: 3,
        seconds: (8, 20),
        max_time_ms: 30_000,
        cancelled: None,
    },
    // It hangs, and is asked to end when its time is over.
    Job {
        script: "echo waiting for a lock; sleep 600",
        weight: 1,
        seconds: (0, 0),
        max_time_ms: 2_000,
        cancelled: None,
    },
    // It does not listen, and is made to end.
    Job {
        script: "trap '' TERM; echo not yet; while :; do sleep 600; done",
        weight: 1,
        seconds: (0, 0),
        max_time_ms: 1_500,
        cancelled: None,
    },
    // It leaves something behind that wants to outlive it.
    Job {
        script: "(setsid sleep 600 &); sleep \"$1\"; echo done",
        weight: 1,
        seconds: (1, 2),
        max_time_ms: 30_000,
        cancelled: None,
    },
    // It takes more memory than it may have.
    Job {
        script: "head -c 50331648 /dev/zero | tail -c 50331648 > /dev/null",
        weight: 1,
        seconds: (0, 0),
        max_time_ms: 30_000,
        cancelled: None,
    },
    // Somebody changes his mind, while it waits or while it runs.
    Job {
        script: "echo working; sleep \"$1\"; echo done",
        weight: 2,
        seconds: (20, 20),
        max_time_ms: 30_000,
        cancelled: Some((100, 2_000)),
    },
];

/// What each may take: little, so that a small machine can play along. CPU that nobody else needs it
/// may have twice over, where the market acts.
const CPU_MILLI: u64 = 200;
const CPU_LIMIT_MILLI: u64 = 400;
const MEMORY_BYTES: u64 = 24 << 20;
const PIDS: u32 = 16;
/// How long each may wait in the queue.
const WAIT_MS: u64 = 60_000;
/// How long one that is asked to end has for it.
const GRACE_MS: u64 = 1_000;
/// How long one look at an execution waits for it to change.
const LOOK: Duration = Duration::from_secs(20);

/// One worker's life: rest, submit, see it end, until everyone is sent home; what then still runs
/// is cancelled and seen to its end.
pub(super) async fn live(client: Client, submitter: Submitter, mut home: watch::Receiver<bool>) {
    let mut chance = Chance::new();
    loop {
        let rest = Duration::from_millis(chance.between(submitter.rests));
        tokio::select! {
            () = sleep(rest) => {}
            _ = home.wait_for(|home| *home) => return,
        }
        // What goes wrong here goes wrong for this worker only, and it tries again.
        let _refused = once(&client, submitter, &mut chance, &mut home).await;
    }
}

async fn once(
    client: &Client,
    submitter: Submitter,
    chance: &mut Chance,
    home: &mut watch::Receiver<bool>,
) -> Option<()> {
    let job = job(chance)?;
    let id = bursar_client::ids::new(submitter.tenant).ok()?;
    let request = request(submitter, job, chance)?;
    client.submit(&id, &request, Mode::Do).await.ok()?;
    let patience = job.cancelled.map(|range| chance.between(range));
    let is_over = tokio::select! {
        ended = end(client, &id) => ended.is_some(),
        () = until(patience) => false,
        _ = home.wait_for(|home| *home) => false,
    };
    if !is_over {
        client.cancel_execution(&id, Mode::Do).await.ok()?;
        end(client, &id).await?;
    }
    Some(())
}

fn job(chance: &mut Chance) -> Option<&'static Job> {
    let total: u64 = JOBS.iter().map(|job| job.weight).sum();
    let mut drawn = chance.between((1, total));
    JOBS.iter().find(|job| {
        let is_it = drawn <= job.weight;
        drawn = drawn.saturating_sub(job.weight);
        is_it
    })
}

fn request(submitter: Submitter, job: &Job, chance: &mut Chance) -> Option<ExecutionRequest> {
    let seconds = chance.between(job.seconds).to_string();
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

/// Resolves when it has ended; `None` where that cannot be known.
async fn end(client: &Client, id: &BookingId) -> Option<Execution> {
    loop {
        let execution = client.execution_wait(id, LOOK).await.ok()?;
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
