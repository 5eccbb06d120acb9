//! Counts of events in a run, printed as a table, and the list of events that a long run must have.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bursar_booking::execution::{STOPS_UNTIL_STUCK, Verdict};
use bursar_booking::{End, Event as BookingEvent, Refusal as BookingRefusal, Reply, Submission};
use bursar_budget::{Demoted, Funded, MeterId};
use bursar_cluster::{Event as ClusterEvent, Reason, Refusal as ClusterRefusal};
use bursar_engine::codec::Record;
use bursar_engine::{Answer, Command, Event, Refusal, market, spine};

/// Events that must occur in a run of a million steps; otherwise the simulation tests too little.
pub const MUST_BE_MET: &[&str] = &[
    "answer: already ended",
    "answer: disk low",
    "answer: not leader",
    "answer: outcome unknown",
    "answer: unavailable",
    "answers lost",
    "answers out of order",
    "batches of several operations",
    "budgets changed",
    "budgets dropped",
    "budgets with caps changed",
    "caps near their limit",
    "changes of a market on record",
    "claims that overrun",
    "clock set back",
    "clock set forward",
    "crash: after append, before publish",
    "crash: after decide and encode",
    "crash: after publish",
    "crash: before anything",
    "crash: between answers",
    "crash: in flight, before append",
    "crash: while the outcome is unknown",
    "digests of a market on record",
    "disk full",
    "disk low",
    "dry runs compared",
    "end: cancelled",
    "end: expired",
    "end: forced",
    "end: released",
    "end: wait over",
    "epochs closed",
    "epochs ended by their window",
    "epochs of caps closed",
    "executions adopted after a crash",
    "executions ended",
    "executions started",
    "executions stopped",
    "executions stuck",
    "executions submitted",
    "executions that retry another",
    "fault: commits, then errors",
    "fault: errors, nothing written",
    "fault: hangs",
    "fault: no row changed",
    "grants at once",
    "grants of those who waited",
    "heads that became due",
    "hung writes that landed",
    "ids too old",
    "leader usurped",
    "lending pools near their limit",
    "limits changed",
    "limits dropped",
    "loans",
    "machine rebooted",
    "machine suspended",
    "messages doubled",
    "messages lost",
    "messages out of order",
    "meters near their limit",
    "nodes changed",
    "nodes with leases cordoned",
    "notes",
    "passes that were owed",
    "passes unfinished",
    "process stalled",
    "processes ended after a force",
    "promises extended",
    "recovered from a snapshot",
    "recovered from record 0",
    "refolds from record 0",
    "refused: budget with mistakes",
    "refused: id reused",
    "refused: is an execution",
    "refused: never fits",
    "refused: not an execution",
    "refused: others first",
    "refused: over limit",
    "refused: queue full",
    "refused: retry of one that has not ended",
    "refused: retry of one that is not known",
    "refused: run that fits no nodes",
    "refused: run that is never paid for",
    "refused: run that would wait",
    "refused: stale fence",
    "refused: time out of bounds",
    "renewals recorded",
    "repeats with the same id",
    "reports on a market that were late",
    "reports on a market",
    "restarts with an older wall clock",
    "resumes",
    "runs demoted: depletion",
    "runs demoted: promise end",
    "runs demoted: recall",
    "runs demoted: refit",
    "runs edited",
    "runs ended: budget end",
    "runs ended: cancelled",
    "runs ended: completed",
    "runs ended: failed",
    "runs ended: start failed",
    "runs ended: walltime",
    "runs refunded",
    "runs running",
    "runs started",
    "runs stopped",
    "runs submitted",
    "shims killed",
    "stale leader not obeyed by the machine",
    "stale leader refused",
    "stops that failed",
    "unknown outcomes that were committed",
    "unknown outcomes that were not",
    "unrecorded answers compared",
    "unsettled records",
    "verdict: cancelled",
    "verdict: completed",
    "verdict: failed",
    "verdict: lost",
    "verdict: timed out",
    "verdict: wait over",
    "worlds with two leaders",
];

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    /// Adds to a count.
    pub fn add(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// The count of a name.
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Required events that did not occur.
    pub fn unmet(&self) -> Vec<&'static str> {
        let unmet = MUST_BE_MET.iter().filter(|what| self.count(what) == 0);
        unmet.copied().collect()
    }

    /// The counts as a table.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for (what, times) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {what:<44} {times:>12}");
        }
        out
    }

    /// Counts the contents of a record.
    pub(crate) fn record(&mut self, record: &Record) {
        self.add("records", 1);
        if matches!(
            record.command,
            Command::Spine(spine::Command::Resume { .. })
        ) {
            self.add("resumes", 1);
        }
        for event in &record.events {
            match event {
                Event::Booking(event) => {
                    self.add(name_of(event), 1);
                    self.execution(event);
                }
                Event::Spine(spine::Event::NodeSet(_) | spine::Event::NodeDropped { .. }) => {
                    self.add("nodes changed", 1);
                }
                Event::Cluster(event) => {
                    if let Some(name) = name_of_cluster(event) {
                        self.add(name, 1);
                    }
                }
                Event::Spine(_) | Event::Market(_) => {}
            }
        }
    }

    /// Counts the verdict of an execution.
    pub(crate) fn verdict(&mut self, verdict: Verdict) {
        let name = match verdict {
            Verdict::Completed => "verdict: completed",
            Verdict::Failed => "verdict: failed",
            Verdict::Lost => "verdict: lost",
            Verdict::Cancelled => "verdict: cancelled",
            Verdict::TimedOut => "verdict: timed out",
            Verdict::WaitOver => "verdict: wait over",
        };
        self.add(name, 1);
    }

    /// Counts events that only executions have.
    fn execution(&mut self, event: &BookingEvent) {
        match event {
            BookingEvent::Submitted(Submission { order, .. }) => {
                self.add("executions submitted", 1);
                let is_retry = order.retry_of.is_some();
                self.add("executions that retry another", u64::from(is_retry));
            }
            BookingEvent::StopFailed { attempt, .. } if *attempt >= STOPS_UNTIL_STUCK => {
                self.add("executions stuck", 1);
            }
            _ => {}
        }
    }

    /// Counts an answer without a record.
    pub(crate) fn answer(&mut self, result: &Result<Answer, Refusal>) {
        let name = match result {
            Err(Refusal::Booking(refusal)) => match refusal {
                BookingRefusal::OverLimit { .. } => "refused: over limit",
                BookingRefusal::OthersFirst { .. } => "refused: others first",
                BookingRefusal::QueueFull { .. } | BookingRefusal::TenantQueueFull { .. } => {
                    "refused: queue full"
                }
                BookingRefusal::NeverFits { .. } => "refused: never fits",
                BookingRefusal::TimeOutOfBounds { .. } => "refused: time out of bounds",
                BookingRefusal::IdReused { .. } => "refused: id reused",
                BookingRefusal::IdTooOld { .. } => "ids too old",
                BookingRefusal::StaleFence { .. } => "refused: stale fence",
                BookingRefusal::IsExecution => "refused: is an execution",
                BookingRefusal::NotAnExecution => "refused: not an execution",
                BookingRefusal::RetryOfLive => "refused: retry of one that has not ended",
                BookingRefusal::RetryOfUnknown => "refused: retry of one that is not known",
                _ => "refused: other",
            },
            Err(Refusal::Cluster(refusal)) => match refusal {
                ClusterRefusal::BudgetMistakes { .. } => "refused: budget with mistakes",
                ClusterRefusal::NeverCovered { .. } => "refused: run that is never paid for",
                ClusterRefusal::NeverPlaced { .. } => "refused: run that fits no nodes",
                ClusterRefusal::WouldWait { .. } => "refused: run that would wait",
                _ => "refused: other",
            },
            Err(Refusal::Market(market::Refusal::Stale { .. })) => {
                "reports on a market that were late"
            }
            Ok(Answer::Booking(Reply::Repeated(_))) => "repeats with the same id",
            Ok(Answer::Booking(Reply::AlreadyEnded(_))) => "answer: already ended",
            Ok(Answer::Booking(Reply::Renewed { .. })) => "renewals answered",
            _ => return,
        };
        self.add(name, 1);
    }
}

fn name_of(event: &BookingEvent) -> &'static str {
    match event {
        BookingEvent::Reserved(request)
        | BookingEvent::Submitted(Submission {
            booking: request, ..
        }) => match request.fence {
            Some(_) => "grants at once",
            None => "requests that waited",
        },
        BookingEvent::Granted { .. } => "grants of those who waited",
        BookingEvent::Renewed { .. } => "renewals recorded",
        BookingEvent::Ended { end, .. } => match end {
            End::Released => "end: released",
            End::Cancelled => "end: cancelled",
            End::Expired => "end: expired",
            End::WaitOver => "end: wait over",
            End::Forced => "end: forced",
        },
        BookingEvent::Started { .. } => "executions started",
        BookingEvent::Adopted { .. } => "executions adopted",
        BookingEvent::Stopping { .. } => "executions stopped",
        BookingEvent::StopFailed { .. } => "stops that failed",
        BookingEvent::Exited { .. } => "executions ended",
        BookingEvent::Noted { .. } => "notes",
        BookingEvent::LimitSet { .. } => "limits changed",
        BookingEvent::LimitDropped { .. } => "limits dropped",
        BookingEvent::Unsettled { .. } => "unsettled records",
    }
}

/// Name of the counter of a cluster event.
fn name_of_cluster(event: &ClusterEvent) -> Option<&'static str> {
    Some(match event {
        ClusterEvent::BudgetSet(budget) if !budget.aggregate_caps.is_empty() => {
            "budgets with caps changed"
        }
        ClusterEvent::BudgetSet(_) => "budgets changed",
        ClusterEvent::BudgetDropped { .. } => "budgets dropped",
        ClusterEvent::EpochClosed { epoch, .. } => match epoch.meter {
            MeterId::Cap(_) => "epochs of caps closed",
            MeterId::Envelope(_) | MeterId::Lending(_) => "epochs closed",
        },
        ClusterEvent::MeterNear { near, .. } => match near.meter {
            MeterId::Cap(_) => "caps near their limit",
            MeterId::Envelope(_) => "meters near their limit",
            MeterId::Lending(_) => "lending pools near their limit",
        },
        ClusterEvent::RunSubmitted { .. } => "runs submitted",
        ClusterEvent::RunEdited { .. } => "runs edited",
        ClusterEvent::RunFunded { cause, .. } => match cause {
            Funded::Take => "runs started",
            Funded::Refund => "runs refunded",
            Funded::Extension => "promises extended",
            Funded::Overrun => "claims that overrun",
        },
        ClusterEvent::RunDemoted { cause, .. } => match cause {
            Demoted::PromiseEnd => "runs demoted: promise end",
            Demoted::Depletion => "runs demoted: depletion",
            Demoted::Refit => "runs demoted: refit",
            Demoted::Recall => "runs demoted: recall",
        },
        ClusterEvent::RunRunning { .. } => "runs running",
        ClusterEvent::RunEnding { .. } => "runs stopped",
        ClusterEvent::RunEnded { reason, .. } => match reason {
            Reason::Completed => "runs ended: completed",
            Reason::Failed => "runs ended: failed",
            Reason::Cancelled => "runs ended: cancelled",
            Reason::StartFailed => "runs ended: start failed",
            Reason::Walltime => "runs ended: walltime",
            Reason::BudgetEnd => "runs ended: budget end",
        },
        ClusterEvent::PassUnfinished { .. } => "passes unfinished",
        ClusterEvent::PolicySet(_)
        | ClusterEvent::LeasesOpened { .. }
        | ClusterEvent::LeasesClosed { .. }
        | ClusterEvent::PassFinished {} => return None,
    })
}
