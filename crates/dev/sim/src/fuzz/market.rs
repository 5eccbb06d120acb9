//! Fuzz targets of the node market: kernel files, names of Kubernetes, files of users, and the files
//! that an agent reads after a crash.
//!
//! Each target compares with a naive reader or checks a round trip: a missing key is absent, not zero,
//! and no value is invented.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path};
use std::time::Duration;

use bursar_client::api::Clearing;
use bursar_client::object::{File, read_market, read_simulation};
use bursar_market::cgroup::{self, Pressure, Quota, Stat};
use bursar_market::clear::{Cleared, Market, Mode, Want, clear};
use bursar_market::explain::{Scene, explain, price_line, why};
use bursar_market::node::{Node, Settings, Supply};
use bursar_market::simulate::simulate;
use bursar_node::cgroup::Version;
use bursar_node::cgroup::layout::{self, Mount};
use bursar_node::market::hierarchy::plain;
use bursar_node::market::kubepods::{PodGroup, Qos, pod_group};
use bursar_node::market::machine::processors;
use bursar_node::market::originals::Originals;
use bursar_node::market::record::{self, Record};
use bursar_node::market::{Options, Rules, Unmanaged};
use tempfile::TempDir;

/// Number of lines that are read of a kernel file.
const LINES_MAX: usize = 64;
/// Counters of both cgroup versions.
const COUNTERS: [&str; 5] = [
    "usage_usec",
    "throttled_usec",
    "throttled_time",
    "nr_periods",
    "nr_throttled",
];
/// Separator between two files in one input.
const NEXT_FILE: &str = "\n===\n";
/// Placeholder for the boot id in a file of originals.
const BOOT_PLACEHOLDER: &str = "THIS-BOOT";
/// Name of the file of the present record.
const RECORD: &str = "record.jsonl";
/// The kernel's file with the boot id.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Directory in memory, for speed.
const MEMORY: &str = "/dev/shm";
/// Bounds of a simulated load.
const SIMULATED_PODS_MAX: usize = 64;
const SIMULATED_SECONDS_MAX: u64 = 20;
/// Lists with only processors below this number are compared with a naive count.
const COUNTED_MAX: u64 = 4_096;

/// Counters, quotas and pressure of a cgroup, of both versions: every parser gets every text.
pub fn cgroup_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    stat(&text);
    quotas(&text);
    if let Some(pressure) = cgroup::pressure(&text) {
        let Pressure {
            last_10s_hundredths: hundredths,
            total_us,
        } = pressure;
        let (percent, rest) = (hundredths / 100, hundredths % 100);
        let again = format!("some avg10={percent}.{rest:02} avg60=0.00 total={total_us}\n");
        assert_eq!(cgroup::pressure(&again), Some(pressure), "{text}");
    }
}

/// Compares with a naive reader: the first line of each name with a number counts.
fn stat(text: &str) {
    let mut found = BTreeMap::new();
    for line in text.lines().take(LINES_MAX) {
        let Some((key, value)) = line.split_once(' ') else {
            continue;
        };
        let value = value.trim();
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(number) = value.parse::<u64>().ok().filter(|_| is_number) {
            found.entry(key).or_insert(number);
        }
    }
    let [usage, throttled, throttled_ns, periods, throttled_periods] =
        COUNTERS.map(|key| found.get(key).copied());
    let expected = Stat {
        usage_us: usage,
        throttled_us: throttled.or(throttled_ns.map(|ns| ns / 1_000)),
        periods,
        throttled_periods,
    };
    assert_eq!(cgroup::stat(text), expected, "{text}");
    if let Some(us) = cgroup::cpuacct_usage_us(text) {
        assert!(us <= u64::MAX / 1_000, "{text}");
        assert_eq!(
            cgroup::cpuacct_usage_us(&format!("{}\n", us * 1_000)),
            Some(us)
        );
    }
}

/// A quota survives a round trip, and a limit in its period allows no more than requested.
fn quotas(text: &str) {
    let (first, second) = text.split_once('\n').unwrap_or((text, ""));
    for quota in [cgroup::cpu_max(text), cgroup::cfs(first, second)]
        .into_iter()
        .flatten()
    {
        assert_eq!(cgroup::cpu_max(&quota.cpu_max()), Some(quota), "{text}");
        let period = quota.period_us.to_string();
        assert_eq!(
            cgroup::cfs(&quota.cfs_quota(), &period),
            Some(quota),
            "{text}"
        );
        let milli = quota.milli_ceil().unwrap_or(1);
        for milli in [1, milli, milli / 2] {
            let limit = Quota::of_milli(milli, quota.period_us);
            assert!(
                limit.milli_ceil() <= Some(milli.max(1)),
                "{limit:?} for {milli}"
            );
            assert!(limit.quota_us > Some(0), "{limit:?} for {milli}");
        }
    }
}

/// The processors of a machine: `/proc/self/status`, then the list of online processors.
pub fn processor_lists(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (status, online) = text.split_once(NEXT_FILE).unwrap_or((&text, "0-3\n"));
    let Some(count) = processors(status, online) else {
        return;
    };
    assert_ne!(count, 0, "{text}");
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    if let (Some(Some(allowed)), Some(online)) = (allowed.map(one_by_one), one_by_one(online)) {
        let both = allowed.intersection(&online).count();
        assert_eq!(u64::try_from(both), Ok(count), "{text}");
    }
}

/// Every processor of a list; `None` if a number is too large.
fn one_by_one(list: &str) -> Option<BTreeSet<u64>> {
    let mut all = BTreeSet::new();
    for part in list.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from.max(to) >= COUNTED_MAX {
            return None;
        }
        all.extend(from..=to);
    }
    Some(all)
}

/// The mounts of a machine and the cgroups of a process: `mountinfo`, then `cgroup`.
pub fn hierarchies(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (mountinfo, memberships) = text.split_once(NEXT_FILE).unwrap_or((&text, "0::/\n"));
    let mounts = layout::mounts(mountinfo);
    let memberships = layout::memberships(memberships);
    for mount in &mounts {
        assert_eq!(
            layout::mounts(&mount_line(mount)),
            std::slice::from_ref(mount),
            "{text}"
        );
        for own in &memberships {
            let directory = layout::directory(mount, own);
            let below = directory.strip_prefix(&mount.point).ok();
            let is_inside = below.is_some_and(|below| {
                let mut parts = below.components();
                parts.all(|part| matches!(part, Component::Normal(_)))
            });
            assert!(is_inside, "{} of {text}", directory.display());
        }
    }
    if let Some((mount, own)) = layout::unified(&mounts, &memberships) {
        assert_eq!(mount.version, Version::V2);
        assert!(own.controllers.is_empty());
    }
    for controller in ["cpu", "cpuacct", "memory"] {
        if let Some((mount, own)) = layout::legacy(&mounts, &memberships, controller) {
            let carries = |list: &[String]| list.iter().any(|word| word == controller);
            assert_eq!(mount.version, Version::V1);
            assert!(carries(&mount.controllers) && carries(&own.controllers));
        }
    }
}

/// A mount in the kernel's format.
fn mount_line(mount: &Mount) -> String {
    let escaped = |path: &Path| {
        let mut out = String::new();
        for character in path.to_string_lossy().chars() {
            match character {
                ' ' | '\t' | '\n' | '\\' => {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\{:03o}", u32::from(character));
                }
                character => out.push(character),
            }
        }
        out
    };
    let (root, point) = (escaped(&mount.root), escaped(&mount.point));
    let (kind, options) = match mount.version {
        Version::V1 => ("cgroup", mount.controllers.join(",")),
        Version::V2 => ("cgroup2", "rw".to_owned()),
    };
    format!("36 25 0:31 {root} {point} rw - {kind} {kind} {options}")
}

/// Paths of cgroups, one per line, some of them of Kubernetes.
pub fn kubernetes_names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        if let Some(plain) = plain(Path::new(line)) {
            let mut parts = plain.components();
            assert!(parts.all(|part| matches!(part, Component::Normal(_))));
        }
        let parsed = pod_group(Path::new(line));
        let is_kubepods = |name: &OsStr| name == "kubepods" || name == "kubepods.slice";
        let mut names = Path::new(line).iter();
        assert!(parsed.is_none() || names.any(is_kubepods), "{line}");
        let Some(group) = parsed else { continue };
        assert!(!group.uid.is_empty() && !group.uid.contains('_'), "{line}");
        for path in kubernetes_paths(&group) {
            assert_eq!(pod_group(Path::new(&path)).as_ref(), Some(&group), "{path}");
        }
    }
}

/// Names of a group under both cgroup drivers. In a name of the systemd driver, an id with a dash
/// would be ambiguous; no runtime creates such ids.
fn kubernetes_paths(group: &PodGroup) -> Vec<String> {
    let PodGroup {
        qos,
        uid,
        container,
    } = group;
    let class = match qos {
        Qos::Guaranteed => "",
        Qos::Burstable => "burstable",
        Qos::BestEffort => "besteffort",
    };
    let inner = |container: &String| format!("/{container}");
    let inner = container.as_ref().map(inner).unwrap_or_default();
    let mut paths = vec![format!("/deep/kubepods/{class}/pod{uid}{inner}")];
    if container.as_ref().is_none_or(|id| !id.contains('-')) {
        let (above, dash) = match qos {
            Qos::Guaranteed => (String::new(), String::new()),
            _ => (format!("/kubepods-{class}.slice"), format!("-{class}")),
        };
        let pod = format!("kubepods{dash}-pod{}.slice", uid.replace('-', "_"));
        let scope = |container: &String| format!("/cri-containerd-{container}.scope");
        let scope = container.as_ref().map(scope).unwrap_or_default();
        paths.push(format!("/kubepods.slice{above}/{pod}{scope}"));
    }
    paths
}

/// A file for `market clear` or `market simulate`: a node survives a round trip, is cleared within bounds,
/// and is explained; a load is played for some seconds.
pub fn market_file(bytes: &[u8]) {
    let file = |bytes: Vec<u8>| File {
        name: "market.yaml".to_owned(),
        bytes,
    };
    simulation_file(&file(bytes.to_vec()));
    let market = match read_market(&file(bytes.to_vec())) {
        Ok(market) => market,
        Err(mistakes) => {
            drop(mistakes.to_problem());
            drop(mistakes.to_string());
            return;
        }
    };
    let again = read_market(&file(market_json(&market).into_bytes()));
    assert_eq!(
        again.ok().as_ref(),
        Some(&market),
        "a node survives a round trip"
    );
    let cleared = clear(&market);
    within_bounds(&cleared);
    drop(serde_json::to_string(&Clearing::from(&cleared)));
    let scene = Scene::of_market(&market, &cleared);
    drop((why(&scene), price_line(&scene)));
    for share in &cleared.shares {
        drop(explain(&scene, share, None));
    }
}

/// Plays the first seconds of a load: limits stay within capacity.
fn simulation_file(file: &File) {
    let Ok(mut simulation) = read_simulation(file) else {
        return;
    };
    if SIMULATED_PODS_MAX < simulation.world.pods.len() {
        return;
    }
    simulation.world.seconds = simulation.world.seconds.min(SIMULATED_SECONDS_MAX);
    simulate(
        &simulation.world,
        |second, pod| simulation.want_milli(second, pod),
        |second| {
            if let Some(clearing) = second.node.last() {
                within_bounds(&clearing.cleared);
            }
        },
    );
}

/// The node as JSON, which is also YAML.
fn market_json(market: &Market) -> String {
    let pods = market.pods.iter().map(|pod| {
        let mut value = serde_json::json!({
            "id": &*pod.id, "minMilli": pod.min_milli, "maxMilli": pod.max_milli,
            "weight": pod.weight, "headroomPermille": pod.headroom_permille,
        });
        let want = match pod.want {
            Want::Demand(ppm) => ("demandPpm", ppm),
            Want::Need(milli) => ("needMilli", milli),
        };
        if let Some(fields) = value.as_object_mut() {
            fields.insert(want.0.to_owned(), want.1.into());
        }
        value
    });
    let pods: Vec<serde_json::Value> = pods.collect();
    serde_json::json!({
        "capacityMilli": market.capacity_milli, "policy": market.policy.word(),
        "quantumMilli": market.quantum_milli, "pods": pods,
    })
    .to_string()
}

/// min ≤ share ≤ max, or share ≤ min in overload, and the sum is at most the capacity (M4).
fn within_bounds(cleared: &Cleared) {
    let mut sum = 0_u64;
    for share in &cleared.shares {
        let allocated = share.allocated_milli;
        let (least, most) = if cleared.mode == Mode::Overloaded {
            (0, share.min_milli)
        } else {
            (share.min_milli, share.max_milli)
        };
        assert!((least..=most).contains(&allocated), "{share:?}");
        sum = sum.saturating_add(allocated);
    }
    assert!(sum <= cleared.capacity_milli, "{cleared:?}");
}

/// The lines of an agent's record: accepted lines follow from the rule, and lines can be appended.
pub fn market_record(bytes: &[u8]) {
    let Some(directory) = directory_with(RECORD, bytes) else {
        return;
    };
    let (mut lines, mut last) = (0_u64, None);
    let read = record::read(directory.path(), |past| {
        lines += 1;
        last = Some(past.hash);
        if let Some(replayed) = past.replayed {
            within_bounds(&replayed.clearing.cleared);
        }
    });
    let Ok(mut record) = Record::open(directory.path()) else {
        return;
    };
    let Ok(verified) = read else {
        return;
    };
    assert_eq!(verified.lines, lines);
    if lines > 0 {
        let head = record.position().map(|position| position.head);
        assert_eq!(head, last);
    }
    if add(&mut record).is_ok() {
        let again = record::read(directory.path(), |_| ()).ok();
        assert_eq!(again.map(|again| again.lines), Some(lines + 1));
    }
}

/// Appends a clearing without pods.
fn add(record: &mut Record) -> Result<(), bursar_node::market::Error> {
    let settings = Settings::default();
    let rules = Rules::of(&Options {
        node: "here".to_owned(),
        directory: "/nowhere".into(),
        mode: bursar_node::market::Mode::Observe,
        settings,
        interval: Duration::from_secs(1),
        reserve_milli: None,
        unmanaged: Unmanaged::Measured,
        cgroups: Vec::new(),
        executions: None,
        process: "/nowhere".into(),
    });
    let mut node = Node::new(settings);
    let supply = Supply {
        allocatable_milli: 1_000,
        unmanaged_milli: Some(0),
    };
    node.clear(1, supply);
    match node.last() {
        Some(clearing) => record.add(1, &rules, (&clearing, &BTreeMap::new()), Vec::new()),
        None => Ok(()),
    }
}

/// The originals of a killed agent: they survive a round trip.
pub fn market_originals(bytes: &[u8]) {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes).replace(BOOT_PLACEHOLDER, boot.trim());
    let Some(directory) = directory_with("originals.json", text.as_bytes()) else {
        return;
    };
    let Ok(originals) = Originals::open(directory.path()) else {
        return;
    };
    for (pod, kept) in originals.kept() {
        let known = kept.original;
        let present = Quota {
            quota_us: known.quota_us.map(|us| us ^ 1),
            ..known
        };
        let (group, identity) = (kept.group.as_path(), kept.identity);
        assert_eq!(originals.original(pod, group, identity, known), known);
        // Another cgroup with the same name has its own original.
        let other = originals.original(pod, group, identity ^ 1, present);
        assert_eq!(other, present);
    }
    if originals.store().is_ok() {
        let again = Originals::open(directory.path());
        let again = again.ok().map(|again| again.kept().clone());
        assert_eq!(again.as_ref(), Some(originals.kept()), "{text}");
    }
}

/// A directory with one file in it.
fn directory_with(name: &str, bytes: &[u8]) -> Option<TempDir> {
    let directory = if Path::new(MEMORY).is_dir() {
        tempfile::tempdir_in(MEMORY)
    } else {
        tempfile::tempdir()
    };
    let directory = directory.ok()?;
    fs::write(directory.path().join(name), bytes).ok()?;
    Some(directory)
}
