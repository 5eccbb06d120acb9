//! `[market]` and `[[cgroup]]` of the settings file.
//!
//! Tables become types while the file is read, so that a mistake is reported with its line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_engine::market::Mode as MarketSetting;
use bursar_market::clear::{Policy, VALUE_MAX};
use bursar_market::node::Settings as NodeSettings;
use bursar_market::params::{BASELINE_MILLI, FACTOR_PERMILLE, Params, weight};
use bursar_node::market::{
    DIRECTORY, Declared, Executions, Mode, Options, Place, Unmanaged, WINDOWS_MAX, check_declared,
};
use bursar_units::Millis;
use bursar_units::causes::chain;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::failure::{Failure, Stop};

/// Directory of our own process, from which the agent finds the cgroup hierarchies.
const PROCESS: &str = "/proc/self";
/// Mount directory of the hierarchies, which is not part of a cgroup's path.
const MOUNTED: &str = "/sys/fs/cgroup";
/// Longest name of a cgroup, the same as for nodes.
const NAME_MAX: usize = 253;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Written")]
pub(in crate::command) struct Settings {
    /// Default: observe.
    pub(in crate::command) mode: Option<MarketSetting>,
    node: NodeSettings,
    interval: Option<Duration>,
    reserve_milli: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "WrittenCgroup")]
pub(in crate::command) struct Cgroup(Declared);

/// Default interval between clearings.
const INTERVAL: Duration = Duration::from_secs(1);
/// Default time for which use is remembered.
const MEMORY: Duration = Duration::from_secs(10);
/// Default length of a block of the size.
const SIZE_BLOCK: Duration = Duration::from_mins(5);
/// Maximum of samples in a block of the size: a day, at one a second.
const SIZE_BLOCK_MAX: u64 = 86_400;
/// Maximum of writes per pod and hour: more than clearings could use.
const WRITES_PER_HOUR_MAX: u64 = 1_000_000;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Written {
    mode: Option<MarketSetting>,
    policy: Option<Policy>,
    interval: Option<Length>,
    memory: Option<Length>,
    size_block: Option<Length>,
    writes_per_hour: Option<u64>,
    cooldown: Option<Length>,
    max_step: Option<u64>,
    reserve: Option<Cpu>,
    unmanaged_max: Option<Cpu>,
    #[serde(deserialize_with = "replaced_by_interval")]
    sense: (),
    #[serde(deserialize_with = "replaced_by_interval")]
    clear: (),
    #[serde(deserialize_with = "replaced_by_memory")]
    window: (),
    #[serde(deserialize_with = "replaced_by_memory")]
    bucket: (),
}

fn replaced_by_interval<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    let words = "`interval` replaces it: the time between clearings (default 1s)";
    Err(de::Error::custom(words))
}

fn replaced_by_memory<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    let words = "`memory` replaces it: the time for which use is kept (default 10s)";
    Err(de::Error::custom(words))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WrittenCgroup {
    name: String,
    path: Option<PathBuf>,
    unit: Option<String>,
    min: Option<Cpu>,
    max: Cpu,
    weight: Option<u64>,
}

/// A duration as in `"500ms"`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Length(Duration);

/// CPU as in `"500m"`, `"2"` or `2`.
#[derive(Clone, Copy, Debug)]
struct Cpu(u64);

impl Settings {
    /// The settings with the mode of the command line, which takes precedence.
    pub(in crate::command) fn told(self, mode: Option<MarketSetting>) -> Self {
        Self {
            mode: mode.or(self.mode),
            ..self
        }
    }

    pub(in crate::command) fn options(
        &self,
        mode: Mode,
        node: &str,
        data: &Path,
        (cgroups, executions): (&[Cgroup], Option<Executions>),
    ) -> Options {
        Options {
            node: node.to_owned(),
            directory: data.join(DIRECTORY),
            mode,
            settings: self.node,
            interval: self.interval.unwrap_or(INTERVAL),
            reserve_milli: self.reserve_milli,
            unmanaged: Unmanaged::Measured,
            cgroups: cgroups.iter().map(|cgroup| cgroup.0.clone()).collect(),
            executions,
            process: PROCESS.into(),
        }
    }
}

impl Cgroup {
    /// Checks that the cgroups can be managed together.
    pub(in crate::command) fn check(all: &[Self]) -> Result<(), Stop> {
        let declared: Vec<Declared> = all.iter().map(|cgroup| cgroup.0.clone()).collect();
        check_declared(&declared).map_err(|error| Failure::usage(chain(&error)).into())
    }
}

impl TryFrom<Written> for Settings {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let length = |length: Option<Length>| length.map(|Length(length)| length);
        let interval = length(written.interval);
        let interval_us = micros(interval.unwrap_or(INTERVAL));
        // A number of samples; a default that is not a whole number of them is rounded down.
        let samples = |key: &str, given: Option<Length>, default: Duration, max: u64| {
            let given = length(given).map(micros);
            let count = given.unwrap_or(micros(default)) / interval_us;
            if given.is_some_and(|us| !us.is_multiple_of(interval_us)) {
                return Err(format!("`{key}` must be a multiple of `interval`"));
            }
            if max < count {
                return Err(format!("`{key}` must be at most {max} times `interval`"));
            }
            Ok(count.max(1))
        };
        let windows_max = u64::try_from(WINDOWS_MAX).unwrap_or(u64::MAX);
        let windows = samples("memory", written.memory, MEMORY, windows_max)?;
        let size_block = samples("size-block", written.size_block, SIZE_BLOCK, SIZE_BLOCK_MAX)?;
        if written.max_step.is_some_and(|factor| factor < 2) {
            return Err("`max-step` is a factor, and must be 2 or more".to_owned());
        }
        let default = NodeSettings::default();
        let writes_per_hour = written.writes_per_hour.unwrap_or(default.writes_per_hour);
        if WRITES_PER_HOUR_MAX < writes_per_hour {
            return Err(format!(
                "`writes-per-hour` must be at most {WRITES_PER_HOUR_MAX}"
            ));
        }
        Ok(Self {
            mode: written.mode,
            node: NodeSettings {
                policy: written.policy.unwrap_or_default(),
                windows: usize::try_from(windows).unwrap_or(WINDOWS_MAX),
                size_block,
                writes_per_hour,
                cooldown_us: length(written.cooldown).map_or(default.cooldown_us, micros),
                max_step: written.max_step,
                unmanaged_milli_max: written.unmanaged_max.map(|Cpu(milli)| milli),
                ..default
            },
            interval,
            reserve_milli: written.reserve.map(|Cpu(milli)| milli),
        })
    }
}

impl TryFrom<WrittenCgroup> for Cgroup {
    type Error = String;

    fn try_from(written: WrittenCgroup) -> Result<Self, String> {
        let name = written.name;
        let is_odd = |letter: char| letter == '/' || letter.is_control() || letter.is_whitespace();
        if name.is_empty() || name.len() > NAME_MAX || name.contains(is_odd) {
            return Err(format!(
                "`{}` is not a valid name of a cgroup: use 1 to {NAME_MAX} characters without spaces and /",
                name.escape_debug()
            ));
        }
        let place = match (written.path, written.unit) {
            (Some(path), None) if path.starts_with(MOUNTED) => {
                return Err(format!(
                    "cgroup `{name}`: `path` must not contain the mount directory; start at the root of \
                     the hierarchy, as in \"/system.slice/web.service\""
                ));
            }
            (Some(path), None) => Place::Path(path),
            (None, Some(unit)) => Place::Unit(unit),
            _ => return Err(format!("cgroup `{name}` needs either `path` or `unit`")),
        };
        let Cpu(max_milli) = written.max;
        let min_milli = written
            .min
            .map_or(BASELINE_MILLI.min(max_milli), |Cpu(milli)| milli);
        if max_milli == 0 || min_milli > max_milli || max_milli > VALUE_MAX {
            return Err(format!(
                "cgroup `{name}`: `max` must be above 0 and not below `min`, which is {min_milli}m"
            ));
        }
        let weight = match written.weight {
            None => weight(min_milli, FACTOR_PERMILLE),
            Some(given @ 1..=VALUE_MAX) => given,
            Some(_) => {
                return Err(format!(
                    "cgroup `{name}`: `weight` must be from 1 to {VALUE_MAX}"
                ));
            }
        };
        Ok(Self(Declared {
            name,
            place,
            params: Params {
                min_milli,
                max_milli,
                weight,
            },
        }))
    }
}

impl TryFrom<String> for Length {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let length: Millis = text
            .parse()
            .map_err(|error: bursar_units::duration::Error| error.to_string())?;
        match length.ms() {
            0 => Err("must be longer than 0".to_owned()),
            ms => Ok(Self(Duration::from_millis(ms))),
        }
    }
}

impl<'de> Deserialize<'de> for Cpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CpuVisitor)
    }
}

struct CpuVisitor;

impl Visitor<'_> for CpuVisitor {
    type Value = Cpu;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CPU as in \"500m\", \"1.5\" or 2")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Cpu, E> {
        let milli = bursar_units::quantity::cpu_milli(text);
        milli.map(Cpu).map_err(|error| E::custom(error.to_string()))
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Cpu, E> {
        self.visit_str(&whole.to_string())
    }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test may panic"
    )]

    use bursar_node::market::{Mode, Options, Place};
    use serde::Deserialize;

    use super::{Cgroup, Settings};

    #[derive(Debug, Deserialize)]
    struct File {
        #[serde(default)]
        market: Settings,
        #[serde(default)]
        cgroup: Vec<Cgroup>,
    }

    fn read(text: &str) -> Result<Options, String> {
        let file: File =
            crate::config::parse(text, "bursar.toml").map_err(|failure| failure.message)?;
        let data = std::path::Path::new("/data");
        let pods = (file.cgroup.as_slice(), None);
        Ok(file.market.options(Mode::Observe, "n", data, pods))
    }

    #[test]
    fn an_empty_file_has_the_default_intervals() {
        let options = read("").unwrap();
        assert_eq!(options.interval.as_secs(), 1);
        assert_eq!(options.settings, bursar_market::node::Settings::default());
        assert_eq!(options.directory, std::path::Path::new("/data/market"));
    }

    #[test]
    fn cgroups_are_named_by_path_or_unit_and_default_to_a_baseline() {
        let options = read(
            "[market]\npolicy = \"weighted-nash\"\ninterval = \"500ms\"\nmemory = \"3s\"\n\
             size-block = \"60s\"\nwrites-per-hour = 60\nmax-step = 4\nunmanaged-max = \"1\"\n\
             cooldown = \"1s\"\nreserve = \"200m\"\n\n\
             [[cgroup]]\nname = \"web\"\nunit = \"web.service\"\nmax = \"1.5\"\n\n\
             [[cgroup]]\nname = \"db\"\npath = \"/x/db\"\nmin = \"200m\"\nmax = 2\nweight = 7\n",
        )
        .unwrap();
        let (web, db) = (&options.cgroups[0], &options.cgroups[1]);
        assert_eq!(web.place, Place::Unit("web.service".to_owned()));
        let params = |at: usize| {
            let params = options.cgroups[at].params;
            (params.min_milli, params.max_milli, params.weight)
        };
        assert_eq!(params(0), (100, 1500, 100));
        assert_eq!(params(1), (200, 2000, 7));
        assert_eq!(db.place, Place::Path("/x/db".into()));
        let settings = options.settings;
        assert_eq!((settings.windows, settings.size_block), (6, 120));
        assert_eq!((settings.writes_per_hour, settings.max_step), (60, Some(4)));
        assert_eq!(settings.cooldown_us, 1_000_000);
        assert_eq!(settings.unmanaged_milli_max, Some(1000));
        assert_eq!(options.reserve_milli, Some(200));
    }

    #[test]
    fn the_settings_in_the_guide_are_the_defaults() {
        let guide = include_str!("../../../../../../docs/market.md");
        let (_, block) = guide.split_once("```toml\n").unwrap();
        let options = read(block.split_once("```").unwrap().0).unwrap();
        assert_eq!(options.settings, bursar_market::node::Settings::default());
        assert_eq!(options.interval.as_secs(), 1);
        let names = options.cgroups.iter().map(|cgroup| cgroup.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["web", "batch"]);
    }

    #[test]
    fn a_mistake_is_reported_with_its_line() {
        for (text, expected) in [
            (
                "[market]\nmoed = \"act\"\n",
                "bursar.toml:2: `moed` is not a key, did you mean `mode`?",
            ),
            (
                "[market]\ninterval = \"soon\"\n",
                "bursar.toml:2: `interval`: `soon` is not a duration; write a whole number and a unit, as in 500ms, 10s, 5m, 36h or 7d",
            ),
            (
                "[market]\ninterval = \"2s\"\nmemory = \"5s\"\n",
                "bursar.toml:1: `memory` must be a multiple of `interval`",
            ),
            (
                "[market]\nmemory = \"2h\"\n",
                "bursar.toml:1: `memory` must be at most 3600 times `interval`",
            ),
            (
                "[market]\nmax-step = 1\n",
                "bursar.toml:1: `max-step` is a factor, and must be 2 or more",
            ),
            (
                "[market]\nwrites-per-hour = 1000001\n",
                "bursar.toml:1: `writes-per-hour` must be at most 1000000",
            ),
            (
                "[market]\nclear = \"5s\"\n",
                "bursar.toml:2: `clear`: `interval` replaces it: the time between clearings (default 1s)",
            ),
            (
                "[market]\nsense = \"1s\"\n",
                "bursar.toml:2: `sense`: `interval` replaces it: the time between clearings (default 1s)",
            ),
            (
                "[market]\nwindow = \"60s\"\n",
                "bursar.toml:2: `window`: `memory` replaces it: the time for which use is kept (default 10s)",
            ),
            (
                "[market]\nbucket = \"5s\"\n",
                "bursar.toml:2: `bucket`: `memory` replaces it: the time for which use is kept (default 10s)",
            ),
            (
                "[[cgroup]]\nname = \"a\"\npath = \"/sys/fs/cgroup/cpu/a\"\nmax = \"1\"\n",
                "bursar.toml:1: cgroup `a`: `path` must not contain the mount directory; start at the root of \
                 the hierarchy, as in \"/system.slice/web.service\"",
            ),
            (
                "[[cgroup]]\nname = \"a b\"\npath = \"/a\"\nmax = \"1\"\n",
                "bursar.toml:1: `a b` is not a valid name of a cgroup: use 1 to 253 characters without spaces and /",
            ),
            (
                "\n[[cgroup]]\nname = \"a\"\nmax = \"1\"\n",
                "bursar.toml:2: cgroup `a` needs either `path` or `unit`",
            ),
            (
                "[[cgroup]]\nname = \"a\"\npath = \"/a\"\nmin = \"2\"\nmax = \"1\"\n",
                "bursar.toml:1: cgroup `a`: `max` must be above 0 and not below `min`, which is 2000m",
            ),
            (
                "[[cgroup]]\nname = \"a\"\npath = \"/a\"\nmax = \"1\"\nweight = 0\n",
                "bursar.toml:1: cgroup `a`: `weight` must be from 1 to 1000000000",
            ),
        ] {
            assert_eq!(read(text).map(|_| ()), Err(expected.to_owned()), "{text}");
        }
    }
}
