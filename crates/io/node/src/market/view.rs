//! What an agent tells of itself and its node, as of its last clearing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bursar_market::cgroup::{Pressure, Quota};
use bursar_market::clear::{Mode, Pod, Want};
use bursar_market::need::need;
use bursar_market::node::{Clearing, Settings, Standing};
use bursar_market::params::Params;
use bursar_market::sense::Shown;

use super::record::{Event, Past};
use super::{Kind, Position, Rules, Why};

/// For how long past clearings are told.
pub const HISTORY_MS: u64 = 600_000;
/// How many past clearings are told at most: as many as ten minutes have at one a second.
pub(super) const HISTORY_MAX: usize = 600;

/// After how many clearings that did not come an agent is silent, and after how long at least: the
/// alert on it has the same numbers.
pub const SILENT_CLEARINGS: u64 = 3;
/// See [`SILENT_CLEARINGS`].
pub const SILENT_MS_MIN: u64 = 60_000;

/// A node and its agent.
#[derive(Clone, Debug)]
pub struct View {
    /// The node.
    pub node: String,
    /// When this was seen, in milliseconds since 1970.
    pub at_ms: u64,
    /// When it was cleared last, in milliseconds since 1970.
    pub cleared_ms: Option<u64>,
    /// The same as `at_ms` by the clock of the clearing, in microseconds.
    pub now_us: u64,
    /// How the node is run.
    pub settings: Settings,
    /// Whether limits are written.
    pub acts: Acts,
    /// The last clearing.
    pub clearing: Option<Clearing>,
    /// How the pods stand, by name.
    pub standings: Vec<Standing>,
    /// Who asked for each of them, where that is known: of the past only names tell.
    pub kinds: BTreeMap<String, Kind>,
    /// How long their processes waited for a CPU, where that is counted.
    pub pressures: BTreeMap<String, Pressure>,
    /// Those who are only looked at.
    pub observed: Vec<Observed>,
    /// Those who are not managed, and why.
    pub unmanaged: Vec<(String, Why)>,
    /// By how much the limits together exceed what can be shared.
    pub over_milli: u64,
    /// For how long they did.
    pub over_ms: u64,
    /// How often it cleared.
    pub clearings: u64,
    /// How many limits it wrote.
    pub writes: u64,
    /// How often it came too late for a look or a clearing.
    pub skipped: u64,
    /// What went wrong since the last clearing but one.
    pub error: Option<String>,
    /// How often it looks, and clears, in milliseconds.
    pub every_ms: (u64, u64),
    /// Past clearings, oldest first.
    pub history: Vec<Arc<Point>>,
    /// The settings it is run by.
    pub rules: Arc<Rules>,
    /// What is to be put back some day, in millicores; `None` for no limit.
    pub originals: BTreeMap<String, Option<u64>>,
    /// How far its record has come; `None` before the first line.
    pub position: Option<Position>,
}

/// A limit that was written and read back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resize {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// On which node.
    pub node: String,
    /// Whose.
    pub pod: String,
    /// What it was; `None` for no limit.
    pub from_milli: Option<u64>,
    /// What it is.
    pub to_milli: Option<u64>,
    /// What the pod needs.
    pub need_milli: u64,
    /// The mode that people are shown.
    pub label: Mode,
}

/// Whether limits are written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Acts {
    /// They are.
    Yes,
    /// It was told to look only.
    Told,
    /// It cannot, for this reason.
    Cannot(String),
}

/// A cgroup that is only looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Observed {
    /// From the root of the hierarchy.
    pub group: PathBuf,
    /// What it may use.
    pub quota: Option<Quota>,
    /// What it used lately.
    pub used_milli: Option<u64>,
    /// What it used and was held back from, at its highest in the window.
    pub peak_milli: Option<u64>,
    /// The share of throttled periods between the last two clearings, in permille.
    pub throttled_permille: u64,
}

/// A past clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Point {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The mode that people were shown.
    pub label: Mode,
    /// The price.
    pub price_ppm: u64,
    /// What could be shared.
    pub capacity_milli: u64,
    /// Who took part, by name.
    pub pods: Vec<PointPod>,
}

/// One who took part in a past clearing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PointPod {
    /// Who.
    pub pod: Arc<str>,
    /// What it needed.
    pub need_milli: u64,
    /// What it was allowed, as read back.
    pub limit_milli: u64,
    /// What it used.
    pub used_milli: Option<u64>,
}

impl View {
    /// The same node at a clearing of the past: what its record holds, and nothing else.
    pub(super) fn then(&self, past: Past) -> Self {
        let standings = past.market.pods.iter().map(|pod| standing(&past, pod));
        Self {
            at_ms: past.at_ms,
            cleared_ms: Some(past.at_ms),
            now_us: 0,
            settings: past.run.settings,
            acts: self.acted(&past),
            every_ms: past.run.every_ms,
            standings: standings.collect(),
            kinds: BTreeMap::new(),
            pressures: BTreeMap::new(),
            observed: Vec::new(),
            unmanaged: Vec::new(),
            over_milli: 0,
            error: None,
            history: Vec::new(),
            clearing: Some(Clearing {
                at_us: 0,
                allocatable_milli: past.allocatable_milli,
                unmanaged_milli: past.unmanaged_milli,
                held_milli: past.held_milli,
                market: past.market,
                cleared: past.cleared,
                label: past.label,
            }),
            ..self.clone()
        }
    }

    /// Whether limits were written at a clearing of the past. Whoever was told to act may have been
    /// unable to: who is so by the very same settings was so then, unless it wrote something.
    fn acted(&self, past: &Past) -> Acts {
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

    /// When something happened by the clock of the clearing, in milliseconds since 1970.
    pub fn wall_ms(&self, at_us: u64) -> u64 {
        let ago_us = self.now_us.saturating_sub(at_us);
        self.at_ms.saturating_sub(ago_us / 1_000)
    }
}

/// For how long an agent that clears so often has been silent, if it is; before its first clearing
/// the time counts at which it was first seen.
pub fn silent_ms(last_ms: u64, clear_ms: u64, now_ms: u64) -> Option<u64> {
    let silent_ms = now_ms.saturating_sub(last_ms);
    let most_ms = SILENT_CLEARINGS.saturating_mul(clear_ms);
    (most_ms.max(SILENT_MS_MIN) < silent_ms).then_some(silent_ms)
}

/// How a pod stood after a clearing of the past.
fn standing(past: &Past, pod: &Pod) -> Standing {
    let written = past.events.iter().rev().find_map(|event| match event {
        Event::Wrote {
            pod: id, to_milli, ..
        } if **id == *pod.id => *to_milli,
        _ => None,
    });
    let shown = match pod.want {
        // Demand rounds up to whole parts, and so what it was is found again, up to the ceiling.
        Want::Demand(ppm) => Shown::Demand {
            milli: need(pod.min_milli, pod.max_milli, ppm, pod.headroom_permille).raw_milli,
        },
        Want::Need(_) => Shown::Nothing,
    };
    Standing {
        id: pod.id.to_string(),
        params: Params {
            min_milli: pod.min_milli,
            max_milli: pod.max_milli,
            weight: pod.weight,
        },
        original: Quota::NONE,
        limit_milli: written.or(pod.current_milli).unwrap_or(pod.max_milli),
        used_milli: None,
        throttled_permille: None,
        shown,
        headroom_permille: pod.headroom_permille,
        changed_us: None,
        cooling_us: None,
        held: None,
    }
}
