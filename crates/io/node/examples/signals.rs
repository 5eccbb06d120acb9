//! Measures the counters of the kernel that the market reads, once a second, for known loads under
//! known quotas (M1, M11), and prints a table: use, throttled time, share of throttled periods, and the
//! ask that the market computes from them, beside the use of the same load without a quota.
//!
//! `cargo run -p bursar-node --example signals`, as root on a quiet machine with two processors; it
//! takes six minutes. `signals load THREADS ON_MS OFF_MS SHARE` is the load itself: threads that burn
//! for a share in percent of each 10 ms while they are on.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures a load over time: there is no event to wait for"
)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bursar_market::bidder::Bidder;
use bursar_market::cgroup::Quota;
use bursar_market::ladder::Size;
use bursar_market::params::Params;
use bursar_market::sense::{Reading, Sample, reading};
use bursar_node::cgroup::{Version, layout};
use bursar_node::market::files::Files;
use bursar_node::market::hierarchy::Hierarchies;

type Failed = Box<dyn Error>;

const SECOND: Duration = Duration::from_secs(1);
/// Part of an on phase that a load burns: its share of each of these.
const SLOT: Duration = Duration::from_millis(10);
const PERIOD_US: u64 = 100_000;
/// Quotas, in percent of what the load wants while it is on.
const QUOTAS: [u64; 6] = [5, 25, 50, 75, 100, 150];

/// A load: its name, threads, on and off in milliseconds, and percent of a processor per thread.
const LOADS: [(&str, u64, u64, u64, u64); 8] = [
    ("constant, 300m", 1, 1_000, 0, 30),
    ("constant, 1000m", 1, 1_000, 0, 100),
    ("on and off, 50 ms each", 1, 50, 50, 100),
    ("on and off, 500 ms each", 1, 500, 500, 100),
    ("on and off, 2 s each", 1, 2_000, 2_000, 100),
    ("on and off, 10 s each", 1, 10_000, 10_000, 100),
    ("2 threads, constant", 2, 1_000, 0, 100),
    ("8 threads, 20% each", 8, 1_000, 0, 20),
];

fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["load", numbers @ ..] => load(numbers),
        [] => measure(),
        _ => Err("usage: signals".into()),
    }
}

/// Burns for ever.
fn load(numbers: &[&str]) -> Result<(), Failed> {
    let numbers: Vec<u64> = numbers
        .iter()
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    let &[threads, on_ms, off_ms, share] = numbers.as_slice() else {
        return Err("usage: signals load THREADS ON_MS OFF_MS SHARE".into());
    };
    let began = Instant::now();
    // The threads begin one after another, so that they do not all want the same moment.
    for thread in 1..threads {
        let began = began + SLOT * u32::try_from(thread)? / u32::try_from(threads)?;
        std::thread::spawn(move || burn(began, on_ms, off_ms, share));
    }
    burn(began, on_ms, off_ms, share)
}

fn burn(began: Instant, on_ms: u64, off_ms: u64, share: u64) -> ! {
    let cycle = u128::from(on_ms + off_ms).max(1);
    loop {
        let now = began.elapsed();
        if now.as_millis() % cycle >= u128::from(on_ms) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let slot = now.as_nanos() / SLOT.as_nanos();
        let until = slot * SLOT.as_nanos() + SLOT.as_nanos() * u128::from(share) / 100;
        while began.elapsed().as_nanos() < until {
            std::hint::spin_loop();
        }
        let next = (slot + 1) * SLOT.as_nanos();
        let next = Duration::from_nanos(u64::try_from(next).unwrap_or(0));
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
}

fn measure() -> Result<(), Failed> {
    let ground = Ground::new()?;
    println!(
        "cgroup {:?}; means of whole cycles, in millicores; q in permille",
        ground.version
    );
    println!(
        "\nLOAD                     QUOTA    USE  THROTTLED     q  ASK, SIZE KNOWN  ASK, NEW  UNLIMITED  ASK/UNLIMITED"
    );
    for (name, threads, on_ms, off_ms, share) in LOADS {
        let words = [threads, on_ms, off_ms, share].map(|number| number.to_string());
        let _load = ground.start(&words)?;
        // Samples of whole cycles, so that means can be compared.
        let seconds = ((on_ms + off_ms) / 1_000).max(4);
        ground.set(None)?;
        let free = ground.readings(seconds)?;
        let unlimited = mean(&free, |reading| reading.used_milli);
        let size = free
            .iter()
            .map(|reading| reading.used_milli)
            .max()
            .unwrap_or(0);
        let want = threads * share * 10;
        for percent in QUOTAS {
            let quota = want * percent / 100;
            ground.set(Some(quota))?;
            let seen = ground.readings(seconds)?;
            let ask = |size| mean(&seen, |reading| ask(reading, quota, size));
            let (known, new) = (ask(size), ask(0));
            let ratio = known * 100 / unlimited.max(1);
            println!(
                "{name:<24} {percent:>4}% {:>6} {:>10} {:>5} {known:>16} {new:>9} {unlimited:>10} {ratio:>13}%",
                mean(&seen, |reading| reading.used_milli),
                mean(&seen, |reading| reading
                    .throttled
                    .map_or(0, |throttled| throttled.milli)),
                mean(&seen, |reading| reading
                    .throttled
                    .map_or(0, |throttled| throttled.permille())),
            );
        }
    }
    late(&ground)
}

/// The ask of a pod whose largest known use is `size`.
fn ask(reading: &Reading, quota: u64, size: u64) -> u64 {
    let params = Params {
        min_milli: 10,
        max_milli: 1_000_000,
        weight: 1,
    };
    let mut bidder = Bidder::new(params, quota, 10);
    bidder.size = Size {
        count: 1,
        present_milli: size,
        previous_milli: 0,
    };
    bidder.take(*reading, 300).ask_milli
}

/// Longest time without a change of each counter, under a load that is throttled in every period.
fn late(ground: &Ground) -> Result<(), Failed> {
    let words = ["1", "1000", "0", "100"].map(str::to_owned);
    let _load = ground.start(&words)?;
    ground.set(Some(500))?;
    ground.readings(1)?;
    let began = Instant::now();
    let mut last: [(u64, Duration); 4] = [(0, Duration::ZERO); 4];
    let mut gaps = [Duration::ZERO; 4];
    while began.elapsed() < 4 * SECOND {
        let sample = ground.sample()?;
        let at = began.elapsed();
        let values = [
            sample.usage_us,
            sample.throttled_us.unwrap_or(0),
            sample.periods.unwrap_or(0),
            sample.throttled_periods.unwrap_or(0),
        ];
        for ((value, last), gap) in values.into_iter().zip(&mut last).zip(&mut gaps) {
            if value != last.0 {
                if last.1 > Duration::ZERO {
                    *gap = (*gap).max(at.saturating_sub(last.1));
                }
                *last = (value, at);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("\nlongest time without a change, constant 1000m under 500m, read every millisecond:");
    for (name, gap) in ["usage", "throttled time", "periods", "throttled periods"]
        .iter()
        .zip(gaps)
    {
        println!("{name:<18} {} ms", gap.as_millis());
    }
    Ok(())
}

fn mean(readings: &[Reading], value: impl Fn(&Reading) -> u64) -> u64 {
    let count = u64::try_from(readings.len()).unwrap_or(1).max(1);
    readings.iter().map(value).sum::<u64>() / count
}

/// One cgroup, removed at the end.
struct Ground {
    version: Version,
    directories: Vec<PathBuf>,
    hierarchies: Hierarchies,
    group: PathBuf,
    files: Files,
    began: Instant,
}

struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Ground {
    fn new() -> Result<Self, Failed> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let memberships = fs::read_to_string("/proc/self/cgroup")?;
        let (mounts, memberships) = (layout::mounts(&mounts), layout::memberships(&memberships));
        let version = match layout::legacy(&mounts, &memberships, "cpu") {
            Some(_) => Version::V1,
            None => Version::V2,
        };
        let group = PathBuf::from(format!("bursar-signals-{}", std::process::id()));
        let counts = |word: &String| word == "cpu" || word == "cpuacct";
        let is_needed = |mount: &&layout::Mount| match version {
            Version::V1 => mount.controllers.iter().any(counts),
            Version::V2 => mount.version == Version::V2,
        };
        let roots = mounts
            .iter()
            .filter(is_needed)
            .map(|mount| mount.point.clone());
        let mut directories = Vec::new();
        for root in roots {
            if version == Version::V2 {
                fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
            }
            let directory = root.join(&group);
            fs::create_dir(&directory)?;
            directories.push(directory);
        }
        let hierarchies = Hierarchies::find(Path::new("/proc/self")).ok_or("no cgroups here")?;
        let files = hierarchies.open(&group)?;
        Ok(Self {
            version,
            directories,
            hierarchies,
            group,
            files,
            began: Instant::now(),
        })
    }

    /// Starts a load and lets it run for a second.
    fn start(&self, words: &[String]) -> Result<Load, Failed> {
        let child = Command::new(std::env::current_exe()?)
            .arg("load")
            .args(words)
            .stdin(Stdio::null())
            .spawn()?;
        let load = Load(child);
        for directory in &self.directories {
            // In version 1 the file `tasks` would move one thread only.
            fs::write(directory.join("cgroup.procs"), load.0.id().to_string())?;
        }
        std::thread::sleep(SECOND);
        Ok(load)
    }

    fn set(&self, milli: Option<u64>) -> Result<(), Failed> {
        let quota = match milli {
            Some(milli) => Quota::of_milli(milli, PERIOD_US),
            None => Quota {
                quota_us: None,
                period_us: PERIOD_US,
            },
        };
        self.hierarchies.limit(&self.group)?.set_quota(quota)?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    fn sample(&self) -> Result<Sample, Failed> {
        let at_us = u64::try_from(self.began.elapsed().as_micros())?;
        self.files
            .sample(at_us)
            .ok_or_else(|| "the counters cannot be read".into())
    }

    /// One reading a second.
    fn readings(&self, seconds: u64) -> Result<Vec<Reading>, Failed> {
        let mut before = self.sample()?;
        let mut readings = Vec::new();
        for _ in 0..seconds {
            std::thread::sleep(SECOND);
            let after = self.sample()?;
            readings.extend(reading(&before, &after));
            before = after;
        }
        Ok(readings)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for directory in &self.directories {
            let began = Instant::now();
            while fs::remove_dir(directory).is_err() && began.elapsed() < SECOND {
                std::thread::yield_now();
            }
        }
    }
}
