//! The published state of an agent and its node, as of the last clearing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bursar_market::cgroup::{Pressure, Quota};
use bursar_market::clear::Mode;
use bursar_market::node::{Clearing, Settings, Standing};

use super::record::{Event, Replayed};
use super::{Kind, Position, Rules, Why};

/// Age limit of the published past clearings.
pub const HISTORY_MS: u64 = 600_000;
/// Maximum number of published past clearings: ten minutes at one a second.
pub(super) const HISTORY_MAX: usize = 600;

/// Number of missed clearings after which an agent counts as silent, but not before
/// [`SILENT_MS_MIN`]. The alert on it has the same numbers.
pub const SILENT_CLEARINGS: u64 = 3;
/// See [`SILENT_CLEARINGS`].
pub const SILENT_MS_MIN: u64 = 60_000;

/// A node and its agent.
#[derive(Clone, Debug)]
pub struct View {
    /// The node's name.
    pub node: String,
    /// Time of this view, in milliseconds since 1970.
    pub at_ms: u64,
    /// Time of the last clearing, in milliseconds since 1970.
    pub cleared_ms: Option<u64>,
    /// `at_ms` on the clock of the clearings, in microseconds.
    pub now_us: u64,
    /// Settings of the node's market.
    pub settings: Settings,
    /// Whether limits are written.
    pub acts: Acts,
    /// The last clearing.
    pub clearing: Option<Clearing>,
    /// The state of the pods, by name.
    pub standings: Vec<Standing>,
    /// The kinds of the pods; empty for the past.
    pub kinds: BTreeMap<String, Kind>,
    /// How long their processes waited for a CPU, where the kernel counts it.
    pub pressures: BTreeMap<String, Pressure>,
    /// Cgroups that are observed only.
    pub observed: Vec<Observed>,
    /// Unmanaged cgroups, with the reasons.
    pub unmanaged: Vec<(String, Why)>,
    /// Excess of the sum of limits over the shared capacity.
    pub over_milli: u64,
    /// Total time with an excess.
    pub over_ms: u64,
    /// Number of clearings.
    pub clearings: u64,
    /// Number of limits written.
    pub writes: u64,
    /// Number of clearings that were skipped because the agent was late.
    pub skipped: u64,
    /// Errors since the last clearing but one.
    pub error: Option<String>,
    /// Interval of clearing, in milliseconds.
    pub interval_ms: u64,
    /// Number of minutes in which a pod was throttled although it had its whole need (M2).
    pub misses: u64,
    /// Past clearings, oldest first.
    pub history: Vec<Arc<Point>>,
    /// The settings as text, with their hash.
    pub rules: Arc<Rules>,
    /// The stored originals, in millicores; `None` for no limit.
    pub originals: BTreeMap<String, Option<u64>>,
    /// The end of its record; `None` before the first line.
    pub position: Option<Position>,
}

/// A limit that was written and read back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resize {
    /// Time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The node's name.
    pub node: String,
    /// The pod's name.
    pub pod: String,
    /// The old limit; `None` for no limit.
    pub from_milli: Option<u64>,
    /// The new limit.
    pub to_milli: Option<u64>,
    /// The need of the pod.
    pub need_milli: u64,
    /// The displayed mode.
    pub label: Mode,
}

/// Whether limits are written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Acts {
    /// Yes.
    Yes,
    /// No, because of the settings.
    Told,
    /// No, for this reason.
    Cannot(String),
}

/// A cgroup that is observed only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Observed {
    /// Its path from the root of the hierarchy.
    pub group: PathBuf,
    /// Its quota.
    pub quota: Option<Quota>,
    /// Its recent use.
    pub used_milli: Option<u64>,
    /// Its highest use in the window of memory.
    pub peak_milli: Option<u64>,
    /// The share of throttled periods in the last interval, in permille.
    pub throttled_permille: u64,
}

/// A past clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Point {
    /// Time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The displayed mode.
    pub label: Mode,
    /// The price.
    pub price_ppm: u64,
    /// The shared capacity.
    pub capacity_milli: u64,
    /// The pods, by name.
    pub pods: Vec<PointPod>,
}

/// A pod in a past clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PointPod {
    /// The pod's name.
    pub pod: Arc<str>,
    /// Its need.
    pub need_milli: u64,
    /// Its limit, as read back.
    pub limit_milli: u64,
    /// Its use.
    pub used_milli: Option<u64>,
}

impl View {
    /// The same node at a past clearing, with only the data that its record holds.
    pub(super) fn then(&self, at_ms: u64, past: Replayed) -> Self {
        let standing = |standing| after(&past.events, standing);
        Self {
            at_ms,
            cleared_ms: Some(at_ms),
            now_us: 0,
            settings: past.run.settings,
            acts: self.acted(&past),
            interval_ms: past.run.interval_ms,
            standings: past.standings.iter().cloned().map(standing).collect(),
            kinds: BTreeMap::new(),
            pressures: BTreeMap::new(),
            observed: Vec::new(),
            unmanaged: Vec::new(),
            over_milli: 0,
            error: None,
            history: Vec::new(),
            clearing: Some(past.clearing),
            ..self.clone()
        }
    }

    /// Whether limits were written at a past clearing. The record does not say whether an agent in
    /// mode `act` was able to: one that is unable now, with the same settings, was unable then,
    /// unless it wrote something.
    fn acted(&self, past: &Replayed) -> Acts {
        let has_written = past
            .events
            .iter()
            .any(|event| matches!(event, Event::Wrote { .. }));
        match (past.run.mode, &self.acts) {
            (Some(super::Mode::Act), Acts::Cannot(reason))
                if !has_written && past.settings == self.rules.sha256 =>
            {
                Acts::Cannot(reason.clone())
            }
            (Some(super::Mode::Act), _) => Acts::Yes,
            (Some(super::Mode::Observe) | None, _) => Acts::Told,
        }
    }

    /// Converts a time on the clock of the clearings to milliseconds since 1970.
    pub fn wall_ms(&self, at_us: u64) -> u64 {
        let ago_us = self.now_us.saturating_sub(at_us);
        self.at_ms.saturating_sub(ago_us / 1_000)
    }
}

/// How long an agent has been silent, if it is. Before its first clearing `last_ms` is the time at
/// which it was first seen.
pub fn silent_ms(last_ms: u64, clear_ms: u64, now_ms: u64) -> Option<u64> {
    let silent_ms = now_ms.saturating_sub(last_ms);
    let most_ms = SILENT_CLEARINGS.saturating_mul(clear_ms);
    (most_ms.max(SILENT_MS_MIN) < silent_ms).then_some(silent_ms)
}

/// The state of a pod after the writes of a past clearing.
fn after(events: &[Event], mut standing: Standing) -> Standing {
    let written = events.iter().rev().find_map(|event| match event {
        Event::Wrote { pod, to_milli, .. } if *pod == standing.id => *to_milli,
        _ => None,
    });
    if let Some(milli) = written {
        standing.bidder.limit_milli = milli;
    }
    // The replay plans its own writes, without the budget and the guardrails of that time.
    standing.left_out = None;
    standing
}
