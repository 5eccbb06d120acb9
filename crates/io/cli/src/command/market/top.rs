//! `bursar top`: need, limit and use of CPU for each pod of a node.

mod live;

use bursar_client::Client;
use bursar_client::api::{MarketActs, MarketKind, MarketPod, NodeMarket, ObservedGroup};
use bursar_engine::words;
use bursar_market::decimal::fraction;
use bursar_market::explain::headline;
use bursar_market::need::THROTTLED_PERMILLE;
use bursar_units::ObjectName;

use super::BLANK;
use super::scene::{is_measured, scene};
use crate::command::spine::node::{all_markets, mode_meaning};
use crate::failure::{Stop, not_a_list};
use crate::grammar::{Format, TopArguments};
use crate::layout::{self, Column, Look, Meaning, Shown, WIDTH};
use crate::list;
use crate::session::Session;

const NO_MARKET: &str =
    "no node here shares its CPU\n\nhint: `bursar up --market observe` starts an agent\n";

pub(in crate::command) async fn run(
    session: &mut Session,
    arguments: &TopArguments,
) -> Result<(), Stop> {
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
            session.print(&names.collect::<String>())
        }
        (Format::Csv, _, _) => Err(not_a_list().into()),
        (Format::Table | Format::Wide, [], _) => {
            session.aside(NO_MARKET);
            Ok(())
        }
        (Format::Table | Format::Wide, all, _) => {
            let page = Page::of(session, WIDTH);
            let text = text(all, &session.look(), page);
            session.print(&text)
        }
    }
}

/// The market of one node, or of all nodes that have an agent.
async fn fetch(client: &Client, node: Option<&ObjectName>) -> Result<Vec<NodeMarket>, Stop> {
    if let Some(node) = node {
        return Ok(vec![client.market(node).await?]);
    }
    Ok(all_markets(client).await?)
}

#[derive(Clone, Copy, Debug)]
struct Page {
    /// Shows all columns and idle cgroups.
    is_wide: bool,
    /// Longest line of text.
    columns: usize,
}

impl Page {
    fn of(session: &Session, columns: usize) -> Self {
        Self {
            is_wide: session.common.output == Format::Wide,
            columns: columns.min(WIDTH),
        }
    }
}

fn text(markets: &[NodeMarket], look: &Look, page: Page) -> String {
    let nodes = markets.iter().map(|market| node_text(market, look, page));
    nodes.collect::<Vec<_>>().join("\n")
}

fn node_text(market: &NodeMarket, look: &Look, page: Page) -> String {
    let first = match market.agent.cleared_at {
        Some(_) => headline(&scene(market)),
        None => format!("node {}: not cleared yet", market.node),
    };
    let meaning = match market.acts {
        MarketActs::Act => mode_meaning(market.mode),
        MarketActs::Observe => Meaning::Subject,
    };
    let first = layout::fold(&first, page.columns).join("\n  ");
    let mut text = look.paint(meaning, &first) + "\n";
    text.push_str(&match market.acts {
        MarketActs::Act => managed(market, look, page),
        MarketActs::Observe => observed(market, look, page),
    });
    text
}

fn managed(market: &NodeMarket, look: &Look, page: Page) -> String {
    let mut text = layout::table(PODS, &pod_rows(market, look), look, page.is_wide);
    for pod in &market.pods {
        if let Some(held) = &pod.held {
            text.extend(["left as it is: ", &pod.pod, " (", &held.words, ")\n"]);
        }
    }
    let is_new = market.pods.iter().any(|pod| !is_measured(pod));
    text + unmeasured(is_new) + &not_managed(market)
}

/// Pods and other cgroups in one table, because none is managed; pods come first.
fn observed(market: &NodeMarket, look: &Look, page: Page) -> String {
    let pods = market.pods.iter().map(ObservedRow::of_pod);
    let mut groups: Vec<ObservedRow> = market.observed.iter().map(ObservedRow::of_group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.used_milli));
    let count = groups.len();
    groups.retain(|group| page.is_wide || !group.is_idle());
    let idle = u64::try_from(count - groups.len()).unwrap_or(u64::MAX);
    let rows: Vec<ObservedRow> = pods.chain(groups).collect();
    let mut text = layout::table(OBSERVED, &rows, look, false);
    if idle > 0 {
        let cgroups = words::count(idle, "cgroup");
        let words = " that used less than 1m recently (`-o wide` shows them)\n";
        text.extend(["and ", &cgroups, words]);
    }
    let is_new = rows.iter().any(|row| row.peak_milli.is_none());
    text + unmeasured(is_new) + &not_managed(market) + &observing(market, page)
}

/// Legend of `-` for a number that is not known yet.
const fn unmeasured(is_any: bool) -> &'static str {
    if is_any { "-: not measured yet\n" } else { "" }
}

/// A pod or cgroup that is only observed.
struct ObservedRow {
    name: String,
    limit_milli: Option<u64>,
    used_milli: Option<u64>,
    peak_milli: Option<u64>,
    throttled_permille: u64,
}

impl ObservedRow {
    fn of_pod(pod: &MarketPod) -> Self {
        Self {
            name: pod.pod.clone(),
            limit_milli: pod.original_milli,
            used_milli: pod.used_milli,
            peak_milli: pod.asked.map(|asked| asked.size_milli),
            throttled_permille: pod.throttled_permille,
        }
    }

    fn of_group(group: &ObservedGroup) -> Self {
        Self {
            name: group.pod.clone(),
            limit_milli: group.limit_milli,
            used_milli: group.used_milli,
            peak_milli: group.peak_milli,
            throttled_permille: group.throttled_permille,
        }
    }

    /// True if it used nothing in the window, or since it was first measured.
    fn is_idle(&self) -> bool {
        self.peak_milli.or(self.used_milli) == Some(0)
    }
}

const OBSERVED: &[Column<ObservedRow>] = &[
    Column::of_text("OBSERVED", Shown::Always, |row, _| row.name.clone()),
    Column::of_count("LIMIT", Shown::Always, |row, _| {
        row.limit_milli.map_or_else(|| "none".to_owned(), milli)
    }),
    Column::of_count("USED", Shown::Always, |row, _| {
        row.used_milli.map(milli).unwrap_or_default()
    }),
    Column::of_count("PEAK", Shown::Always, |row, _| {
        row.peak_milli.map(milli).unwrap_or_default()
    }),
    Column::of_count("THROTTLED", Shown::Always, |row, _| {
        throttled(row.peak_milli.is_some(), row.throttled_permille)
    }),
];

/// A pod, or the sum of all.
struct Row {
    cells: [String; 8],
    is_throttled: bool,
}

const PODS: &[Column<Row>] = &[
    Column::of_text("POD", Shown::Always, |row, _| cell(row, 0)),
    Column::of_text("WROTE", Shown::Room(1), |row, _| cell(row, 1)),
    Column::of_count("NEED", Shown::Always, |row, _| cell(row, 2)),
    Column::of_count("LIMIT", Shown::Always, |row, _| cell(row, 3)),
    Column::of_text("", Shown::Room(2), |row, _| cell(row, 4)),
    Column::of_count("USED", Shown::Always, |row, _| cell(row, 5)),
    Column {
        meaning: |row| row.is_throttled.then_some(Meaning::Waiting),
        ..Column::of_count("THROTTLED", Shown::Always, |row, _| cell(row, 6))
    },
    Column::of_text("SINCE", Shown::Room(3), |row, _| cell(row, 7)),
];

fn cell(row: &Row, at: usize) -> String {
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
            throttled(is_measured(pod), pod.throttled_permille),
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
    let mut pods = market.pods.iter();
    let is_kubernetes = pods.any(|pod| pod.kind == MarketKind::Kubernetes);
    let what = match market.acts {
        // Without Kubernetes the unmanaged CPU includes more than these pods.
        MarketActs::Act if is_kubernetes => format!(
            "not managed: {}, {}m",
            words::count(count, "pod"),
            market.unmanaged_milli
        ),
        MarketActs::Act => format!("not managed: {}", words::count(count, "pod")),
        MarketActs::Observe => format!("could not be managed: {}", words::count(count, "pod")),
    };
    let reasons = market.unmanaged.iter();
    let reasons = reasons.map(|without| format!("{} {}", without.count, without.reason));
    format!("{what} ({})\n", reasons.collect::<Vec<_>>().join(", "))
}

/// The reason why nothing is managed.
fn observing(market: &NodeMarket, page: Page) -> String {
    let words = match &market.acts_reason {
        Some(reason) => format!("nothing is managed here: {reason}"),
        None => "nothing is managed here: `bursar up --market act` lets it act on executions and \
                 on the cgroups that `[[cgroup]]` of the settings declares"
            .to_owned(),
    };
    layout::fold(&words, page.columns).join("\n") + "\n"
}

fn milli(milli: u64) -> String {
    format!("{milli}m")
}

/// Share of throttled periods; empty before the first measurement.
fn throttled(is_measured: bool, permille: u64) -> String {
    if !is_measured {
        return String::new();
    }
    format!("{}%", fraction(permille.into(), 10, 0))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

    use bursar_client::api::{MarketActs, MarketHeld, NodeMarket, ObservedGroup};
    use bursar_units::Instant;

    use super::{Page, node_text, text};
    use crate::layout::Look;

    const PAGE: Page = Page {
        is_wide: false,
        columns: 100,
    };

    fn market() -> NodeMarket {
        serde_json::from_str(include_str!("../../../tests/scenarios/market/w-17.json")).unwrap()
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
    fn a_congested_node_is_one_table() {
        let expected = "\
node w-17: congested, price 1.92; 1500m to share (1800m allocatable less 300m unmanaged)
POD               WROTE      NEED  LIMIT               USED  THROTTLED  SINCE
batch/thumbs-x1   100-600    600m   370m  ██████░░░░   362m        31%  4m
shop/api-7c9f     100-1000  1000m   580m  █████░░░░░   566m        38%  4m
shop/search-5d2b  100-1000  1000m   550m  █████░░░░░   541m        36%  4m
total                       2600m  1500m              1469m
not managed: 6 pods, 300m (4 kube-system, 1 opted out, 1 static CPU manager)
";
        assert_eq!(text(&[market()], &look(), PAGE), expected);
    }

    #[test]
    fn held_and_unmeasured_pods_are_marked() {
        let mut market = market();
        let [held, new, _] = market.pods.as_mut_slice() else {
            panic!("the node has three pods");
        };
        held.held = Some(MarketHeld {
            reason: "conflict".to_owned(),
            words: "somebody else changed its limit".to_owned(),
        });
        (new.asked, new.used_milli, new.throttled_permille) = (None, None, 0);
        let text = node_text(&market, &look(), PAGE);
        let line = "left as it is: batch/thumbs-x1 (somebody else changed its limit)\n";
        assert!(text.contains(line), "{text}");
        let row = "shop/api-7c9f     100-1000  1000m   580m  █████░░░░░     -          -  4m\n";
        assert!(text.contains(row), "{text}");
        assert_eq!(text.matches("-: not measured yet\n").count(), 1, "{text}");
    }

    #[test]
    fn long_names_drop_columns_and_are_never_cut() {
        let mut market = market();
        let name = "e-acme-01a1e2d5-90d4-7010-8dc7-bccd4008ddc4";
        name.clone_into(&mut market.pods.first_mut().unwrap().pod);
        let text = node_text(&market, &look(), PAGE);
        assert!(text.contains(name) && !text.contains("SINCE"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        let wide = Page {
            is_wide: true,
            ..PAGE
        };
        assert!(node_text(&market, &look(), wide).contains("SINCE"));
    }

    #[test]
    fn an_observed_node_has_a_table_without_market_columns() {
        let mut market = market();
        market.acts = MarketActs::Observe;
        market.pods.truncate(1);
        let group = |pod: &str, used_milli, peak_milli| ObservedGroup {
            pod: pod.to_owned(),
            limit_milli: None,
            used_milli,
            peak_milli,
            throttled_permille: 0,
        };
        market.observed = vec![
            group("/a", None, None),
            group("/b", Some(3), Some(40)),
            group("/c", Some(20), Some(40)),
            group("/idle", Some(0), Some(0)),
        ];
        let expected = "\
node w-17: only observed; would be congested, price 1.92
OBSERVED         LIMIT  USED  PEAK  THROTTLED
batch/thumbs-x1   600m  362m  394m        31%
/c                none   20m   40m         0%
/b                none    3m   40m         0%
/a                none     -     -          -
and 1 cgroup that used less than 1m recently (`-o wide` shows them)
-: not measured yet
could not be managed: 6 pods (4 kube-system, 1 opted out, 1 static CPU manager)
nothing is managed here: `bursar up --market act` lets it act on executions and on the cgroups that
`[[cgroup]]` of the settings declares
";
        assert_eq!(node_text(&market, &look(), PAGE), expected);
        let wide = node_text(
            &market,
            &look(),
            Page {
                is_wide: true,
                ..PAGE
            },
        );
        assert!(
            wide.contains("/idle ") && !wide.contains("and 1 "),
            "{wide}"
        );
    }
}
