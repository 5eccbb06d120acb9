//! Mistakes of a submitted run, each with the path of its field.

use std::collections::BTreeSet;
use std::fmt;

use bursar_units::Millis;
use thiserror::Error;

use super::{LENGTH_MAX, PODS_MAX, PRIORITY, Run, SPONSORS_MAX, WIDTH_MAX};

/// A mistake of a submitted run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistake {
    /// Path of the field, such as `spec.podGPUs`.
    pub path: String,
    /// The broken rule.
    pub wrong: Wrong,
}

/// A rule of runs that a field breaks.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Wrong {
    /// A number or a length is zero.
    #[error("must be at least 1")]
    Zero,
    /// A number is too large.
    #[error("is {value}, at most {max} is allowed")]
    TooLarge {
        /// The number.
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// A run has too many pods.
    #[error("makes {value} pods, at most {max} are allowed")]
    Pods {
        /// Number of pods.
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// A length is zero.
    #[error("must be longer than 0s")]
    NoTime,
    /// A length is too long.
    #[error("is too long, at most {max} is allowed")]
    TooLong {
        /// The maximum.
        max: Millis,
    },
    /// A number does not divide another.
    #[error("is {value}, which does not divide {of} ({whole})")]
    DoesNotDivide {
        /// The number.
        value: u64,
        /// The field that it must divide.
        of: &'static str,
        /// Value of that field.
        whole: u64,
    },
    /// A priority is out of its range.
    #[error("is {value}, allowed are {} to {}", PRIORITY.start(), PRIORITY.end())]
    Priority {
        /// The priority.
        value: i32,
    },
    /// The time to checkpoint is not shorter than the hard limit.
    #[error("must be longer than the grace of {grace}{}", if *is_bounded { ", the longest here (maxGrace)" } else { "" })]
    NotLongerThanGrace {
        /// The grace.
        grace: Millis,
        /// Whether the run asks for a longer one than the policy allows.
        is_bounded: bool,
    },
    /// A name occurs a second time.
    #[error("`{name}` is given twice")]
    Duplicate {
        /// The name.
        name: String,
    },
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.wrong)
    }
}

impl Run {
    /// The mistakes that can be seen without any other object, in the order of the fields.
    /// `grace_max` is the longest grace that the policy allows.
    pub fn mistakes(&self, grace_max: Millis) -> Vec<Mistake> {
        let mut found = Vec::new();
        let mut add = |path: &str, wrong: Wrong| {
            let path = path.to_owned();
            found.push(Mistake { path, wrong });
        };
        if let Some(wrong) = out_of_range(self.total_gpus, WIDTH_MAX) {
            add("spec.totalGPUs", wrong);
        }
        let group = self.group_gpus.unwrap_or(self.total_gpus);
        if let Some(wrong) = divides(group, "totalGPUs", self.total_gpus) {
            add("spec.groupGPUs", wrong);
        }
        if let Some(wrong) = divides(self.pod(), "groupGPUs", group) {
            add("spec.podGPUs", wrong);
        } else if PODS_MAX < self.pods() {
            let (value, max) = (self.pods(), PODS_MAX);
            add("spec.totalGPUs", Wrong::Pods { value, max });
        }
        if !PRIORITY.contains(&self.priority) {
            let value = self.priority;
            add("spec.priority", Wrong::Priority { value });
        }
        let lengths = [
            ("spec.expectedDuration", self.expected_duration),
            ("spec.maxDuration", self.max_duration),
        ];
        for (path, length) in lengths {
            if length == Some(Millis::ZERO) {
                add(path, Wrong::NoTime);
            }
        }
        for (path, length) in lengths.into_iter().chain([("spec.grace", self.grace)]) {
            if length.is_some_and(|length| LENGTH_MAX < length) {
                add(path, Wrong::TooLong { max: LENGTH_MAX });
            }
        }
        let grace = self.grace().min(grace_max);
        let is_bounded = grace < self.grace();
        if (self.max_duration).is_some_and(|length| Millis::ZERO < length && length <= grace) {
            add(
                "spec.maxDuration",
                Wrong::NotLongerThanGrace { grace, is_bounded },
            );
        }
        let sponsors = &self.funding.sponsors;
        let count = u64::try_from(sponsors.len()).unwrap_or(u64::MAX);
        if SPONSORS_MAX < sponsors.len() {
            let max = u64::try_from(SPONSORS_MAX).unwrap_or(u64::MAX);
            add(
                "spec.funding.sponsors",
                Wrong::TooLarge { value: count, max },
            );
        }
        let mut seen = BTreeSet::new();
        for (number, sponsor) in sponsors.iter().enumerate() {
            if !seen.insert(sponsor) {
                let (path, name) = (
                    format!("spec.funding.sponsors[{number}]"),
                    sponsor.to_string(),
                );
                add(&path, Wrong::Duplicate { name });
            }
        }
        found
    }
}

fn out_of_range(value: u64, max: u64) -> Option<Wrong> {
    match value {
        0 => Some(Wrong::Zero),
        _ if max < value => Some(Wrong::TooLarge { value, max }),
        _ => None,
    }
}

fn divides(value: u64, of: &'static str, whole: u64) -> Option<Wrong> {
    match whole.checked_rem(value) {
        None => Some(Wrong::Zero),
        Some(0) => None,
        Some(_) => Some(Wrong::DoesNotDivide { value, of, whole }),
    }
}
