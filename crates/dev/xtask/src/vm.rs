//! The executor and the market on cgroup v2: their tests in a small virtual machine with a kernel
//! of its own, so that they meet version 2 with all its controllers whatever this machine has.
//!
//! Promises: needs neither network nor virtualisation in there; what is missing here is installed
//! or fetched where that can be done without asking anybody, and otherwise named. Every test of
//! `bursar-node` runs there but those in `LEFT_OUT`, each with its reason, and then the program
//! itself, once from its start to what is left after `kill -9`.

mod archive;
mod executables;
mod ingredients;
mod machine;
mod scratch;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

use archive::Archive;
use executables::Executable;
use scratch::Scratch;

/// What does not run in the machine. Names are found anywhere in the name of a test.
const LEFT_OUT: &[(&str, &str)] = &[
    ("layout::", "reads text, no kernel"),
    (
        "market_files::",
        "has files of its own in place of the kernel's",
    ),
    ("market_record::", "writes plain files, no kernel"),
    ("null::", "runs nothing"),
    (
        "life::a_hundred_at_once_leave_no_process_no_zombie_no_cgroup_and_no_directory",
        "a hundred at once take longer than a test waits where every processor is emulated",
    ),
    (
        "life::a_set_user_id_program_changes_its_user_only_if_allowed",
        "busybox, which stands for `id` there, gives up a user that it was set to",
    ),
];

/// So long may the machine take, an order of magnitude more than its tests take on a real one.
const LIMIT: Duration = Duration::from_mins(8);

/// Runs the whole part.
pub fn check(root: &Path) -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the virtual machine is an x86-64 one and runs no tests that were built for another");
    }
    let cache = cache()?;
    let ingredients = ingredients::find(root, &cache)?;
    let executables = executables::build(root)?;
    for (name, reason) in LEFT_OUT {
        eprintln!("left out: {name} {reason}");
    }
    let scratch = Scratch::new(&cache, "run")?;
    let bytes = pack(root, &executables, &ingredients.busybox, scratch.path())?;
    let archive = scratch.path().join("archive");
    fs::write(&archive, bytes).with_context(|| format!("cannot write {}", archive.display()))?;
    machine::run(&ingredients.kernel, &archive, LIMIT)
}

/// Everything that the machine has for a disk.
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
        archive.file(&executable.place, &read(&small)?)?;
        libraries.extend(executables::libraries(root, &executable.built)?);
    }
    for library in libraries {
        let place = library.to_string_lossy();
        archive.file(place.trim_start_matches('/'), &read(&library)?)?;
    }
    archive.file("tests/arguments", arguments().as_bytes())?;
    archive.file("tests/seconds", LIMIT.as_secs().to_string().as_bytes())?;
    archive.finish()
}

/// The arguments of the tests.
fn arguments() -> String {
    let skips = LEFT_OUT.iter().map(|(name, _)| format!("--skip {name}"));
    skips.collect::<Vec<String>>().join(" ")
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Where things are kept that can be had again.
fn cache() -> anyhow::Result<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a part of the test has no arguments, and this says where, not what"
    )]
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = named
        .filter(|path| path.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".cache")))
        .context("there is no directory for a cache\nhint: set XDG_CACHE_HOME")?;
    let cache = base.join("bursar-testbed").join("vm");
    fs::create_dir_all(&cache)
        .with_context(|| format!("cannot make the directory {}", cache.display()))?;
    Ok(cache)
}
