//! A live view whose server takes requests and does not answer them any more.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::house::{House, Server};
use crate::market_end::has_ended;
use crate::market_node::{get, live};

/// What a view asks for first, each time it looks.
const LOOK: &str = "/v1/nodes";
/// So long is waited for a look that comes every two seconds.
const PATIENCE: Duration = Duration::from_mins(1);
/// Silence is told once.
const ONCE: usize = 1;

/// Stands before a server, passes its answers on for one look, and is silent from the second on;
/// tells when that has come. The thread ends with the process.
fn silent_from_the_second_look(server: &Server) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = sync_channel(ONCE);
    let behind = server.address.clone();
    std::thread::spawn(move || pass_on(&listener, &behind, &sender));
    (address, receiver)
}

fn pass_on(listener: &TcpListener, behind: &str, silence: &SyncSender<()>) {
    let (mut looks, mut unanswered) = (0, Vec::new());
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let target = target(&stream);
        looks += u32::from(target.starts_with(LOOK) && !target.contains("/market"));
        if looks >= 2 {
            unanswered.push(stream);
            let _known = silence.try_send(());
            continue;
        }
        let (status, body) = get(behind, &target);
        let length = body.len();
        let head = format!("HTTP/1.1 {status} it\r\nContent-Length: {length}\r\nConnection: close");
        let kind = "Content-Type: application/json";
        let _gone = write!(stream, "{head}\r\n{kind}\r\n\r\n{body}");
    }
}

/// What is asked for; the whole head is read.
fn target(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    head[0].split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn keys_and_signals_end_a_view_that_waits_for_an_answer() {
    let house = House::new();
    let server = house.up(&[]);
    for end in [Some("q"), Some("\u{3}"), None] {
        let (address, silence) = silent_from_the_second_look(&server);
        let view = format!("bursar --server {address} --timeout 1h top");
        let (mut terminal, pid) = live(&house, &view);
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        silence.recv_timeout(PATIENCE).unwrap();
        match end {
            Some(key) => terminal.write(key),
            None => kill_process(pid, Signal::TERM).unwrap(),
        }
        let is_over = has_ended(&process);
        end_anyway(is_over, pid);
        assert!(is_over, "{end:?} is not heard");
        assert_eq!(terminal.end().code, 0, "{end:?}");
    }
}

/// Nothing is left of a view that did not end.
fn end_anyway(is_over: bool, pid: Pid) {
    if !is_over {
        kill_process(pid, Signal::KILL).unwrap();
    }
}
