//! Programs that wait for a slot: golden transcripts on the real server.

use std::os::unix::fs::PermissionsExt as _;

use bursar_client::Client;
use bursar_client::api::{BookingRequest, Outcome, ReleaseRequest};
use bursar_client::client::{Mode, Options, Transport};
use bursar_units::{BookingId, Label};
use rustix::process::Signal;

use crate::exec_running::{Running, shell};
use crate::house::House;

/// Output of a line of shell code on both streams, normalised.
fn shown(house: &House, line: &str) -> String {
    let output = shell(house, &format!("{{ {line}; }} 2>&1"))
        .output()
        .unwrap();
    normal(&String::from_utf8(output.stdout).unwrap())
}

/// Replaces ids by `ID` and seconds by `N`, and separates cells by two spaces.
fn normal(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let cells = line
            .trim_start()
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        let cells: Vec<String> = cells.map(normal_cell).collect();
        let indent = " ".repeat(line.len() - line.trim_start().len());
        format!("{indent}{}\n", cells.join("  "))
    });
    lines.collect()
}

fn normal_cell(cell: &str) -> String {
    let words = cell.split(' ').map(|word| {
        let bare = word.trim_end_matches([',', ':']);
        let mark = word.strip_prefix(bare).unwrap_or_default();
        let number = bare.strip_suffix("ms").or_else(|| bare.strip_suffix('s'));
        let is_seconds = number.is_some_and(|number| {
            !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.')
        });
        match bare.strip_prefix("exec-") {
            Some(id) if id.len() == 32 => "ID".to_owned(),
            _ if is_seconds => format!("Ns{mark}"),
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Writes a token of these tenants to the file `token`.
fn tenant(house: &House, name: &str, tenants: &str) {
    let token = house.ok(&[
        "token", "create", name, "--role", "use", "--tenant", tenants,
    ]);
    let file = house.path("token");
    std::fs::write(&file, token).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn the_first_example_works() {
    let house = House::new();
    let mut server = Running::start(&mut house.command(&["up", "--listen", "127.0.0.1:0"]));
    let mut first = String::new();
    while !first.starts_with("  bursar ") {
        first = server.word_line();
    }
    let (command, says) = first.trim().split_once("    ").unwrap();
    assert_eq!(
        command,
        "bursar exec --class python -- python3 -c 'print(\"hello\")'"
    );
    assert_eq!(says, "hold a slot, run, give it back");
    assert_eq!(shown(&house, command), "hello\n");
    server.signal(Signal::INT);
    assert_eq!(server.end().code, 0);
}

#[test]
fn transcript_of_exec_and_its_bookings() {
    let house = House::new();
    let _server = house.up(&[]);
    tenant(&house, "ada", "ada");
    let as_ada = |line: &str| shown(&house, &format!("export BURSAR_TOKEN_FILE=token; {line}"));
    assert_eq!(
        as_ada("bursar exec --class python -- python3 -c 'print(\"hello\")'"),
        "hello\n"
    );
    assert_eq!(
        as_ada("bursar exec --class python -- python3 -c 'import sys; sys.exit(7)'; echo $?"),
        "7\n"
    );
    // The newest is first.
    assert_eq!(
        as_ada("bursar bookings --where class=python,state=ended"),
        "BOOKING  CLASS  TENANT  STATE  SLOTS  WAITED  RAN  OUTCOME\n\
         ID  python  ada  released  1  Ns  Ns  failed, exit 7\n\
         ID  python  ada  released  1  Ns  Ns  ok\n"
    );
}

/// A server whose 100 python slots are all held: 61 by acme, 30 by zeta, 9 by seven others. Three
/// bookings wait, and 200 have ended.
struct Full {
    house: House,
    _server: crate::house::Server,
    runtime: tokio::runtime::Runtime,
    client: Client,
    held: Vec<(BookingId, u64)>,
}

impl Full {
    fn new() -> Self {
        let house = House::new();
        let server = house.up(&[]);
        house.ok(&[
            "limit", "set", "python", "--class", "python", "--slots", "100",
        ]);
        let socket = format!("unix:{}", house.data().join("api.sock").display());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let transport = Transport::to(socket.parse().unwrap());
        let client = Client::new(transport, Options::usual());
        let mut full = Self {
            house,
            _server: server,
            runtime,
            client,
            held: Vec::new(),
        };
        for number in 0..200 {
            let id = full.reserve(&format!("past-{number}"), "acme", 0);
            full.release(id);
        }
        let small =
            (0..7).map(|number| (format!("small-{number}"), if number < 2 { 2 } else { 1 }));
        let holders = [("acme".to_owned(), 61), ("zeta".to_owned(), 30)];
        for (tenant, count) in holders.into_iter().chain(small) {
            for number in 0..count {
                let held = full.reserve(&format!("{tenant}-{number}"), &tenant, 0);
                full.held.push(held);
            }
        }
        for number in 0..3 {
            full.reserve(&format!("waiting-{number}"), "acme", 3_600_000);
        }
        full
    }

    fn reserve(&self, id: &str, tenant: &str, wait_ms: u64) -> (BookingId, u64) {
        let id = BookingId::new(id).unwrap();
        let request = BookingRequest {
            tenant: Some(Label::new(tenant).unwrap()),
            ttl_ms: Some(3_600_000),
            wait_ms: Some(wait_ms),
            ..BookingRequest::new(Label::new("python").unwrap())
        };
        let asked = self.client.reserve(&id, &request, Mode::Do);
        let booking = self.runtime.block_on(asked).unwrap();
        (id, booking.fence.unwrap_or_default())
    }

    fn release(&self, (id, fence): (BookingId, u64)) {
        let request = ReleaseRequest {
            fence: Some(fence),
            outcome: Some(Outcome::Ok),
            ..ReleaseRequest::default()
        };
        let released = self.client.release(&id, &request, Mode::Do);
        self.runtime.block_on(released).unwrap();
    }
}

#[test]
fn transcript_of_exec_when_all_slots_are_held() {
    let mut full = Full::new();
    std::fs::write(full.house.path("job.py"), "print('job done')\n").unwrap();
    tenant(&full.house, "acme", "acme,zeta");
    let as_acme = "export BURSAR_TOKEN_FILE=token";
    let refused = "bursar exec --class python --tenant acme --wait 0 -- python3 job.py; echo $?";
    assert_eq!(
        shown(&full.house, &format!("{as_acme}; {refused}")),
        "error: no python slot is free: limit `python` is 100, in use 100, waiting 3\n\
         \x20 held by  acme 61, zeta 30, 7 others 9\n\
         \x20 next  a slot is expected in about Ns\n\
         \n\
         hint: leave out `--wait 0` to queue, Ctrl-C leaves the queue\n\
         125\n"
    );
    let line = "bursar exec -o json --class python --tenant acme --wait 0 -- python3 job.py 2>&1";
    let twin = shell(&full.house, &format!("{as_acme}; {line}"))
        .output()
        .unwrap();
    let twin: serde_json::Value = serde_json::from_slice(&twin.stdout).unwrap();
    assert_eq!(twin["code"], "over-limit");
    assert_eq!(
        twin["holders"][2],
        serde_json::json!({"others": 7, "slots": 9})
    );
    assert!(twin["retryAfterMs"].is_u64(), "{twin}");
    let waits = "bursar exec --class python --tenant acme -- python3 job.py 2>&1";
    let mut waiting = Running::start(&mut shell(&full.house, &format!("{as_acme}; {waits}")));
    assert_eq!(
        normal(&waiting.line()),
        "waiting: 4th for python, 100/100 slots in use, about Ns \
         (rests on the last 200 executions)\n"
    );
    for held in full.held.split_off(96) {
        full.release(held);
    }
    let ended = waiting.end();
    assert_eq!(normal(&ended.stdout), "granted after Ns\njob done\n");
    assert_eq!(ended.code, 0);
}

#[test]
fn without_past_bookings_the_waiting_time_is_unknown() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&["limit", "set", "one", "--class", "python", "--slots", "1"]);
    house.ok(&[
        "booking", "reserve", "python", "--id", "holder", "--ttl", "1h",
    ]);
    let mut waiting = Running::exec(&house, &["--class", "python", "--", "echo", "ran"]);
    assert_eq!(
        waiting.word_line(),
        "waiting: 1st for python, 1/1 slots of limit one in use, \
         time unknown (fewer than 20 python bookings have ended)\n"
    );
    house.ok(&["booking", "release", "holder", "--fence", "1"]);
    let ended = waiting.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "ran\n"));
    assert!(
        ended.stderr.starts_with("granted after "),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1);
}

#[test]
fn an_interrupted_wait_leaves_the_queue() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&[
        "limit", "set", "python", "--class", "python", "--slots", "1",
    ]);
    house.ok(&[
        "booking", "reserve", "python", "--id", "holder", "--ttl", "1h",
    ]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let id = format!("waits-{code}");
        let words = ["--class", "python", "--id", &id, "--", "echo", "ran"];
        let mut waiting = Running::exec(&house, &words);
        assert!(waiting.word_line().starts_with("waiting: 1st for python"));
        waiting.signal(Signal::WINCH);
        waiting.signal(signal);
        let ended = waiting.end();
        assert_eq!(
            (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
            (code, "", "")
        );
        let booking = house.ok(&["booking", "show", &id]);
        assert!(
            booking.starts_with(&format!("booking {id} cancelled\n")),
            "{booking}"
        );
    }
}

#[test]
fn the_error_of_a_wait_that_is_over_names_the_holders_and_a_way_out() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&[
        "limit", "set", "python", "--class", "python", "--slots", "1",
    ]);
    tenant(&house, "ada", "ada");
    let as_ada = "export BURSAR_TOKEN_FILE=token";
    house.ok(&[
        "booking", "reserve", "python", "--id", "holder", "--tenant", "ada", "--ttl", "1h",
    ]);
    let line = "bursar exec -q --class python --wait 1s -- echo ran; echo $?";
    assert_eq!(
        shown(&house, &format!("{as_ada}; {line}")),
        "error: no python slot was granted in Ns: 1/1 slots in use\n  held by  ada 1\n125\n"
    );
    house.ok(&["limit", "set", "python", "--max-wait", "1s"]);
    let line = "bursar exec --class python -- echo ran";
    let text = shown(&house, &format!("{as_ada}; {line}"));
    assert!(
        text.ends_with(
            "hint: `bursar limit set python --max-wait 24h` lets everybody wait longer\n"
        ),
        "as long as the limit allows, and then what would change that: {text}"
    );
}

#[test]
fn twenty_programs_at_once_never_hold_more_than_four_slots() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&[
        "limit", "set", "python", "--class", "python", "--slots", "4",
    ]);
    std::fs::create_dir(house.path("running")).unwrap();
    let script = "import os\n\
                  mine = 'running/' + os.environ['BURSAR_BOOKING']\n\
                  os.mkdir(mine)\n\
                  print(len(os.listdir('running')))\n\
                  os.rmdir(mine)\n";
    let words = ["-q", "--class", "python", "--", "python3", "-c", script];
    let all: Vec<Running> = (0..20).map(|_| Running::exec(&house, &words)).collect();
    for running in all {
        let ended = running.end();
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        let at_once: u32 = ended.stdout.trim().parse().unwrap();
        assert!((1..=4).contains(&at_once), "{at_once} ran at once");
    }
    assert_eq!(house.ok(&["bookings", "-o", "name"]), "");
}

#[test]
fn a_wait_survives_a_restart_of_the_server() {
    let house = House::new();
    let server = house.up(&[]);
    house.ok(&[
        "limit", "set", "python", "--class", "python", "--slots", "1",
    ]);
    house.ok(&[
        "booking", "reserve", "python", "--id", "holder", "--ttl", "1h",
    ]);
    let mut waiting = Running::exec(&house, &["--class", "python", "--", "echo", "ran"]);
    assert!(waiting.word_line().starts_with("waiting: "));
    server.kill();
    let _again = house.up(&[]);
    house.ok(&["booking", "release", "holder", "--fence", "1"]);
    let ended = waiting.end();
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "ran\n"),
        "{}",
        ended.stderr
    );
}
