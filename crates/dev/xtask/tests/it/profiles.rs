//! Packages are built with optimisation, although the profile `release` leaves it out for some crates.

use std::collections::BTreeMap;

use xtask::tree;

/// The rows of a table of the workspace's manifest.
fn table(manifest: &str, name: &str) -> BTreeMap<String, String> {
    let head = format!("[{name}]");
    let rows = manifest.lines().skip_while(|line| *line != head).skip(1);
    rows.take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_profile_of_packages_optimises_every_crate() {
    let manifest = std::fs::read_to_string(tree::root().unwrap().join("Cargo.toml")).unwrap();
    let cheap = table(&manifest, "profile.release.package");
    let shipped = table(&manifest, "profile.dist.package");
    assert!(cheap.contains_key("bursar.opt-level"));
    assert!(cheap.keys().eq(shipped.keys()), "{cheap:?} {shipped:?}");
    assert!(shipped.values().all(|level| level == "3"), "{shipped:?}");
}
