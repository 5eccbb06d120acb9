//! Demand of each pod in every second of a day.
//!
//! The trace has a mean for every five minutes. Real load is uneven: each mean is turned into bursts of
//! equal height with pauses between them, all from a seed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::{MAX_MILLI, PODS, PROCESSOR_MILLI};
use crate::rng::Rng;

/// Seconds per value of the trace.
pub(super) const SLOT_S: u64 = 300;
/// Values per day.
const SLOTS: usize = 288;

/// The machines whose means are used, by their place in the order of names, from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Machines {
    /// The set on which form and constants of the rule were chosen.
    First,
    /// Two sets that were not looked at meanwhile.
    HeldOut,
    HeldOutToo,
}

/// The way in which the means become seconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    /// Bursts of 1 to 20 seconds.
    Bursts,
    /// Bursts of 10 to 120 seconds.
    LongBursts,
    /// The means themselves.
    Means,
    /// Bursts of 1 to 20 seconds, and the last pod always wants half of the node.
    NoisyNeighbour,
}

/// Five minutes of a pod.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Slot {
    /// Demand while it is busy, in millicores.
    pub(super) height_milli: u64,
    /// Seconds in which it is busy.
    pub(super) busy_s: u64,
}

/// Means of the machines of a trace, by machine and slot, in percent.
#[derive(Debug)]
pub(super) struct Trace {
    /// Description of the source.
    pub(super) source: String,
    means: Vec<Vec<u64>>,
}

/// Demand by second, in millicores.
#[derive(Debug)]
pub(super) struct Load {
    /// Number of pods.
    pub(super) pods: usize,
    /// Number of pods that are measured, the first ones.
    pub(super) measured: usize,
    /// Maximum of each pod.
    pub(super) max_milli: Vec<u64>,
    /// Slots of each pod.
    pub(super) slots: Vec<Vec<Slot>>,
    /// Range of the length of a burst.
    pub(super) burst_s: [u64; 2],
    /// Demand in the order of seconds, then pods.
    wants: Vec<u64>,
    /// The smallest whole number of processors that carries the busiest five minutes.
    pub(super) node_milli: u64,
    /// Total demand in the busiest five minutes, by the means of the trace.
    pub(super) busiest_milli: u64,
}

impl Machines {
    /// Place of the first machine, from 1.
    pub(super) const fn first(self) -> usize {
        match self {
            Self::First => 1,
            Self::HeldOut => 385,
            Self::HeldOutToo => 449,
        }
    }

    pub(super) fn name(self) -> String {
        format!("machines {} to {}", self.first(), self.first() + PODS - 1)
    }
}

impl Shape {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bursts => "bursts of 1 to 20 s",
            Self::LongBursts => "bursts of 10 to 120 s",
            Self::Means => "five-minute means",
            Self::NoisyNeighbour => "bursts of 1 to 20 s beside a noisy neighbour",
        }
    }

    const fn burst_s(self) -> [u64; 2] {
        match self {
            Self::LongBursts => [10, 120],
            Self::Bursts | Self::Means | Self::NoisyNeighbour => [1, 20],
        }
    }
}

impl Trace {
    /// Reads a trace: a name and 288 percentages per line.
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
        let means = parse(&text).with_context(|| format!("cannot read {shown}"))?;
        let source = format!(
            "PlanetLab, 3 March 2011, {} machines in the order of their names",
            means.len()
        );
        Ok(Self { source, means })
    }

    /// Generates a day: every machine varies around its own level.
    pub(super) fn make(machines: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let means = (0..machines)
            .map(|_| {
                // The smaller of two random numbers, so that few machines are busy.
                let level = rng.between(2, 60).min(rng.between(2, 60));
                let value = |_| (level * rng.between(30, 170) / 100).min(100);
                (0..SLOTS).map(value).collect()
            })
            .collect();
        let source = format!("made from seed {seed}: the trace of PlanetLab is not present");
        Self { source, means }
    }

    /// The means of some machines.
    pub(super) fn of(&self, machines: Machines) -> anyhow::Result<&[Vec<u64>]> {
        let from = machines.first() - 1;
        let means = self.means.get(from..from + PODS);
        means.with_context(|| {
            let known = self.means.len();
            format!(
                "the trace has {known} machines and lacks {}",
                machines.name()
            )
        })
    }
}

impl Load {
    pub(super) fn of(means: &[Vec<u64>], shape: Shape, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut slots = Vec::new();
        let mut pods = Vec::new();
        for means in means {
            let mut own = rng.split();
            let (mut plans, mut seconds) = (Vec::new(), Vec::new());
            for percent in means {
                let (plan, bursts) = match shape {
                    Shape::Means => constant(milli(*percent)),
                    _ => slot(*percent, shape.burst_s(), &mut own),
                };
                plans.push(plan);
                seconds.extend(bursts);
            }
            slots.push(plans);
            pods.push(seconds);
        }
        let total = |slot: usize| {
            let percents = means.iter().filter_map(|means| means.get(slot));
            percents.map(|percent| milli(*percent)).sum::<u64>()
        };
        let busiest_milli = (0..SLOTS).map(total).max().unwrap_or(0);
        let node_milli = busiest_milli.next_multiple_of(PROCESSOR_MILLI);
        let mut max_milli = vec![MAX_MILLI; pods.len()];
        let mut measured = pods.len();
        if shape == Shape::NoisyNeighbour {
            let hog_milli = node_milli / 2;
            let (plan, seconds) = constant(hog_milli);
            measured -= 1;
            for (max, (plans, wants)) in max_milli
                .iter_mut()
                .zip(slots.iter_mut().zip(&mut pods))
                .skip(measured)
            {
                *max = hog_milli;
                *plans = vec![plan; plans.len()];
                *wants = seconds.repeat(plans.len());
            }
        }
        let length = pods.iter().map(Vec::len).min().unwrap_or(0);
        let second = |at: usize| pods.iter().filter_map(move |pod| pod.get(at).copied());
        Self {
            pods: pods.len(),
            measured,
            max_milli,
            slots,
            burst_s: shape.burst_s(),
            wants: (0..length).flat_map(second).collect(),
            node_milli,
            busiest_milli,
        }
    }

    /// Keeps only the first tenth.
    pub(super) fn shorten(&mut self) {
        let tenth = self.wants.len() / self.pods.max(1) / 10;
        self.wants.truncate(tenth * self.pods);
    }

    pub(super) fn seconds(&self) -> u64 {
        u64::try_from(self.wants().len()).unwrap_or(u64::MAX)
    }

    /// Demand of each pod, second by second.
    pub(super) fn wants(&self) -> impl ExactSizeIterator<Item = &[u64]> {
        self.wants.chunks_exact(self.pods.max(1))
    }

    /// Demand of each pod in a second, from 1.
    pub(super) fn wants_in(&self, second: u64) -> &[u64] {
        let from = usize::try_from(second.saturating_sub(1)).unwrap_or(usize::MAX);
        let from = from.saturating_mul(self.pods);
        let to = from.saturating_add(self.pods);
        self.wants.get(from..to).unwrap_or(&[])
    }

    /// Total demand, second by second.
    pub(super) fn totals(&self) -> Vec<u64> {
        self.wants().map(|wants| wants.iter().sum()).collect()
    }
}

/// The machines by name.
fn parse(text: &str) -> anyhow::Result<Vec<Vec<u64>>> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
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
    lines.iter().map(line).collect()
}

/// Converts a percentage of the trace to millicores.
fn milli(percent: u64) -> u64 {
    percent.min(100) * MAX_MILLI / 100
}

/// Five minutes of constant demand.
fn constant(milli: u64) -> (Slot, Vec<u64>) {
    let plan = Slot {
        height_milli: milli,
        busy_s: if milli == 0 { 0 } else { SLOT_S },
    };
    (plan, vec![milli; usize::try_from(SLOT_S).unwrap_or(0)])
}

/// Number of bursts over which the generator spreads the rest of the pauses.
pub(super) fn bursts_left(busy_s: u64, burst_s_max: u64) -> u64 {
    busy_s.div_ceil(burst_s_max / 2).max(1)
}

/// Five minutes of bursts with this mean. Their height is two to four times the mean, at most the
/// maximum of a pod; their total length follows from the mean.
fn slot(percent: u64, [least_s, most_s]: [u64; 2], rng: &mut Rng) -> (Slot, Vec<u64>) {
    let work = milli(percent) * SLOT_S;
    if work == 0 {
        return constant(0);
    }
    let mut seconds = vec![0; usize::try_from(SLOT_S).unwrap_or(0)];
    let height = (work / SLOT_S * rng.between(20, 40) / 10).clamp(1, MAX_MILLI);
    let mut busy = work.div_ceil(height).min(SLOT_S);
    let height = work / busy;
    let plan = Slot {
        height_milli: height,
        busy_s: busy,
    };
    let mut idle = SLOT_S - busy;
    let mut at = 0;
    while busy > 0 {
        let burst = rng.between(least_s, most_s).min(busy);
        // The remaining pauses are spread over the remaining bursts.
        let pause = rng
            .below(2 * idle / bursts_left(busy, most_s) + 1)
            .min(idle);
        at += pause;
        let from = usize::try_from(at).unwrap_or(0);
        let length = usize::try_from(burst).unwrap_or(0);
        for second in seconds.iter_mut().skip(from).take(length) {
            *second = height;
        }
        at += burst;
        (busy, idle) = (busy - burst, idle - pause);
    }
    (plan, seconds)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test may panic")]
    use super::{Load, Shape, Trace, parse, slot};
    use crate::rng::Rng;

    #[test]
    fn bursts_have_the_mean_of_their_slot_and_its_plan() {
        let mut rng = Rng::new(3);
        for (percent, burst_s) in (0..=100).flat_map(|one| [(one, [1, 20]), (one, [10, 120])]) {
            let (plan, seconds) = slot(percent, burst_s, &mut rng);
            let sum: u64 = seconds.iter().sum();
            assert_eq!(seconds.len(), 300);
            assert!(sum.abs_diff(percent * 10 * 300) < 300, "{percent}: {sum}");
            assert_eq!(sum, plan.height_milli * plan.busy_s);
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
        let load = Load::of(&[one, other], Shape::Bursts, 1);
        assert_eq!((load.busiest_milli, load.node_milli), (1_100, 2_000));
    }

    #[test]
    fn the_noisy_neighbour_wants_half_of_the_node_and_is_not_measured() {
        let load = Load::of(&[vec![90; 288], vec![50; 288]], Shape::NoisyNeighbour, 1);
        assert_eq!((load.pods, load.measured, load.node_milli), (2, 1, 2_000));
        assert!(load.wants().all(|wants| wants[1] == 1_000));
        assert_eq!(load.max_milli, [1_000, 1_000]);
    }

    #[test]
    fn a_trace_is_read_by_name_and_its_mistakes_are_named() {
        let line = |name: &str, value: &str| format!("{name}{}\n", format!(",{value}").repeat(288));
        let text = line("vm1", "7") + &line("vm0", "5");
        let read = parse(&text);
        assert!(read.is_ok_and(|means| means == [vec![5; 288], vec![7; 288]]));
        assert!(parse(&line("vm0", "x")).is_err());
        assert!(parse("vm0,1,2\n").is_err());
    }

    #[test]
    fn the_same_seed_makes_the_same_day() {
        let day = || Load::of(&Trace::make(3, 9).means, Shape::Bursts, 9);
        let (a, b) = (day(), day());
        assert_eq!(a.totals(), b.totals());
        assert_eq!(a.busiest_milli, b.busiest_milli);
        assert_eq!(a.seconds(), 86_400);
        assert_eq!(a.wants_in(86_400).len(), 3);
        assert!(a.wants_in(86_401).is_empty());
    }
}
