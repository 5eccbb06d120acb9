//! Works: stored once, readable by their owner only, and forgotten.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bursar_journal::hash::Hash;
use bursar_node::executor::Executor;

use crate::host::{Host, shell};

fn file(host: &Host, digest: &Hash) -> PathBuf {
    let hex: Vec<_> = digest.0.iter().map(|byte| format!("{byte:02x}")).collect();
    host.options.directory.join("works").join(hex.concat())
}

#[tokio::test]
async fn the_same_work_has_the_same_hash_here_and_another_elsewhere() {
    let mut host = Host::new();
    let one = host.local().keep(&shell("one")).unwrap();
    assert_ne!(host.local().keep(&shell("two")).unwrap(), one);
    host.restart();
    assert_eq!(host.local().keep(&shell("one")).unwrap(), one);
    // Each ledger has its own salt, so nobody can test a guess at a work against its hash.
    assert_ne!(Host::new().local().keep(&shell("one")).unwrap(), one);
}

#[tokio::test]
async fn only_the_server_can_read_works_and_output() {
    let host = Host::new();
    let digest = host.local().keep(&shell("one")).unwrap();
    host.run("a", &host.shell("echo secret")).await;
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(file(&host, &digest)), 0o600);
    assert_eq!(mode(host.options.directory.join("salt")), 0o600);
    assert_eq!(mode(host.options.directory.join("works")), 0o700);
    assert_eq!(mode(host.directory(&crate::host::id("a"))), 0o700);
    assert_eq!(mode(host.options.directory.clone()), 0o700);
}

#[tokio::test]
async fn old_works_that_nobody_needs_are_forgotten() {
    let host = Host::new();
    let [young, old, needed, again] = ["young", "old", "needed", "again"]
        .map(|script| host.local().keep(&shell(script)).unwrap());
    let long_ago = SystemTime::now() - Duration::from_mins(11);
    for digest in [&old, &needed, &again] {
        let file = File::options().append(true).open(file(&host, digest));
        file.unwrap().set_modified(long_ago).unwrap();
    }
    // Keeping a stored work again renews its age.
    host.local().keep(&shell("again")).unwrap();
    let forgotten = host.local().forget(BTreeSet::from([needed])).await;
    forgotten.unwrap();
    let is_kept = [young, old, needed, again].map(|digest| file(&host, &digest).exists());
    assert_eq!(is_kept, [true, false, true, true]);
}
