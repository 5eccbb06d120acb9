//! The market of this machine with the real binary: it observes, acts, is shown, and restores the
//! original limits however it ends. Needs root, as the executions do.

use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bursar_market::cgroup::Quota;
use bursar_node::cgroup::layout;
use bursar_node::market::hierarchy::Hierarchies;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::exec_running::{Running, program};
use crate::house::{House, Server};

/// The limit that the user wrote to the group.
pub(crate) const WROTE_MILLI: u64 = 900;
/// Maximum number of looks for something. Each look is a process, so no sleep is needed.
pub(crate) const LOOKS_MAX: u32 = 5_000;
/// Period of a quota.
const PERIOD_US: u64 = 100_000;

/// A cgroup with a quota, removed when the test ends.
pub(crate) struct Group {
    name: PathBuf,
    directories: Vec<PathBuf>,
    hierarchies: Hierarchies,
}

impl Group {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = PathBuf::from(format!("bursar-cli-{}-{count}", std::process::id()));
        let hierarchies = Hierarchies::find(Path::new("/proc/self")).unwrap();
        let directories: Vec<PathBuf> = roots().into_iter().map(|root| root.join(&name)).collect();
        for directory in &directories {
            std::fs::create_dir(directory).unwrap();
        }
        let group = Self {
            name,
            directories,
            hierarchies,
        };
        let limit = group.hierarchies.limit(&group.name).unwrap();
        limit
            .set_quota(Quota::of_milli(WROTE_MILLI, PERIOD_US))
            .unwrap();
        group
    }

    pub(crate) fn milli(&self) -> u64 {
        let limit = self.hierarchies.limit(&self.name).unwrap();
        limit.quota().unwrap().milli_ceil().unwrap()
    }

    /// Settings with which an unneeded limit falls at once.
    pub(crate) fn settings(&self, house: &House) -> PathBuf {
        self.settings_between(house, ("100m", "900m"))
    }

    /// The same settings with another minimum and maximum.
    pub(crate) fn settings_between(&self, house: &House, (min, max): (&str, &str)) -> PathBuf {
        let path = house.path("bursar.toml");
        let text = format!(
            "[market]\ninterval = \"50ms\"\nmemory = \"100ms\"\nwrites-per-hour = 1000000\n\
             cooldown = \"1ms\"\n\n[[cgroup]]\nname = \"web\"\npath = \"/{}\"\nmin = \"{min}\"\n\
             max = \"{max}\"\n\n[[cgroup]]\nname = \"nowhere\"\npath = \"/bursar-no-such\"\nmax = 1\n",
            self.name.display()
        );
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.directories {
            let _gone = std::fs::remove_dir(directory);
        }
    }
}

fn roots() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let mounts = layout::mounts(&mounts);
    let memberships = layout::memberships(&memberships);
    let legacy = |controller| layout::legacy(&mounts, &memberships, controller);
    let found = match legacy("cpu") {
        Some(cpu) => [Some(cpu), legacy("cpuacct")],
        None => [layout::unified(&mounts, &memberships), None],
    };
    let mut roots: Vec<PathBuf> = Vec::new();
    for (mount, _) in found.into_iter().flatten() {
        // One mount may have both controllers, under one path or two.
        let real = mount.point.canonicalize().unwrap();
        if !roots.contains(&real) {
            roots.push(real);
        }
    }
    roots
}

pub(crate) fn acting(house: &House, group: &Group) -> Server {
    let settings = group.settings(house);
    house.up(&["--market", "act", "--config", settings.to_str().unwrap()])
}

/// Looks until the condition holds; returns the value. Each look starts or queries a process.
pub(crate) fn until<T: Debug>(mut look: impl FnMut() -> T, is_it: impl Fn(&T) -> bool) -> T {
    let mut seen = look();
    for _ in 1..LOOKS_MAX {
        if is_it(&seen) {
            return seen;
        }
        seen = look();
    }
    panic!("that does not come, this is there: {seen:#?}");
}

/// Looks until the limit of the group differs from the user's.
pub(crate) fn until_lowered(house: &House) -> Value {
    let look = || -> Value {
        let text = house.ok(&["top", "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        list["items"][0].clone()
    };
    until(look, |seen| {
        seen["pods"][0]["appliedMilli"].as_u64().unwrap() < WROTE_MILLI
    })
}

/// The same by the kernel's file, for an agent without a ledger at that address.
pub(crate) fn until_lowered_by(address: &str, group: &Group) {
    let look = || (get(address, "/metrics").0, group.milli());
    until(look, |(_, milli)| *milli < WROTE_MILLI);
}

pub(crate) fn node(house: &House) -> String {
    let names = house.ok(&["nodes", "-o", "name"]);
    names.trim().strip_prefix("node/").unwrap().to_owned()
}

#[test]
fn a_cgroup_is_managed_shown_explained_and_restored() {
    let (house, group) = (House::new(), Group::new());
    let server = acting(&house, &group);
    let announcement: Value = serde_json::from_str(&server.announcement).unwrap();
    assert_eq!(announcement["market"]["mode"], "act");
    assert_eq!(announcement["market"]["notManaged"], 1);
    let market = until_lowered(&house);
    assert_eq!(market["pods"][0]["pod"], "web");
    assert_eq!(market["pods"][0]["originalMilli"], WROTE_MILLI);
    let node = node(&house);
    let top = house.ok(&["top", "--once"]);
    assert!(top.starts_with(&format!("node {node}: ")), "{top}");
    assert!(top.contains("\nweb    100-900  "), "{top}");
    assert!(top.contains("\nnot managed: 1 pod (1 missing)\n"), "{top}");
    assert_eq!(house.ok(&["top", &node, "-o", "name"]), "pod/web\n");
    let explained = house.ok(&["explain", "pod/web"]);
    assert!(explained.starts_with("web may use "), "{explained}");
    let wrote = "wrote   minimum 100m, maximum 900m, limit 900m (kept, and put back";
    assert!(explained.contains(wrote), "{explained}");
    assert!(explained.contains("\nOUT     take its `[[cgroup]]` out of the settings"));
    let value: Value =
        serde_json::from_str(&house.ok(&["explain", "pod/web", "-o", "json"])).unwrap();
    assert_eq!(value["pod"]["wrote"]["limitMilli"], 900);
    let listed = house.ok(&["node", "list", "--where", "market=act"]);
    assert!(listed.contains(&node), "{listed}");
    let shown = house.ok(&["node", "show", &node]);
    assert!(shown.contains("  market    acts; "), "{shown}");
    assert!(
        shown.contains("nowhere: there is no such cgroup"),
        "{shown}"
    );
    let refused = house.run(&["explain", "pod/nowhere"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("there is no such cgroup"));

    let dry = house.ok(&["node", "restore", &node, "--dry-run"]);
    assert!(
        dry.contains("1 CPU limit would be put back\n  web  "),
        "{dry}"
    );
    assert!(
        dry.ends_with("→ 900m\nnothing was changed (dry run)\n"),
        "{dry}"
    );
    let done = house.ok(&["node", "restore", "--all"]);
    assert!(done.contains("1 CPU limit put back\n  web  "), "{done}");
    assert_eq!(group.milli(), WROTE_MILLI);
    let shown = house.ok(&["node", "show", &node]);
    assert!(shown.contains("observes, changes nothing"), "{shown}");
    let again = house.ok(&["node", "restore", &node]);
    assert!(
        again.contains("all limits are as their users wrote them"),
        "{again}"
    );
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn every_end_of_the_server_restores_limits_and_after_kill_9_a_command_does() {
    let (house, group) = (House::new(), Group::new());
    let server = acting(&house, &group);
    until_lowered(&house);
    let ended = server.interrupted();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let words = "1 CPU limit put back\n";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    assert_eq!(group.milli(), WROTE_MILLI);

    let server = acting(&house, &group);
    until_lowered(&house);
    let data = house.data();
    let data = data.to_str().unwrap();
    let busy = house.run(&["node", "restore", "--data", data]);
    assert_eq!(busy.code, 3);
    assert!(
        busy.stderr
            .contains("hint: stop the agent, which puts them back"),
        "{}",
        busy.stderr
    );
    server.kill();
    let lowered = group.milli();
    assert!(lowered < WROTE_MILLI);
    let nowhere = house.run(&["node", "restore", "--data", "."]);
    assert_eq!(nowhere.code, 2, "{}", nowhere.stdout);
    let dry = house.ok(&["node", "restore", "--data", data, "--dry-run"]);
    assert!(dry.contains("would be put back"), "{dry}");
    assert_eq!(group.milli(), lowered);
    let value = house.ok(&["node", "restore", "--data", data, "-o", "json"]);
    let value: Value = serde_json::from_str(&value).unwrap();
    assert_eq!(value["restored"][0]["toMilli"], WROTE_MILLI);
    assert_eq!(group.milli(), WROTE_MILLI);
}

#[test]
fn the_record_of_the_market_is_explained_and_checked_with_the_ledger() {
    let (house, group) = (House::new(), Group::new());
    let server = acting(&house, &group);
    let market = until_lowered(&house);
    let at = market["at"].as_str().unwrap();
    let then = house.ok(&["explain", "pod/web", "--at", at, "-o", "json"]);
    let then: Value = serde_json::from_str(&then).unwrap();
    assert_eq!(
        then["pod"]["appliedMilli"],
        market["pods"][0]["appliedMilli"]
    );
    let then = house.ok(&["explain", "pod/web", "--at", at]);
    assert!(
        then.starts_with("at ") && then.contains(": web may use "),
        "{then}"
    );
    assert!(then.contains("\nHOW     asks "), "{then}");
    // Nodes without an agent, before and after ours by name, do not hide the record.
    let nodes = ["0-without", "zz-without"].map(|name| {
        let status = "status:\n  allocatable: {cpu: \"1\"}\n";
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n{status}")
    });
    std::fs::write(house.path("nodes.yaml"), nodes.join("---\n")).unwrap();
    house.ok(&["apply", "-f", "nodes.yaml"]);
    let early = house.run(&["explain", "pod/web", "--at", "-1h"]);
    assert_eq!(early.code, 1);
    assert!(early.stderr.contains(" begins after "), "{}", early.stderr);
    assert_eq!(house.run(&["explain", "booking/a", "--at", "-1h"]).code, 2);
    assert_eq!(house.run(&["explain", "pod/web", "--at", "+1h"]).code, 2);
    let other = house.run(&["explain", "pod/other", "--at", at]);
    assert_eq!(other.code, 1);
    assert!(
        other.stderr.contains("took no part at that time"),
        "{}",
        other.stderr
    );
    assert_eq!(server.interrupt(), 0);
    let data = house.data();
    let check = ["ledger", "check", "--store", data.to_str().unwrap()];
    let checked = house.ok(&check);
    assert!(checked.contains("\n  ok    market        "), "{checked}");
    let record = data.join("market/record.jsonl");
    let text = std::fs::read_to_string(&record).unwrap();
    let changed = text.replacen("\"allocatableMilli\":", "\"allocatableMilli\":1", 1);
    std::fs::write(&record, changed).unwrap();
    let checked = house.run(&check);
    assert_eq!(checked.code, 4, "{}", checked.stderr);
    assert!(checked.stdout.contains("\n  FAIL  market        line "));
    assert!(
        checked
            .stderr
            .contains("hint: limits do not depend on this record")
    );
}

#[test]
fn executions_are_managed_while_they_run() {
    let house = House::new();
    let settings = "[market]\ninterval = \"50ms\"\nwrites-per-hour = 1000000\n";
    std::fs::write(house.path("bursar.toml"), settings).unwrap();
    let server = house.up(&["--market", "act", "--config", "bursar.toml"]);
    let words = ["exec", "--detach", "--cpu", "900m", "--id", "job"];
    house.ok(&[&words[..], &["--", "sleep", "600"]].concat());
    let pods = || house.ok(&["top", "-o", "name"]);
    until(pods, |pods| pods == "pod/e-job\n");
    // The id of the booking is accepted too, and the answer shows the way out.
    let explain = || house.ok(&["explain", "pod/job"]);
    let explained = until(explain, |text| !text.contains("was not measured yet"));
    assert!(
        explained.starts_with("e-job may use 900m of CPU on "),
        "{explained}"
    );
    assert_eq!(
        house.ok(&["explain", "pod/job", "-o", "name"]),
        "pod/e-job\n"
    );
    assert!(
        explained.contains("\nWHY     it was given 900m, no more and no less: nothing to share\n"),
        "{explained}"
    );
    assert!(
        explained.contains("\nOUT     `bursar booking cancel job` ends it; "),
        "{explained}"
    );
    let refused = house.run(&["explain", "pod/jbo"]);
    assert!(
        refused.stderr.contains("did you mean `job`?"),
        "{}",
        refused.stderr
    );
    house.ok(&["booking", "cancel", "job"]);
    until(pods, String::is_empty);
    // A killed server would leave the empty cgroup of its ledger.
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn an_execution_may_be_given_more_than_it_is_charged() {
    let house = House::new();
    let settings = "[market]\ninterval = \"50ms\"\nwrites-per-hour = 1000000\n";
    std::fs::write(house.path("bursar.toml"), settings).unwrap();
    let server = house.up(&["--market", "act", "--config", "bursar.toml"]);
    let run = |words: &[&str]| house.run(&[words, &["--", "sleep", "600"]].concat());
    let less = ["exec", "--detach", "--cpu", "2", "--cpu-limit", "1500m"];
    let refused = run(&less);
    assert_eq!(refused.code, 125);
    let words = "error: `--cpu-limit 1500m` is less than `--cpu 2`\n";
    assert_eq!(refused.stderr, words);
    let here = run(&["exec", "--cpu-limit", "1"]);
    assert_eq!(here.code, 125);
    assert!(
        here.stderr.contains("hint: add `--detach`"),
        "{}",
        here.stderr
    );
    let more = [
        "exec",
        "--detach",
        "--id",
        "job",
        "--cpu",
        "100m",
        "--cpu-limit",
        "800m",
    ];
    let submitted = run(&more);
    assert_eq!(submitted.code, 0, "{}", submitted.stderr);
    let top = || -> Value {
        let text = house.ok(&["top", &node(&house), "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    };
    let pod = until(|| top()["pods"][0].clone(), |pod| !pod.is_null());
    assert_eq!(
        (&pod["pod"], &pod["kind"]),
        (&"e-job".into(), &"execution".into())
    );
    assert_eq!(pod["wrote"]["requestMilli"], 100);
    assert_eq!(pod["wrote"]["limitMilli"], 800);
    house.ok(&["booking", "cancel", "job"]);
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn the_market_observes_by_default_and_can_be_off() {
    let house = House::new();
    let settings = "[market]\ninterval = \"500ms\"\nwrites-per-hour = 1000000\n";
    std::fs::write(house.path("bursar.toml"), settings).unwrap();
    let server = house.up(&["--config", "bursar.toml"]);
    let announcement: Value = serde_json::from_str(&server.announcement).unwrap();
    assert_eq!(announcement["market"]["mode"], "observe");
    let top = house.ok(&["top"]);
    assert!(top.contains("nothing is managed here"), "{top}");
    house.ok(&[
        "exec", "--detach", "--cpu", "500m", "--id", "job", "--", "sleep", "600",
    ]);
    let (_, ledger) = get(&server.address, "/v1/ledger");
    let ledger: Value = serde_json::from_str(&ledger).unwrap();
    let base = format!("/bursar-{}", ledger["ledger"].as_str().unwrap());
    let row = |top: &str| {
        let mut lines = top.lines();
        let row = lines.find(|line| line.starts_with("e-job"))?;
        Some(
            row.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    };
    let top = until(|| house.ok(&["top"]), |top| row(top).is_some());
    assert!(top.contains("\nOBSERVED "), "{top}");
    // Its parent cgroup has no row, although it has used CPU.
    assert!(!top.contains("NEED") && !top.contains(&base), "{top}");
    // The other cells depend on the CPU use, which varies.
    assert_eq!(row(&top).unwrap()[..2], ["e-job", "500m"], "{top}");
    let explain = || house.ok(&["explain", "pod/job"]);
    let explained = until(explain, |text| !text.contains("was not measured yet"));
    assert!(explained.contains(": it is only observed\n"), "{explained}");
    let healthy = house.ok(&["doctor"]);
    assert!(healthy.contains("\nok    market    "), "{healthy}");
    house.ok(&["booking", "cancel", "job"]);
    let listed = house.ok(&["nodes"]);
    assert!(listed.starts_with("NODE  "), "{listed}");
    assert!(listed.contains("  observe  "), "{listed}");
    assert_eq!(server.interrupt(), 0);
    let _server = house.up(&["--market", "off"]);
    let ended = house.run(&["top"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
    assert!(ended.stderr.starts_with("no node here shares its CPU\n"));
    let node = node(&house);
    assert!(
        house
            .ok(&["node", "show", &node])
            .contains("no agent reports")
    );
    assert_eq!(house.run(&["top", &node]).code, 1);
    assert_eq!(house.run(&["node", "restore", &node]).code, 1);
}

/// Status and body of an answer over plain HTTP.
pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    let host = address.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let ask = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[test]
fn an_agent_alone_acts_serves_metrics_and_restores_limits() {
    let (house, group) = (House::new(), Group::new());
    let settings = group.settings(&house);
    let words = [
        "agent",
        "--market",
        "act",
        "--node",
        "w-17",
        "--config",
        settings.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "-o",
        "json",
    ];
    let agent = House::started(house.command(&words));
    until_lowered_by(&agent.address, &group);
    let (status, text) = get(&agent.address, "/metrics");
    assert_eq!(status, 200);
    assert!(text.contains("market_acts{node=\"w-17\"} 1"), "{text}");
    assert!(
        text.contains("apex_need_milli{pod=\"web\",namespace=\"\"}"),
        "{text}"
    );
    assert_eq!(get(&agent.address, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(&agent.address, "/readyz").0, 200);
    let second = house.run(&["agent", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 3);
    assert!(
        second.stderr.contains("another agent works in"),
        "{}",
        second.stderr
    );
    let ended = agent.interrupted();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("1 CPU limit put back"),
        "{}",
        ended.stderr
    );
    assert_eq!(group.milli(), WROTE_MILLI);
}

/// Enters and leaves the alternate screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// A live view in a new terminal, and its process.
pub(crate) fn live(house: &House, view: &str) -> (Running, Pid) {
    let mut command = program(house, "python3");
    command.args(["-c", include_str!("terminal.py")]).args([
        "sh",
        "-c",
        &format!("echo $$; exec {view}"),
    ]);
    let mut terminal = Running::start(&mut command);
    let pid = terminal.line().trim().parse().unwrap();
    terminal.until(ENTER);
    terminal.until("node ");
    // On a busy machine the window shows only the first rows, but always this line.
    terminal.until("q quits");
    (terminal, Pid::from_raw(pid).unwrap())
}

#[test]
fn the_live_view_leaves_the_terminal_as_it_was() {
    let house = House::new();
    let server = house.up(&[]);
    for end in ["q", "\u{3}"] {
        let (mut terminal, _) = live(&house, "bursar top");
        terminal.write(end);
        let ended = terminal.end();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains(LEAVE), "{:?}", ended.stdout);
    }
    // Without a server the view shows the last data with its age.
    let (mut terminal, _) = live(&house, "bursar top");
    server.kill();
    terminal.until("q quits; reconnecting, this is ");
    terminal.write("q");
    assert_eq!(terminal.end().code, 0);
}

#[test]
fn a_signal_ends_the_live_view_in_order() {
    let house = House::new();
    let _server = house.up(&[]);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (terminal, pid) = live(&house, "bursar top");
        kill_process(pid, signal).unwrap();
        let ended = terminal.end();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains(LEAVE), "{:?}", ended.stdout);
    }
}
