//! A ledger whose files are lost, put back, or restored: what the operator sees, end to end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::house::{House, Server};

/// Method: the key alone, then the checkpoint alone, are what is left of a ledger.
#[test]
fn what_is_left_of_a_ledger_starts_no_second_one_and_says_the_way_out() {
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

/// Method: the files are removed under a running server; its answers, its readiness and what it
/// rescued are looked at, and the rescued file is restored.
#[test]
fn no_write_is_answered_as_done_when_the_store_is_gone_and_nothing_is_lost() {
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
    let said = server.interrupted().stderr;
    assert!(said.contains("ledger.rescue.db"), "{said}");
    let rescued = house.data().join("ledger.rescue.db");
    house.ok(&["ledger", "restore", rescued.to_str().unwrap(), "--yes"]);
    let server = house.up(&[]);
    let shown = house.ok(&["booking", "show", "kept"]);
    assert!(shown.contains("granted"), "{shown}");
    assert_eq!(server.interrupt(), 0);
    house.ok(&["ledger", "check"]);
}

/// Method: a backup at one fence, grants beyond it, a restore: the next fence is above them all.
#[test]
fn after_a_restore_fences_go_on_above_all_that_were_lost_and_tokens_have_ended() {
    let house = House::new();
    let server = house.up(&[]);
    fence(&house, "one");
    house.ok(&["token", "create", "ci", "--role", "view"]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    let lost = fence(&house, "two").max(fence(&house, "three"));
    assert_eq!(server.interrupt(), 0);
    for (flags, tokens) in [(&["--yes"][..], 0), (&["--yes", "--keep-tokens"], 1)] {
        let said = house.ok(&[&["ledger", "restore", "b.bak"], flags].concat());
        assert_eq!(
            said.contains("1 token: some may have been revoked"),
            tokens == 0,
            "{said}"
        );
        // Each has an origin of its own: two histories under one would look like a forgery.
        assert!(said.contains(&format!("…/{}\n", tokens + 1)), "{said}");
        let server = house.up(&[]);
        let next = fence(&house, &format!("four-{tokens}"));
        assert!(lost < next && next < 1 << 53, "{lost} {next}");
        let left = house.ok(&["tokens", "-o", "name"]);
        assert_eq!(left.lines().count(), tokens, "{left}");
        assert_eq!(server.interrupt(), 0);
    }
}

#[test]
fn a_restore_moves_the_ledger_aside_and_leaves_what_is_no_part_of_it() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&["ledger", "backup", "--out", "b.bak"]);
    assert_eq!(server.interrupt(), 0);
    let kept = house.data().join("executions/e-mine");
    fs::create_dir_all(&kept).unwrap();
    let said = house.ok(&["ledger", "restore", "b.bak", "--yes"]);
    assert!(said.contains("before"), "{said}");
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
fn a_data_directory_that_others_can_write_to_is_refused_with_the_command_to_type() {
    let house = House::new();
    fs::create_dir_all(house.data()).unwrap();
    fs::set_permissions(house.data(), fs::Permissions::from_mode(0o777)).unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("chmod go-w"), "{}", ended.stderr);
}

#[test]
fn something_else_in_place_of_the_executions_is_refused_with_the_way_out() {
    let house = House::new();
    assert_eq!(house.up(&[]).interrupt(), 0);
    let place = house.data().join("executions");
    fs::rename(&place, house.data().join("aside")).unwrap();
    fs::write(&place, "no directory").unwrap();
    let ended = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    for said in [place.to_str().unwrap(), "hint: move away"] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
}

fn fence(house: &House, id: &str) -> u64 {
    let words = [
        "booking", "reserve", "python", "--id", id, "--ttl", "1h", "-o", "json",
    ];
    let granted: serde_json::Value = serde_json::from_str(&house.ok(&words)).unwrap();
    granted["fence"].as_u64().unwrap()
}

/// What `/readyz` answers, head and body.
fn ready(server: &Server) -> String {
    use std::io::{Read as _, Write as _};
    let address = server.said.split("http://").nth(1).unwrap();
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
