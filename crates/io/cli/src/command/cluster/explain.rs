//! `bursar explain` of a run: who holds the GPUs, who pays, and what would change it.

use bursar_client::api::{Explanation, Who};
use bursar_client::problem::Holder;
use bursar_engine::cluster::budget::Class;
use bursar_engine::explain::WaitsFor;
use bursar_engine::words;

use crate::grammar::Question;
use crate::layout::{Column, Look, Meaning, Shown, WIDTH, escaped_line, fold, table};

/// Width of the label before each part.
const LABEL: usize = 8;

const HOLDERS: &[Column<Holder>] = &[
    Column::of_text("RUN", Shown::Always, |row, _| run_name(row).to_owned()),
    Column::of_text("OWNER", Shown::Always, |row, _| {
        let owner = row.owner.as_ref();
        owner.map(ToString::to_string).unwrap_or_default()
    }),
    Column::of_count("GPUS", Shown::Always, |row, _| words::number(row.gpus)),
    Column::of_text("STATED END", Shown::Always, |row, look| {
        row.stated_end.map(|at| look.coming(at)).unwrap_or_default()
    }),
];

/// The explanation of a run as text.
pub(in crate::command) fn text(
    explanation: &Explanation,
    question: Option<Question>,
    look: &Look,
) -> String {
    let is_asked = |one: Question| question.is_none_or(|question| question == one);
    let mut parts: Vec<(&str, Vec<String>)> = Vec::new();
    if is_asked(Question::Why) {
        parts.push(("WHY", why(explanation, look)));
    }
    if is_asked(Question::Who) {
        let total = explanation.who.iter().map(gpus).sum();
        let is_waiting = explanation.waits_for.is_some();
        let payers = explanation
            .who
            .iter()
            .map(|who| payer(who, total, is_waiting));
        parts.push(("WHO", payers.collect()));
    }
    if question.is_none() {
        parts.push(("SOONER", explanation.changes.clone()));
        parts.push(("NOTE", explanation.note.iter().cloned().collect()));
        let ahead = explanation.why.as_ref().and_then(|why| why.ahead);
        parts.push(("AHEAD", ahead.map(ahead_words).into_iter().collect()));
    }
    let mut text = String::new();
    for line in fold(&explanation.headline, WIDTH) {
        text.push_str(&look.paint(Meaning::Subject, &line));
        text.push('\n');
    }
    parts.retain(|(_, lines)| !lines.is_empty());
    if !parts.is_empty() {
        text.push('\n');
    }
    for (label, lines) in parts {
        for (at, line) in lines.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let line = escaped_line(line);
            text.push_str(format!("{label:<LABEL$}{line}").trim_end());
            text.push('\n');
        }
    }
    text
}

/// The holders as a table, by name.
fn why(explanation: &Explanation, look: &Look) -> Vec<String> {
    // Holders say nothing about a window that is still to open.
    let is_held = explanation.waits_for != Some(WaitsFor::After);
    let Some(why) = explanation.why.as_ref().filter(|_| is_held) else {
        return Vec::new();
    };
    let mut holders = why.holders.clone();
    holders.sort_by(|one, other| run_name(one).cmp(run_name(other)));
    let plain = Look {
        color: false,
        ..look.clone()
    };
    let table = table(HOLDERS, &holders, &plain, false);
    table.lines().map(str::to_owned).collect()
}

fn run_name(holder: &Holder) -> &str {
    let object = holder.object.as_deref().unwrap_or("others");
    object.strip_prefix("run/").unwrap_or(object)
}

fn gpus(who: &Who) -> u64 {
    match who {
        Who::Counted { .. } => 0,
        Who::Pays { gpus, .. } => *gpus,
    }
}

/// `speech/q4/h100 pays for all 24 (own, 0/32 free), holds ahead 1,152 GPU-hours`; of a waiting run,
/// what would be if it started now.
fn payer(who: &Who, total: u64, is_waiting: bool) -> String {
    let Who::Pays {
        envelope,
        gpus,
        class,
        held_gpu_ms,
        gpus_free,
        gpus_limit,
        bound,
    } = who
    else {
        return String::new();
    };
    let payer = envelope.as_deref().unwrap_or("nobody");
    let all = if *gpus == total && bound.is_none() {
        "all "
    } else {
        ""
    };
    let bound = bound.as_ref().map(|bound| format!(": {bound}"));
    let right = match class {
        Class::Owned => "own",
        Class::Shared => "family",
        Class::Borrowed => "lent",
        Class::Unfunded => "unfunded",
    };
    let free = gpus_free.zip(*gpus_limit);
    let free = free
        .map(|(free, limit)| format!(", {}/{} free", words::number(free), words::number(limit)));
    let held = held_gpu_ms.filter(|held| *held > 0);
    let (pays, holds) = if is_waiting {
        ("would pay", "would hold")
    } else {
        ("pays", "holds")
    };
    let held = held.map(|ms| format!(", {holds} ahead {}", words::gpu_hours(ms)));
    format!(
        "{payer} {pays} for {all}{} ({right}{}){}{}",
        words::number(*gpus),
        free.unwrap_or_default(),
        held.unwrap_or_default(),
        bound.unwrap_or_default()
    )
}

fn ahead_words(ahead: u64) -> String {
    match ahead {
        0 => "nobody waits before it".to_owned(),
        1 => "1 run waits before it".to_owned(),
        ahead => format!("{} runs wait before it", words::number(ahead)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_client::api::Explanation;
    use bursar_units::Instant;

    use super::text;
    use crate::grammar::Question;
    use crate::layout::Look;

    const ANSWER: &str = r#"{
        "object": {"kind": "Run", "namespace": "speech", "name": "asr-xl"},
        "headline": "speech/asr-xl waits for room, not for budget",
        "state": "waiting", "waitsFor": "room", "reason": "NoRoom",
        "why": {"needed": 24, "free": 0, "ahead": 0, "holders": [
            {"object": "run/rai/llm-7b", "owner": "org:ai:rai", "gpus": 32,
             "statedEnd": "2026-11-17T09:00:00.000Z"},
            {"object": "run/rai/eval-sweep", "owner": "org:ai:rai", "gpus": 16}]},
        "who": [{"envelope": "speech/q4/h100", "gpus": 24, "class": "Owned",
                 "heldGpuMs": 4147200000, "gpusFree": 24, "gpusLimit": 32}],
        "changes": ["ask for fewer GPUs"], "record": 48101}"#;

    #[test]
    fn a_waiting_run_is_explained_with_its_holders_and_payers() {
        let explanation: Explanation = serde_json::from_str(ANSWER).unwrap();
        let look = Look {
            now: Instant::from_ms(1_794_823_200_000),
            zone: jiff::tz::TimeZone::UTC,
            utf8: true,
            color: false,
        };
        let expected = "speech/asr-xl waits for room, not for budget

WHY     RUN             OWNER       GPUS  STATED END
        rai/eval-sweep  org:ai:rai    16  -
        rai/llm-7b      org:ai:rai    32  Tue 17 Nov 09:00
WHO     speech/q4/h100 would pay for all 24 (own, 24/32 free), would hold ahead 1,152 GPU-hours
SOONER  ask for fewer GPUs
AHEAD   nobody waits before it\n";
        assert_eq!(text(&explanation, None, &look), expected);
        let who = text(&explanation, Some(Question::Who), &look);
        assert_eq!(who.lines().count(), 3, "{who}");
    }
}
