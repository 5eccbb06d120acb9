//! The CPU market over HTTP: state, history, metrics and restore.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_client::api::NodeMarket;
use bursar_engine::token::Role;
use bursar_market::node::Settings;
use bursar_market::params::Params;
use bursar_node::market::{Agent, Declared, Mode, Options, Place, Unmanaged, View};
use bursar_server::agent;
use bursar_server::metrics::market::NAMES;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Builder;

use crate::world::{World, caller};

/// A cgroup v2 hierarchy of plain files, in which `a` and `b` are busy and `c` does not exist.
pub(crate) struct Machine {
    scratch: TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let machine = Self {
            scratch: tempfile::tempdir().unwrap(),
        };
        let root = machine.path("cgroup");
        let process = machine.path("process");
        fs::create_dir_all(&process).unwrap();
        let mount = format!("1 1 0:1 / {} rw - cgroup2 cgroup2 rw\n", root.display());
        fs::write(process.join("mountinfo"), mount).unwrap();
        fs::write(process.join("cgroup"), "0::/\n").unwrap();
        fs::write(process.join("status"), "Cpus_allowed_list:\t0\n").unwrap();
        for name in ["a", "b"] {
            machine.declare(name);
        }
        machine
    }

    /// Creates a group and returns its declaration.
    pub(crate) fn declare(&self, name: &str) -> Declared {
        let group = self.path("cgroup").join(name);
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpu.max"), "60000 100000\n").unwrap();
        self.used(name, 0);
        declared(name)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    /// Sets the usage of a group atomically: the text always has the same length, so that a
    /// concurrent reader gets a whole one.
    pub(crate) fn used(&self, name: &str, usage_us: u64) {
        let text = format!(
            "usage_usec {usage_us:020}\nnr_periods 100\nnr_throttled 0\nthrottled_usec 0\n"
        );
        let path = self.path("cgroup").join(name).join("cpu.stat");
        let mut options = fs::OpenOptions::new();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(path).unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
    }

    pub(crate) fn limit(&self, name: &str) -> String {
        let path = self.path("cgroup").join(name).join("cpu.max");
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    pub(crate) fn agent(&self, mode: Mode) -> Arc<Agent> {
        Arc::new(Agent::start(self.options(mode)).unwrap())
    }

    /// Directory of the agent's originals and record.
    pub(crate) fn directory(&self) -> std::path::PathBuf {
        self.path("market")
    }

    pub(crate) fn options(&self, mode: Mode) -> Options {
        let cgroups = ["a", "b", "c"].map(declared);
        Options {
            node: "w-17".to_owned(),
            directory: self.path("market"),
            mode,
            settings: Settings {
                windows: 3,
                writes_per_hour: 1_000_000,
                ..Settings::default()
            },
            interval: Duration::from_millis(5),
            reserve_milli: Some(0),
            unmanaged: Unmanaged::Given(0),
            cgroups: cgroups.into(),
            executions: None,
            process: self.path("process"),
        }
    }
}

fn declared(name: &str) -> Declared {
    Declared {
        name: name.to_owned(),
        place: Place::Path(Path::new("/").join(name)),
        params: Params {
            min_milli: 100,
            max_milli: 800,
            weight: 100,
        },
    }
}

pub(crate) fn wait_for(agent: &Agent, is_so: impl Fn(&View) -> bool + Sync) {
    let is_seen = is_seen_within(agent, Duration::from_mins(1), is_so);
    assert!(is_seen, "it takes too long: {:#?}", agent.view());
}

/// Waits until the agent's view matches; returns false after the timeout. Blocks on a thread with
/// its own runtime, because the test's runtime may be on virtual time.
pub(crate) fn is_seen_within(
    agent: &Agent,
    within: Duration,
    is_so: impl Fn(&View) -> bool + Sync,
) -> bool {
    let mut views = agent.views();
    let wait = || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let seen = views.wait_for(|view| is_so(view));
            tokio::time::timeout(within, seen).await.is_ok()
        })
    };
    std::thread::scope(|scope| scope.spawn(wait).join().unwrap())
}

pub(crate) fn limits(view: &View) -> Vec<u64> {
    let standings = view.standings.iter();
    standings
        .map(|standing| standing.bidder.limit_milli)
        .collect()
}

/// Whether the limits have come down and the memory of the first limits is over.
fn is_settled(view: &View) -> bool {
    let clearing = view.clearing.as_ref();
    let price_ppm = clearing.map(|clearing| clearing.cleared.price_ppm);
    limits(view) == [110, 110] && price_ppm == Some(0)
}

#[tokio::test]
async fn a_past_clearing_is_replayed_from_the_record() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Act);
    wait_for(&agent, |view| limits(view) == [110, 110]);
    let world = World::sharing_cpu(Arc::clone(&agent));
    let path = "/v1/nodes/w-17/market";
    let now: NodeMarket = serde_json::from_value(world.ask("GET", path, "").await.json()).unwrap();
    let at = bursar_client::api::instant::format(now.at);
    machine.used("a", 10_000_000);
    wait_for(&agent, |view| view.wall_ms(view.now_us) > now.at.ms() + 20);
    let then = world.ask("GET", &format!("{path}?at={at}"), "").await;
    assert_eq!(then.status, 200, "{then:?}");
    let then: NodeMarket = serde_json::from_value(then.json()).unwrap();
    assert_eq!(then.at, now.at);
    assert_eq!(then.capacity_milli, now.capacity_milli);
    let shares = |market: &NodeMarket| {
        let pods = market.pods.iter();
        let share = |pod: &bursar_client::api::MarketPod| (pod.pod.clone(), pod.applied_milli);
        pods.map(share).collect::<Vec<_>>()
    };
    assert_eq!(shares(&then), shares(&now));
    // It acted at that time, whatever it does now.
    world.ask("POST", "/v1/nodes/w-17/restore", "{}").await;
    let reply = world.ask("GET", path, "").await;
    assert_eq!(reply.json()["acts"], "observe");
    let then = world.ask("GET", &format!("{path}?at={at}"), "").await;
    assert_eq!(then.json()["acts"], "act", "{then:?}");
    assert_eq!(then.json()["actsReason"], serde_json::Value::Null);

    for (query, status) in [
        ("at=-1h", 404),
        ("at=yesterday", 422),
        ("at=-1s&since=-1s", 422),
    ] {
        let reply = world.ask("GET", &format!("{path}?{query}"), "").await;
        assert_eq!(reply.status, status, "{query}: {reply:?}");
    }

    let record = machine.path("market").join("record.jsonl");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(
        &record,
        text.replacen("\"whole\":true", "\"whole\":false", 1),
    )
    .unwrap();
    let reply = world.ask("GET", &format!("{path}?at={at}"), "").await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.text().contains("line 1 of"), "{reply:?}");
}

/// Method: the record is a pipe, so that a replay lasts until the test writes to it.
#[tokio::test]
async fn only_one_replay_runs_at_a_time() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Observe);
    wait_for(&agent, |view| view.clearings > 1);
    let world = World::sharing_cpu(Arc::clone(&agent));
    let record = machine.path("market").join("record.jsonl");
    fs::rename(&record, machine.path("aside")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&record).status();
    assert!(made.unwrap().success());
    let path = "/v1/nodes/w-17/market?at=-1h";
    let (one, other) = (world.ask("GET", path, ""), world.ask("GET", path, ""));
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let answered = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::select! {
            reply = &mut one => (reply, true),
            reply = &mut other => (reply, false),
        }
    });
    let answered = answered.await;
    let write = || fs::OpenOptions::new().write(true).open(&record).unwrap();
    drop(write());
    let (refused, is_one) = answered.unwrap();
    assert_eq!(refused.headers["retry-after"], "1");
    refused.is_problem("busy");
    let played = if is_one { other.await } else { one.await };
    assert_eq!(played.status, 404, "{played:?}");
}

#[tokio::test]
async fn the_market_is_answered_as_the_agent_sees_it() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Act);
    wait_for(&agent, is_settled);
    let world = World::sharing_cpu(Arc::clone(&agent));
    let reply = world.ask("GET", "/v1/nodes/w-17/market", "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let market: NodeMarket = serde_json::from_slice(&reply.bytes).unwrap();
    let json = reply.json();
    assert_eq!(json["node"], "w-17");
    assert_eq!(json["mode"], "uncongested");
    assert_eq!(json["capacityMilli"], 1000);
    assert_eq!(json["pricePpm"], 0);
    assert_eq!(json["acts"], "act");
    assert_eq!(json["policy"], "proportional");
    let pod = &json["pods"][0];
    assert_eq!(pod["pod"], "a");
    assert_eq!(pod["wrote"]["requestMilli"], 100);
    assert_eq!(pod["wrote"]["limitMilli"], 800);
    assert_eq!(pod["originalMilli"], 600);
    assert_eq!(pod["needMilli"], 110);
    assert_eq!(pod["allocatedMilli"], 110);
    assert_eq!(pod["appliedMilli"], 110);
    assert_eq!(pod["boundBy"], "need");
    assert_eq!(pod["held"], serde_json::Value::Null);
    assert_eq!(pod["asked"]["askMilli"], 0);
    assert_eq!(pod["asked"]["asks"], false);
    assert!(market.pods[0].since.is_some());
    assert_eq!(json["unmanaged"][0]["reason"], "missing");
    assert_eq!(json["unmanaged"][0]["pods"][0], "c");
    assert_eq!(json["history"], serde_json::Value::Null);
    assert!(market.agent.writes >= 2, "{market:?}");
    let past = world
        .ask("GET", "/v1/nodes/w-17/market?since=-10m", "")
        .await
        .json();
    let points = past["history"].as_array().unwrap();
    assert!(points.len() > 1);
    assert_eq!(points[0]["pods"][0]["pod"], "a");
    for (query, code) in [
        ("since=-10", "invalid"),
        ("since=soon", "invalid"),
        ("x=1", "invalid"),
    ] {
        let path = format!("/v1/nodes/w-17/market?{query}");
        world.ask("GET", &path, "").await.is_problem(code);
    }
}

#[tokio::test]
async fn only_operators_restore_limits_and_the_agent_leaves_them() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Act);
    wait_for(&agent, |view| limits(view) == [110, 110]);
    let world = World::sharing_cpu(Arc::clone(&agent));
    let path = "/v1/nodes/w-17/restore";
    let viewer = || caller("eve", &[Role::View], &[]);
    let refused = world.ask_as(viewer(), "POST", path, "").await;
    refused.is_problem("not-allowed");
    let dry = world.ask("POST", &format!("{path}?dryRun=true"), "").await;
    assert_eq!(dry.json()["dryRun"], true);
    assert_eq!(dry.json()["restored"][0]["pod"], "a");
    assert_eq!(machine.limit("a"), "11000 100000");
    let real = world.ask("POST", path, "{}").await;
    assert_eq!(real.status, 200);
    let json = real.json();
    assert_eq!(json["restored"][1]["fromMilli"], 110);
    assert_eq!(json["restored"][1]["toMilli"], 600);
    assert_eq!(json["dryRun"], serde_json::Value::Null);
    assert_eq!(machine.limit("a"), "60000 100000");
    let before = agent.view().clearings;
    wait_for(&agent, |view| before + 5 < view.clearings);
    assert_eq!(machine.limit("a"), "60000 100000");
    let market = world.ask("GET", "/v1/nodes/w-17/market", "").await.json();
    assert_eq!(market["acts"], "observe");
    assert!(
        market["actsReason"]
            .as_str()
            .unwrap()
            .contains("node restore")
    );
    // A repeat has nothing to do.
    let again = world.ask("POST", path, "").await.json();
    assert_eq!(again["restored"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn only_viewers_and_operators_see_a_market() {
    let world = World::new();
    let nothing = world.ask("GET", "/v1/nodes/w-17/market", "").await;
    let problem = nothing.is_problem("not-found");
    assert!(problem["changes"][0].as_str().unwrap().contains("--market"));
    let machine = Machine::new();
    let agent = machine.agent(Mode::Observe);
    let world = World::sharing_cpu(agent);
    let other = world.ask("GET", "/v1/nodes/w-18/market", "").await;
    assert_eq!(other.is_problem("not-found")["suggestion"], "w-17");
    let user = caller("ada", &[Role::Use], &["ada"]);
    let hidden = world.ask_as(user, "GET", "/v1/nodes/w-17/market", "").await;
    hidden.is_problem("not-allowed");
}

#[tokio::test]
async fn metrics_have_the_listed_names_and_the_numbers_of_the_market() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Act);
    wait_for(&agent, is_settled);
    let world = World::sharing_cpu(Arc::clone(&agent));
    let text = world.ask("GET", "/metrics", "").await.text();
    for name in NAMES {
        let is_it = |line: &str| line.starts_with(&format!("{name}{{"));
        assert!(text.lines().any(is_it), "{name} is not in {text}");
    }
    let counted = text.lines().filter(|line| !line.starts_with('#'));
    let ours = counted.filter(|line| line.starts_with("apex_") || line.starts_with("market_"));
    for line in ours {
        let name = line.split('{').next().unwrap();
        assert!(NAMES.contains(&name), "{name} is not in the list");
    }
    for line in [
        r#"apex_allocation_mode{node="w-17",mode="uncongested"} 1"#,
        r#"apex_allocation_mode{node="w-17",mode="congested"} 0"#,
        r#"apex_need_milli{pod="a",namespace=""} 110"#,
        r#"apex_allocation_milli{pod="b",namespace=""} 110"#,
        r#"apex_nash_reduction_ratio{pod="a",namespace=""} 0.0"#,
        r#"apex_headroom_utilization{pod="a",namespace=""} 0.0"#,
        r#"market_capacity_milli{node="w-17"} 1000"#,
        r#"market_price_ppm{node="w-17"} 0"#,
        r#"market_unmanaged{node="w-17",reason="missing"} 1"#,
        r#"market_held{node="w-17",reason="conflict"} 0"#,
        r#"market_acts{node="w-17"} 1"#,
        r#"market_clearing_interval_seconds{node="w-17"} 0.005"#,
    ] {
        assert!(text.lines().any(|is| is == line), "{line} is not in {text}");
    }
    let alone = bursar_server::metrics::market::text(&agent.view()).unwrap();
    assert!(alone.contains("apex_need_milli") && alone.ends_with("# EOF\n"));
}

#[test]
fn the_reduction_metric_is_that_of_the_clearing() {
    let machine = Machine::new();
    let mut options = machine.options(Mode::Act);
    options.settings.quantum_milli = 10;
    for (declared, min_milli) in options.cgroups.iter_mut().zip([675, 255]) {
        declared.params.min_milli = min_milli;
    }
    let agent = Agent::start(options).unwrap();
    let given = |view: &View| {
        let clearing = view.clearing.iter();
        let shares = clearing.flat_map(|clearing| &clearing.cleared.shares);
        shares
            .map(|share| (share.need_milli, share.allocated_milli))
            .collect::<Vec<_>>()
    };
    // A tenth more than their floors, which are whole quanta, does not fit into 1000m for both: the pod
    // whose limit is below that does not ask for it.
    wait_for(&agent, |view| given(view) == [(680, 680), (280, 280)]);
    let text = bursar_server::metrics::market::text(&agent.view()).unwrap();
    // Neither need is reduced, also where it is the floor.
    for (pod, ratio) in [("a", "0.0"), ("b", "0.0")] {
        let labels = format!("{{pod=\"{pod}\",namespace=\"\"}}");
        let line = format!("apex_nash_reduction_ratio{labels} {ratio}\n");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}

#[test]
fn an_agent_before_its_first_clearing_is_silent_since_its_start() {
    let machine = Machine::new();
    let mut options = machine.options(Mode::Observe);
    options.interval = Duration::from_mins(10);
    let agent = Agent::start(options).unwrap();
    let view = agent.view();
    assert_eq!(view.cleared_ms, None);
    let text = bursar_server::metrics::market::text(&view).unwrap();
    let seen = view.at_ms / 1_000;
    for line in [
        format!("market_last_clearing_seconds{{node=\"w-17\"}} {seen}\n"),
        "market_clearing_interval_seconds{node=\"w-17\"} 600.0\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}

/// Method: the maximum of connections are open and silent, then one more sends a request.
#[tokio::test]
async fn connections_to_an_agent_are_limited() {
    let machine = Machine::new();
    let agent = machine.agent(Mode::Observe);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(agent::serve(listener, agent));
    let ask = async || {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(ask().await.starts_with("HTTP/1.1 200 "));
    let mut held = Vec::new();
    for _ in 0..agent::CONNECTIONS_MAX {
        held.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let answer = ask().await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    served.abort();
}
