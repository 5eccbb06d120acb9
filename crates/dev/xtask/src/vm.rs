//! Tests of executor and market on cgroup v2, in a small virtual machine with its own kernel, so that
//! all controllers of version 2 are present whatever this machine has.
//!
//! Promises: needs neither network nor hardware virtualisation. Missing tools are installed or
//! downloaded as root on Debian, and otherwise named. All tests of `bursar-node` run there except
//! those in `LEFT_OUT`, each with its reason; then the program itself, from its start to the restore
//! after `kill -9`.

mod archive;
mod executables;
mod ingredients;
mod machine;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

use archive::Archive;
use executables::Executable;

use crate::cache::{self, Scratch};

/// Tests that do not run in the machine, with reasons. A test is left out if its name contains the text.
const LEFT_OUT: &[(&str, &str)] = &[
    ("layout::", "reads text, no kernel"),
    ("market_files::", "uses fake files, no kernel"),
    ("market_record::", "writes plain files, no kernel"),
    ("null::", "runs nothing"),
    (
        "life::a_hundred_at_once_leave_no_process_no_zombie_no_cgroup_and_no_directory",
        "a hundred at once exceed the timeout of a test on emulated processors",
    ),
    (
        "life::a_set_user_id_program_changes_its_user_only_if_allowed",
        "busybox, which replaces `id` there, drops the user that it was set to",
    ),
];

/// Time limit of the machine, ten times the run time of the tests on real hardware.
const LIMIT: Duration = Duration::from_mins(8);

/// Runs the part.
pub fn check(root: &Path) -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the virtual machine is x86-64 and cannot run tests built for another architecture");
    }
    let cache = cache::directory("vm")?;
    let ingredients = ingredients::find(root, &cache)?;
    let executables = executables::build(root)?;
    for (name, reason) in LEFT_OUT {
        eprintln!("left out: {name} ({reason})");
    }
    let scratch = Scratch::new(&cache, "run")?;
    let bytes = pack(root, &executables, &ingredients.busybox, scratch.path())?;
    let archive = scratch.path().join("archive");
    fs::write(&archive, bytes).with_context(|| format!("cannot write {}", archive.display()))?;
    machine::run(&ingredients.kernel, &archive, LIMIT)
}

/// Packs the root file system of the machine.
fn pack(
    root: &Path,
    executables: &[Executable],
    busybox: &Path,
    scratch: &Path,
) -> anyhow::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["dev", "etc", "proc", "run", "sys", "tmp"] {
        archive.directory(directory)?;
    }
    archive.file("init", include_bytes!("vm/init"))?;
    archive.file("tests/scenario", include_bytes!("vm/scenario"))?;
    archive.file("usr/bin/busybox", &read(busybox)?)?;
    archive.link("bin", "usr/bin")?;
    let mut libraries = BTreeSet::new();
    for executable in executables {
        let small = executables::without_debugging(root, &executable.built, scratch);
        archive.file(&executable.guest_path, &read(&small)?)?;
        libraries.extend(executables::libraries(root, &executable.built)?);
    }
    for library in libraries {
        let path = library.to_string_lossy();
        archive.file(path.trim_start_matches('/'), &read(&library)?)?;
    }
    archive.file("tests/arguments", arguments().as_bytes())?;
    archive.file("tests/seconds", LIMIT.as_secs().to_string().as_bytes())?;
    archive.finish()
}

fn arguments() -> String {
    let skips = LEFT_OUT.iter().map(|(name, _)| format!("--skip {name}"));
    skips.collect::<Vec<String>>().join(" ")
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
