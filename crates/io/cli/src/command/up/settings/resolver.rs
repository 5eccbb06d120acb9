//! `[resolver]` of the settings file: the policy of the cluster.

use bursar_engine::cluster::Policy;
use bursar_engine::cluster::policy::{Entropy, Mode, Stage1};
use bursar_units::{INTEGER_MAX, Millis, duration};
use serde::Deserialize;
use serde::de::{self, Deserializer};

/// The policy. A key that is left out has its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Resolver(pub(super) Policy);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Written {
    mode: Option<Mode>,
    patience: Option<Length>,
    min_runtime: Option<Length>,
    max_grace: Option<Length>,
    start_timeout: Option<Length>,
    freeze_max: Option<Length>,
    entropy_wait: Option<Length>,
    entropy: Option<Entropy>,
    admission_horizon: Option<Length>,
    forecast_horizon: Option<Length>,
    trials: Option<Count>,
    pending_max: Option<Count>,
    stage1: Option<Stage1>,
    #[serde(deserialize_with = "drand_later")]
    drand: (),
    #[serde(deserialize_with = "notary_later")]
    notary: (),
}

/// A duration as in `"90s"`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Length(Millis);

/// A number that a record can hold.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u64")]
struct Count(u64);

fn drand_later<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(de::Error::custom("the key `drand` is not available yet"))
}

fn notary_later<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(de::Error::custom("the key `notary` is not available yet"))
}

impl TryFrom<Written> for Resolver {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let usual = Policy::default();
        let length = |given: Option<Length>, usual| given.map_or(usual, |Length(given)| given);
        let count = |given: Option<Count>, usual| given.map_or(usual, |Count(given)| given);
        let policy = Policy {
            mode: written.mode.unwrap_or(usual.mode),
            patience: length(written.patience, usual.patience),
            min_runtime: length(written.min_runtime, usual.min_runtime),
            grace_max: length(written.max_grace, usual.grace_max),
            start_timeout: length(written.start_timeout, usual.start_timeout),
            freeze_max: length(written.freeze_max, usual.freeze_max),
            entropy_wait: length(written.entropy_wait, usual.entropy_wait),
            entropy: written.entropy.unwrap_or(usual.entropy),
            admission_horizon: length(written.admission_horizon, usual.admission_horizon),
            forecast_horizon: length(written.forecast_horizon, usual.forecast_horizon),
            trials: count(written.trials, usual.trials),
            pending_max: count(written.pending_max, usual.pending_max),
            stage1: written.stage1.unwrap_or(usual.stage1),
        };
        if let Some(key) = policy.zero() {
            return Err(format!(
                "`{}` in `[resolver]` must be more than 0",
                kebab(key)
            ));
        }
        match policy.not_yet() {
            None => Ok(Self(policy)),
            Some(key) => Err(format!(
                "this value of `{key}` in `[resolver]` is not available yet; leave `{key}` out"
            )),
        }
    }
}

/// The key of a field of the policy in the file: `admissionHorizon` is `admission-horizon`.
fn kebab(field: &str) -> String {
    let mut key = String::new();
    for letter in field.chars() {
        if letter.is_ascii_uppercase() {
            key.push('-');
        }
        key.push(letter.to_ascii_lowercase());
    }
    key
}

impl TryFrom<String> for Length {
    type Error = duration::Error;

    fn try_from(text: String) -> Result<Self, duration::Error> {
        text.parse().map(Self)
    }
}

impl TryFrom<u64> for Count {
    type Error = String;

    fn try_from(count: u64) -> Result<Self, String> {
        if INTEGER_MAX < count {
            return Err(format!("`{count}` is more than {INTEGER_MAX}"));
        }
        Ok(Self(count))
    }
}

#[cfg(test)]
mod tests {
    use bursar_engine::cluster::Policy;
    use bursar_units::Millis;

    use super::super::File;
    use crate::config;

    fn read(text: &str) -> Result<Policy, String> {
        let file = config::parse::<File>(text, "bursar.toml");
        file.map(File::policy).map_err(|failure| failure.message)
    }

    #[test]
    fn a_key_that_is_left_out_has_its_default() {
        assert_eq!(read(""), Ok(Policy::default()));
        let patient = Policy {
            patience: Millis::from_hours(23),
            ..Policy::default()
        };
        assert_eq!(read("[resolver]\npatience = \"23h\"\n"), Ok(patient));
    }

    #[test]
    fn every_key_is_read() {
        let text = "[resolver]\nmode = \"off\"\npatience = \"1s\"\nmin-runtime = \"2s\"\n\
            max-grace = \"3s\"\nstart-timeout = \"4s\"\nfreeze-max = \"5s\"\nentropy-wait = \"6s\"\n\
            entropy = \"notary\"\nadmission-horizon = \"7s\"\nforecast-horizon = \"8s\"\n\
            trials = 9\npending-max = 10\nstage1 = \"uniform\"\n";
        let read = read(text).map(|policy| format!("{policy:?}"));
        for value in 1..=8 {
            let value = format!("Millis({})", value * 1_000);
            assert!(
                read.as_ref().is_ok_and(|text| text.contains(&value)),
                "{value}: {read:?}"
            );
        }
        assert!(
            read.as_ref()
                .is_ok_and(|text| text.contains("trials: 9, pending_max: 10")),
            "{read:?}"
        );
    }

    #[test]
    fn mistakes_name_line_and_key() {
        let cases = [
            (
                "patiense = \"1h\"",
                "2: `patiense` is not a key, did you mean `patience`?",
            ),
            (
                "patience = \"1 hour\"",
                "2: `patience`: `1 hour` is not a duration",
            ),
            ("mode = \"on\"", "2: `mode` must be one of off"),
            (
                "mode = \"enforce\"",
                "1: this value of `mode` in `[resolver]` is not available yet",
            ),
            (
                "drand = \"https://x\"",
                "2: the key `drand` is not available yet",
            ),
            (
                "notary = \"file\"",
                "2: the key `notary` is not available yet",
            ),
            ("trials = -1", "2: `trials` must be a whole number from 0"),
        ];
        for (line, wrong) in cases {
            let found = read(&format!("[resolver]\n{line}\n"));
            let wrong = format!("bursar.toml:{wrong}");
            let is_so = found.as_ref().is_err_and(|found| found.starts_with(&wrong));
            assert!(is_so, "{line}: {found:?}, not {wrong}");
        }
    }
}
