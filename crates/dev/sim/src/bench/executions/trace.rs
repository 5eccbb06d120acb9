//! Requests to replay: the public trace, or requests with the same statistics generated from a seed.
//!
//! The trace is read with `gzip -dc`, so that no decompressor is linked for one file.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use jiff::civil::DateTime;

use crate::rng::Rng;

/// Requests of the trace that ended.
pub(super) const COUNT: usize = 26_790;
/// Groups of the trace.
const GROUPS: u64 = 4_247;
/// Failed requests of the trace, per thousand.
const FAILED_PER_MILLE: u64 = 15;
/// Distribution of the seconds between two requests in the trace: cumulative share in thousandths,
/// with the longest time in it. Uniform between two entries.
const PAUSES: &[(u64, u64)] = &[
    (0, 0),
    (100, 2),
    (250, 6),
    (500, 15),
    (700, 29),
    (800, 41),
    (900, 69),
    (950, 118),
    (980, 305),
    (990, 664),
    (995, 1_532),
    (999, 9_477),
    (1_000, 47_958),
];
/// The same for the durations.
const LENGTHS: &[(u64, u64)] = &[
    (0, 3),
    (50, 11),
    (100, 13),
    (250, 17),
    (500, 23),
    (750, 33),
    (900, 53),
    (950, 70),
    (990, 106),
    (999, 159),
    (1_000, 567),
];

/// One request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Request {
    /// Seconds after the first request.
    pub(super) at_s: u64,
    /// Duration in seconds.
    pub(super) took_s: u64,
    pub(super) group: u64,
    pub(super) is_failed: bool,
}

/// Requests and a description of their source.
pub(super) struct Trace {
    pub(super) requests: Vec<Request>,
    pub(super) source: String,
}

impl Trace {
    /// Reads the public trace.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let output = Command::new("gzip")
            .arg("-dc")
            .arg(path)
            .stdin(Stdio::null())
            .output()
            .context("cannot start gzip, which unpacks the trace\n\nhint: install gzip")?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("cannot unpack {shown}: {}", errors.trim());
        }
        let text = String::from_utf8(output.stdout)
            .with_context(|| format!("{shown} is not UTF-8 text"))?;
        let requests = parse(&text).with_context(|| format!("cannot read {shown}"))?;
        Ok(Self {
            requests,
            source: "Alibaba cluster-trace-v2026-GenAI, LoRA requests".to_owned(),
        })
    }

    /// Makes so many.
    pub(super) fn make(count: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut at_s = 0;
        let requests = (0..count).map(|_| {
            let request = Request {
                at_s,
                took_s: drawn(&mut rng, LENGTHS),
                // A few groups ask for most.
                group: rng.below(GROUPS) * rng.below(GROUPS) / GROUPS * rng.below(GROUPS) / GROUPS,
                is_failed: rng.per_mille(FAILED_PER_MILLE),
            };
            at_s += drawn(&mut rng, PAUSES);
            request
        });
        Self {
            requests: requests.collect(),
            source: format!("made from seed {seed} like the public trace, which is not present"),
        }
    }
}

/// Lines of commas under a heading; what never ended is left out.
fn parse(text: &str) -> anyhow::Result<Vec<Request>> {
    let mut lines = text.lines();
    let heading: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| {
        let place = heading.iter().position(|column| *column == name);
        place.with_context(|| format!("it has no column {name}"))
    };
    let (at, status) = (column("gmt_create")?, column("predict_status")?);
    let (took, group) = (column("exec_time_seconds")?, column("groupId")?);
    let mut first = None;
    let mut requests = Vec::new();
    for (number, line) in lines.enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |place: usize| cells.get(place).copied().unwrap_or_default();
        let is_failed = match cell(status) {
            "SUCCEED" => false,
            "FAILED" => true,
            _ => continue,
        };
        let request = read(cell(at), cell(took), cell(group), is_failed, &mut first);
        requests
            .push(request.with_context(|| format!("line {} is not a valid request", number + 2))?);
    }
    requests.sort_by_key(|request| request.at_s);
    Ok(requests)
}

fn read(
    at: &str,
    took: &str,
    group: &str,
    is_failed: bool,
    first: &mut Option<DateTime>,
) -> anyhow::Result<Request> {
    let at: DateTime = at.parse()?;
    let since = at.duration_since(*first.get_or_insert(at)).as_secs();
    let (seconds, _) = took.split_once('.').unwrap_or((took, ""));
    Ok(Request {
        at_s: u64::try_from(since)?,
        took_s: seconds.parse()?,
        group: group.trim_start_matches('G').parse()?,
        is_failed,
    })
}

/// A random number with the distribution of a table.
fn drawn(rng: &mut Rng, table: &[(u64, u64)]) -> u64 {
    let share = rng.below(1_000);
    let spans = table.iter().zip(table.iter().skip(1));
    let mut fitting = spans.filter(|(_, (most, _))| share < *most);
    fitting
        .next()
        .map_or(0, |((_, least), (_, most))| rng.between(*least, *most))
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test may panic"
    )]

    use super::{COUNT, Request, Trace, parse};

    #[test]
    fn requests_without_an_end_are_left_out_and_times_count_from_the_first() {
        let text = "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,more\n\
            2024-11-15 23:59:50,TXT,SUCCEED,32.0,G0007,\n\
            2024-11-15 23:59:55,TXT,PENDING,0.0,G0008,\n\
            2024-11-16 00:00:10,TXT,FAILED,2.0,G4246,9\n";
        let expected = [(0, 32, 7, false), (20, 2, 4_246, true)];
        let expected = expected.map(|(at_s, took_s, group, is_failed)| Request {
            at_s,
            took_s,
            group,
            is_failed,
        });
        assert_eq!(parse(text).unwrap(), expected);
        let error = parse("a,b\n").unwrap_err();
        assert_eq!(error.to_string(), "it has no column gmt_create");
    }

    #[test]
    fn generated_requests_are_like_the_trace_and_repeatable() {
        let made = Trace::make(COUNT, 1).requests;
        assert_eq!(made, Trace::make(COUNT, 1).requests);
        let mut lengths: Vec<u64> = made.iter().map(|request| request.took_s).collect();
        lengths.sort_unstable();
        assert!((22..=24).contains(&lengths[COUNT / 2]));
        assert!((95..=117).contains(&lengths[COUNT * 99 / 100]));
        let days = made.last().unwrap().at_s / 86_400;
        assert!((15..=35).contains(&days), "{days} days");
        let failed = made.iter().filter(|request| request.is_failed).count();
        assert!((300..=500).contains(&failed), "{failed} failed");
    }
}
