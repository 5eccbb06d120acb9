//! Parts of the machine: qemu, which is installed, and a kernel and a busybox, which are only
//! unpacked, so that this machine never boots from them.
//!
//! Promises: files are downloaded once and kept in the cache; an incomplete download is never kept;
//! if a file cannot be downloaded, the error names it and its path.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use crate::cache::Scratch;
use crate::debian;
use crate::invocation::Invocation;

pub(super) const QEMU: &str = "qemu-system-x86_64";

const QEMU_PACKAGE: &str = "qemu-system-x86";

/// Package that depends on the newest kernel for virtual machines.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// Package with a shell and the usual commands in one static file.
const BUSYBOX_PACKAGE: &str = "busybox-static";

/// Paths in the cache.
#[derive(Debug)]
pub(super) struct Ingredients {
    pub(super) kernel: PathBuf,
    pub(super) busybox: PathBuf,
}

/// Installs and downloads all parts that are missing.
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
    // The hint comes last, after all causes.
    fetched.map_err(|error| {
        anyhow!(
            "{} has no kernel and no busybox for the virtual machine: {error:#}\nhint: put an x86-64 kernel \
             with cgroup v2 and a serial console there as `vmlinuz`, and a static `busybox`, such as those of \
             Debian in {KERNEL_PACKAGE} and {BUSYBOX_PACKAGE}; on Debian try `apt-get update` as root first",
            cache.display()
        )
    })?;
    Ok(ingredients)
}

fn find_qemu(root: &Path) -> anyhow::Result<()> {
    let is_there = || Invocation::new(QEMU, &["--version"]).succeeds(root);
    if debian::ensure(root, QEMU_PACKAGE, is_there)? {
        return Ok(());
    }
    bail!(
        "no {QEMU} is on the search path\nhint: install the package `{QEMU_PACKAGE}`; as root on Debian this \
         part installs it"
    )
}

/// Downloads both packages and keeps one file of each.
fn fetch(unpacked: &Path, ingredients: &Ingredients) -> anyhow::Result<()> {
    let newest = Invocation::new("apt-cache", &["depends", "--important", KERNEL_PACKAGE]);
    let kernel_package = debian::with_lists(unpacked, || {
        kernel_package(&newest.output(unpacked)?).with_context(|| {
            format!("the package `{KERNEL_PACKAGE}` is unknown or names no kernel")
        })
    })?;
    debian::unpack(unpacked, &[&kernel_package, BUSYBOX_PACKAGE])?;
    let mut booted = entries(&unpacked.join("boot"))?.into_iter();
    let kernel = booted
        .find(|file| file.to_string_lossy().contains("/vmlinuz-"))
        .with_context(|| format!("the package `{kernel_package}` has no kernel"))?;
    keep(&kernel, &ingredients.kernel)?;
    // Newer releases of Debian have all programs below `usr`.
    let mut paths = ["bin/busybox", "usr/bin/busybox"]
        .map(|path| unpacked.join(path))
        .into_iter();
    let busybox = paths
        .find(|path| path.exists())
        .with_context(|| format!("the package `{BUSYBOX_PACKAGE}` has no busybox"))?;
    keep(&busybox, &ingredients.busybox)
}

/// Name of the kernel's package in the output of `apt-cache depends`.
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

fn keep(file: &Path, target: &Path) -> anyhow::Result<()> {
    fs::rename(file, target)
        .with_context(|| format!("cannot move {} to {}", file.display(), target.display()))
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
