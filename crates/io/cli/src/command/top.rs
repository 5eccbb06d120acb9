//! `bursar top`: who needs CPU on a node, who gets it, and how close to need that is
//! (design 80, 2.13).

mod live;

use bursar_client::Client;
use bursar_client::api::{MarketActs, MarketPod, NodeMarket, ObservedGroup};
use bursar_engine::words;
use bursar_market::decimal::fraction;
use bursar_market::explain::headline;
use bursar_market::need::THROTTLED_PERMILLE;
use bursar_units::ObjectName;

use super::market::{BLANK, scene::scene};
use super::node::{market_of, mode_meaning};
use crate::failure::Stop;
use crate::grammar::{Format, TopArguments};
use crate::layout::{self, Align, Column, Look, Meaning, Shown, no_meaning, nothing_else};
use crate::list;
use crate::session::Session;

/// What is said where no agent reports.
const NOBODY: &str = "no node here shares its CPU\n\nhint: `bursar up --market observe` looks\n";

pub(super) async fn run(session: &mut Session, arguments: &TopArguments) -> Result<(), Stop> {
    let client = session.client().await?;
    let node = arguments.node.as_ref();
    let is_live = session.terminal.data
        && !arguments.once
        && !session.is_virtual()
        && matches!(session.common.output, Format::Table | Format::Wide);
    if is_live {
        return live::run(session, &client, node).await;
    }
    let markets = fetch(&client, node).await?;
    match (session.common.output, markets.as_slice(), node) {
        (Format::Json | Format::Yaml, [one], Some(_)) => session.print_value(one),
        (Format::Json | Format::Yaml, all, _) => session.print_value(&list::List::of(all)),
        (Format::Name, all, _) => {
            let pods = all.iter().flat_map(|market| &market.pods);
            let names = pods.flat_map(|pod| ["pod/", &pod.pod, "\n"]);
            session.console.data(&names.collect::<String>())
        }
        (Format::Table | Format::Wide, [], _) => {
            session.aside(NOBODY);
            Ok(())
        }
        (Format::Table | Format::Wide, all, _) => {
            let text = text(all, &session.look());
            session.print(&text)
        }
    }
}

/// The markets of one node, or of all that have an agent.
async fn fetch(client: &Client, node: Option<&ObjectName>) -> Result<Vec<NodeMarket>, Stop> {
    if let Some(node) = node {
        return Ok(vec![client.market(node).await?]);
    }
    let mut markets = Vec::new();
    for node in client.nodes().await?.items {
        markets.extend(market_of(client, &node.metadata.name).await?);
    }
    Ok(markets)
}

/// All nodes, one below the other.
fn text(markets: &[NodeMarket], look: &Look) -> String {
    let nodes = markets.iter().map(|market| node_text(market, look));
    nodes.collect::<Vec<_>>().join("\n")
}

fn node_text(market: &NodeMarket, look: &Look) -> String {
    let first = match market.agent.cleared_at {
        Some(_) => headline(&scene(market)),
        None => format!("node {}: not cleared yet", market.node),
    };
    let mut text = look.paint(mode_meaning(market.mode), &first) + "\n";
    text.push_str(&layout::table(PODS, &pod_rows(market, look), look, false));
    for pod in &market.pods {
        if let Some(held) = &pod.held {
            text.extend(["left as it is: ", &pod.pod, " (", &held.words, ")\n"]);
        }
    }
    text.push_str(&not_managed(market));
    let mut groups = market.observed.clone();
    groups.sort_by_key(|group| std::cmp::Reverse(group.used_milli));
    text.push_str(&layout::table(GROUPS, &groups, look, false));
    if market.acts == MarketActs::Observe {
        text.push_str(&observing(market));
    }
    text
}

/// A row of the table: a pod, or the sum of all.
struct Row {
    cells: [String; 8],
    is_throttled: bool,
}

const PODS: &[Column<Row>] = &[
    cell("POD", Align::Left, |row, _| of(row, 0)),
    cell("WROTE", Align::Left, |row, _| of(row, 1)),
    cell("NEED", Align::Right, |row, _| of(row, 2)),
    cell("LIMIT", Align::Right, |row, _| of(row, 3)),
    cell("", Align::Left, |row, _| of(row, 4)),
    cell("USED", Align::Right, |row, _| of(row, 5)),
    Column {
        meaning: |row| row.is_throttled.then_some(Meaning::Waiting),
        ..cell("THROTTLED", Align::Right, |row, _| of(row, 6))
    },
    cell("SINCE", Align::Left, |row, _| of(row, 7)),
];

const GROUPS: &[Column<ObservedGroup>] = &[
    cell("CGROUP", Align::Left, |row, _| row.pod.clone()),
    cell("LIMIT", Align::Right, |row, _| {
        row.limit_milli.map_or_else(|| "none".to_owned(), milli)
    }),
    cell("USED", Align::Right, |row, _| {
        row.used_milli.map(milli).unwrap_or_default()
    }),
    cell("PEAK", Align::Right, |row, _| {
        row.peak_milli.map(milli).unwrap_or_default()
    }),
    cell("THROTTLED", Align::Right, |row, _| {
        percent(row.throttled_permille)
    }),
];

const fn cell<T>(head: &'static str, align: Align, cell: fn(&T, &Look) -> String) -> Column<T> {
    Column {
        head,
        align,
        shown: Shown::Always,
        cell,
        also: nothing_else,
        meaning: no_meaning,
    }
}

fn of(row: &Row, at: usize) -> String {
    row.cells.get(at).cloned().unwrap_or_default()
}

fn pod_rows(market: &NodeMarket, look: &Look) -> Vec<Row> {
    let mut rows: Vec<Row> = market.pods.iter().map(|pod| pod_row(pod, look)).collect();
    if rows.is_empty() {
        return rows;
    }
    let sum = |of: fn(&MarketPod) -> u64| milli(market.pods.iter().map(of).sum());
    let blank = || BLANK.to_owned();
    rows.push(Row {
        cells: [
            "total".to_owned(),
            blank(),
            sum(|pod| pod.need_milli),
            sum(|pod| pod.applied_milli),
            blank(),
            sum(|pod| pod.used_milli.unwrap_or(0)),
            blank(),
            blank(),
        ],
        is_throttled: false,
    });
    rows
}

fn pod_row(pod: &MarketPod, look: &Look) -> Row {
    Row {
        cells: [
            pod.pod.clone(),
            format!("{}-{}", pod.wrote.request_milli, pod.wrote.limit_milli),
            milli(pod.need_milli),
            milli(pod.applied_milli),
            look.bar(pod.applied_milli, pod.need_milli),
            pod.used_milli.map(milli).unwrap_or_default(),
            percent(pod.throttled_permille),
            pod.since.map(|since| look.age(since)).unwrap_or_default(),
        ],
        is_throttled: pod.throttled_permille >= THROTTLED_PERMILLE,
    }
}

/// `not managed: 6 pods, 300m (4 kube-system, 1 opted out, 1 static CPU manager)`.
fn not_managed(market: &NodeMarket) -> String {
    let count: u64 = market.unmanaged.iter().map(|without| without.count).sum();
    if count == 0 {
        return String::new();
    }
    let reasons = market
        .unmanaged
        .iter()
        .map(|without| format!("{} {}", without.count, without.reason));
    format!(
        "not managed: {}, {}m ({})\n",
        words::count(count, "pod"),
        market.unmanaged_milli,
        reasons.collect::<Vec<_>>().join(", ")
    )
}

fn observing(market: &NodeMarket) -> String {
    match &market.acts_reason {
        Some(reason) => format!("nothing is managed here: {reason}\n"),
        None => "nothing is managed here, only looked at: `bursar up --market act` lets it act on \
                 executions\nand on the cgroups that `[[cgroup]]` of the settings declares\n"
            .to_owned(),
    }
}

fn milli(milli: u64) -> String {
    format!("{milli}m")
}

fn percent(permille: u64) -> String {
    format!("{}%", fraction(permille.into(), 10, 0))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_client::api::{MarketActs, MarketHeld, NodeMarket, ObservedGroup};
    use bursar_units::Instant;

    use super::{node_text, text};
    use crate::layout::Look;

    /// The node of design 80, 2.13, as the API tells it.
    fn market() -> NodeMarket {
        serde_json::from_str(include_str!("../../tests/scenarios/market/w-17.json")).unwrap()
    }

    fn look() -> Look {
        Look {
            now: Instant::from_ms(market().at.ms()),
            zone: jiff::tz::TimeZone::UTC,
            utf8: true,
            color: false,
        }
    }

    #[test]
    fn the_transcript_of_the_design_is_word_for_word() {
        let expected = "\
node w-17: congested, price 1.88; 1500m to share (1800m allocatable less 300m unmanaged)
POD               WROTE      NEED  LIMIT               USED  THROTTLED  SINCE
batch/thumbs-x1   100-600    550m   340m  ██████░░░░   331m        31%  4m
shop/api-7c9f     100-1000  1000m   580m  █████░░░░░   566m        38%  4m
shop/search-5d2b  100-1000  1000m   580m  █████░░░░░   571m        36%  4m
total                       2550m  1500m              1468m
not managed: 6 pods, 300m (4 kube-system, 1 opted out, 1 static CPU manager)
";
        assert_eq!(text(&[market()], &look()), expected);
    }

    #[test]
    fn who_is_held_or_only_looked_at_is_named_and_nothing_is_cut() {
        let mut market = market();
        if let Some(pod) = market.pods.first_mut() {
            pod.held = Some(MarketHeld {
                reason: "conflict".to_owned(),
                words: "somebody else changed its limit".to_owned(),
            });
        }
        let held = node_text(&market, &look());
        let line = "left as it is: batch/thumbs-x1 (somebody else changed its limit)\n";
        assert!(held.contains(line), "{held}");
        market.acts = MarketActs::Observe;
        market.pods.clear();
        let group = |pod: &str, used_milli| ObservedGroup {
            pod: pod.to_owned(),
            limit_milli: None,
            used_milli,
            peak_milli: Some(40),
            throttled_permille: 0,
        };
        market.observed = vec![
            group("/a", None),
            group("/b", Some(3)),
            group("/c", Some(20)),
        ];
        let observed = node_text(&market, &look());
        let expected = "\
CGROUP  LIMIT  USED  PEAK  THROTTLED
/c       none   20m   40m         0%
/b       none    3m   40m         0%
/a       none     -   40m         0%
nothing is managed here, only looked at: `bursar up --market act` lets it act on executions
";
        assert!(observed.contains(expected), "{observed}");
    }
}
