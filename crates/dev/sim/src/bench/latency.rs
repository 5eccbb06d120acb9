//! Latency at a fixed rate of records, independent of the answers (an open loop).
//!
//! Operations are timed from their due time, not from when they were sent, so that a backlog counts
//! as latency.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use bursar_booking::decide::Reply;
use bursar_booking::{Command, Fence};
use bursar_engine::Answer;
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::pipeline::Ledger;
use bursar_units::{BookingId, Label};

use super::Scale;
use super::table::{grouped, thousandths};
use super::usage::Usage;
use super::world::{Ids, RequestTemplate, World, label, near};

/// Offered load.
pub(super) const RECORDS_PER_SECOND: u64 = 50_000;
/// Interval between two groups of operations.
const TICK: Duration = Duration::from_micros(400);
/// Reserves in a group; it has as many releases.
const RESERVES_PER_TICK: usize = 10;
/// Ticks for which a booking is held: 20 ms.
const HELD_TICKS: usize = 50;
/// Time limit of the last answers.
const END_MAX: Duration = Duration::from_secs(10);

pub(super) struct Measurement {
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) near: String,
    pub(super) detail: String,
}

#[derive(Default)]
struct Answers {
    latencies_us: Mutex<Vec<u64>>,
    grown: Condvar,
    refused: AtomicU64,
}

/// A requested booking; its fence is zero until it is granted.
struct Held {
    id: BookingId,
    fence: Arc<AtomicU64>,
    due: Instant,
}

struct Load {
    ledger: Ledger,
    ids: Ids,
    template: RequestTemplate,
    principals: Vec<Label>,
    answers: Arc<Answers>,
    sent: usize,
}

/// Offers the load; the warm-up is not counted.
pub(super) fn measure(directory: &Path, scale: Scale) -> anyhow::Result<Measurement> {
    let world = World::begin(directory)?;
    let principals = (0..RESERVES_PER_TICK).map(|number| label(&format!("caller-{number}")));
    let mut load = Load {
        ledger: world.ledger().clone(),
        ids: Ids::new(5),
        template: RequestTemplate::usual()?,
        principals: principals.collect::<anyhow::Result<_>>()?,
        answers: Arc::default(),
        sent: 0,
    };
    load.offer(scale.warm_up);
    load.finish()?;
    load.answers = Arc::default();
    load.sent = 0;
    let (usage, commits) = (Usage::start(), world.commits.so_far());
    load.offer(scale.measured);
    let (used, committed) = (usage.used(), world.commits.so_far().since(commits));
    let mut latencies = load.finish()?;
    world.stop()?;
    latencies.sort_unstable();
    let at = |permille: usize| {
        let last = latencies.len().saturating_sub(1);
        latencies.get(last * permille / 1_000).copied().unwrap_or(0)
    };
    Ok(Measurement {
        p50_us: at(500),
        p99_us: at(990),
        near: near(&used, committed),
        detail: format!(
            "p99.9 {} ms, worst {} ms of {} answers",
            thousandths(at(999)),
            thousandths(at(1_000)),
            grouped(u64::try_from(latencies.len()).unwrap_or(0))
        ),
    })
}

impl Load {
    /// Sends operations when they are due until the time is over, then the remaining releases.
    fn offer(&mut self, time: Duration) {
        let started = Instant::now();
        let mut held = std::collections::VecDeque::new();
        let mut late = Vec::new();
        let mut due = started;
        while due < started + time || !held.is_empty() || !late.is_empty() {
            wait_until(due);
            for left in std::mem::take(&mut late) {
                late.extend(self.release(left));
            }
            if due < started + time {
                let group: Vec<Held> = (0..RESERVES_PER_TICK)
                    .filter_map(|caller| self.reserve(caller, due))
                    .collect();
                held.push_back(group);
            }
            if held.len() > HELD_TICKS || due >= started + time {
                for booking in held.pop_front().unwrap_or_default() {
                    late.extend(self.release(Held { due, ..booking }));
                }
            }
            if self.answers.refused.load(Ordering::Relaxed) > 0 {
                return;
            }
            due += TICK;
        }
    }

    fn reserve(&mut self, caller: usize, due: Instant) -> Option<Held> {
        let id = self.ids.next(self.ledger.now().ms())?;
        let fence = Arc::new(AtomicU64::new(0));
        let granted = Arc::clone(&fence);
        let command = Command::Reserve(self.template.request(id.clone()));
        self.send(caller, command, due, move |answer| match answer {
            Some(Answer::Booking(Reply::Granted(fence))) => {
                granted.store(fence.0, Ordering::Release);
                true
            }
            _ => false,
        });
        Some(Held { id, fence, due })
    }

    /// Releases a booking; returns it if it is not granted yet.
    fn release(&mut self, held: Held) -> Option<Held> {
        let fence = match held.fence.load(Ordering::Acquire) {
            0 => return Some(held),
            fence => Fence(fence),
        };
        let command = Command::Release {
            id: held.id,
            fence,
            outcome: None,
            exit_code: None,
        };
        self.send(self.sent, command, held.due, |answer| {
            matches!(answer, Some(Answer::Booking(Reply::Ended(_))))
        });
        None
    }

    fn send(
        &mut self,
        caller: usize,
        command: Command,
        due: Instant,
        is_good: impl FnOnce(Option<Answer>) -> bool + Send + 'static,
    ) {
        let Some(by) = self.principals.get(caller % RESERVES_PER_TICK).cloned() else {
            return;
        };
        self.sent += 1;
        let answers = Arc::clone(&self.answers);
        let reply = Box::new(move |result: Result<Vec<Outcome>, Failure>| {
            let outcome = result.ok().and_then(|mut outcomes| outcomes.pop());
            let is_good = is_good(outcome.and_then(|outcome| outcome.result.ok()));
            answers.note(due.elapsed(), is_good);
        });
        self.ledger.push(Submission {
            by,
            commands: vec![command.into()],
            reply,
        });
    }

    /// Waits for the last answers and returns the latencies.
    fn finish(&self) -> anyhow::Result<Vec<u64>> {
        let answers = &self.answers;
        let latencies = answers
            .latencies_us
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = answers
            .grown
            .wait_timeout_while(latencies, END_MAX, |latencies| latencies.len() < self.sent);
        let (mut latencies, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let refused = answers.refused.load(Ordering::Relaxed);
        if latencies.len() < self.sent || refused > 0 {
            bail!(
                "{} of {} operations were answered, {refused} of them refused",
                latencies.len(),
                self.sent
            );
        }
        Ok(std::mem::take(&mut *latencies))
    }
}

impl Answers {
    fn note(&self, latency: Duration, is_good: bool) {
        if !is_good {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies_us
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(micros);
        self.grown.notify_all();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an open loop has a fixed rate: there is no event to wait for"
)]
fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}
