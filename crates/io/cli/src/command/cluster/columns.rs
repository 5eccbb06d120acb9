//! The columns of runs and leases.

use bursar_client::api::cluster::{GpuLease, LeasePayer, Run, RunClaim, RunStatus};
use bursar_engine::cluster::budget::Class;
use bursar_engine::cluster::explain::WaitReason;
use bursar_engine::cluster::{Outcome, Reason, Stage};
use bursar_engine::words;
use bursar_units::ObjectName;

use crate::layout::{Column, Look, Meaning, Shown, number_or_dash};
use crate::list::Listed;

impl Listed for Run {
    const KIND: &'static str = "run";
    const NONE: &'static str = "no runs";
    const FIRST: &'static str =
        "`bursar run submit -f run.yaml` submits one, docs/runs.md shows the file";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<Run>] = &[
            Column::of_text("RUN", Shown::Always, |row, _| row.name()),
            Column::of_text("OWNER", Shown::Always, |row, _| {
                let owner = row.spec.owner.as_ref();
                owner.map(ToString::to_string).unwrap_or_default()
            }),
            Column {
                also: |row| {
                    let state = row.status.as_ref().map(|status| status.state.word());
                    state.map(str::to_owned).into_iter().collect()
                },
                meaning: |row| row.status.as_deref().map(state_meaning),
                ..Column::of_text("STATE", Shown::Always, |row, _| {
                    of_status(row, |status| state_word(status).to_owned())
                })
            },
            Column::of_count("GPUS", Shown::Always, |row, _| {
                of_status(row, |status| {
                    let (held, asked) = (status.gpus, status.gpus_asked);
                    format!("{}/{}", words::number(held), words::number(asked))
                })
            }),
            Column::of_text("FUNDED", Shown::Always, |row, _| {
                of_status(row, |status| funded(&status.claims))
            }),
            Column::of_count("AGE", Shown::Room(2), |row, look| {
                of_status(row, |status| look.age(status.since))
            }),
            Column::of_text("NEXT", Shown::Room(1), |row, look| {
                of_status(row, |status| next(status, look))
            }),
            Column::of_text("FLAVOR", Shown::Wide, |row, _| row.spec.flavor.to_string()),
            Column::of_text("WHERE", Shown::Wide, |row, _| {
                of_status(row, |status| nodes_words(&status.nodes))
            }),
            Column::of_text("PAID BY", Shown::Wide, |row, _| {
                of_status(row, |status| paid_by(&status.claims))
            }),
            Column::of_count("PRIORITY", Shown::Wide, |row, _| {
                row.spec.priority.unwrap_or_default().to_string()
            }),
            Column::of_count("PLACE", Shown::Wide, |row, _| {
                of_status(row, |status| number_or_dash(status.place))
            }),
            Column::of_count("INCARNATION", Shown::Wide, |row, _| {
                of_status(row, |status| words::number(status.incarnation))
            }),
            Column::of_text("WAITS FOR", Shown::Wide, |row, _| {
                of_status(row, |status| {
                    let cause = status.waits_for.map(|cause| cause.word().to_owned());
                    cause.unwrap_or_default()
                })
            }),
            Column::of_text("REASON", Shown::Wide, |row, _| {
                of_status(row, |status| {
                    let wait = status.reason.map(WaitReason::word);
                    let end = status.ended_by.map(Reason::word);
                    wait.or(end).unwrap_or_default().to_owned()
                })
            }),
            Column::of_text("UID", Shown::Wide, |row, _| {
                of_status(row, |status| status.uid.clone())
            }),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        let namespace = self.metadata.namespace.as_ref();
        let namespace = namespace.map_or(bursar_units::DEFAULT_NAMESPACE, ObjectName::as_str);
        format!("{namespace}/{}", self.metadata.name)
    }
}

fn of_status(row: &Run, text: impl Fn(&RunStatus) -> String) -> String {
    row.status.as_deref().map(text).unwrap_or_default()
}

/// State of a run; of one that did not end well its outcome.
fn state_word(status: &RunStatus) -> &'static str {
    match (status.state, status.outcome) {
        (Stage::Ended, Some(outcome @ (Outcome::Failed | Outcome::Cancelled))) => outcome.word(),
        (state, _) => state.word(),
    }
}

/// `waiting for room`, `running`, `failed: Walltime`.
pub(super) fn state_words(status: &RunStatus) -> String {
    let word = state_word(status);
    match (status.state, status.waits_for, status.ended_by) {
        (Stage::Waiting, Some(cause), _) => format!("{word} for {}", cause.word()),
        (Stage::Ended, _, Some(reason))
            if status.outcome == Some(Outcome::Failed)
                && !reason.word().eq_ignore_ascii_case(word) =>
        {
            format!("{word}: {}", reason.word())
        }
        _ => word.to_owned(),
    }
}

fn state_meaning(status: &RunStatus) -> Meaning {
    match (status.state, status.outcome) {
        (Stage::Waiting | Stage::Starting | Stage::Ending, _) => Meaning::Waiting,
        (Stage::Running, _) => Meaning::Good,
        (Stage::Ended, Some(Outcome::Failed)) => Meaning::Bad,
        (Stage::Ended, _) => Meaning::Dim,
    }
}

/// `8 Owned, 8 Borrowed`.
pub(super) fn funded(claims: &[RunClaim]) -> String {
    let of_class = |class: Class| {
        let claims = claims.iter().filter(|claim| claim.class == class);
        let gpus: u64 = claims.map(|claim| claim.gpus).sum();
        (gpus > 0).then(|| format!("{} {}", words::number(gpus), class.word()))
    };
    let parts: Vec<String> = Class::ALL.into_iter().filter_map(of_class).collect();
    parts.join(", ")
}

/// GPUs that nobody pays for.
pub(super) fn unfunded(claims: &[RunClaim]) -> u64 {
    let claims = claims.iter().filter(|claim| claim.class == Class::Unfunded);
    claims.map(|claim| claim.gpus).sum()
}

/// `rai/q4/h100`, or `8 rai/q4/h100, 8 bio/q4/h100` for several payers.
pub(super) fn paid_by(claims: &[RunClaim]) -> String {
    let mut payers: Vec<(&str, u64)> = Vec::new();
    for claim in claims {
        let payer = claim.envelope.as_deref().unwrap_or("nobody");
        match payers.iter_mut().find(|(known, _)| *known == payer) {
            Some((_, gpus)) => *gpus = gpus.saturating_add(claim.gpus),
            None => payers.push((payer, claim.gpus)),
        }
    }
    match payers.as_slice() {
        [(payer, _)] => (*payer).to_owned(),
        payers => {
            let parts = payers.iter();
            let parts = parts.map(|(payer, gpus)| format!("{} {payer}", words::number(*gpus)));
            parts.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The next known event.
fn next(status: &RunStatus, look: &Look) -> String {
    let ahead = |at: &bursar_units::Instant| look.now < *at;
    if let Some(at) = status.stops_at.filter(ahead) {
        return format!("killed {}", look.coming(at));
    }
    let end = status.stated_end.filter(ahead);
    end.map(|at| format!("end {}", look.coming(at)))
        .unwrap_or_default()
}

/// Names of nodes, with runs of consecutive numbers as ranges: `a01–a04,b07`.
pub(super) fn nodes_words(nodes: &[ObjectName]) -> String {
    let mut ranges: Vec<(&str, &str)> = Vec::new();
    for node in nodes.iter().map(ObjectName::as_str) {
        match ranges.last_mut() {
            Some((_, last)) if follows(last, node) => *last = node,
            _ => ranges.push((node, node)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| {
        if first == last {
            (*first).to_owned()
        } else {
            format!("{first}–{last}")
        }
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// Whether the second name is the first with its last number raised by one.
fn follows(first: &str, second: &str) -> bool {
    let split = |name: &str| {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let digits = name.strip_prefix(stem)?;
        Some((stem.to_owned(), digits.len(), digits.parse::<u64>().ok()?))
    };
    match (split(first), split(second)) {
        (Some((stem, width, number)), Some((stem_2, width_2, number_2))) => {
            stem == stem_2 && width == width_2 && number.checked_add(1) == Some(number_2)
        }
        _ => false,
    }
}

impl Listed for GpuLease {
    const KIND: &'static str = "lease";
    const NONE: &'static str = "no leases";
    const FIRST: &'static str = "`bursar runs -A` lists runs, which hold them";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<GpuLease>] = &[
            Column::of_text("RUN", Shown::Always, |row, _| row.run.clone()),
            Column::of_text("NODE", Shown::Always, |row, _| row.node.to_string()),
            Column::of_count("GPUS", Shown::Always, |row, _| words::number(row.gpus)),
            Column::of_text("ROLE", Shown::Room(2), |row, _| row.role.clone()),
            Column::of_text("PAID BY", Shown::Always, |row, _| payers(&row.paid_by)),
            Column::of_text("FROM", Shown::Always, |row, look| look.absolute(row.from)),
            Column::of_text("TO", Shown::Always, |row, look| {
                row.to.map(|at| look.absolute(at)).unwrap_or_default()
            }),
            Column::of_text("ENDED BY", Shown::Room(1), |row, _| {
                let reason = row.ended_by.map(|reason| reason.word().to_owned());
                reason.unwrap_or_default()
            }),
            Column::of_text("LEASE", Shown::Wide, |row, _| row.lease.clone()),
            Column::of_text("OWNER", Shown::Wide, |row, _| row.owner.to_string()),
            Column::of_text("FLAVOR", Shown::Wide, |row, _| row.flavor.to_string()),
            Column::of_text("CLASS", Shown::Wide, |row, _| {
                let classes = row.paid_by.iter().map(|payer| payer.class.word());
                classes.collect::<Vec<_>>().join(", ")
            }),
            Column::of_count("INCARNATION", Shown::Wide, |row, _| {
                words::number(row.incarnation)
            }),
            Column::of_count("GROUP", Shown::Wide, |row, _| words::number(row.group)),
            Column::of_count("POD", Shown::Wide, |row, _| words::number(row.pod)),
            Column::of_text("ORDINALS", Shown::Wide, |row, _| row.ordinals.clone()),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        self.lease.clone()
    }
}

fn payers(payers: &[LeasePayer]) -> String {
    let names = payers.iter();
    let names = names.map(|payer| payer.envelope.as_deref().unwrap_or("nobody"));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use bursar_client::api::cluster::RunClaim;
    use bursar_engine::cluster::budget::Class;
    use bursar_units::ObjectName;

    use super::{funded, nodes_words, paid_by};

    #[test]
    fn consecutive_nodes_are_a_range() {
        for (nodes, expected) in [
            (&["a01"][..], "a01"),
            (&["a01", "a02", "a03"], "a01–a03"),
            (&["a01", "a02", "b03", "b05"], "a01–a02,b03,b05"),
            (&["a9", "a10"], "a9,a10"),
            (&["east", "west"], "east,west"),
        ] {
            let nodes: Vec<ObjectName> = nodes.iter().map(|name| ObjectName::known(name)).collect();
            assert_eq!(nodes_words(&nodes), expected);
        }
    }

    fn claim(envelope: Option<&str>, class: Class, gpus: u64) -> RunClaim {
        RunClaim {
            envelope: envelope.map(str::to_owned),
            pool: None,
            class,
            gpus,
            until: None,
            overruns: false,
        }
    }

    #[test]
    fn payers_and_classes_are_summed() {
        let claims = [
            claim(Some("rai/q4/h100"), Class::Owned, 4),
            claim(Some("bio/q4/h100"), Class::Borrowed, 8),
            claim(Some("rai/q4/h100"), Class::Owned, 4),
        ];
        assert_eq!(funded(&claims), "8 Owned, 8 Borrowed");
        assert_eq!(paid_by(&claims), "8 rai/q4/h100, 8 bio/q4/h100");
        assert_eq!(paid_by(&claims[..1]), "rai/q4/h100");
        assert_eq!(funded(&[claim(None, Class::Unfunded, 2)]), "2 Unfunded");
        assert_eq!(paid_by(&[claim(None, Class::Unfunded, 2)]), "nobody");
        assert_eq!((funded(&[]), paid_by(&[])), (String::new(), String::new()));
    }
}
