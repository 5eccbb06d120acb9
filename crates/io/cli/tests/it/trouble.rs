//! Data directories that cannot be used: each case has its own error, and no data is lost.
//! Submodules: every failure that an execution can meet.

mod cell;
mod freezer;
mod many;
mod matrix;
mod rig;

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use crate::house::House;

/// A data directory with some bookings and without a running server.
fn used() -> House {
    let house = House::new();
    // A market would add records.
    let server = house.up(&["--market", "off"]);
    for number in 0..5 {
        house.ok(&[
            "booking",
            "reserve",
            "python",
            "--id",
            &format!("job-{number}"),
            "--ttl",
            "1h",
        ]);
    }
    house.ok(&["ledger", "backup", "--out", "good.backup"]);
    assert_eq!(server.interrupt(), 0);
    house
}

/// Replaces the first `from` after `mark` by `to` in the ledger file.
fn tamper(house: &House, mark: &str, from: &str, to: &str) {
    let path = house.data().join("ledger.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let find = |bytes: &[u8], text: &str| {
        bytes
            .windows(text.len())
            .position(|window| window == text.as_bytes())
    };
    let start = find(&bytes, mark).unwrap();
    let at = start + find(&bytes[start..], from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_newer_format_needs_a_newer_program() {
    let house = used();
    // The user version of an SQLite file: four bytes of its header.
    let path = house.data().join("ledger.db");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_at(&99_u32.to_be_bytes(), 60).unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("use a newer bursar"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_changed_record_is_named_and_a_backup_restores_the_ledger() {
    let house = used();
    tamper(&house, "\"seq\":7,", "job-2", "job-X");
    let checked = house.run(&["ledger", "check"]);
    assert_eq!(checked.code, 4, "{}{}", checked.stdout, checked.stderr);
    assert!(
        checked
            .stdout
            .contains("FAIL  hashes        record 7 does not hash"),
        "{}",
        checked.stdout
    );
    assert!(
        checked.stderr.contains("is damaged from record 7"),
        "{}",
        checked.stderr
    );
    let started = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(started.code, 4, "{}", started.stderr);
    house.ok(&["ledger", "restore", "good.backup", "--yes"]);
    let server = house.up(&[]);
    let found = house.ok(&["bookings", "-o", "name"]);
    assert_eq!(found.lines().count(), 5, "{found}");
    assert_eq!(server.interrupt(), 0);
    house.ok(&["ledger", "check"]);
}

#[test]
fn a_flipped_bit_or_a_truncated_file_exits_4() {
    let house = used();
    let path = house.data().join("ledger.db");
    let whole = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_at(b"not a database!!", 0).unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    std::fs::write(&path, &whole[..whole.len() / 3]).unwrap();
    let cut = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(cut.code, 4, "{}", cut.stderr);
    assert!(cut.stderr.contains("hint: "), "{}", cut.stderr);
    let checked = house.run(&["ledger", "check"]);
    assert_eq!(checked.code, 4, "{}{}", checked.stdout, checked.stderr);
    std::fs::write(&path, &whole).unwrap();
    house.ok(&["ledger", "check"]);
}

#[test]
fn a_directory_that_cannot_be_created_exits_3() {
    let house = House::new();
    std::fs::write(house.path("file"), "in the way").unwrap();
    let ended = house.run(&["up", "--data", "file/below", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("file/below"), "{}", ended.stderr);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let house = used();
    let key = house.data().join("ledger.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("chmod 600"), "{}", ended.stderr);
}

#[test]
fn a_proof_of_another_ledger_needs_its_key() {
    let house = used();
    let server = house.up(&[]);
    house.ok(&["audit", "proof", "booking/job-1"]);
    let key = house.ok(&["ledger", "key"]);
    drop(server);
    let stranger = House::new();
    std::fs::copy(house.path("job-1.proof"), stranger.path("job-1.proof")).unwrap();
    let without = stranger.run(&["audit", "verify", "job-1.proof"]);
    assert_eq!(without.code, 2, "{}", without.stderr);
    std::fs::write(stranger.path("lab.key"), key).unwrap();
    stranger.ok(&["audit", "verify", "job-1.proof", "--key", "lab.key"]);
    let text = std::fs::read_to_string(stranger.path("job-1.proof")).unwrap();
    std::fs::write(
        stranger.path("changed.proof"),
        text.replacen("job-1", "job-7", 2),
    )
    .unwrap();
    let changed = stranger.run(&["audit", "verify", "changed.proof", "--key", "lab.key"]);
    assert_eq!(changed.code, 4, "{}", changed.stderr);
}
