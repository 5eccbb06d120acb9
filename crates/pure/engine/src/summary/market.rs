//! What happened to the CPU market of a node, in a sentence.

use bursar_market::clear;

use super::{Data, Told};
use crate::market::{Event, Labelled, Mode, Original, Position, Rules};
use crate::words;

/// An event of a market as it is told.
pub(super) fn told(event: &Event) -> Told {
    let (name, summary) = match event {
        Event::Set {
            node, rules, was, ..
        } => (
            "node.marketChanged",
            format!("{node}: {}", set(rules, was.as_ref())),
        ),
        Event::Labelled {
            node,
            labelled,
            was,
        } => (
            label_name(labelled.label),
            format!("{node}: {}", label(labelled, *was)),
        ),
        Event::Taken {
            node,
            pod,
            original,
            was,
        } => (
            "pod.originalTaken",
            format!("{pod} on {node} {}", taken(*original, *was)),
        ),
        Event::Returned {
            node,
            pod,
            original,
        } => (
            "pod.originalReturned",
            format!(
                "{pod} on {node} is given back: it came with {}",
                limit(*original)
            ),
        ),
        Event::Digested { node, digest, was } => (
            "node.marketDigested",
            format!("{node}: {}", digested(digest, was.as_ref())),
        ),
    };
    Told {
        name,
        object: match event.pod() {
            Some(pod) => format!("pod/{pod}"),
            None => format!("node/{}", event.node()),
        },
        tenant: None,
        class: None,
        summary,
        data: Data::Market(Box::new(event.clone())),
    }
}

const fn label_name(label: clear::Mode) -> &'static str {
    match label {
        clear::Mode::Uncongested => "node.uncongested",
        clear::Mode::Congested => "node.congested",
        clear::Mode::Overloaded => "node.overloaded",
    }
}

fn set(rules: &Rules, was: Option<&Rules>) -> String {
    let now = match rules.mode {
        Mode::Off => "is off",
        Mode::Observe => "observes",
        Mode::Act => "acts",
    };
    let before = was.map(|was| {
        let before = match was.mode {
            Mode::Off => "was off",
            Mode::Observe => "observed",
            Mode::Act => "acted",
        };
        format!("; it {before}, policy {}", was.policy.word())
    });
    format!(
        "the market {now}, policy {}, settings {}{}",
        rules.policy.word(),
        rules.sha256.short(),
        before.unwrap_or_default()
    )
}

fn label(labelled: &Labelled, was: clear::Mode) -> String {
    // Where nothing is shared any more nobody counts.
    if labelled.pods == 0 {
        return format!("{}, was {}", labelled.label.word(), was.word());
    }
    let verb = if labelled.pods == 1 { "needs" } else { "need" };
    format!(
        "{}, was {}: {} {verb} {}m, {}m can be shared",
        labelled.label.word(),
        was.word(),
        words::count(labelled.pods, "pod"),
        labelled.need_milli,
        labelled.capacity_milli
    )
}

fn taken(original: Original, was: Option<Original>) -> String {
    match was {
        None => format!(
            "takes part: it came with {}, which is kept",
            limit(original)
        ),
        Some(was) => format!(
            "has another original: {}, was {}",
            limit(original),
            limit(was)
        ),
    }
}

fn limit(Original(milli): Original) -> String {
    milli.map_or_else(
        || "no limit".to_owned(),
        |milli| format!("a limit of {milli}m"),
    )
}

fn digested(digest: &Position, was: Option<&Position>) -> String {
    let past = digest.since(was);
    let length = past
        .length
        .map(|length| format!(" in {}", words::length(length)));
    format!(
        "{}{}, {} written; its record stands at {}",
        words::count(past.lines, "line"),
        length.unwrap_or_default(),
        words::count(past.writes, "limit"),
        digest.head.short()
    )
}
