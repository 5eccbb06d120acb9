//! Requests whose answers are lost: a booking that may belong to another caller is left alone.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::exec_running::{Running, shell};
use crate::house::{House, Server};

/// A proxy that drops the answers to all PUT requests; returns its address.
fn lossy(house: &House, server: &Server) -> String {
    let ready: serde_json::Value = serde_json::from_str(&server.announcement).unwrap();
    let socket = ready["socket"].as_str().unwrap().to_owned();
    let path = house.path("lossy.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = UnixStream::connect(&socket);
            thread::spawn(move || pass(client, server.ok()?));
        }
    });
    format!("unix:{}", path.display())
}

fn pass(mut client: UnixStream, mut server: UnixStream) -> Option<()> {
    let is_put = Arc::new(AtomicBool::new(false));
    let (mut answers, mut back) = (server.try_clone().ok()?, client.try_clone().ok()?);
    let is_lost = Arc::clone(&is_put);
    thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = answers.read(&mut bytes) {
            // The server has decided when it answers, so only the answer is lost here.
            if is_lost.load(Ordering::SeqCst) || back.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        back.shutdown(Shutdown::Both)
    });
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        is_put.fetch_or(bytes.starts_with(b"PUT "), Ordering::SeqCst);
        server.write_all(&bytes[..count]).ok()?;
    }
    server.shutdown(Shutdown::Both).ok()
}

/// Runs a command that must fail because no answer arrives.
fn unanswered(house: &House, way: &str, words: &[&str]) {
    let all = [&["exec", "--server", way], words].concat();
    let ended = house.run(&all);
    assert_eq!((ended.code, ended.stdout.as_str()), (125, ""), "{words:?}");
    let text = ended.stderr;
    assert!(text.contains("repeating the command is safe"), "{text}");
}

#[test]
fn a_slot_that_another_caller_holds_under_the_same_id_stays_held() {
    let house = House::new();
    let server = house.up(&[]);
    let way = lossy(&house, &server);
    let script = "echo ran; read x; exit 7";
    let words = ["--id", "nightly", "--", "sh", "-c", script];
    let mut first = Running::exec(&house, &words);
    assert_eq!(first.line(), "ran\n");
    unanswered(&house, &way, &words);
    unanswered(&house, &way, &["--id", "mine", "--", "echo", "ran"]);
    unanswered(&house, &way, &["--", "echo", "ran"]);
    let held = house.ok(&["bookings", "-o", "name"]);
    assert_eq!(held, "booking/nightly\n", "our own booking is released");
    first.write("go\n");
    assert_eq!(first.end().code, 7);
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_detached_program_keeps_running_when_a_repeated_request_gets_no_answer() {
    let house = House::new();
    let server = house.up(&[]);
    let way = lossy(&house, &server);
    assert!(shell(&house, "mkfifo go").status().unwrap().success());
    house.ok(&[
        "limit", "set", "python", "--class", "python", "--slots", "1",
    ]);
    let script = "echo ran; read x < go; echo on";
    let words = [
        "--detach", "--class", "python", "--id", "job-1", "--", "sh", "-c", script,
    ];
    assert_eq!(house.ok(&[&["exec"], &words[..]].concat()), "job-1\n");
    let mut follows = Running::start(&mut house.command(&["booking", "logs", "job-1", "-f"]));
    assert_eq!(follows.line(), "ran\n");
    unanswered(&house, &way, &words);
    unanswered(
        &house,
        &way,
        &["--detach", "--class", "python", "--", "true"],
    );
    let left = house.ok(&["bookings", "-o", "name"]);
    assert_eq!(
        left, "booking/job-1\n",
        "a submission under a new id is cancelled"
    );
    // A stopped program would not read. Opening for reading and writing does not block.
    let mut go = std::fs::File::options();
    let mut go = go.read(true).write(true).open(house.path("go")).unwrap();
    go.write_all(b"go\n").unwrap();
    assert_eq!(follows.end().stdout, "on\n");
    assert_eq!(server.interrupt(), 0);
}
