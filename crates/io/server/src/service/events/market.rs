//! What is said of the CPU market.

use bursar_client::api::instant;
use bursar_engine::market::{Event, Original, Position, Rules};
use serde_json::{Value, json};

/// The facts of an event of a market.
pub(super) fn facts(event: &Event) -> Value {
    match event {
        Event::Set { rules, was, .. } => {
            let mut value = of_rules(rules);
            value["was"] = was.as_ref().map_or(Value::Null, of_rules);
            value
        }
        Event::Labelled { labelled, was, .. } => json!({
            "label": labelled.label.word(),
            "was": was.word(),
            "pods": labelled.pods,
            "needMilli": labelled.need_milli,
            "capacityMilli": labelled.capacity_milli,
        }),
        Event::Taken {
            node,
            original: Original(milli),
            was,
            ..
        } => json!({
            "node": node.as_str(),
            "milli": milli,
            "was": was.map(|Original(milli)| json!({"milli": milli})),
        }),
        Event::Returned {
            node,
            original: Original(milli),
            ..
        } => json!({"node": node.as_str(), "milli": milli}),
        Event::Digested { digest, was, .. } => of_digest(digest, was.as_ref()),
    }
}

fn of_rules(rules: &Rules) -> Value {
    json!({
        "mode": rules.mode.word(),
        "policy": rules.policy.word(),
        "sha256": rules.sha256,
    })
}

fn of_digest(digest: &Position, was: Option<&Position>) -> Value {
    let past = digest.since(was);
    let from = past.length.map(|length| digest.at.before(length));
    json!({
        "from": from.map(instant::format),
        "to": instant::format(digest.at),
        "lines": past.lines,
        "writes": past.writes,
        "head": digest.head,
    })
}
