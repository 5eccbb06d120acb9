//! Packages of Debian: installed where that can be done without asking anybody, or only fetched.

use std::path::Path;

use anyhow::Context as _;

use crate::invocation::Invocation;

/// What is there only on a system whose packages `apt-get` installs.
const DEBIAN: &str = "/etc/debian_version";

/// Whether this is such a system.
pub fn is_here() -> bool {
    Path::new(DEBIAN).exists()
}

/// Whether packages can be installed here without asking anybody.
pub fn may_install(root: &Path) -> bool {
    let user = Invocation::new("id", &["-u"]).output(root);
    user.is_ok_and(|user| user.trim() == "0") && is_here()
}

/// Installs a package.
pub fn install(root: &Path, package: &str) -> anyhow::Result<()> {
    let install = apt(&["install", "--yes", "--no-install-recommends", package]);
    with_lists(root, || install.run(root))
        .with_context(|| format!("cannot install the package `{package}`"))
}

/// Fetches packages into a directory, which needs no rights.
pub fn download(directory: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let download = apt(&["download"]).with(packages.iter().copied());
    with_lists(directory, || download.run(directory))
        .with_context(|| format!("cannot fetch the packages {packages:?}"))
}

/// Does something that needs lists of packages; a fresh system has none yet.
pub fn with_lists<T>(
    directory: &Path,
    action: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let done = action();
    if done.is_ok() || !may_install(directory) {
        return done;
    }
    apt(&["update"]).run(directory)?;
    action()
}

fn apt(arguments: &[&str]) -> Invocation {
    Invocation::new("apt-get", arguments).with_variable("DEBIAN_FRONTEND", "noninteractive")
}
