//! Executions and slots, counted a second time from the records of a ledger.
//!
//! Shares no code with the engine's counters, so it detects their errors: a slot that was never
//! released or granted twice, an execution that ended twice.

use std::collections::BTreeMap;

use anyhow::Context as _;
use bursar_booking::execution::Verdict;
use bursar_booking::{Event as Booked, Submission};
use bursar_engine::Event;
use bursar_engine::codec::decode_events;
use bursar_journal::hash::Hash;
use bursar_ledger::store::Reader;
use bursar_units::{BookingId, Instant, Label};

/// Number of records that are read at a time.
const CHUNK: usize = 4_096;

/// Executions and slots in all records.
#[derive(Debug, Default)]
pub(super) struct LedgerHistory {
    pub(super) executions: BTreeMap<BookingId, ExecutionHistory>,
    /// Slots held after the last record.
    pub(super) held: u64,
    /// Maximum number of slots held at any record.
    pub(super) held_max: u64,
}

/// The records of one execution.
#[derive(Clone, Debug)]
pub(super) struct ExecutionHistory {
    pub(super) tenant: Label,
    slots: u64,
    pub(super) submitted: Instant,
    pub(super) granted: Option<Instant>,
    grants: u32,
    ends: u32,
    pub(super) verdict: Option<Verdict>,
}

/// Reads all records.
pub(super) fn read(reader: &dyn Reader) -> anyhow::Result<LedgerHistory> {
    let mut history = LedgerHistory::default();
    let mut next = 0;
    loop {
        let chunk = reader.records(next, CHUNK)?;
        if chunk.is_empty() {
            return Ok(history);
        }
        for kept in chunk {
            let bytes = kept
                .bytes
                .with_context(|| format!("the payload of record {next} is missing"))?;
            let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
            let (time, events) = decode_events(kept.seq, &bytes, blob)?;
            for event in events {
                if let Event::Booking(event) = event {
                    history.take(event.time().unwrap_or(time), event);
                }
            }
            next += 1;
        }
    }
}

impl LedgerHistory {
    /// Number of held slots and of executions that did not end exactly once or were granted twice.
    pub(super) fn leaked(&self) -> u64 {
        let is_wrong = |execution: &&ExecutionHistory| execution.ends != 1 || 1 < execution.grants;
        let wrong = self.executions.values().filter(is_wrong).count();
        self.held + u64::try_from(wrong).unwrap_or(u64::MAX)
    }

    /// Number of executions with this verdict.
    pub(super) fn ended(&self, verdict: Verdict) -> u64 {
        let alike = |execution: &&ExecutionHistory| execution.verdict == Some(verdict);
        let count = self.executions.values().filter(alike).count();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    fn take(&mut self, at: Instant, event: Booked) {
        match event {
            Booked::Reserved(request)
            | Booked::Submitted(Submission {
                booking: request, ..
            }) => {
                let execution = ExecutionHistory {
                    tenant: request.tenant,
                    slots: request.slots,
                    submitted: at,
                    granted: None,
                    grants: 0,
                    ends: 0,
                    verdict: None,
                };
                self.executions.insert(request.id.clone(), execution);
                if request.fence.is_some() {
                    self.grant(at, &request.id);
                }
            }
            Booked::Granted { id, .. } => self.grant(at, &id),
            Booked::Ended { id, end, .. } => {
                let verdict = match end {
                    bursar_booking::End::Cancelled => Verdict::Cancelled,
                    bursar_booking::End::WaitOver => Verdict::WaitOver,
                    _ => Verdict::Lost,
                };
                self.end(&id, verdict);
            }
            Booked::Exited { id, verdict, .. } => self.end(&id, verdict),
            _ => {}
        }
    }

    fn grant(&mut self, at: Instant, id: &BookingId) {
        let Some(execution) = self.executions.get_mut(id) else {
            return;
        };
        execution.granted = Some(at);
        execution.grants += 1;
        self.held += execution.slots;
        self.held_max = self.held_max.max(self.held);
    }

    fn end(&mut self, id: &BookingId, verdict: Verdict) {
        let Some(execution) = self.executions.get_mut(id) else {
            return;
        };
        execution.ends += 1;
        execution.verdict = Some(verdict);
        if execution.granted.is_some() && execution.ends == 1 {
            self.held = self.held.saturating_sub(execution.slots);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_booking::{End, Event, Fence};
    use bursar_journal::hash::Hash;
    use bursar_units::{BookingId, Instant};

    use super::super::Job;
    use super::{LedgerHistory, Verdict};

    fn history(events: &[(&str, &str)]) -> LedgerHistory {
        let mut history = LedgerHistory::default();
        let job = Job::new("t", "lora", Hash([0; 32])).unwrap();
        for (id, what) in events {
            let id = BookingId::new(id).unwrap();
            let event = match *what {
                "granted" => {
                    let mut submission = job.submission(id);
                    submission.booking.fence = Some(Fence(1));
                    Event::Submitted(submission)
                }
                "queued" => Event::Submitted(job.submission(id)),
                "next" => Event::Granted {
                    id,
                    fence: Fence(2),
                    of: None,
                    t: None,
                },
                "exited" => Event::Exited {
                    id,
                    verdict: Verdict::Completed,
                    exit_code: Some(0),
                    signal: None,
                    is_out_of_memory: false,
                    reason: None,
                    of: None,
                },
                _ => Event::Ended {
                    id,
                    end: End::Cancelled,
                    outcome: None,
                    exit_code: None,
                    reason: None,
                    of: None,
                    t: None,
                },
            };
            history.take(Instant::default(), event);
        }
        history
    }

    #[test]
    fn a_held_slot_and_a_second_end_are_leaks() {
        let lives = [("a", "granted"), ("b", "queued"), ("a", "exited")];
        let good = [
            ("b", "next"),
            ("b", "exited"),
            ("c", "queued"),
            ("c", "left"),
        ];
        for (more, leaked, held_max) in [
            (&good[..], 0, 1),
            (&good[..2], 0, 1),
            // The held slot and the missing end.
            (&good[..1], 2, 1),
            (&[("b", "next"), ("b", "exited"), ("b", "exited")], 1, 1),
            (&[("b", "next"), ("b", "next"), ("b", "exited")], 2, 2),
        ] {
            let history = history(&[&lives[..], more].concat());
            assert_eq!(
                (history.leaked(), history.held_max),
                (leaked, held_max),
                "{more:?}"
            );
        }
    }
}
