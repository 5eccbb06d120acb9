//! Verification: forged files, other names, older stores and second histories.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use bursar_journal::checkpoint::{Checkpoint, SigningKey};
use bursar_journal::hash::Hash;
use bursar_journal::proof::Proof;

use crate::house::{House, tree};

/// The ledger of the files in `tests/exports`.
const LEDGER: &str = "01a1e4e8-7873-72d2-9802-d22eae992d65";

/// A file that an earlier version wrote.
fn earlier(name: &str) -> String {
    let path = tree().join("crates/io/cli/tests/exports").join(name);
    fs::read_to_string(path).unwrap()
}

/// A home that trusts the key of an earlier version's ledger, by a file and by a pin.
fn auditor() -> House {
    let house = House::new();
    let key = earlier("0.1.0.key");
    fs::write(house.path("lab.key"), &key).unwrap();
    let state = house.path(".local/state/bursar");
    fs::create_dir_all(&state).unwrap();
    let pin = format!("{LEDGER} {} 2026-11-16T10:00:00Z\n", key.trim());
    fs::write(state.join("known-ledgers"), pin).unwrap();
    house
}

/// The lines of the file of known checkpoints.
fn seen(house: &House) -> Vec<String> {
    let path = house.path(".local/state/bursar/checkpoints");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in ["ledger.db", "ledger.key", "ledger.checkpoint"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// Source of the answer to a request.
enum Answered {
    /// The server of this data directory.
    By(PathBuf),
    /// This body.
    With(String),
}

/// A proxy that chooses the source of each answer; returns its address.
fn between(house: &House, choose: impl Fn(&str) -> Answered + Send + 'static) -> String {
    let socket = house.path("between.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let answer = move |client: UnixStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(client.try_clone()?);
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request)? != 0 {}
        let (first, rest) = request.split_once("\r\n").unwrap_or_default();
        let mut client = client;
        match choose(first.split(' ').nth(1).unwrap_or_default()) {
            Answered::With(body) => write!(
                client,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            ),
            Answered::By(data) => {
                let mut server = UnixStream::connect(data.join("api.sock"))?;
                write!(server, "{first}\r\nconnection: close\r\n{rest}")?;
                let mut answer = Vec::new();
                server.read_to_end(&mut answer)?;
                client.write_all(&answer)
            }
        }
    };
    std::thread::spawn(move || {
        for client in listener.incoming() {
            // A client may close the connection.
            let _gone = client.and_then(&answer);
        }
    });
    format!("unix:{}", socket.display())
}

#[test]
fn files_of_an_earlier_version_still_verify() {
    let house = auditor();
    for file in ["0.1.0.jsonl", "0.1.0.proof"] {
        fs::write(house.path(file), earlier(file)).unwrap();
        house.ok(&["audit", "verify", file]);
        house.ok(&["audit", "verify", file, "--key", "lab.key"]);
    }
}

#[test]
fn a_forged_export_does_not_verify_with_a_key_or_without() {
    let house = auditor();
    let good = earlier("0.1.0.jsonl");
    let lines: Vec<&str> = good.lines().collect();
    let text = |lines: &[&str]| lines.join("\n") + "\n";
    let mut forged: Vec<(String, String)> = Vec::new();
    for place in 0..lines.len() {
        let mut changed = lines.clone();
        changed.remove(place);
        forged.push((format!("line {place} dropped"), text(&changed)));
        let mut changed = lines.clone();
        changed.insert(place, lines[place]);
        forged.push((format!("line {place} doubled"), text(&changed)));
        let mut bytes = lines[place].as_bytes().to_vec();
        let middle = bytes.len() * 2 / 3;
        bytes[middle] ^= 1;
        let edited = String::from_utf8(bytes).unwrap();
        let mut changed = lines.clone();
        changed[place] = &edited;
        forged.push((format!("line {place} edited"), text(&changed)));
    }
    let unsigned = text(&lines[..lines.len() - 2]);
    forged.push((
        "unsigned, other names".to_owned(),
        unsigned.replace("victim", "winner"),
    ));
    forged.push(("header alone".to_owned(), text(&lines[..1])));
    let invented = lines[lines.len() - 3].replace("\"seq\":8", "\"seq\":9");
    forged.push((
        "a record at the end".to_owned(),
        format!("{good}{invented}\n"),
    ));
    for (what, text) in forged {
        fs::write(house.path("forged.jsonl"), text).unwrap();
        for key in [&[][..], &["--key", "lab.key"]] {
            let words = [&["audit", "verify", "forged.jsonl", "-o", "json"], key].concat();
            let ended = house.run(&words);
            assert_eq!(ended.code, 4, "{what}: {}{}", ended.stdout, ended.stderr);
            assert!(!ended.stdout.contains("\"verified\": true"), "{what}");
        }
    }
    assert!(
        seen(&house).len() < 2,
        "only signed checkpoints are remembered"
    );
    fs::write(house.path("forged.jsonl"), text(&lines[..1])).unwrap();
    let alone = house.run(&["audit", "verify", "forged.jsonl"]);
    let gaps = alone.stdout.lines().filter(|line| line.contains("FAIL"));
    assert_eq!(
        gaps.collect::<Vec<_>>(),
        [
            "  FAIL  signed        there is no record",
            "  FAIL  signed        no checkpoint signs it",
        ]
    );
}

/// Method: exports at once, before the checkpoint that is signed each second.
#[test]
fn an_export_in_the_first_second_of_a_ledger_ends_with_a_checkpoint() {
    let house = House::new();
    let _server = house.up(&[]);
    for number in 0..3 {
        let (id, out) = (format!("a{number}"), format!("{number}.jsonl"));
        house.ok(&["booking", "reserve", "python", "--id", &id]);
        house.ok(&["ledger", "export", "--out", &out]);
        let text = fs::read_to_string(house.path(&out)).unwrap();
        assert!(text.contains(&format!("\"{id}\"")), "{text}");
        assert!(text.lines().last().unwrap().starts_with("{\"checkpoint\""));
        house.ok(&["audit", "verify", &out]);
    }
}

/// Method: the server signs, records once more and is killed at once. If the next checkpoint was
/// signed in between, the test tries again.
#[test]
fn an_export_of_a_store_omits_unsigned_records_and_reports_it() {
    let house = House::new();
    let data = house.data().to_str().unwrap().to_owned();
    for number in 0..20 {
        let server = house.up(&[]);
        let (whole, cut) = (
            format!("whole-{number}.jsonl"),
            format!("cut-{number}.jsonl"),
        );
        house.ok(&["ledger", "export", "--out", &whole]);
        house.ok(&[
            "booking",
            "reserve",
            "python",
            "--id",
            &format!("a{number}"),
        ]);
        server.kill();
        let checked = house.ok(&["ledger", "check"]);
        if !checked.contains("not signed yet") {
            continue;
        }
        let written = house.run(&["ledger", "export", "--store", &data, "--out", &cut]);
        assert_eq!(written.code, 0, "{}", written.stderr);
        assert!(
            written.stderr.contains(" left out, no checkpoint signs "),
            "{}",
            written.stderr
        );
        let read = |name: &str| fs::read_to_string(house.path(name)).unwrap();
        assert_eq!(read(&cut), read(&whole));
        house.ok(&["audit", "verify", &cut]);
        house.ok(&["ledger", "backup", "--store", &data, "--out", "b.bak"]);
        let restored = house.ok(&["ledger", "restore", "b.bak", "--store", "new", "--yes"]);
        assert!(restored.contains("no checkpoint signs "), "{restored}");
        return;
    }
    panic!("every record was signed at once");
}

#[test]
fn a_proof_with_another_object_name_does_not_verify() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&["limit", "set", "python", "--class", "py", "--slots", "7"]);
    house.ok(&[
        "booking", "reserve", "py", "--id", "job-1", "--tenant", "victim",
    ]);
    house.ok(&[
        "token",
        "create",
        "ci",
        "--role",
        "view",
        "--expires",
        "30d",
        "-o",
        "name",
    ]);
    let node = house.ok(&["nodes", "-o", "name"]).trim().to_owned();
    let records = house.ok(&["ledger", "tail", "booking/job-1", "-o", "name"]);
    let record = records.trim().to_owned();
    for right in ["booking/job-1", "limit/python", "token/ci", &record, &node] {
        house.ok(&["audit", "proof", right, "-O", "right.proof"]);
        house.ok(&["audit", "verify", "right.proof"]);
    }
    house.ok(&["audit", "proof", "booking/job-1", "-O", "job.proof"]);
    house.ok(&["audit", "proof", "limit/python", "-O", "limit.proof"]);
    for (file, wrong) in [
        ("job", "token/root"),
        ("job", "wedding/job-1"),
        ("job", "booking/victim"),
        ("job", "booking/py"),
        ("job", "limit/py"),
        ("job", "limit/job-1"),
        ("job", "record/0"),
        ("job", "job-1"),
        ("limit", "limit/py"),
        ("limit", "node/python"),
        ("limit", "booking/python"),
    ] {
        let text = fs::read_to_string(house.path(&format!("{file}.proof"))).unwrap();
        let object = if file == "job" {
            "booking/job-1"
        } else {
            "limit/python"
        };
        let renamed = text.replacen(object, wrong, 1);
        assert_ne!(renamed, text);
        fs::write(house.path("renamed.proof"), renamed).unwrap();
        let ended = house.run(&["audit", "verify", "renamed.proof"]);
        assert_eq!(ended.code, 4, "{wrong}: {}{}", ended.stdout, ended.stderr);
        assert!(
            ended.stdout.contains("FAIL  about"),
            "{wrong}: {}",
            ended.stdout
        );
        if wrong == "booking/victim" {
            let seq = record.strip_prefix("record/").unwrap();
            let message =
                format!("the file claims booking/victim, but record {seq} is about something else");
            assert!(ended.stderr.contains(&message), "{}", ended.stderr);
        }
    }
    // For a proof, two parts without a kind are a run.
    for command in [
        ["audit", "proof", "wedding/job-1/x"],
        ["ledger", "tail", "wedding/job-1"],
    ] {
        let refused = house.run(&command);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        let message =
            "`wedding` is not a kind here; the kinds are record, booking, limit, node, pod, token";
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
    }
}

#[test]
fn a_rolled_back_store_neither_checks_nor_starts() {
    let house = House::new();
    let (data, older) = (house.data(), house.path("older"));
    let live = |id: &str| {
        let server = house.up(&[]);
        house.ok(&["booking", "reserve", "python", "--id", id]);
        assert_eq!(server.interrupt(), 0);
    };
    live("a");
    copy(&data, &older);
    live("b");
    house.ok(&["ledger", "check"]);
    for suffix in ["", "-wal", "-shm"] {
        let _absent = fs::remove_file(data.join(format!("ledger.db{suffix}")));
    }
    fs::copy(older.join("ledger.db"), data.join("ledger.db")).unwrap();
    let checked = house.run(&["ledger", "check"]);
    let file = data.join("ledger.db").to_str().unwrap().to_owned();
    let named = house.run(&["ledger", "check", "--store", &file]);
    let started = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(
        (checked.code, named.code, started.code),
        (4, 4, 4),
        "{}{}{}",
        checked.stdout,
        named.stdout,
        started.stderr
    );
    for message in [&checked.stdout, &named.stdout, &started.stderr] {
        assert!(
            message.contains("the ledger was rolled back: ledger.db holds "),
            "{message}"
        );
    }

    fs::write(data.join("ledger.checkpoint"), "damaged").unwrap();
    let checked = house.run(&["ledger", "check"]);
    let started = house.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(
        (checked.code, started.code),
        (4, 4),
        "{}{}",
        checked.stdout,
        started.stderr
    );
    for message in [&checked.stdout, &started.stderr] {
        assert!(
            message.contains("ledger.checkpoint cannot be verified: "),
            "{message}"
        );
    }
}

/// Method: a data directory is copied with its key, and both copies get new records.
#[test]
fn two_histories_of_a_ledger_are_reported_and_both_are_remembered() {
    let house = House::new();
    let server = house.up(&["--data", "one"]);
    house.ok(&["booking", "reserve", "python", "--id", "common"]);
    house.ok(&["ledger", "export", "--out", "common.jsonl"]);
    let key = house.ok(&["ledger", "key"]);
    assert_eq!(server.interrupt(), 0);
    copy(&house.path("one"), &house.path("two"));
    let auditor = House::new();
    fs::write(auditor.path("lab.key"), key).unwrap();
    for (name, records) in [("one", 1), ("two", 20)] {
        let server = house.up(&["--data", name]);
        for number in 0..records {
            let id = format!("{name}-{number}");
            house.ok(&["booking", "reserve", "python", "--id", &id]);
        }
        let file = format!("{name}.jsonl");
        house.ok(&["ledger", "export", "--out", &file]);
        fs::copy(house.path(&file), auditor.path(&file)).unwrap();
        let proof = format!("{name}.proof");
        house.run(&["audit", "proof", "booking/common", "-O", &proof]);
        assert_eq!(server.interrupt(), 0);
    }
    fs::copy(house.path("common.jsonl"), auditor.path("common.jsonl")).unwrap();
    let verify = |file: &str| auditor.run(&["audit", "verify", file, "--key", "lab.key"]);

    // A longer export joins the checkpoint of a shorter one.
    assert_eq!(verify("common.jsonl").code, 0);
    let common = seen(&auditor);
    assert_eq!(verify("one.jsonl").code, 0);
    let one = seen(&auditor);
    assert!(one.len() == 1 && one != common, "{one:?}");

    for _ in 0..2 {
        let other = verify("two.jsonl");
        assert_eq!(other.code, 4, "{}{}", other.stdout, other.stderr);
        assert!(
            other.stdout.contains("FAIL  consistent    two histories: "),
            "{}",
            other.stdout
        );
        assert!(
            other
                .stderr
                .contains("stays in ~/.local/state/bursar/checkpoints"),
            "{}",
            other.stderr
        );
        let both = seen(&auditor);
        assert!(both.len() == 2 && both[0].starts_with(&one[0]), "{both:?}");
        assert!(
            both.iter().all(|line| line.ends_with(" parted")),
            "{both:?}"
        );
    }
    // The shorter exports alone agree with the known checkpoints, but two histories are known.
    for file in ["one.jsonl", "common.jsonl"] {
        let shorter = verify(file);
        assert_eq!(shorter.code, 4, "{}{}", shorter.stdout, shorter.stderr);
        let message = "FAIL  consistent    two histories: earlier checkpoints of ";
        assert!(shorter.stdout.contains(message), "{}", shorter.stdout);
    }
    assert!(
        seen(&auditor)
            .iter()
            .filter(|line| line.ends_with(" parted"))
            .count()
            == 2
    );
}

/// Method: the test writes the file of known checkpoints in the format of an earlier version.
#[test]
fn a_checkpoint_that_differs_from_a_known_one_of_the_same_size_is_another_history() {
    let house = auditor();
    fs::write(house.path("a.proof"), earlier("0.1.0.proof")).unwrap();
    let checkpoints = house.path(".local/state/bursar/checkpoints");
    let other = format!("bursar/{LEDGER}/0 9 {}", "07".repeat(32));
    fs::write(&checkpoints, format!("{other}\n")).unwrap();
    for _ in 0..2 {
        let verified = house.run(&["audit", "verify", "a.proof"]);
        assert_eq!(verified.code, 4, "{}{}", verified.stdout, verified.stderr);
        let message =
            "FAIL  consistent  two histories: 9 records were signed with root 0707… and with root ";
        assert!(verified.stdout.contains(message), "{}", verified.stdout);
        let both = seen(&house);
        assert!(
            both.len() == 2 && both[0] == format!("{other} parted"),
            "{both:?}"
        );
    }
}

#[test]
fn removing_the_oldest_checkpoints_over_the_limit_is_reported() {
    let house = auditor();
    fs::write(house.path("a.proof"), earlier("0.1.0.proof")).unwrap();
    let line = |size: u64| format!("bursar/{LEDGER}/0 {size} {}\n", "07".repeat(32));
    let lines: String = (100..164).map(line).collect();
    fs::write(house.path(".local/state/bursar/checkpoints"), lines).unwrap();
    let verified = house.run(&["audit", "verify", "a.proof"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    let message = "warning: 1 old checkpoint of this ledger deleted";
    assert!(verified.stderr.contains(message), "{}", verified.stderr);
    let kept = seen(&house);
    assert!(kept.len() == 64 && kept[0] == line(101).trim(), "{kept:?}");
}

/// Method: the client knows a checkpoint of one history and asks a server with another.
#[test]
fn a_server_joins_checkpoints_by_its_tree_or_has_another_history() {
    let house = House::new();
    let server = house.up(&["--data", "one"]);
    house.ok(&["booking", "reserve", "python", "--id", "common"]);
    assert_eq!(server.interrupt(), 0);
    copy(&house.path("one"), &house.path("two"));

    let server = house.up(&["--data", "one"]);
    for number in 0..3 {
        let id = format!("one-{number}");
        house.ok(&["booking", "reserve", "python", "--id", &id]);
        house.ok(&["audit", "proof", &format!("booking/{id}")]);
        assert_eq!(seen(&house).len(), 1, "{:?}", seen(&house));
    }
    house.ok(&["audit", "verify", "one-0.proof"]);
    house.ok(&["booking", "reserve", "python", "--id", "one-3"]);
    house.ok(&["audit", "proof", "booking/one-3"]);
    let one = seen(&house);
    assert_eq!(one.len(), 1, "{one:?}");
    assert_eq!(server.interrupt(), 0);

    let _server = house.up(&["--data", "two"]);
    for number in 0..20 {
        house.ok(&[
            "booking",
            "reserve",
            "python",
            "--id",
            &format!("two-{number}"),
        ]);
    }
    let proof = house.run(&["audit", "proof", "booking/two-19"]);
    assert_eq!(proof.code, 4, "{}{}", proof.stdout, proof.stderr);
    assert!(proof.stderr.contains("two histories: "), "{}", proof.stderr);
    let both = seen(&house);
    assert!(both.len() == 2 && both[0].starts_with(&one[0]), "{both:?}");

    // Two histories that were found once are reported for every later file.
    for file in ["one-0.proof", "one-3.proof", "two-19.proof"] {
        let verified = house.run(&["audit", "verify", file]);
        assert_eq!(verified.code, 4, "{}{}", verified.stdout, verified.stderr);
        let message = "FAIL  consistent  two histories: ";
        assert!(verified.stdout.contains(message), "{}", verified.stdout);
    }
    let again = house.run(&["audit", "proof", "booking/two-19"]);
    assert_eq!(again.code, 4, "{}{}", again.stdout, again.stderr);
    assert!(again.stderr.contains("two histories: "), "{}", again.stderr);
}

/// Method: a whole data directory is replaced by an older copy with its checkpoint.
#[test]
fn a_rolled_back_server_is_detected_by_known_checkpoints() {
    let house = House::new();
    let server = house.up(&["--data", "one"]);
    house.ok(&["booking", "reserve", "python", "--id", "common"]);
    assert_eq!(server.interrupt(), 0);
    copy(&house.path("one"), &house.path("older"));
    let server = house.up(&["--data", "one"]);
    for id in ["a", "b", "c"] {
        house.ok(&["booking", "reserve", "python", "--id", id]);
    }
    house.ok(&["audit", "proof", "booking/c"]);
    assert_eq!(server.interrupt(), 0);
    let before = seen(&house);

    let _server = house.up(&["--data", "older"]);
    for _ in 0..2 {
        let proof = house.run(&["audit", "proof", "booking/common"]);
        assert_eq!(proof.code, 4, "{}{}", proof.stdout, proof.stderr);
        let message = " were seen: it was rolled back";
        assert!(proof.stderr.contains(message), "{}", proof.stderr);
        assert!(seen(&house).contains(&before[0]), "{:?}", seen(&house));
    }
}

/// Method: the auditor knows a checkpoint of each of two histories. A server answers with a
/// checkpoint from before they parted, and serves tiles of either history to match each checkpoint.
#[test]
fn serving_tiles_of_both_histories_removes_no_known_checkpoint() {
    let house = House::new();
    let server = house.up(&["--data", "common"]);
    house.ok(&["booking", "reserve", "python", "--id", "common"]);
    house.ok(&["audit", "proof", "booking/common"]);
    let proof = fs::read_to_string(house.path("common.proof")).unwrap();
    let checkpoint = Proof::parse(&proof).unwrap().checkpoint;
    let key = house.ok(&["ledger", "key"]);
    assert_eq!(server.interrupt(), 0);
    let auditor = House::new();
    fs::write(auditor.path("lab.key"), key).unwrap();
    // The longer one first: a shorter export alone does not contradict it.
    for (name, records) in [("two", 9), ("one", 5)] {
        copy(&house.path("common"), &house.path(name));
        let server = house.up(&["--data", name]);
        for number in 0..records {
            let id = format!("{name}-{number}");
            house.ok(&["booking", "reserve", "python", "--id", &id]);
        }
        let file = format!("{name}.jsonl");
        house.ok(&["ledger", "export", "--out", &file]);
        assert_eq!(server.interrupt(), 0);
        fs::copy(house.path(&file), auditor.path(&file)).unwrap();
        auditor.ok(&["audit", "verify", &file, "--key", "lab.key"]);
    }
    let both = seen(&auditor);
    assert_eq!(both.len(), 2, "{both:?}");
    let size_of_two = both[0].split(' ').nth(1).unwrap();
    let tile_of_two = format!("/log/tile/0/000.p/{size_of_two}");

    let _servers = (
        house.up(&["--data", "one"]),
        house.up_elsewhere(&["--data", "two"]),
    );
    let [one, two] = ["one", "two"].map(|name| house.path(name));
    let address = between(&auditor, move |path| match path {
        "/v1/proofs/booking/common" => Answered::With(proof.clone()),
        "/log/checkpoint" => Answered::With(checkpoint.clone()),
        _ if path == tile_of_two => Answered::By(two.clone()),
        _ => Answered::By(one.clone()),
    });
    let words = ["--server", &address, "audit", "proof", "booking/common"];
    let proof = auditor.run(&words);
    let after = seen(&auditor);
    assert!(both.iter().all(|line| after.contains(line)), "{after:?}");
    assert_eq!(proof.code, 4, "{}{}", proof.stdout, proof.stderr);
}

#[test]
fn an_unreadable_tile_proves_nothing_and_is_reported() {
    let house = House::new();
    let _server = house.up(&["--data", "one"]);
    house.ok(&["booking", "reserve", "python", "--id", "a"]);
    house.ok(&["audit", "proof", "booking/a"]);
    house.ok(&["booking", "reserve", "python", "--id", "b"]);
    let data = house.path("one");
    let address = between(&house, move |path| {
        if path.starts_with("/log/tile/") {
            Answered::With("no tile".to_owned())
        } else {
            Answered::By(data.clone())
        }
    });
    let proof = house.run(&["--server", &address, "audit", "proof", "booking/b"]);
    assert_eq!(proof.code, 0, "{}{}", proof.stdout, proof.stderr);
    let message = "warning: not proven that ";
    assert!(proof.stderr.contains(message), "{}", proof.stderr);
    let both = seen(&house);
    assert!(
        both.len() == 2 && !both.concat().contains("parted"),
        "{both:?}"
    );
    house.ok(&["audit", "proof", "booking/b", "-O", "b2.proof"]);
    assert_eq!(seen(&house).len(), 1, "{:?}", seen(&house));
}

/// Method: a second key with the ledger's name signs another root of the same size.
#[test]
fn a_checkpoint_of_another_key_is_not_remembered() {
    let house = auditor();
    let origin = format!("bursar/{LEDGER}/0");
    let stranger = SigningKey::from_seed(origin.parse().unwrap(), [7; 32]);
    fs::write(house.path("forger.key"), stranger.verifier().to_string()).unwrap();
    let forged = Checkpoint {
        origin: origin.parse().unwrap(),
        size: 9,
        root: Hash([7; 32]),
    };
    let good = earlier("0.1.0.proof");
    let proof = Proof {
        checkpoint: forged.sign([&stranger]),
        ..Proof::parse(&good).unwrap()
    };
    fs::write(house.path("good.proof"), good).unwrap();
    fs::write(house.path("forged.proof"), proof.to_text().unwrap()).unwrap();
    let verified = house.run(&["audit", "verify", "forged.proof", "--key", "forger.key"]);
    assert_eq!(verified.code, 4, "{}{}", verified.stdout, verified.stderr);
    let message = "warning: the key of forger.key is not the key pinned for this ledger in ~/";
    assert!(verified.stderr.contains(message), "{}", verified.stderr);

    // The same for an export: the forger signs the same checkpoint as the ledger.
    let export = earlier("0.1.0.jsonl");
    let mut lines: Vec<String> = export.lines().map(str::to_owned).collect();
    let last = lines.last_mut().unwrap();
    let mut signed: serde_json::Value = serde_json::from_str(last).unwrap();
    let note = signed["checkpoint"].as_str().unwrap();
    let genuine = Checkpoint::open(note, &earlier("0.1.0.key").trim().parse().unwrap()).unwrap();
    signed["checkpoint"] = genuine.sign([&stranger]).into();
    *last = signed.to_string();
    fs::write(house.path("forged.jsonl"), lines.join("\n") + "\n").unwrap();
    let verified = house.run(&["audit", "verify", "forged.jsonl", "--key", "forger.key"]);
    assert!(verified.stderr.contains(message), "{}", verified.stderr);
    assert!(
        verified.stdout.contains("ok    hashes"),
        "{}",
        verified.stdout
    );

    assert!(seen(&house).is_empty(), "{:?}", seen(&house));
    let verified = house.run(&["audit", "verify", "good.proof", "--key", "lab.key"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    assert!(!verified.stderr.contains("warning"), "{}", verified.stderr);
    assert_eq!(seen(&house).len(), 1);
}
