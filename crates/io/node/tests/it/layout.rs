//! Cgroup layouts of real hosts, and robustness of the parser.

use std::fs;
use std::path::Path;

use bursar_node::cgroup::layout::{self, Mount};
use bursar_node::cgroup::{self, Controller, Group, Limits, Tree, Unless, Version};
use proptest::prelude::*;

/// A server as root on a hybrid machine: the controllers of version 1, an empty version 2.
const HYBRID: (&str, &str) = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
",
    "9:name=systemd:/
8:pids:/
6:freezer:/
4:memory:/process_api/b8ec4c93
1:cpu:/
0::/
",
);

/// A unit of systemd with version 2 only.
const SYSTEMD: (&str, &str) = (
    "22 29 0:21 / /proc rw,nosuid shared:12 - proc proc rw
28 24 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
",
    "0::/system.slice/bursar.service\n",
);

/// Systemd's older way: both, with controllers mounted together.
const TOGETHER: (&str, &str) = (
    "30 24 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
36 30 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:16 - cgroup cgroup rw,cpu,cpuacct
",
    "4:cpu,cpuacct:/system.slice/bursar.service
0::/system.slice/bursar.service
",
);

/// Docker with version 1: only a part of each hierarchy is visible.
const DOCKER: (&str, &str) = (
    "612 611 0:30 /docker/0a1b /sys/fs/cgroup/memory ro,nosuid,relatime master:14 - cgroup cgroup rw,memory
613 611 0:31 /docker/0a1b /sys/fs/cgroup/pids ro,nosuid,relatime master:15 - cgroup cgroup rw,pids
",
    "12:memory:/docker/0a1b
3:pids:/docker/0a1b/inner
",
);

/// WSL 2: everything at the root, blanks in the paths of other mounts.
const WSL: (&str, &str) = (
    r"80 70 0:54 / /mnt/c/Program\040Files rw - 9p drvfs rw,dirsync
85 78 0:58 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw
",
    "0::/init.scope\n",
);

fn own_directory(host: (&str, &str), controller: Option<&str>) -> Option<String> {
    let (mounts, memberships) = (layout::mounts(host.0), layout::memberships(host.1));
    let (mount, own) = match controller {
        None => layout::unified(&mounts, &memberships)?,
        Some(word) => layout::legacy(&mounts, &memberships, word)?,
    };
    Some(layout::directory(mount, own).display().to_string())
}

#[test]
fn our_own_group_is_found_on_every_kind_of_host() {
    for (host, controller, directory) in [
        (HYBRID, None, Some("/sys/fs/cgroup/unified")),
        (HYBRID, Some("cpu"), Some("/sys/fs/cgroup/cpu")),
        (
            HYBRID,
            Some("memory"),
            Some("/sys/fs/cgroup/memory/process_api/b8ec4c93"),
        ),
        (
            SYSTEMD,
            None,
            Some("/sys/fs/cgroup/system.slice/bursar.service"),
        ),
        (SYSTEMD, Some("cpu"), None),
        (
            TOGETHER,
            Some("cpu"),
            Some("/sys/fs/cgroup/cpu,cpuacct/system.slice/bursar.service"),
        ),
        (TOGETHER, Some("memory"), None),
        (DOCKER, None, None),
        (DOCKER, Some("memory"), Some("/sys/fs/cgroup/memory")),
        (DOCKER, Some("pids"), Some("/sys/fs/cgroup/pids/inner")),
        (WSL, None, Some("/sys/fs/cgroup/init.scope")),
    ] {
        let found = own_directory(host, controller);
        assert_eq!(found.as_deref(), directory, "{controller:?} of {}", host.1);
    }
}

#[test]
fn a_path_outside_of_the_visible_root_gives_the_mount_point() {
    let mounts = "41 31 0:38 /a /c rw - cgroup2 cgroup2 rw";
    for own in ["0::/b\n", "0::/a/../../b\n", "0::/../b\n"] {
        assert_eq!(own_directory((mounts, own), None).unwrap(), "/c", "{own}");
    }
}

/// A tree of plain files that looks like version 2 with all controllers.
fn v2_host(scratch: &Path, own: &str) -> std::path::PathBuf {
    let (process, root) = (scratch.join("process"), scratch.join("cgroup root"));
    fs::create_dir_all(&process).unwrap();
    fs::create_dir_all(root.join(own)).unwrap();
    for place in [&root, &root.join(own), root.join(own).parent().unwrap()] {
        fs::write(
            place.join("cgroup.controllers"),
            "cpuset cpu io memory pids\n",
        )
        .unwrap();
    }
    let point = root.display().to_string().replace(' ', "\\040");
    let mounts = format!("28 24 0:25 / {point} rw shared:9 - cgroup2 cgroup2 rw\n");
    fs::write(process.join("mountinfo"), mounts).unwrap();
    fs::write(process.join("cgroup"), format!("0::/{own}\n")).unwrap();
    process
}

#[test]
fn version_2_is_divided_below_our_own_place_with_its_controllers_passed_on() {
    let scratch = tempfile::tempdir().unwrap();
    let process = v2_host(scratch.path(), "system.slice/bursar.service");
    let trees = cgroup::find(&process, "l");
    let own = scratch
        .path()
        .join("cgroup root/system.slice/bursar.service");
    let controllers = vec![Controller::Cpu, Controller::Memory, Controller::Pids];
    let expected = Tree {
        version: Version::V2,
        base: own.join("bursar-l"),
        controllers,
    };
    assert_eq!(trees, [expected]);
    for place in [own.clone(), own.join("bursar-l")] {
        let passed = fs::read_to_string(place.join("cgroup.subtree_control")).unwrap();
        assert_eq!(passed, "+cpu +memory +pids");
    }
}

#[test]
fn a_server_in_its_leaf_uses_the_group_above() {
    let scratch = tempfile::tempdir().unwrap();
    let process = v2_host(scratch.path(), "bursar.service/bursar-server");
    let trees = cgroup::find(&process, "l");
    let base = trees.first().unwrap().base.clone();
    let above = scratch.path().join("cgroup root/bursar.service/bursar-l");
    assert_eq!(base, above);
}

#[test]
fn no_empty_directory_of_a_ledger_is_left_in_an_unused_hierarchy() {
    let scratch = tempfile::tempdir().unwrap();
    let process = v2_host(scratch.path(), "bursar.service");
    let root = scratch.path().join("cgroup root");
    // An earlier server used the whole machine and was killed, with and without executions.
    fs::create_dir(root.join("bursar-l")).unwrap();
    fs::create_dir_all(root.join("bursar-m/e-a")).unwrap();
    for ledger in ["l", "m"] {
        let trees = cgroup::find(&process, ledger);
        let base = root.join(format!("bursar.service/bursar-{ledger}"));
        assert_eq!(trees.first().unwrap().base, base);
    }
    assert!(!root.join("bursar-l").exists());
    assert!(root.join("bursar-m/e-a").exists());
    // If neither group can enable controllers, both test directories are removed.
    for place in [&root, &root.join("bursar.service")] {
        fs::remove_file(place.join("cgroup.subtree_control")).unwrap_or_default();
        fs::create_dir(place.join("cgroup.subtree_control")).unwrap();
    }
    let trees = cgroup::find(&process, "n");
    assert_eq!(trees.first().unwrap().controllers, []);
    for place in [&root, &root.join("bursar.service")] {
        assert!(!place.join("bursar-n").exists(), "{}", place.display());
    }
}

#[test]
fn controllers_are_enabled_in_a_directory_that_another_process_has_just_made() {
    let scratch = tempfile::tempdir().unwrap();
    let base = scratch.path().join("bursar-l");
    fs::create_dir(&base).unwrap();
    let tree = Tree {
        version: Version::V2,
        base: base.clone(),
        controllers: vec![Controller::Memory, Controller::Pids],
    };
    Group::make(&cgroup::plan(&[tree], "e-a", Limits::default())).unwrap();
    assert!(base.join("e-a").exists());
    let passed = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap();
    assert_eq!(passed, "+memory +pids");
}

#[test]
fn limits_become_settings_of_the_kernel() {
    let tree = |version, controllers: &[Controller]| Tree {
        version,
        base: format!("/{version:?}-{}", controllers.len()).into(),
        controllers: controllers.to_vec(),
    };
    let limits = Limits {
        cpu_milli: Some(1_500),
        memory_bytes: Some(4_096),
        pids: Some(3),
    };
    let lines = |trees: &[Tree], limits| {
        let plan = cgroup::plan(trees, "e", limits);
        let lines = plan.settings.iter().map(|setting| {
            let file = setting.file.display();
            let may = if setting.unless == Unless::Never {
                ""
            } else {
                "?"
            };
            format!("{file}={}{may}", setting.value)
        });
        (
            lines.collect::<Vec<_>>().join(", "),
            plan.directories.len(),
            plan.is_whole,
        )
    };
    let (cpu, memory, pids) = (Controller::Cpu, Controller::Memory, Controller::Pids);
    let v2 = [tree(Version::V2, &[cpu, memory, pids])];
    let settings = "/V2-3/e/memory.max=4096, /V2-3/e/memory.swap.max=0?, /V2-3/e/pids.max=3, \
        /V2-3/e/cpu.max=150000 100000";
    assert_eq!(lines(&v2, limits), (settings.to_owned(), 1, true));
    let hybrid = [tree(Version::V2, &[]), tree(Version::V1, &[cpu, memory])];
    let settings = "/V1-2/e/memory.limit_in_bytes=4096, \
        /V1-2/e/memory.memsw.limit_in_bytes=4096?, /V1-2/e/cpu.cfs_period_us=100000?, \
        /V1-2/e/cpu.cfs_quota_us=150000?";
    // No controller counts processes here, so the isolation is the weaker one.
    assert_eq!(lines(&hybrid, limits), (settings.to_owned(), 2, false));
    // Without limits only the tracking group is needed.
    assert_eq!(lines(&hybrid, Limits::default()), (String::new(), 1, true));
    assert_eq!(lines(&[], limits), (String::new(), 0, false));
    let least = Limits {
        cpu_milli: Some(1),
        ..Limits::default()
    };
    assert_eq!(lines(&v2, least).0, "/V2-3/e/cpu.max=1000 100000");
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "(?s).*") {
        let mounts = layout::mounts(&text);
        let memberships = layout::memberships(&text);
        for mount in &mounts {
            for own in &memberships {
                prop_assert!(layout::directory(mount, own).starts_with(&mount.point));
            }
        }
    }

    #[test]
    fn a_mount_is_read_as_it_was_written(
        root in "/[a-z \\\\é\t]{0,9}",
        point in "/[a-z \\\\é\n]{0,9}",
        tags in prop::collection::vec(" shared:[0-9]| master:[0-9]", 0..3),
        controllers in prop::collection::vec("[a-z]{1,6}", 1..4),
        is_v2: bool,
    ) {
        let escaped = |text: &str| {
            let text = text.replace('\\', "\\134").replace(' ', "\\040");
            text.replace('\t', "\\011").replace('\n', "\\012")
        };
        let kind = if is_v2 { "cgroup2" } else { "cgroup" };
        let line = format!(
            "1 2 0:3 {} {} rw{} - {kind} {kind} {}",
            escaped(&root), escaped(&point), tags.concat(), controllers.join(","),
        );
        let expected = Mount {
            version: if is_v2 { Version::V2 } else { Version::V1 },
            root: root.into(),
            point: point.into(),
            controllers: if is_v2 { Vec::new() } else { controllers },
        };
        prop_assert_eq!(layout::mounts(&line), [expected]);
    }
}
