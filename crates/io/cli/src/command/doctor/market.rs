//! The finding of `bursar doctor` on each node whose CPU is shared.

use bursar_client::Client;
use bursar_client::api::{MarketActs, NodeMarket};
use bursar_engine::words;
use bursar_node::market::silent_ms;
use bursar_units::causes::chain;

use super::{Finding, fail, ok, warn};
use crate::command::spine::node::market_of;
use crate::layout::Look;
use crate::time::distance;

/// Reason of an unmanaged execution that asked for no CPU, which is normal.
const NO_QUOTA: &str = "no-quota";

/// A finding per node with an agent; none where the market is off.
pub(super) async fn findings(client: &Client, look: &Look) -> Vec<Finding> {
    let nodes = match client.nodes().await {
        Ok(nodes) => nodes.items,
        Err(error) => return vec![fail("market", chain(&error), None)],
    };
    let mut findings = Vec::new();
    for node in nodes {
        match market_of(client, &node.metadata.name).await {
            Ok(market) => findings.extend(market.map(|market| finding(&market, look))),
            Err(error) => findings.push(fail("market", chain(&error), None)),
        }
    }
    findings
}

fn finding(market: &NodeMarket, look: &Look) -> Finding {
    let node = &market.node;
    let last = market.agent.cleared_at.unwrap_or(market.at);
    let age = look.now.since(last);
    if silent_ms(last.ms(), market.agent.interval_ms, look.now.ms()).is_some() {
        let age = distance(age);
        let detail = format!("{node}: no report for {age}, its limits are held as they are");
        let hint = format!("`bursar node show {node}` shows its last report; restart the server");
        return fail("market", detail, Some(&hint));
    }
    let cleared = match market.agent.cleared_at {
        Some(_) => format!("cleared {} ago", distance(age)),
        None => "not cleared yet".to_owned(),
    };
    let detail = format!("{node}: {}, {cleared}", doing(market));
    let troubles = troubles(market);
    if troubles.is_empty() {
        return ok("market", detail);
    }
    warn("market", format!("{detail}; {}", troubles.join("; ")))
}

/// `acting on 3 of 14 cgroups`, `observing 14 cgroups`.
fn doing(market: &NodeMarket) -> String {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let managed = count(market.pods.len());
    let others: u64 = market.unmanaged.iter().map(|without| without.count).sum();
    let all = managed + others + count(market.observed.len());
    match market.acts {
        MarketActs::Act if managed == all => format!("acting on {}", words::count(all, "cgroup")),
        MarketActs::Act => {
            let managed = words::number(managed);
            format!("acting on {managed} of {}", words::count(all, "cgroup"))
        }
        MarketActs::Observe => format!("observing {}", words::count(all, "cgroup")),
    }
}

/// Differences from the settings, and errors.
fn troubles(market: &NodeMarket) -> Vec<String> {
    let mut troubles = Vec::new();
    troubles.extend(market.acts_reason.clone());
    for without in &market.unmanaged {
        if without.reason != NO_QUOTA {
            troubles.push(format!("{}: {}", without.pods.join(", "), without.words));
        }
    }
    let held = market.pods.iter().filter_map(|pod| {
        let held = pod.held.as_ref()?;
        Some(format!("{} is left as it is: {}", pod.pod, held.words))
    });
    troubles.extend(held);
    troubles.extend(market.agent.error.clone());
    troubles
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_client::api::{MarketActs, NodeMarket};
    use bursar_node::market::{SILENT_CLEARINGS, SILENT_MS_MIN};
    use bursar_units::Millis;

    use super::{Look, finding};
    use crate::command::doctor::text;

    /// The finding on node w-17, `seconds` after its last clearing.
    fn found(seconds: u64, change: impl FnOnce(&mut NodeMarket)) -> (String, Option<String>) {
        let file = include_str!("../../../tests/scenarios/market/w-17.json");
        let mut market: NodeMarket = serde_json::from_str(file).unwrap();
        market.unmanaged.clear();
        let look = Look {
            now: market.at.after(Millis::from_secs(seconds)),
            zone: jiff::tz::TimeZone::UTC,
            utf8: true,
            color: false,
        };
        change(&mut market);
        let finding = finding(&market, &look);
        (text(&finding, &look), finding.hint)
    }

    #[test]
    fn agents_that_act_observe_cannot_act_or_are_silent() {
        let (acts, _) = found(2, |_| {});
        assert_eq!(
            acts,
            "ok    market    w-17: acting on 3 cgroups, cleared 2s ago\n"
        );
        let (observes, _) = found(2, |market| market.acts = MarketActs::Observe);
        assert_eq!(
            observes,
            "ok    market    w-17: observing 3 cgroups, cleared 2s ago\n"
        );
        let (cannot, _) = found(2, |market| {
            market.acts = MarketActs::Observe;
            market.acts_reason = Some("no limit here may be written by this user".to_owned());
        });
        assert_eq!(
            cannot,
            "warn  market    w-17: observing 3 cgroups, cleared 2s ago; \
             no limit here may be written by this user\n"
        );
        let (silent, hint) = found(94, |_| {});
        assert_eq!(
            silent,
            "FAIL  market    w-17: no report for 94s, its limits are held as they are\n"
        );
        assert!(hint.unwrap().starts_with("`bursar node show w-17`"));
    }

    #[test]
    fn doctor_and_the_alert_agree_on_silence() {
        for (seconds, is_silent) in [(60, false), (61, true)] {
            let (text, _) = found(seconds, |_| {});
            assert_eq!(text.contains("no report"), is_silent, "{text}");
        }
        let (text, _) = found(61, |market| market.agent.interval_ms = 21_000);
        assert!(!text.contains("no report"), "{text}");
        let file = include_str!("../../../../../../deploy/alerts.yaml");
        let (_, alert) = file.split_once("alert: BursarAgentSilent").unwrap();
        let (_, most) = alert.split_once("clamp_min(").unwrap();
        assert!(
            most.starts_with(&format!("{SILENT_CLEARINGS} * ")),
            "{most}"
        );
        let (_, least) = most.split_once("[1d])), ").unwrap();
        assert!(
            least.starts_with(&format!("{})", SILENT_MS_MIN / 1_000)),
            "{least}"
        );
    }

    #[test]
    fn an_unmanaged_pod_is_named_unless_it_asked_for_no_cpu() {
        let without = |reason: &str| {
            found(2, |market| {
                let text = r#"{"reason": "", "words": "there is no such cgroup", "count": 1,
                               "pods": ["db"]}"#;
                let mut without: bursar_client::api::UnmanagedPods =
                    serde_json::from_str(text).unwrap();
                reason.clone_into(&mut without.reason);
                market.unmanaged.push(without);
            })
        };
        assert_eq!(
            without("missing").0,
            "warn  market    w-17: acting on 3 of 4 cgroups, cleared 2s ago; \
             db: there is no such cgroup\n"
        );
        assert_eq!(
            without("no-quota").0,
            "ok    market    w-17: acting on 3 of 4 cgroups, cleared 2s ago\n"
        );
    }
}
