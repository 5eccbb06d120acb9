//! Packages of Debian: installed where that can be done without asking anybody, or only fetched.
//!
//! Promises: a fresh system without lists of packages, lists that are out of date, a mirror that
//! fails once and another program that is just installing something are waited for or mended.

use std::path::Path;

use anyhow::Context as _;

use crate::invocation::Invocation;

/// What is there only on a system whose packages `apt-get` installs.
const DEBIAN: &str = "/etc/debian_version";

/// How `apt-get` behaves where nobody watches: it tries again, waits for others, draws no bars, and
/// does not mind that its own user cannot see our directories.
const OPTIONS: [&str; 4] = [
    "Acquire::Retries=3",
    "DPkg::Lock::Timeout=120",
    "Dpkg::Use-Pty=0",
    "APT::Sandbox::User=root",
];

/// Whether this is such a system.
pub fn is_here() -> bool {
    Path::new(DEBIAN).exists()
}

/// Whether packages can be installed here without asking anybody.
pub fn may_install(root: &Path) -> bool {
    let user = Invocation::new("id", &["-u"]).output(root);
    user.is_ok_and(|user| user.trim() == "0") && is_here()
}

/// Sees to it that a program is there, by installing its package where that can be done; whether it
/// is there now.
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

/// Fetches packages into a directory, which needs no rights.
pub fn download(directory: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join("` and `");
    eprintln!("fetching the packages `{names}`, once for this user; they are not installed");
    let download = apt(&["download"]).with(packages.iter().copied());
    with_lists(directory, || download.output(directory))
        .map(drop)
        .with_context(|| format!("cannot fetch the packages `{names}`"))
}

/// Does something that needs lists of packages; a fresh system has none yet, and old ones name
/// packages that are no longer to be had.
pub fn with_lists<T>(
    directory: &Path,
    action: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let done = action();
    if done.is_ok() || !may_install(directory) {
        return done;
    }
    eprintln!("bringing the lists of packages up to date");
    apt(&["update"]).output(directory)?;
    action()
}

/// `apt-get` that says nothing but what went wrong.
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
    fn nobody_is_asked_and_others_are_waited_for() {
        let expected = "DEBIAN_FRONTEND=noninteractive apt-get -q -q -o Acquire::Retries=3 \
                        -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root update";
        assert_eq!(super::apt(&["update"]).to_string(), expected);
    }
}
