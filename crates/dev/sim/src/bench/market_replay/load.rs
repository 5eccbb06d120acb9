//! Demand of each pod in every second of a day.
//!
//! The trace has a mean for every five minutes. Real load is uneven: each mean is turned into bursts of
//! 1 to 20 seconds of equal height with pauses between them, all from a seed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::MAX_MILLI;
use crate::rng::Rng;

/// Seconds per value of the trace.
const SLOT_S: u64 = 300;
/// Values per day.
const SLOTS: usize = 288;
/// Maximum length of a burst.
const BURST_S_MAX: u64 = 20;

/// Demand by second, in millicores.
#[derive(Debug)]
pub(super) struct Load {
    /// Description of the source.
    pub(super) source: String,
    /// Demand of each pod, for each second.
    seconds: Vec<Vec<u64>>,
    /// Total demand in the busiest five minutes, by the means of the trace.
    pub(super) busiest_milli: u64,
}

impl Load {
    /// Reads a trace: a name and 288 percentages per line.
    pub(super) fn read(path: &Path, pods: usize, seed: u64) -> anyhow::Result<Self> {
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
        let means = parse(&text, pods).with_context(|| format!("cannot read {shown}"))?;
        let source = format!("PlanetLab, 3 March 2011, the first {pods} machines by name");
        Ok(Self::of(source, &means, seed))
    }

    /// Generates a day: every machine varies around its own level.
    pub(super) fn make(pods: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let means: Vec<Vec<u64>> = (0..pods)
            .map(|_| {
                // The smaller of two random numbers, so that few machines are busy.
                let level = rng.between(2, 60).min(rng.between(2, 60));
                let value = |_| (level * rng.between(30, 170) / 100).min(100);
                (0..SLOTS).map(value).collect()
            })
            .collect();
        let source = format!("made from seed {seed}: the trace of PlanetLab is not present");
        Self::of(source, &means, seed)
    }

    pub(super) fn of(source: String, means: &[Vec<u64>], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let pods: Vec<Vec<u64>> = means
            .iter()
            .map(|means| {
                let mut own = rng.split();
                let bursts = means.iter().flat_map(|percent| slot(*percent, &mut own));
                bursts.collect()
            })
            .collect();
        let of = |slot: usize| {
            let percents = means.iter().filter_map(|means| means.get(slot));
            percents.map(|percent| milli(*percent)).sum::<u64>()
        };
        let length = pods.iter().map(Vec::len).min().unwrap_or(0);
        let second = |at: usize| pods.iter().filter_map(|pod| pod.get(at).copied()).collect();
        Self {
            source,
            seconds: (0..length).map(second).collect(),
            busiest_milli: (0..SLOTS).map(of).max().unwrap_or(0),
        }
    }

    /// Keeps only the first seconds.
    pub(super) fn shorten(&mut self, seconds: u64) {
        self.seconds
            .truncate(usize::try_from(seconds).unwrap_or(usize::MAX));
    }

    pub(super) fn seconds(&self) -> u64 {
        u64::try_from(self.seconds.len()).unwrap_or(u64::MAX)
    }

    /// Demand of each pod, second by second.
    pub(super) fn wants(&self) -> impl Iterator<Item = &[u64]> {
        self.seconds.iter().map(Vec::as_slice)
    }

    /// Total demand, second by second.
    pub(super) fn totals(&self) -> Vec<u64> {
        self.wants().map(|wants| wants.iter().sum()).collect()
    }
}

/// The first `pods` lines by name.
fn parse(text: &str, pods: usize) -> anyhow::Result<Vec<Vec<u64>>> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    if lines.len() < pods {
        bail!("it has {} machines, not {pods}", lines.len());
    }
    let line = |line: &&str| -> anyhow::Result<Vec<u64>> {
        let mut cells = line.split(',');
        let name = cells.next().unwrap_or_default();
        let values: Vec<u64> = cells
            .map(str::parse)
            .collect::<Result<_, _>>()
            .with_context(|| format!("{name} has a value that is not a percentage"))?;
        if values.len() != SLOTS {
            bail!("{name} has {} values, not {SLOTS}", values.len());
        }
        Ok(values)
    };
    lines.iter().take(pods).map(line).collect()
}

/// Converts a percentage of the trace to millicores.
fn milli(percent: u64) -> u64 {
    percent.min(100) * MAX_MILLI / 100
}

/// Five minutes of bursts with this mean. Their height is two to four times the mean, at most the
/// maximum of a pod; their total length follows from the mean.
fn slot(percent: u64, rng: &mut Rng) -> Vec<u64> {
    let work = milli(percent) * SLOT_S;
    let mut seconds = vec![0; usize::try_from(SLOT_S).unwrap_or(0)];
    if work == 0 {
        return seconds;
    }
    let height = (work / SLOT_S * rng.between(20, 40) / 10).clamp(1, MAX_MILLI);
    let mut busy = work.div_ceil(height).min(SLOT_S);
    let height = work / busy;
    let mut idle = SLOT_S - busy;
    let mut at = 0;
    while busy > 0 {
        let burst = rng.between(1, BURST_S_MAX).min(busy);
        // The remaining pauses are spread over the remaining bursts.
        let bursts_left = busy.div_ceil(BURST_S_MAX / 2).max(1);
        let pause = rng.below(2 * idle / bursts_left + 1).min(idle);
        at += pause;
        let from = usize::try_from(at).unwrap_or(0);
        let length = usize::try_from(burst).unwrap_or(0);
        for second in seconds.iter_mut().skip(from).take(length) {
            *second = height;
        }
        at += burst;
        (busy, idle) = (busy - burst, idle - pause);
    }
    seconds
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test may panic")]
    use super::{Load, parse, slot};
    use crate::rng::Rng;

    #[test]
    fn bursts_have_the_mean_of_their_slot() {
        let mut rng = Rng::new(3);
        for percent in 0..=100 {
            let seconds = slot(percent, &mut rng);
            let sum: u64 = seconds.iter().sum();
            assert_eq!(seconds.len(), 300);
            assert!(sum.abs_diff(percent * 10 * 300) < 300, "{percent}: {sum}");
            assert!(seconds.iter().all(|milli| *milli <= 1_000));
        }
    }

    #[test]
    fn the_busiest_five_minutes_are_by_the_total_of_all_pods() {
        let quiet = vec![1; 288];
        let mut one = quiet.clone();
        (one[3], one[4]) = (90, 50);
        let mut other = quiet;
        other[4] = 60;
        assert_eq!(
            Load::of(String::new(), &[one, other], 1).busiest_milli,
            1_100
        );
    }

    #[test]
    fn a_trace_is_read_by_name_and_its_mistakes_are_named() {
        let line = |name: &str, value: &str| format!("{name}{}\n", format!(",{value}").repeat(288));
        let text = line("vm1", "7") + &line("vm0", "5");
        let read = parse(&text, 1).map(|means| means.concat());
        assert!(read.is_ok_and(|values| values == vec![5; 288]));
        assert!(parse(&text, 3).is_err());
        assert!(parse(&line("vm0", "x"), 1).is_err());
        assert!(parse("vm0,1,2\n", 1).is_err());
    }

    #[test]
    fn the_same_seed_makes_the_same_day() {
        let (a, b) = (Load::make(3, 9), Load::make(3, 9));
        assert_eq!(a.totals(), b.totals());
        assert_eq!(a.busiest_milli, b.busiest_milli);
        assert_eq!(a.seconds(), 86_400);
    }
}
