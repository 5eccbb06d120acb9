//! A live view whose server accepts requests but stops answering.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::house::{House, Server};
use crate::market_end::has_ended;
use crate::market_node::{get, live};

/// First request of each refresh of the view.
const REFRESH: &str = "/v1/nodes";
/// Time limit of the wait for a refresh, which comes every two seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// A proxy that forwards answers for one refresh and does not answer from the second on. The
/// receiver is notified of the second. The thread ends with the process.
fn silent_from_the_second_refresh(server: &Server) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = sync_channel(1);
    let behind = server.address.clone();
    std::thread::spawn(move || forward(&listener, &behind, &sender));
    (address, receiver)
}

fn forward(listener: &TcpListener, behind: &str, silence: &SyncSender<()>) {
    let (mut refreshes, mut unanswered) = (0, Vec::new());
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let target = target(&stream);
        refreshes += u32::from(target.starts_with(REFRESH) && !target.contains("/market"));
        if refreshes >= 2 {
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

/// Path of a request; reads its whole head.
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
        let (address, silence) = silent_from_the_second_refresh(&server);
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
        assert!(is_over, "{end:?} does not end the view");
        assert_eq!(terminal.end().code, 0, "{end:?}");
    }
}

/// Kills a view that did not end.
fn end_anyway(is_over: bool, pid: Pid) {
    if !is_over {
        kill_process(pid, Signal::KILL).unwrap();
    }
}
