//! The settings of a node as one text with a hash.
//!
//! Every line of the agent's record holds the hash, and the first line under new settings holds the
//! text; the ledger has both. The parameters of a cgroup are not part of it: each line has them.

use bursar_journal::hash::{Hash, sha256};
use bursar_market::clear::Policy;
use bursar_market::node::Settings;
use serde::{Deserialize, Serialize};

use super::{Mode, Options, Unmanaged};

/// Maximum of remembered samples: an hour, at one a second.
pub const WINDOWS_MAX: usize = 3_600;

/// Settings of a node, as text with a hash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rules {
    /// Whether limits are written; `None` without an agent.
    pub mode: Option<Mode>,
    /// The rule that divides scarce CPU.
    pub policy: Policy,
    /// The settings, as JSON.
    pub text: String,
    /// The hash of the text.
    pub sha256: Hash,
}

/// Parsed settings of a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    /// Whether limits are written; `None` without an agent.
    pub mode: Option<Mode>,
    /// Settings of the node's market.
    pub settings: Settings,
    /// Interval of clearing, in milliseconds.
    pub interval_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RulesText {
    mode: String,
    policy: String,
    quantum_milli: u64,
    interval_us: u64,
    windows: usize,
    size_block: u64,
    writes_per_hour: u64,
    cooldown_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_step: Option<u64>,
    conflict_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unmanaged_milli_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserve_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unmanaged_milli: Option<u64>,
}

impl Rules {
    /// The settings of an agent.
    pub fn of(options: &Options) -> Self {
        Self::new(options, Some(options.mode))
    }

    /// The same settings without an agent.
    pub fn off(options: &Options) -> Self {
        Self::new(options, None)
    }

    fn new(options: &Options, mode: Option<Mode>) -> Self {
        let settings = &options.settings;
        let micros =
            |length: std::time::Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let written = RulesText {
            mode: word(mode).to_owned(),
            policy: settings.policy.word().to_owned(),
            quantum_milli: settings.quantum_milli,
            interval_us: micros(options.interval),
            windows: settings.windows,
            size_block: settings.size_block,
            writes_per_hour: settings.writes_per_hour,
            cooldown_us: settings.cooldown_us,
            max_step: settings.max_step,
            conflict_us: settings.conflict_us,
            unmanaged_milli_max: settings.unmanaged_milli_max,
            reserve_milli: options.reserve_milli,
            unmanaged_milli: match options.unmanaged {
                Unmanaged::Measured => None,
                Unmanaged::Given(milli) => Some(milli),
            },
        };
        // Numbers and strings always serialize.
        let text = serde_json::to_string(&written).unwrap_or_default();
        Self {
            mode,
            policy: settings.policy,
            sha256: sha256(text.as_bytes()),
            text,
        }
    }
}

impl Run {
    /// Parses a text; `None` if it is not valid.
    pub(super) fn read(text: &str) -> Option<Self> {
        let written: RulesText = serde_json::from_str(text).ok()?;
        let mut modes = [None, Some(Mode::Observe), Some(Mode::Act)].into_iter();
        Some(Self {
            mode: modes.find(|mode| word(*mode) == written.mode)?,
            settings: Settings {
                policy: Policy::from_word(&written.policy)?,
                quantum_milli: written.quantum_milli,
                windows: written.windows.min(WINDOWS_MAX),
                size_block: written.size_block,
                writes_per_hour: written.writes_per_hour,
                cooldown_us: written.cooldown_us,
                max_step: written.max_step,
                conflict_us: written.conflict_us,
                unmanaged_milli_max: written.unmanaged_milli_max,
            },
            interval_ms: written.interval_us / 1_000,
        })
    }
}

fn word(mode: Option<Mode>) -> &'static str {
    match mode {
        None => "off",
        Some(Mode::Observe) => "observe",
        Some(Mode::Act) => "act",
    }
}
