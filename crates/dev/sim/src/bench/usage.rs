//! Use of cores by this process and its threads, from `/proc`: the limiting resource of a row.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::table::{tenths, thousandths};

/// Start of a measurement.
#[derive(Debug)]
pub struct Usage {
    started: Instant,
    machine: Machine,
    own_ms: u64,
    threads: BTreeMap<String, u64>,
}

/// Use since the start.
#[derive(Debug)]
pub struct Used {
    /// Elapsed time.
    pub took: Duration,
    /// Thousandths of a core that were busy, with all processes.
    pub busy_milli: u64,
    /// Thousandths of a core that this process used, ended threads included.
    pub own_milli: u64,
    /// Thousandths of a core by thread name, largest first.
    pub threads_milli: Vec<(String, u64)>,
}

/// CPU ticks since boot.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    idle: u64,
    total: u64,
}

/// Use by other programs, in thousandths of a core, above which results are doubtful.
const QUIET_MILLI: u64 = 200;
/// Time for which the machine's load is measured before the start.
const WATCHED: Duration = Duration::from_millis(500);
/// Use of all cores, in thousandths, from which the machine counts as busy.
const BUSY_MILLI: u64 = 850;

/// A warning, if other programs use the cores now. Nothing is measured meanwhile: the kernel's work for
/// our own reads and writes would count as that of other programs.
#[expect(
    clippy::disallowed_methods,
    reason = "the use of the machine by others is measured in real time"
)]
pub fn other_programs() -> Option<String> {
    let usage = Usage::start();
    std::thread::sleep(WATCHED);
    usage.used().warning()
}

impl Usage {
    /// Starts a measurement.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            machine: machine(),
            own_ms: own_ms(),
            threads: threads(),
        }
    }

    /// Use since the start.
    pub fn used(&self) -> Used {
        let took = self.started.elapsed();
        let now = machine();
        let total = now.total.saturating_sub(self.machine.total).max(1);
        let idle = now.idle.saturating_sub(self.machine.idle);
        let busy_milli = cores() * 1_000 * total.saturating_sub(idle) / total;
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let own_milli = own_ms().saturating_sub(self.own_ms) * 1_000_000 / took_us;
        let mut threads_milli: Vec<(String, u64)> = threads()
            .into_iter()
            .map(|(name, nanos)| {
                let before = self.threads.get(&name).copied().unwrap_or(0);
                (name, nanos.saturating_sub(before) / took_us)
            })
            .filter(|(_, milli)| *milli >= 50)
            .collect();
        threads_milli.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        Used {
            took,
            busy_milli,
            own_milli,
            threads_milli,
        }
    }
}

impl Used {
    /// Whether nearly all cores were busy.
    pub fn is_busy(&self) -> bool {
        self.busy_milli >= cores() * BUSY_MILLI
    }

    /// A warning, if other programs used the cores.
    pub fn warning(&self) -> Option<String> {
        let others_milli = self.busy_milli.saturating_sub(self.own_milli);
        let words = || {
            let others = thousandths(others_milli);
            format!(
                "Not quiet: other programs used {others} cores before the start. Not to be quoted."
            )
        };
        (others_milli > QUIET_MILLI).then(words)
    }

    /// Use of the cores and of our threads, as text.
    pub fn words(&self) -> String {
        let threads: Vec<String> = self
            .threads_milli
            .iter()
            .map(|(name, milli)| format!("{name} {}", thousandths(*milli)))
            .collect();
        let cores = format!(
            "{} of {} cores busy, ours {}",
            tenths(self.busy_milli / 100),
            cores(),
            thousandths(self.own_milli)
        );
        if threads.is_empty() {
            cores
        } else {
            format!("{cores}: {}", threads.join(", "))
        }
    }
}

/// CPU time of a process, ended children included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charged {
    /// Milliseconds.
    pub(super) ms: u64,
}

/// Memory of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Resident memory.
    pub(super) resident_kib: u64,
    /// The part of it that is not backed by files.
    pub(super) own_kib: u64,
}

impl Charged {
    /// Reads it; `None` if the process has ended.
    pub(super) fn of(process: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        Some(Self {
            ms: ticks_ms(&text, 4),
        })
    }
}

impl Memory {
    /// Reads it; `None` if the process has ended.
    pub(super) fn of(process: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Some(Self {
            resident_kib: field(&text, "VmRSS:")?,
            own_kib: field(&text, "RssAnon:")? + field(&text, "RssShmem:")?,
        })
    }
}

/// Describes the machine.
pub fn describe_machine() -> String {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&memory, "MemTotal:").unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "Machine: {} cores, {} GiB of memory, Linux {}",
        cores(),
        kib >> 20,
        kernel.trim()
    )
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "VmRSS:").unwrap_or(0) * 1_024
}

fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| u64::try_from(cores.get()).unwrap_or(1))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, then other kinds of work.
fn machine() -> Machine {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .map(|word| word.parse().unwrap_or(0));
    ticks
        .enumerate()
        .fold(Machine::default(), |sum, (at, ticks): (usize, u64)| {
            Machine {
                idle: if at == 3 || at == 4 {
                    sum.idle + ticks
                } else {
                    sum.idle
                },
                total: sum.total + ticks,
            }
        })
}

/// CPU time of this process, in milliseconds.
fn own_ms() -> u64 {
    ticks_ms(
        &std::fs::read_to_string("/proc/self/stat").unwrap_or_default(),
        2,
    )
}

/// Sum of the first `count` of these fields, in milliseconds: user and system time of the process,
/// then of its ended children. The fields are in hundredths of a second.
fn ticks_ms(stat: &str, count: usize) -> u64 {
    // The second field is the program name in parentheses, which may contain any character.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(count);
    ticks
        .filter_map(|word| word.parse::<u64>().ok())
        .sum::<u64>()
        * 10
}

/// CPU time in nanoseconds by thread name.
fn threads() -> BTreeMap<String, u64> {
    let mut by_name = BTreeMap::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return by_name;
    };
    for task in tasks.flatten() {
        // A thread that ends meanwhile is not counted.
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        let Some((name, times)) = read("comm").zip(read("schedstat")) else {
            continue;
        };
        let nanos = times
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        *by_name.entry(name.trim().to_owned()).or_default() += nanos.unwrap_or(0);
    }
    by_name
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Usage, Used, field, resident_bytes, ticks_ms};

    #[test]
    fn a_busy_thread_is_reported_by_its_name() {
        let usage = Usage::start();
        let threads = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("worker".to_owned());
            let worker = thread.spawn_scoped(scope, || {
                // It runs until it is measured, so the test assumes no time.
                loop {
                    let used = usage.used().threads_milli;
                    if used.iter().any(|(name, _)| name == "worker") {
                        return used;
                    }
                }
            });
            worker.map(std::thread::ScopedJoinHandle::join)
        });
        assert!(matches!(threads, Ok(Ok(_))));
    }

    #[test]
    fn use_by_other_programs_gives_a_warning() {
        let used = |busy_milli, own_milli| Used {
            took: Duration::from_secs(1),
            busy_milli,
            own_milli,
            threads_milli: Vec::new(),
        };
        assert_eq!(used(700, 600).warning(), None);
        let warning = used(900, 600).warning().unwrap_or_default();
        assert!(
            warning.contains("other programs used 0.30 cores"),
            "{warning}"
        );
    }

    #[test]
    fn cpu_time_is_read_for_any_program_name() {
        let stat = "7 (a ) 1 2) S 1 2 3 4 5 6 7 8 9 10 40 2 300 1 20 0 1";
        assert_eq!(ticks_ms(stat, 2), 420);
        assert_eq!(ticks_ms(stat, 4), 3_430);
    }

    #[test]
    fn memory_is_read_from_the_process_itself() {
        assert_eq!(field("VmPeak: 9 kB\nVmRSS:\t 12 kB\n", "VmRSS:"), Some(12));
        assert!(resident_bytes() > 0);
    }
}
