//! What the records of a ledger say of its executions: read back, and counted a second time.
//!
//! It shares nothing with the engine's own counters, so it can tell when those are wrong: a slot
//! that was never given back, one that was given to two, an execution that ended twice.

use std::collections::BTreeMap;

use anyhow::Context as _;
use bursar_booking::execution::Verdict;
use bursar_booking::{Event as Booked, Submission};
use bursar_engine::Event;
use bursar_engine::codec::decode_events;
use bursar_journal::hash::Hash;
use bursar_ledger::store::Reader;
use bursar_units::{BookingId, Instant, Label};

/// Records that are read at a time.
const CHUNK: usize = 4_096;

/// What all records say.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) executions: BTreeMap<BookingId, Told>,
    /// Slots that are held after the last record.
    pub(super) held: u64,
    /// The most slots that were held at any moment.
    pub(super) held_max: u64,
}

/// What they say of one execution.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) tenant: Label,
    slots: u64,
    pub(super) submitted: Instant,
    pub(super) granted: Option<Instant>,
    grants: u32,
    ends: u32,
    pub(super) verdict: Option<Verdict>,
}

/// Reads them all.
pub(super) fn read(reader: &dyn Reader) -> anyhow::Result<Said> {
    let mut said = Said::default();
    let mut next = 0;
    loop {
        let chunk = reader.records(next, CHUNK)?;
        if chunk.is_empty() {
            return Ok(said);
        }
        for kept in chunk {
            let bytes = kept
                .bytes
                .with_context(|| format!("record {next} is gone"))?;
            let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
            let (time, events) = decode_events(kept.seq, &bytes, blob)?;
            for event in events {
                if let Event::Booking(event) = event {
                    said.take(event.time().unwrap_or(time), event);
                }
            }
            next += 1;
        }
    }
}

impl Said {
    /// What did not go as it must: executions that did not end exactly once or were granted
    /// twice, and slots that are held.
    pub(super) fn leaked(&self) -> u64 {
        let is_wrong = |told: &&Told| told.ends != 1 || 1 < told.grants;
        let wrong = self.executions.values().filter(is_wrong).count();
        self.held + u64::try_from(wrong).unwrap_or(u64::MAX)
    }

    /// How many came out like this.
    pub(super) fn ended(&self, verdict: Verdict) -> u64 {
        let alike = |told: &&Told| told.verdict == Some(verdict);
        let count = self.executions.values().filter(alike).count();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    fn take(&mut self, at: Instant, event: Booked) {
        match event {
            Booked::Reserved(asked) | Booked::Submitted(Submission { booking: asked, .. }) => {
                let told = Told {
                    tenant: asked.tenant,
                    slots: asked.slots,
                    submitted: at,
                    granted: None,
                    grants: 0,
                    ends: 0,
                    verdict: None,
                };
                self.executions.insert(asked.id.clone(), told);
                if asked.fence.is_some() {
                    self.grant(at, &asked.id);
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
        let Some(told) = self.executions.get_mut(id) else {
            return;
        };
        told.granted = Some(at);
        told.grants += 1;
        self.held += told.slots;
        self.held_max = self.held_max.max(self.held);
    }

    fn end(&mut self, id: &BookingId, verdict: Verdict) {
        let Some(told) = self.executions.get_mut(id) else {
            return;
        };
        told.ends += 1;
        told.verdict = Some(verdict);
        if told.granted.is_some() && told.ends == 1 {
            self.held = self.held.saturating_sub(told.slots);
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
    use super::{Said, Verdict};

    fn told(events: &[(&str, &str)]) -> Said {
        let mut said = Said::default();
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
            said.take(Instant::default(), event);
        }
        said
    }

    #[test]
    fn a_slot_that_is_not_given_back_and_an_end_that_comes_twice_are_leaks() {
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
            // Its slot, and that it did not end.
            (&good[..1], 2, 1),
            (&[("b", "next"), ("b", "exited"), ("b", "exited")], 1, 1),
            (&[("b", "next"), ("b", "next"), ("b", "exited")], 2, 2),
        ] {
            let said = told(&[&lives[..], more].concat());
            assert_eq!(
                (said.leaked(), said.held_max),
                (leaked, held_max),
                "{more:?}"
            );
        }
    }
}
