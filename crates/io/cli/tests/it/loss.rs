//! A ledger whose files are lost, replaced or restored, from the operator's view.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::house::{House, Server};

/// Method: only the key, then only the checkpoint, is left of a ledger.
#[test]
fn remains_of_a_ledger_prevent_a_second_one_and_the_error_names_the_way_out() {
    let house = House::new();
    assert_eq!(house.up(&[]).interrupt(), 0);
    for suffix in ["", "-wal", "-shm"] {
        let _absent = fs::remove_file(house.data().join(format!("ledger.db{suffix}")));
    }
    for left in ["ledger.key", "ledger.checkpoint"] {
        let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
        assert_eq!(ended.code, 3, "{left}: {}", ended.stderr);
        assert!(ended.stderr.contains(left), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("bursar ledger restore"),
            "{}",
            ended.stderr
        );
        assert!(!house.data().join("ledger.db").exists(), "{left}");
        fs::remove_file(house.data().join(left)).unwrap();
    }
    assert_eq!(house.up(&[]).interrupt(), 0);
}

/// Method: removes the files of a running server, checks its answers, its readiness and the rescued
/// file, and restores that file.
#[test]
fn without_its_store_a_server_acknowledges_no_write_and_loses_nothing() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&[
        "booking", "reserve", "python", "--id", "kept", "--ttl", "1h",
    ]);
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(house.data().join(format!("ledger.db{suffix}"))).unwrap();
    }
    for id in ["lost-1", "lost-2"] {
        let ended = house.run(&["booking", "reserve", "python", "--id", id]);
        assert_eq!(ended.code, 3, "{}{}", ended.stdout, ended.stderr);
    }
    let refused = house.run(&["booking", "reserve", "python", "--id", "lost-3"]);
    assert!(
        refused.stderr.contains("files of the store are gone"),
        "{}",
        refused.stderr
    );
    assert!(ready(&server).contains("503"), "{}", ready(&server));
    assert!(ready(&server).contains("store-away"), "{}", ready(&server));
    let message = server.interrupted().stderr;
    assert!(message.contains("ledger.rescue.db"), "{message}");
    let rescued = house.data().join("ledger.rescue.db");
    house.ok(&["ledger", "restore", rescued.to_str().unwrap(), "--yes"]);
    let server = house.up(&[]);
    let shown = house.ok(&["booking", "show", "kept"]);
    assert!(shown.contains("granted"), "{shown}");
    assert_eq!(server.interrupt(), 0);
    house.ok(&["ledger", "check"]);
}

/// Method: a backup, grants with higher fences, a restore: the next fence is above them all.
#[test]
fn after_a_restore_fences_are_above_all_lost_ones_and_tokens_have_ended() {
    let house = House::new();
    let server = house.up(&[]);
    fence(&house, "one");
    house.ok(&["token", "create", "ci", "--role", "view"]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    let lost = fence(&house, "two").max(fence(&house, "three"));
    assert_eq!(server.interrupt(), 0);
    for (flags, tokens) in [(&["--yes"][..], 0), (&["--yes", "--keep-tokens"], 1)] {
        let message = house.ok(&[&["ledger", "restore", "b.bak"], flags].concat());
        assert_eq!(
            message.contains("1 token: some may have been revoked"),
            tokens == 0,
            "{message}"
        );
        // Each restore has its own origin: two histories of one origin would look like a forgery.
        assert!(
            message.contains(&format!("…/{}\n", tokens + 1)),
            "{message}"
        );
        let server = house.up(&[]);
        let next = fence(&house, &format!("four-{tokens}"));
        assert!(lost < next && next < 1 << 53, "{lost} {next}");
        let left = house.ok(&["tokens", "-o", "name"]);
        assert_eq!(left.lines().count(), tokens, "{left}");
        assert_eq!(server.interrupt(), 0);
    }
}

#[test]
fn a_restore_moves_the_old_ledger_aside_and_leaves_other_files() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    assert_eq!(server.interrupt(), 0);
    let kept = house.data().join("executions/e-mine");
    fs::create_dir_all(&kept).unwrap();
    let message = house.ok(&["ledger", "restore", "b.bak", "--yes"]);
    assert!(message.contains("before"), "{message}");
    assert!(kept.exists());
    let aside = fs::read_dir(house.data().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| entry.file_name().to_string_lossy().contains(".before-"))
        .unwrap();
    for name in ["ledger.db", "ledger.key", "ledger.checkpoint"] {
        assert!(aside.path().join(name).exists(), "{name}");
    }
    assert_eq!(
        aside.metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(house.up(&[]).interrupt(), 0);
}

#[test]
fn a_data_directory_that_others_can_write_to_is_refused_with_a_command_as_hint() {
    let house = House::new();
    fs::create_dir_all(house.data()).unwrap();
    fs::set_permissions(house.data(), fs::Permissions::from_mode(0o777)).unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("chmod go-w"), "{}", ended.stderr);
}

#[test]
fn a_file_in_place_of_the_executions_directory_is_refused_with_a_hint() {
    let house = House::new();
    assert_eq!(house.up(&[]).interrupt(), 0);
    let place = house.data().join("executions");
    fs::rename(&place, house.data().join("aside")).unwrap();
    fs::write(&place, "no directory").unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    for message in [place.to_str().unwrap(), "hint: move that"] {
        assert!(
            ended.stderr.contains(message),
            "{message}: {}",
            ended.stderr
        );
    }
}

/// Method: an execution ends after the backup; its id is submitted again after the restore.
#[test]
fn an_execution_of_lost_records_is_not_mistaken_for_the_next_one_of_its_id() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    let run = |text: &str| {
        let submit = ["exec", "--detach", "--id", "job", "--", "sh", "-c", text];
        house.ok(&submit);
        house.ok(&["booking", "logs", "job", "-f"])
    };
    assert_eq!(run("echo of the lost records"), "of the lost records\n");
    assert_eq!(server.interrupt(), 0);
    house.ok(&["ledger", "restore", "b.bak", "--yes"]);
    let server = house.up(&[]);
    assert_eq!(run("echo of this one; exit 7"), "of this one\n");
    let shown = house.ok(&["booking", "show", "job"]);
    assert!(shown.contains("exit 7"), "{shown}");
    assert_eq!(server.interrupt(), 0);
}

/// Method: starts a restored backup beside its original server.
#[test]
fn a_copy_of_a_ledger_does_not_start_beside_its_original_server() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    house.ok(&["ledger", "restore", "b.bak", "--store", "copy", "--yes"]);
    let refused = house.run(&["up", "--data", "copy", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    let holder = format!("process {}", server.pid());
    assert!(refused.stderr.contains(&holder), "{}", refused.stderr);
    assert_eq!(server.interrupt(), 0);
    assert_eq!(house.up(&["--data", "copy"]).interrupt(), 0);
}

/// Method: restores one backup twice in succession.
#[test]
fn two_restores_of_one_backup_in_one_place_share_no_fence() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    assert_eq!(server.interrupt(), 0);
    let mut last = 0;
    for turn in 0..3 {
        house.ok(&["ledger", "restore", "b.bak", "--yes"]);
        let server = house.up(&[]);
        let next = fence(&house, &format!("turn-{turn}"));
        assert!(last < next, "{last} {next}");
        last = next;
        assert_eq!(server.interrupt(), 0);
    }
}

/// Method: only the clock and the key are left of the first restore.
#[test]
fn two_restores_share_no_fence_although_the_store_of_the_first_is_lost() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    assert_eq!(server.interrupt(), 0);
    let mut last = 0;
    for turn in 0..3 {
        house.ok(&["ledger", "restore", "b.bak", "--yes"]);
        let server = house.up(&[]);
        let next = fence(&house, &format!("turn-{turn}"));
        assert!(last < next, "{last} {next}");
        last = next;
        assert_eq!(server.interrupt(), 0);
        for suffix in ["", "-wal", "-shm"] {
            let _absent = fs::remove_file(house.data().join(format!("ledger.db{suffix}")));
        }
    }
}

fn fence(house: &House, id: &str) -> u64 {
    let words = [
        "booking", "reserve", "python", "--id", id, "--ttl", "1h", "-o", "json",
    ];
    let granted: serde_json::Value = serde_json::from_str(&house.ok(&words)).unwrap();
    granted["fence"].as_u64().unwrap()
}

/// The answer of `/readyz`, head and body.
fn ready(server: &Server) -> String {
    use std::io::{Read as _, Write as _};
    let address = server.announcement.split("http://").nth(1).unwrap();
    let address = address.split(['"', '/', ' ']).next().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
