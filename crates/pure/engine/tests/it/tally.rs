//! The independent counts of `ledger check`: they agree with a good journal, and find a forged one.

use std::collections::BTreeSet;

use bursar_engine::cluster::Event as Cluster;
use bursar_engine::cluster::budget::{EnvelopeId, Pool};
use bursar_engine::codec::decode_events;
use bursar_engine::tally::{Finding, Tally};
use bursar_engine::{Event, Events, State, dated, spine};
use bursar_units::{Instant, Millis};

use crate::{runs, script, world::World};

/// Changes an event; whether it is one of those to change.
type Forge = fn(&mut Cluster) -> bool;

type Records = Vec<(Instant, Events)>;

/// A life with budgets, leases, refunds and every end of a run.
fn records() -> Records {
    let mut world = World::new();
    runs::cluster(&mut world);
    let journal = (0..).zip(&world.journal);
    journal
        .map(|(seq, bytes)| decode_events(seq, bytes, |_| None).unwrap())
        .collect()
}

/// The findings about records, with those before `start` already folded.
fn findings(records: &Records, start: usize) -> Vec<Finding> {
    let mut state = State::default();
    for (time, events) in &records[..start] {
        state.apply_record(*time, events);
    }
    let mut tally = Tally::of(&state);
    for (seq, (time, events)) in (0..).zip(records).skip(start) {
        for (at, event) in dated(*time, events) {
            state.apply(at, event);
            tally.take(seq, at, event);
        }
        state.spine.head += 1;
        tally.end_record(seq);
    }
    tally.findings(&state)
}

fn finding(records: &Records, name: &str) -> Finding {
    let findings = findings(records, 0);
    let mut named = findings.into_iter().filter(|finding| finding.name == name);
    named.next().unwrap()
}

#[test]
fn occupied_time_is_debited_or_unfunded_to_the_millisecond() {
    let finding = finding(&records(), "conservation");
    assert!(finding.is_good, "{finding:?}");
    assert_eq!(
        finding.detail,
        "79,720,000 GPU-ms leased = 61,720,000 debited + 18,000,000 unfunded"
    );
}

/// Method: the counts begin at every record, from the state that the earlier ones left.
#[test]
fn the_counts_may_begin_at_any_record() {
    let records = records();
    for start in 0..records.len() {
        for finding in findings(&records, start) {
            assert!(finding.is_good, "from {start}: {finding:?}");
        }
    }
}

#[test]
fn a_ledger_without_budgets_has_no_line_about_money() {
    let mut world = script::executions_in_every_stage();
    world.tick();
    let journal = (0..).zip(&world.journal);
    let records = journal.map(|(seq, bytes)| decode_events(seq, bytes, |_| None).unwrap());
    let names: Vec<&str> = findings(&records.collect(), 0)
        .iter()
        .map(|finding| finding.name)
        .collect();
    assert_eq!(names, ["limits", "bookings"]);
}

/// Whether the check of money fails after an edit of one event of the cluster.
fn is_found(
    records: &Records,
    at: (usize, usize),
    edit: impl Fn(&mut Cluster) -> bool,
) -> Option<bool> {
    let mut forged = records.clone();
    let Event::Cluster(event) = &mut forged[at.0].1[at.1] else {
        return None;
    };
    edit(event).then(|| !finding(&forged, "conservation").is_good)
}

fn places(records: &Records) -> Vec<(usize, usize)> {
    let places = records.iter().enumerate();
    places
        .flat_map(|(record, (_, events))| (0..events.len()).map(move |event| (record, event)))
        .collect()
}

/// Method: each event with claims or leases is forged in one number.
#[test]
fn one_forged_number_of_a_claim_or_lease_is_found() {
    let records = records();
    let edits: [Forge; 4] = [
        |event| match event {
            Cluster::RunFunded { claims, cause, .. } => {
                claims[0].gpus += 1;
                matches!(cause.word(), "take" | "refund")
            }
            _ => false,
        },
        |event| match event {
            Cluster::RunDemoted { claims, .. } => {
                claims[0].gpus += 1;
                true
            }
            _ => false,
        },
        |event| match event {
            Cluster::LeasesClosed { gpus, .. } => {
                *gpus += 1;
                true
            }
            _ => false,
        },
        |event| match event {
            Cluster::RunFunded { unfunded, .. } => {
                unfunded.as_mut().map(|number| *number += 1).is_some()
            }
            _ => false,
        },
    ];
    for edit in edits {
        let mut tried = 0;
        for at in places(&records) {
            if let Some(found) = is_found(&records, at, edit) {
                assert!(found, "{at:?} {:?}", records[at.0].1[at.1]);
                tried += 1;
            }
        }
        assert!(tried > 0);
    }
}

/// Method: each take and change of leases is left out. A pod of a run that goes on may well be live,
/// and books without a refund add up: only a second decision finds that one.
#[test]
fn a_missing_payer_or_lease_is_found() {
    let records = records();
    let mut tried = 0;
    for (record, event) in places(&records) {
        let is_part = |event: &Event| matches!(event, Event::Cluster(Cluster::LeasesClosed { pods, .. }) if !pods.is_empty());
        let matters = !is_part(&records[record].1[event])
            && matches!(
                &records[record].1[event],
                Event::Cluster(
                    Cluster::RunFunded {
                        cause: bursar_engine::cluster::budget::Funded::Take,
                        ..
                    } | Cluster::LeasesOpened { .. }
                        | Cluster::LeasesClosed { .. }
                )
            );
        if matters {
            let mut forged = records.clone();
            forged[record].1.remove(event);
            let finding = finding(&forged, "conservation");
            assert!(!finding.is_good, "{:?}", records[record].1[event]);
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn a_gpu_that_is_leased_twice_is_found() {
    let mut forged = records();
    let mut nodes = Vec::new();
    for (_, events) in &mut forged {
        for event in events {
            if let Event::Cluster(Cluster::LeasesOpened { pods, .. }) = event {
                nodes.push(pods[0].clone());
                if let [.., first, _] = &nodes[..] {
                    (pods[0].node, pods[0].gpus) = (first.node.clone(), first.gpus.clone());
                }
            }
        }
    }
    let finding = finding(&forged, "conservation");
    assert!(finding.detail.contains("leased already"), "{finding:?}");
}

/// Method: in the declared budgets one limit after the other is set to a GPU less than is used.
#[test]
fn a_meter_above_its_limit_is_found() {
    let good = finding(&records(), "limits");
    assert_eq!(
        (good.is_good, good.detail.as_str()),
        (
            true,
            "no grant above the bound of an envelope, cap, pool, slot limit or node, 45 changes"
        )
    );
    let edits: [(Forge, &str); 3] = [
        (
            |event| match event {
                Cluster::BudgetSet(budget) if budget.owner.as_str() == "rai" => {
                    budget.envelopes[0].concurrency = 5;
                    true
                }
                _ => false,
            },
            "record 2: envelope rai/gpus/day pays for 6 GPUs, its limit is 5",
        ),
        (
            |event| match event {
                Cluster::BudgetSet(budget) if budget.owner.as_str() == "org" => {
                    budget.aggregate_caps[0].concurrency_max = Some(6);
                    true
                }
                _ => false,
            },
            "record 2: cap org/gpus/both pays for 7 GPUs, its limit is 6",
        ),
        (
            |event| match event {
                Cluster::BudgetSet(budget) if budget.owner.as_str() == "lab" => {
                    let lending = budget.envelopes[0].lending.as_mut().unwrap();
                    lending.concurrency_max = Some(0);
                    true
                }
                _ => false,
            },
            "record 2: lending pool of lab/gpus/pool pays for 1 GPU, its limit is 0",
        ),
    ];
    for (edit, detail) in edits {
        let mut forged = records();
        let events = forged.iter_mut().flat_map(|(_, events)| events);
        let changed = events.filter_map(|event| match event {
            Event::Cluster(event) => Some(edit(event)),
            _ => None,
        });
        assert!(changed.filter(|changed| *changed).count() > 0);
        let finding = finding(&forged, "limits");
        assert_eq!((finding.is_good, finding.detail.as_str()), (false, detail));
    }
}

/// Whether any check fails.
fn is_forged(records: &Records) -> bool {
    findings(records, 0).iter().any(|finding| !finding.is_good)
}

/// Method: in each event that it applies to, one value is forged; records are only folded, so the
/// counts alone have to find it.
#[test]
fn forged_hours_payers_and_instants_are_found() {
    let records = records();
    let declared = ["rai/gpus/day", "org/gpus/all", "lab/gpus/pool"];
    let [day, all, lab] = declared.map(|id| EnvelopeId::new(id).unwrap());
    let others = [day, all, lab].map(|other| {
        move |event: &mut Cluster| match event {
            Cluster::RunFunded { claims, cause, .. } if cause.word() == "take" => {
                let is_other = claims[0].envelope != other;
                claims[0].envelope = other.clone();
                is_other
            }
            _ => false,
        }
    });
    let edits: [Forge; 4] = [
        |event| match event {
            Cluster::EpochClosed { epoch, .. } => {
                epoch.accrued += 1;
                true
            }
            _ => false,
        },
        |event| match event {
            Cluster::RunFunded { claims, cause, .. } if cause.word() == "take" => {
                let family = claims.iter_mut().find(|line| line.pool == Pool::Family);
                family.map(|line| line.pool = Pool::Own).is_some()
            }
            _ => false,
        },
        |event| match event {
            Cluster::RunDemoted { cause, t, .. } if cause.word() == "depletion" => {
                let then = t.unwrap_or(Instant::from_ms(0));
                *t = Some(then.after(Millis::from_ms(1)));
                then > Instant::from_ms(0)
            }
            _ => false,
        },
        |event| match event {
            Cluster::RunFunded { claims, .. } => {
                for line in claims {
                    line.gpus = 1 << 53;
                }
                true
            }
            _ => false,
        },
    ];
    let mut list: Vec<&dyn Fn(&mut Cluster) -> bool> = Vec::new();
    for edit in &others {
        list.push(edit);
    }
    for edit in &edits {
        list.push(edit);
    }
    for (number, edit) in list.into_iter().enumerate() {
        let mut tried = 0;
        for (record, event) in places(&records) {
            let mut forged = records.clone();
            let time = forged[record].0;
            let Event::Cluster(changed) = &mut forged[record].1[event] else {
                continue;
            };
            if let Cluster::RunDemoted { t, .. } = changed {
                t.get_or_insert(time);
            }
            if edit(changed) {
                let text = format!("edit {number}: {changed:?}");
                assert!(is_forged(&forged), "{text}");
                tried += 1;
            }
        }
        assert!(tried > 0, "edit {number}");
    }
}

#[test]
fn a_demotion_that_is_left_out_is_found() {
    let records = records();
    let mut causes = BTreeSet::new();
    for (record, event) in places(&records) {
        if let Event::Cluster(Cluster::RunDemoted { cause, .. }) = &records[record].1[event] {
            let mut forged = records.clone();
            forged[record].1.remove(event);
            assert!(is_forged(&forged), "{:?}", records[record].1[event]);
            causes.insert(cause.word());
        }
    }
    assert!(causes.len() > 1, "{causes:?}");
}

#[test]
fn a_lease_on_a_gpu_that_its_node_lacks_is_found() {
    let mut forged = records();
    let mut events = forged.iter_mut().flat_map(|(_, events)| events);
    let is_set = events.any(|event| match event {
        Event::Spine(spine::Event::NodeSet(node)) => {
            node.gpus = 3;
            true
        }
        _ => false,
    });
    assert!(is_set);
    let finding = finding(&forged, "limits");
    assert_eq!(
        finding.detail,
        "record 2: node g01 leases GPU 3, it gives 3 GPUs"
    );
}
