//! Covers that failed: their log lines, and the counter of denied loans.
//!
//! They are counted where the server sees them: at submissions that are refused or wait. A pass that
//! fails again for the same run is not counted again.

use bursar_engine::cluster::budget::MeterId;
use bursar_engine::cluster::budget::cover::Failure;
use bursar_engine::cluster::{Refusal as ClusterRefusal, Run, Stage};
use bursar_engine::explain::submitted;
use bursar_engine::{Answer, Command, Refusal, State};
use bursar_units::Instant;

use crate::log;
use crate::metrics::Metrics;

/// Logs and counts the failed covers of a command that was submitted.
pub(crate) fn note_covers(
    metrics: &Metrics,
    state: &State,
    now: Instant,
    command: &Command,
    result: &Result<Answer, Refusal>,
) {
    match result {
        Err(Refusal::Cluster(ClusterRefusal::NeverCovered { run, trace, .. })) => {
            if let (Some(run), Err(failure)) = (submitted(command, run), &trace.outcome) {
                note(metrics, run, failure);
            }
        }
        Ok(Answer::Changed(changed)) => {
            let changed = changed.iter().filter(|changed| changed.is_changed);
            let runs = changed.filter_map(|changed| changed.run.as_deref());
            for shown in runs.filter(|shown| shown.stage == Stage::Waiting) {
                if let Some(failure) = state.clusters.failed_cover(now, &shown.uid) {
                    note(metrics, &shown.run, &failure);
                }
            }
        }
        _ => {}
    }
}

fn note(metrics: &Metrics, run: &Run, failure: &Failure) {
    let (name, owner, reason) = (run.id(), run.owner.as_str(), failure.reason.to_string());
    let (wanted, short) = (failure.wanted, failure.short);
    tracing::info!(run = %name, owner, reason, wanted, short, "{}", log::BUDGET_COVER_FAILED);
    for envelope in &failure.denied {
        let lender = envelope.as_str();
        tracing::info!(run = %name, owner, envelope = lender, "{}", log::BUDGET_LENDING_DENIED);
        metrics.lending_denied(lender, owner);
    }
    for (meter, dimension) in &failure.exhausted {
        if let MeterId::Cap(_) = meter {
            let (meter, dimension) = (meter.to_string(), dimension.to_string());
            tracing::info!(run = %name, owner, meter, dimension, "{}", log::BUDGET_CAP_BREACHED);
        }
    }
}
