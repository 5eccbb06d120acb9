//! Counts the processors to share (M8): those that are online and in our cpuset.

use std::fs;
use std::path::Path;

const ONLINE: &str = "/sys/devices/system/cpu/online";
/// More than any machine has; a larger number is not valid.
const PROCESSORS_MAX: u64 = 1 << 20;

/// The usable processors, in millicores; `process` is our own directory in `/proc`.
pub fn online_milli(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let online = fs::read_to_string(ONLINE).ok()?;
    processors(&status, &online).map(|count| count * 1_000)
}

/// The number of processors that are both in `/proc/<pid>/status` and in the list of online ones.
pub fn processors(status: &str, online: &str) -> Option<u64> {
    let mut lines = status.lines();
    let allowed = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let (allowed, online) = (ranges(allowed)?, ranges(online)?);
    let mut count = 0_u64;
    for (from, to) in allowed {
        for (first, last) in &online {
            let (from, to) = (from.max(*first), to.min(*last));
            count += (to + 1).saturating_sub(from);
        }
    }
    (count > 0).then_some(count)
}

/// Parses a list such as `0-3,8,10-11` into sorted ranges without overlaps.
fn ranges(text: &str) -> Option<Vec<(u64, u64)>> {
    let number = |text: &str| {
        let number: u64 = text.trim().parse().ok()?;
        (number < PROCESSORS_MAX).then_some(number)
    };
    let range = |part: &str| match part.split_once('-') {
        Some((from, to)) => Some((number(from)?, number(to)?)).filter(|(from, to)| from <= to),
        None => number(part).map(|one| (one, one)),
    };
    let all: Option<Vec<(u64, u64)>> = text.trim().split(',').map(range).collect();
    let mut all = all?;
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(all.len());
    for (from, to) in all {
        match merged.last_mut() {
            Some((_, last)) if from <= *last => *last = to.max(*last),
            _ => merged.push((from, to)),
        }
    }
    Some(merged)
}
