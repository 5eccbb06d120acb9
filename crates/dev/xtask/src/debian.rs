//! Debian packages: installed as root without questions, or only downloaded.
//!
//! Promises: missing or outdated package lists are updated, a failed download is retried, and a
//! concurrent installation is waited for.

use std::path::Path;

use anyhow::Context as _;

use crate::invocation::Invocation;

/// A file that exists only on systems with `apt-get`.
const DEBIAN: &str = "/etc/debian_version";

/// Options of an unattended `apt-get`: it retries, waits for the lock, draws no progress bars, and
/// runs as root, because its own user cannot read our directories.
const OPTIONS: [&str; 4] = [
    "Acquire::Retries=3",
    "DPkg::Lock::Timeout=120",
    "Dpkg::Use-Pty=0",
    "APT::Sandbox::User=root",
];

/// Whether this is a Debian system.
pub fn is_here() -> bool {
    Path::new(DEBIAN).exists()
}

/// Whether packages can be installed here without questions.
pub fn may_install(root: &Path) -> bool {
    let user = Invocation::new("id", &["-u"]).output(root);
    user.is_ok_and(|user| user.trim() == "0") && is_here()
}

/// Installs the package of a missing program where that is possible. Returns whether the program is
/// available now.
pub fn ensure(root: &Path, package: &str, is_there: impl Fn() -> bool) -> anyhow::Result<bool> {
    if !is_there() && may_install(root) {
        install(root, package)?;
    }
    Ok(is_there())
}

/// Installs a package.
pub fn install(root: &Path, package: &str) -> anyhow::Result<()> {
    eprintln!("installing the package `{package}`, once for this machine");
    let install = apt(&["install", "--yes", "--no-install-recommends", package]);
    with_lists(root, || install.output(root))
        .map(drop)
        .with_context(|| format!("cannot install the package `{package}`"))
}

/// Downloads packages into a directory, which needs no privileges.
pub fn download(directory: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join("` and `");
    eprintln!("downloading the packages `{names}`, once for this user; they are not installed");
    let download = apt(&["download"]).with(packages.iter().copied());
    with_lists(directory, || download.output(directory))
        .map(drop)
        .with_context(|| format!("cannot download the packages `{names}`"))
}

/// Downloads packages into an empty directory and unpacks their files there; nothing is installed.
pub fn unpack(directory: &Path, packages: &[&str]) -> anyhow::Result<()> {
    download(directory, packages)?;
    let files = std::fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let files: Vec<std::path::PathBuf> =
        files.with_context(|| format!("cannot read {}", directory.display()))?;
    for file in files {
        let file = file.to_string_lossy();
        Invocation::new("dpkg-deb", &["--extract", &file, "."]).output(directory)?;
    }
    Ok(())
}

/// Runs an action that needs package lists, and repeats it after an update of the lists: a fresh
/// system has none, and old ones name packages that no longer exist.
pub fn with_lists<T>(
    directory: &Path,
    action: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let done = action();
    if done.is_ok() || !may_install(directory) {
        return done;
    }
    eprintln!("updating the package lists");
    apt(&["update"]).output(directory)?;
    action()
}

/// `apt-get` that prints only errors.
fn apt(arguments: &[&str]) -> Invocation {
    let options = OPTIONS.iter().flat_map(|option| ["-o", *option]);
    Invocation::new("apt-get", &["-q", "-q"])
        .with(options)
        .with(arguments.iter().copied())
        .with_variable("DEBIAN_FRONTEND", "noninteractive")
}

#[cfg(test)]
mod tests {
    #[test]
    fn apt_get_asks_no_questions_and_waits_for_the_lock() {
        let expected = "DEBIAN_FRONTEND=noninteractive apt-get -q -q -o Acquire::Retries=3 \
                        -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root update";
        assert_eq!(super::apt(&["update"]).to_string(), expected);
    }
}
