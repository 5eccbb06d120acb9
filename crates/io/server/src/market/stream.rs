//! Stream data of the CPU market: its recorded events, and each change of a limit.
//!
//! A change of a limit is a live event without a record: it has no position in the stream, and slow
//! clients may miss it.

use bursar_client::api::{StreamEvent, instant};
use bursar_engine::market::{Event, Original, Position, Rules};
use bursar_node::market::Resize;
use bursar_units::Instant;
use serde_json::{Value, json};

use crate::service::without_nulls;

pub(crate) const RESIZED: &str = "pod.resized";

pub(crate) fn facts(event: &Event) -> Value {
    match event {
        Event::Set {
            mode,
            policy,
            sha256,
            was,
            ..
        } => json!({
            "mode": mode.word(),
            "policy": policy.word(),
            "sha256": sha256,
            "was": was.as_ref().map(of_rules),
        }),
        Event::Labelled {
            node: _,
            label,
            was,
            pods,
            need_milli,
            capacity_milli,
        } => json!({
            "label": label.word(),
            "was": was.word(),
            "pods": pods,
            "needMilli": need_milli,
            "capacityMilli": capacity_milli,
        }),
        Event::Taken {
            node, milli, was, ..
        } => json!({
            "node": node.as_str(),
            "milli": milli,
            "was": was.map(|Original { milli }| json!({"milli": milli})),
        }),
        Event::Returned { node, milli, .. } => json!({"node": node.as_str(), "milli": milli}),
        Event::Digested { digest, was, .. } => of_digest(digest, was.as_ref()),
    }
}

/// The event of a limit that was written and read back.
pub(crate) fn resized(resize: &Resize) -> StreamEvent {
    let may = match resize.to_milli {
        None => "all CPU there is".to_owned(),
        Some(milli) => format!("{milli}m of CPU"),
    };
    let before = match resize.from_milli {
        None => "all there is".to_owned(),
        Some(milli) => format!("{milli}m"),
    };
    let (pod, mode) = (&resize.pod, resize.label.word());
    StreamEvent {
        at: Instant::from_ms(resize.at_ms),
        object: format!("pod/{pod}"),
        summary: format!(
            "{pod} may use {may}, {before} before: it needs {}m, the node is {mode}",
            resize.need_milli
        ),
        data: without_nulls(json!({
            "node": resize.node,
            "pod": pod,
            "fromMilli": resize.from_milli,
            "toMilli": resize.to_milli,
            "needMilli": resize.need_milli,
            "mode": mode,
        })),
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
