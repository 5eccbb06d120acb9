//! What the machine is made of: qemu, which is installed, and a kernel and a busybox, which are
//! only unpacked: nothing of this machine boots from them.
//!
//! Promises: what was fetched once is kept in the cache and fetched no more; nothing half done is
//! ever kept; where something cannot be had by itself, it is said what to put where.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::scratch::Scratch;
use crate::debian;
use crate::invocation::Invocation;

/// The program that emulates a machine.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// The package that has it.
const QEMU_PACKAGE: &str = "qemu-system-x86";

/// The package that depends on the newest kernel for machines without hardware.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// A shell with all the small programs in one file that needs no library.
const BUSYBOX_PACKAGE: &str = "busybox-static";

/// Two files of the cache.
#[derive(Debug)]
pub(super) struct Ingredients {
    pub(super) kernel: PathBuf,
    pub(super) busybox: PathBuf,
}

/// Sees to it that everything is there.
pub(super) fn find(root: &Path, cache: &Path) -> anyhow::Result<Ingredients> {
    find_qemu(root)?;
    let ingredients = Ingredients {
        kernel: cache.join("vmlinuz"),
        busybox: cache.join("busybox"),
    };
    if ingredients.kernel.exists() && ingredients.busybox.exists() {
        return Ok(ingredients);
    }
    let fetched = if debian::is_here() {
        let unpacked = Scratch::new(cache, "unpacked")?;
        fetch(unpacked.path(), &ingredients)
    } else {
        Err(anyhow!("this is not Debian"))
    };
    // What to do comes last, after all the causes.
    fetched.map_err(|error| {
        anyhow!(
            "no kernel and no busybox for a virtual machine in {}: {error:#}\nhint: put there, as `vmlinuz`, a \
             kernel for x86-64 with cgroup v2 and a serial console, and a static `busybox`, such as Debian has \
             in {KERNEL_PACKAGE} and {BUSYBOX_PACKAGE}; on Debian `apt-get update`, as root, may be all it takes",
            cache.display()
        )
    })?;
    Ok(ingredients)
}

fn find_qemu(root: &Path) -> anyhow::Result<()> {
    let is_there = || Invocation::new(QEMU, &["--version"]).succeeds(root);
    if is_there() {
        return Ok(());
    }
    if debian::may_install(root) {
        debian::install(root, QEMU_PACKAGE)?;
        if is_there() {
            return Ok(());
        }
    }
    bail!(
        "no {QEMU} is on the search path\nhint: install the package `{QEMU_PACKAGE}`: on Debian, as root, this \
         part does it by itself"
    )
}

/// Unpacks both packages and keeps one file of each.
fn fetch(unpacked: &Path, ingredients: &Ingredients) -> anyhow::Result<()> {
    let newest = Invocation::new("apt-cache", &["depends", "--important", KERNEL_PACKAGE]);
    let kernel_package = debian::with_lists(unpacked, || {
        kernel_package(&newest.output(unpacked)?)
            .with_context(|| format!("no kernel is known by the name `{KERNEL_PACKAGE}`"))
    })?;
    debian::download(unpacked, &[&kernel_package, BUSYBOX_PACKAGE])?;
    for package in entries(unpacked)? {
        let package = package.to_string_lossy().into_owned();
        Invocation::new("dpkg-deb", &["--extract", &package, "."]).output(unpacked)?;
    }
    let mut booted = entries(&unpacked.join("boot"))?.into_iter();
    let kernel = booted
        .find(|file| file.to_string_lossy().contains("/vmlinuz-"))
        .with_context(|| format!("the package `{kernel_package}` has no kernel"))?;
    keep(&kernel, &ingredients.kernel)?;
    // Newer releases of Debian have everything below `usr`.
    let mut places = ["bin/busybox", "usr/bin/busybox"]
        .map(|place| unpacked.join(place))
        .into_iter();
    let busybox = places
        .find(|place| place.exists())
        .with_context(|| format!("the package `{BUSYBOX_PACKAGE}` has no busybox"))?;
    keep(&busybox, &ingredients.busybox)
}

/// The name of the kernel's own package, in the words of `apt-cache depends`.
fn kernel_package(text: &str) -> Option<String> {
    let names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    let mut kernels = names.filter(|name| name.starts_with("linux-image-"));
    kernels.next().map(str::to_owned)
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = || {
        fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    };
    let entries: std::io::Result<Vec<PathBuf>> = read();
    entries.with_context(|| format!("cannot read {}", directory.display()))
}

fn keep(file: &Path, place: &Path) -> anyhow::Result<()> {
    fs::rename(file, place)
        .with_context(|| format!("cannot keep {} as {}", file.display(), place.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_behind_the_name_is_found() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-1-cloud-amd64\n";
        let found = super::kernel_package(text);
        assert_eq!(found.as_deref(), Some("linux-image-6.1.0-1-cloud-amd64"));
        assert_eq!(super::kernel_package("linux-image-cloud-amd64\n"), None);
    }
}
