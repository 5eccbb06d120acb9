//! Sentences of the CPU market of a node.

use bursar_plane::Notice;
use bursar_units::words;

use super::{Event, Mode, Original, Position, Rules};
use crate::clear;

/// The notice of an event.
pub(super) fn notice(event: &Event) -> Notice<Box<Event>> {
    let (stream, summary) = match event {
        Event::Set {
            node,
            mode,
            policy,
            sha256,
            was,
            ..
        } => {
            let rules = Rules {
                mode: *mode,
                policy: *policy,
                sha256: *sha256,
            };
            let says = set(&rules, was.as_ref());
            ("node.marketChanged", format!("{node}: {says}"))
        }
        Event::Labelled {
            node,
            label: labelled,
            was,
            pods,
            need_milli,
            capacity_milli,
        } => {
            let says = label(*labelled, *was, (*pods, *need_milli, *capacity_milli));
            (label_name(*labelled), format!("{node}: {says}"))
        }
        Event::Taken {
            node,
            pod,
            milli,
            was,
        } => (
            "pod.originalTaken",
            format!("{pod} on {node} {}", taken(*milli, *was)),
        ),
        Event::Returned { node, pod, milli } => (
            "pod.originalReturned",
            format!(
                "{pod} on {node} is given back: it came with {}",
                limit(*milli)
            ),
        ),
        Event::Digested { node, digest, was } => (
            "node.marketDigested",
            format!("{node}: {}", digested(digest, was.as_ref())),
        ),
    };
    let object = match event.pod() {
        Some(pod) => format!("pod/{pod}"),
        None => format!("node/{}", event.node()),
    };
    Notice::new(stream, object, summary, Box::new(event.clone()))
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

fn label(
    label: clear::Mode,
    was: clear::Mode,
    (pods, need_milli, capacity_milli): (u64, u64, u64),
) -> String {
    // Where nothing is shared any more nobody counts.
    if pods == 0 {
        return format!("{}, was {}", label.word(), was.word());
    }
    let verb = if pods == 1 { "needs" } else { "need" };
    format!(
        "{}, was {}: {} {verb} {need_milli}m, {capacity_milli}m can be shared",
        label.word(),
        was.word(),
        words::count(pods, "pod"),
    )
}

fn taken(milli: Option<u64>, was: Option<Original>) -> String {
    match was {
        None => format!("takes part: it came with {}, which is kept", limit(milli)),
        Some(was) => format!(
            "has another original: {}, was {}",
            limit(milli),
            limit(was.milli)
        ),
    }
}

fn limit(milli: Option<u64>) -> String {
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
