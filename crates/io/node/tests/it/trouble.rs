//! Full disks and floods of output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bursar_booking::execution::Exit;
use bursar_node::executor::{Left, Stream};
use tempfile::TempDir;

use crate::host::{Host, id};

/// A small file system for one test.
struct Disk {
    directory: TempDir,
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = Self { directory };
        disk.mount("size=1m,nr_inodes=100");
        disk
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves room for this many more pages and files.
    fn leave(&self, pages: u64, files: u64) {
        let used = rustix::fs::statvfs(self.path()).unwrap();
        let size = (used.f_blocks - used.f_bfree + pages) * used.f_frsize;
        let inodes = used.f_files - used.f_ffree + files;
        // A size of 0 means no limit.
        assert_ne!(size, 0);
        self.mount(&format!("remount,size={size},nr_inodes={inodes}"));
    }

    fn mount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let status = mount.arg(self.path()).status().unwrap();
        assert!(status.success(), "this test mounts a small disk, as root");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(self.path()).status();
        assert!(std::thread::panicking() || status.unwrap().success());
    }
}

#[tokio::test]
async fn a_full_disk_at_any_step_is_reported_and_nothing_hangs() {
    let disk = Disk::new();
    let host = Host::with(|options, _| options.directory = disk.path().join("executions"));
    let job = host.shell("echo out; echo err >&2; exit 3");
    let mut ends = Vec::new();
    let rooms = (0..5)
        .map(|files| (9, files))
        .chain((0..4).map(|pages| (pages, 9)));
    for (number, (pages, files)) in rooms.enumerate() {
        let name = format!("a-{number}");
        disk.leave(pages, files);
        let exit = host.run(&name, &job).await;
        if let Exit::NotStarted(reason) = &exit {
            assert!(reason.contains("No space left"), "{reason}");
        }
        ends.push(matches!(exit, Exit::NotStarted(_)));
        assert!(
            matches!(exit, Exit::NotStarted(_) | Exit::Code(3)),
            "{exit:?}"
        );
        host.local().clean(&id(&name), Left::Nothing).unwrap();
    }
    // Without room for the directory, the grant and the marker it cannot start; with it the result
    // is known, and only output may be missing.
    let expected = [true, true, true, false, false, true, true, false, false];
    assert_eq!(ends, expected);
}

#[tokio::test]
async fn a_disk_that_fills_up_loses_output_but_not_the_result() {
    let disk = Disk::new();
    let host = Host::with(|options, _| options.directory = disk.path().join("executions"));
    let job = host.shell("head -c 3000000 /dev/zero; exit 3");
    assert_eq!(host.run("a", &job).await, Exit::Code(3));
    let count = |pointer| host.seen(&id("a"), pointer).as_u64().unwrap();
    let dropped = count("/stdout/bytesDropped");
    assert_eq!(count("/stdout/bytesKept") + dropped, 3_000_000);
    assert!(0 < dropped);
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_marked_and_blocks_nobody() {
    let host = Host::new();
    let script = "head -c 40000000 /dev/zero | tr '\\0' x; echo done >&2";
    assert_eq!(host.run("a", &host.shell(script)).await, Exit::Code(0));
    assert_eq!(host.output(&id("a"), Stream::Stderr), "done\n");
    let kept = 10 * 1024 * 1024;
    let output = host.output(&id("a"), Stream::Stdout);
    let (bytes, marker) = output.split_at(kept);
    assert!(bytes.bytes().all(|byte| byte == b'x'));
    assert_eq!(
        marker,
        "\nbursar: more than 10 MiB were written; the rest is not kept\n"
    );
    assert_eq!(host.seen(&id("a"), "/stdout/bytesKept"), kept);
    let dropped = host.seen(&id("a"), "/stdout/bytesDropped");
    assert_eq!(dropped, 40_000_000 - kept);
}

#[tokio::test]
async fn output_of_exactly_the_limit_is_not_marked() {
    let host = Host::new();
    let job = host.shell("head -c 10485760 /dev/zero");
    assert_eq!(host.run("a", &job).await, Exit::Code(0));
    let path: PathBuf = host.directory(&id("a")).join("stdout");
    assert_eq!(fs::metadata(path).unwrap().len(), 10 * 1024 * 1024);
}
