//! `bursar node`: the inventory, the market of each machine, and the restore of CPU limits.

use std::cell::RefCell;
use std::path::Path;

use bursar_client::api::{
    FailedPod, ListAnswer, MarketActs, MarketMode, Node, NodeExecutor, NodeMarket, RestoreAnswer,
    RestoredPod,
};
use bursar_client::client::{Error, Mode};
use bursar_client::object::node::capacity;
use bursar_client::{Client, Code};
use bursar_engine::inventory::{CLUSTER, DOMAIN, FLAVOR, REGION};
use bursar_engine::words;
use bursar_market::decimal::{fraction, price};
use bursar_market::explain::to_share;
use bursar_node::market::{self, DIRECTORY, Deed};
use bursar_units::causes::chain;
use bursar_units::quantity::format_cpu;
use bursar_units::{Amount, Instant, ObjectName};
use serde::Serialize;

use crate::command::market::scene::scene;
use crate::command::up::machine::Machine;
use crate::command::{DRY_RUN, watch};
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{Format, ListFlags, NodeVerb, Noun, RestoreArguments};
use crate::layout::{Column, Look, Meaning, REPORT_WORD, Shown, details};
use crate::list::{Filter, Listed};
use crate::session::Session;

const OBSERVES: &str = "observes, changes nothing";
/// Directory of our own process, from which the cgroup hierarchies are found.
const PROCESS: &str = "/proc/self";

pub(in crate::command) async fn run(
    session: &mut Session,
    noun: Noun<NodeVerb>,
) -> Result<(), Stop> {
    match noun.verb.unwrap_or(NodeVerb::List(noun.list)) {
        NodeVerb::List(flags) => list(session, &flags).await,
        NodeVerb::Show { name } => show(session, &name).await,
        NodeVerb::Restore(arguments) => restore(session, &arguments).await,
    }
}

/// The market of a node; `None` if no agent reports or the caller may not see it.
pub(in crate::command) async fn market_of(
    client: &Client,
    node: &ObjectName,
) -> Result<Option<NodeMarket>, Error> {
    match client.market(node).await {
        Ok(market) => Ok(Some(market)),
        Err(error) => {
            let code = error.problem().map(|problem| problem.code);
            if matches!(code, Some(Code::NotFound | Code::NotAllowed)) {
                return Ok(None);
            }
            Err(error)
        }
    }
}

/// The markets of all nodes that have an agent.
pub(in crate::command) async fn all_markets(client: &Client) -> Result<Vec<NodeMarket>, Error> {
    let mut markets = Vec::new();
    for node in client.nodes().await?.items {
        markets.extend(market_of(client, &node.metadata.name).await?);
    }
    Ok(markets)
}

/// A row of the list.
#[derive(Clone, Serialize)]
struct Row {
    #[serde(flatten)]
    node: Node,
    #[serde(skip_serializing_if = "Option::is_none")]
    market: Option<Summary>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    acts: MarketActs,
    mode: MarketMode,
    price_ppm: u64,
    pods: usize,
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "bursar_client::api::instant::optional"
    )]
    cleared_at: Option<Instant>,
}

impl From<&NodeMarket> for Summary {
    fn from(market: &NodeMarket) -> Self {
        Self {
            acts: market.acts,
            mode: market.mode,
            price_ppm: market.price_ppm,
            pods: market.pods.len(),
            cleared_at: market.agent.cleared_at,
        }
    }
}

impl Row {
    fn has(&self, of: fn(&Amount) -> u64, text: fn(u64) -> String) -> String {
        match capacity(&self.node).map(|has| of(&has)) {
            Ok(0) | Err(_) => String::new(),
            Ok(value) => text(value),
        }
    }

    fn label(&self, key: &str) -> String {
        self.node
            .metadata
            .labels
            .get(key)
            .cloned()
            .unwrap_or_default()
    }

    fn of_market(&self, text: impl Fn(&Summary) -> String) -> String {
        self.market.as_ref().map(text).unwrap_or_default()
    }

    /// Empty if the market only observes: it has neither mode nor price.
    fn of_acting(&self, text: impl Fn(&Summary) -> String) -> String {
        let market = self.market.as_ref();
        let acting = market.filter(|market| market.acts == MarketActs::Act);
        acting.map(text).unwrap_or_default()
    }
}

impl Listed for Row {
    const KIND: &'static str = "node";
    const NONE: &'static str = "no nodes";
    const FIRST: &'static str = "`bursar up` adds the machine it runs on";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<Row>] = &[
            Column::of_text("NODE", Shown::Always, |row, _| row.name()),
            Column::of_count("CPU", Shown::Always, |row, _| {
                row.has(|has| has.cpu_milli, format_cpu)
            }),
            Column::of_count("MEMORY", Shown::Always, |row, _| {
                row.has(|has| has.memory_bytes, gibibytes)
            }),
            Column::of_count("GPUS", Shown::Always, |row, _| {
                row.has(|has| has.gpus, words::number)
            }),
            Column::of_text("FLAVOR", Shown::Always, |row, _| row.label(FLAVOR)),
            Column::of_text("WHERE", Shown::Always, |row, _| place(&row.node)),
            Column::of_text("EXECUTOR", Shown::Always, |row, _| {
                let executor = row
                    .node
                    .status
                    .executor
                    .map(bursar_client::api::NodeExecutor::word);
                let cordoned = row.node.spec.unschedulable.then_some("cordoned");
                let words: Vec<&str> = executor.into_iter().chain(cordoned).collect();
                words.join(", ")
            }),
            Column::of_text("MISSING", Shown::Wide, |row, _| {
                row.node.status.missing_labels.join(",")
            }),
            Column::of_text("MARKET", Shown::Always, |row, _| {
                row.of_market(|market| market.acts.word().to_owned())
            }),
            Column {
                meaning: |row| row.market.map(|market| mode_meaning(market.mode)),
                ..Column::of_text("MODE", Shown::Room(2), |row, _| {
                    row.of_acting(|market| market.mode.word().to_owned())
                })
            },
            Column::of_count("PRICE", Shown::Room(1), |row, _| {
                row.of_acting(|market| price(market.price_ppm))
            }),
            Column::of_count("AGENT", Shown::Room(3), |row, look| {
                let cleared = row.market.and_then(|market| market.cleared_at);
                cleared.map(|at| look.age(at)).unwrap_or_default()
            }),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        self.node.metadata.name.to_string()
    }
}

/// `us-west/west-1/rack-a`, with `-` for a label that is absent; empty if all are.
fn place(node: &Node) -> String {
    let labels = &node.metadata.labels;
    let parts = [REGION, CLUSTER, DOMAIN].map(|key| labels.get(key).map(String::as_str));
    if parts.iter().all(Option::is_none) {
        return String::new();
    }
    parts.map(|part| part.unwrap_or("-")).join("/")
}

/// `23.5Gi`.
fn gibibytes(bytes: u64) -> String {
    let text = fraction(bytes.into(), 1 << 30, 1);
    format!("{}Gi", text.strip_suffix(".0").unwrap_or(&text))
}

pub(in crate::command) fn mode_meaning(mode: MarketMode) -> Meaning {
    match mode {
        MarketMode::Uncongested => Meaning::Good,
        MarketMode::Congested => Meaning::Waiting,
        MarketMode::Overloaded => Meaning::Bad,
    }
}

async fn list(session: &mut Session, flags: &ListFlags) -> Result<(), Stop> {
    let filter = Filter::read::<Row>(flags.filter.as_deref())?;
    let client = session.client().await?;
    let skipped = RefCell::new(Vec::new());
    let fetch = async || {
        let answer = client.nodes().await?;
        *skipped.borrow_mut() = answer.items.iter().filter_map(skipped_words).collect();
        let mut items = Vec::with_capacity(answer.items.len());
        for node in answer.items {
            let market = market_of(&client, &node.metadata.name).await?;
            items.push(Row {
                node,
                market: market.as_ref().map(Summary::from),
            });
        }
        Ok(ListAnswer {
            items,
            next_cursor: answer.next_cursor,
            record: answer.record,
        })
    };
    watch::list(session, flags, &filter, fetch, &client).await?;
    let is_table = matches!(session.common.output, Format::Table | Format::Wide);
    let skipped = skipped.into_inner();
    let count = match skipped.len() {
        1 => "1 node is".to_owned(),
        count => format!("{count} nodes are"),
    };
    if is_table && !skipped.is_empty() {
        session.aside(&format!("note: {count} skipped: {}\n", skipped.join("; ")));
    }
    Ok(())
}

/// `k8s-3 has no bursar.dev/domain`, for a node on which no run is placed.
fn skipped_words(node: &Node) -> Option<String> {
    let missing = node.status.missing_labels.join(", ");
    (!missing.is_empty()).then(|| format!("{} has no {missing}", node.metadata.name))
}

/// Answer of `node show`.
#[derive(Serialize)]
struct NodeDetails {
    #[serde(flatten)]
    node: Node,
    #[serde(skip_serializing_if = "Option::is_none")]
    market: Option<NodeMarket>,
}

async fn show(session: &mut Session, name: &ObjectName) -> Result<(), Stop> {
    let client = session.client().await?;
    let node = client.node(name).await?;
    let market = market_of(&client, name).await?;
    let details = NodeDetails { node, market };
    session.show(&details, &format!("node/{name}"), |look| {
        text(&details, look)
    })
}

fn text(answer: &NodeDetails, look: &Look) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut add = |word: &str, text: String| lines.push((word.to_owned(), text));
    if let Ok(has) = capacity(&answer.node) {
        add("cpu", format_cpu(has.cpu_milli));
        add("memory", gibibytes(has.memory_bytes));
        if has.gpus > 0 {
            let flavor = answer.node.metadata.labels.get(FLAVOR);
            let flavor = flavor
                .map(|flavor| format!(" {flavor}"))
                .unwrap_or_default();
            add("gpus", format!("{}{flavor}", words::number(has.gpus)));
        }
    }
    let place = place(&answer.node);
    if !place.is_empty() {
        add("where", place);
    }
    if answer.node.spec.unschedulable {
        add("cordoned", "nothing new is placed here".to_owned());
    }
    match answer.node.status.executor {
        Some(NodeExecutor::Simulated) => {
            add(
                "executor",
                "simulated: runs here start no process".to_owned(),
            );
        }
        Some(executor) => add("executor", executor.word().to_owned()),
        None => {}
    }
    let missing = &answer.node.status.missing_labels;
    if !missing.is_empty() {
        let text = format!("{}: no run is placed here", missing.join(", "));
        add("missing", text);
    }
    match &answer.market {
        None => add("market", "no agent reports".to_owned()),
        Some(market) => market_lines(market, look, add),
    }
    let name = &answer.node.metadata.name;
    let subject = look.paint(Meaning::Subject, &format!("node {name}"));
    format!("{subject}\n{}", details(&lines, REPORT_WORD))
}

fn market_lines(market: &NodeMarket, look: &Look, mut add: impl FnMut(&str, String)) {
    let mode = market.mode.word();
    let market_is = match market.acts {
        MarketActs::Act => {
            let mode = look.paint(mode_meaning(market.mode), mode);
            format!("acts; {mode}, price {}", price(market.price_ppm))
        }
        MarketActs::Observe if market.pods.is_empty() => OBSERVES.to_owned(),
        MarketActs::Observe => {
            let price = price(market.price_ppm);
            format!("{OBSERVES}; would be {mode}, price {price}")
        }
    };
    add("market", market_is);
    if let Some(reason) = &market.acts_reason {
        add("reason", reason.clone());
    }
    let over = match market.over_milli {
        0 => String::new(),
        over => format!("; limits exceed it by {over}m"),
    };
    add("shared", to_share(&scene(market)) + &over);
    let count = |count: usize| words::number(u64::try_from(count).unwrap_or(u64::MAX));
    let (pods, groups) = (market.pods.len(), market.observed.len());
    let pods = match market.acts {
        MarketActs::Act => format!("{} managed", count(pods)),
        MarketActs::Observe => format!("0 managed, {} only observed", count(pods + groups)),
    };
    add("pods", pods);
    for pod in &market.pods {
        if let Some(held) = &pod.held {
            add("held", format!("{}: {}", pod.pod, held.words));
        }
    }
    for without in &market.unmanaged {
        let shown = u64::try_from(without.pods.len()).unwrap_or(u64::MAX);
        let rest = match without.count.saturating_sub(shown) {
            0 => String::new(),
            rest => format!(" and {} more", words::number(rest)),
        };
        let names = without.pods.join(", ");
        add("without", format!("{names}{rest}: {}", without.words));
    }
    let agent = &market.agent;
    let cleared = match agent.cleared_at {
        Some(at) => format!("cleared {} ago", look.age(at)),
        None => "has not cleared yet".to_owned(),
    };
    let clearings = words::count(agent.clearings, "clearing");
    let writes = words::count(agent.writes, "write");
    add("agent", format!("{cleared}, {clearings}, {writes}"));
    if let Some(error) = &agent.error {
        add("trouble", error.clone());
    }
}

async fn restore(session: &mut Session, arguments: &RestoreArguments) -> Result<(), Stop> {
    let answers = match &arguments.data {
        Some(data) => vec![restore_here(session, data, arguments.dry_run)?],
        None => restore_nodes(session, arguments).await?,
    };
    let is_failed = answers.iter().any(|answer| !answer.failed.is_empty());
    if session.for_programs() && arguments.all {
        session.print_value(&answers)?;
    } else {
        for answer in &answers {
            let name = format!("node/{}", answer.node);
            session.show(answer, &name, |look| restored_text(answer, look))?;
        }
    }
    if is_failed {
        return Err(Failure::new(exit::REFUSED, "some limits were not put back").into());
    }
    Ok(())
}

async fn restore_nodes(
    session: &mut Session,
    arguments: &RestoreArguments,
) -> Result<Vec<RestoreAnswer>, Stop> {
    let client = session.client().await?;
    let mut names = arguments.names.clone();
    if arguments.all {
        for node in client.nodes().await?.items {
            if market_of(&client, &node.metadata.name).await?.is_some() {
                names.push(node.metadata.name);
            }
        }
        if names.is_empty() {
            session.aside("no node has an agent: nothing to put back\n");
        }
    }
    let mode = Mode::dry_run_if(arguments.dry_run);
    let mut answers = Vec::with_capacity(names.len());
    for name in &names {
        answers.push(client.restore_node(name, mode).await?);
    }
    Ok(answers)
}

/// Restores the limits on this machine after the crash of its agent.
fn restore_here(session: &Session, data: &Path, is_dry: bool) -> Result<RestoreAnswer, Stop> {
    let deed = if is_dry { Deed::DryRun } else { Deed::Real };
    let path = session.path(data);
    if !path.is_dir() {
        return Err(Failure::usage(format!("there is no directory {}", data.display())).into());
    }
    let directory = path.join(DIRECTORY);
    if !directory.is_dir() {
        let message = format!("{} is not the data directory of an agent", data.display());
        return Err(Failure::usage(message)
            .hint("name the `--data` directory of `bursar up` or `bursar agent`")
            .into());
    }
    let report = market::restore(&directory, Path::new(PROCESS), deed);
    let report = report.map_err(|error| match error {
        market::Error::InUse(_) => Failure::unavailable(chain(&error))
            .hint("stop the agent, which puts them back; `bursar node restore --all` does so while it runs"),
        error => Failure::unavailable(chain(&error)),
    })?;
    let restored = report.restored.into_iter();
    let restored = restored.map(|(pod, from, to)| RestoredPod {
        pod,
        from_milli: from.milli_ceil(),
        to_milli: to.milli_ceil(),
    });
    let failed = report.failed.into_iter();
    let failed = failed.map(|(pod, reason)| FailedPod { pod, reason });
    Ok(RestoreAnswer {
        node: Machine::read().name().to_owned(),
        restored: restored.collect(),
        failed: failed.collect(),
        dry_run: is_dry,
    })
}

fn restored_text(answer: &RestoreAnswer, look: &Look) -> String {
    let count = u64::try_from(answer.restored.len()).unwrap_or(u64::MAX);
    let subject = look.paint(Meaning::Subject, &format!("node {}", answer.node));
    let first = match (count, answer.dry_run) {
        (0, _) => "all limits are as their users wrote them".to_owned(),
        (_, true) => format!("{} would be put back", words::count(count, "CPU limit")),
        (_, false) => format!("{} put back", words::count(count, "CPU limit")),
    };
    let milli = |milli: Option<u64>| milli.map_or_else(|| "none".to_owned(), |m| format!("{m}m"));
    let restored = answer.restored.iter().map(|pod| {
        let change = format!("{} → {}", milli(pod.from_milli), milli(pod.to_milli));
        (pod.pod.clone(), change)
    });
    let failed = answer.failed.iter();
    let failed = failed.map(|pod| (pod.pod.clone(), format!("not put back: {}", pod.reason)));
    let lines: Vec<(String, String)> = restored.chain(failed).collect();
    let text = format!("{subject}: {first}\n{}", details(&lines, 0));
    if answer.dry_run { text + DRY_RUN } else { text }
}
