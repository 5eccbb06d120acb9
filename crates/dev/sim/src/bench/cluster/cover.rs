//! Cover decisions in a family of five levels of ten, where the 41st envelope of the walk pays.
//!
//! The owners of the last level have an envelope each. The walk of such an owner sees its own
//! envelope, those of 9 siblings, and those of 90 cousins by name: ten groups of ten. The first four
//! groups are full, so the walk of each of their 40 owners finds 40 full envelopes before the first
//! one of the fifth group. Groups are full in turns by GPUs and by hours.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::bail;
use bursar_budget::cover::Request;
use bursar_units::Millis;

use super::super::table::per_second;
use super::scan::{NOW, Scan};
use super::tree::{CHILDREN, Held, Limits, Tree};
use crate::rng::Rng;

/// Number of the envelope that pays, in the order of the walk.
pub(super) const PAYER: usize = 41;
const LEVELS: usize = 5;
/// GPUs of each claim and of each request.
const GPUS: u64 = 8;
const HOURS: u64 = 8;
/// Groups of a family of cousins that are full.
const FULL: usize = 4;
/// Decisions between two looks at the clock.
const BATCH: u64 = 100;

pub(super) struct Measurement {
    pub(super) per_second: u64,
    pub(super) scan_per_second: u64,
    pub(super) envelopes: u64,
    pub(super) claims: u64,
    pub(super) requests: u64,
}

/// A request, with the number of its owner.
struct Asked {
    owner: usize,
    request: Request,
}

/// Checks that both give the same takes for each owner, then measures both.
pub(super) fn measure(time: Duration) -> anyhow::Result<Measurement> {
    let (tree, claims) = world(LEVELS)?;
    let scan = Scan::new(&tree, &claims);
    let asked = requests(&tree, &claims)?;
    for one in &asked {
        check(&tree, &scan, one)?;
    }
    let ours = rate(time, &asked, |one| {
        tree.accounts.plan(NOW, &one.request).is_ok()
    });
    let theirs = rate(time, &asked, |one| {
        scan.cover(one.owner, GPUS, DURATION).is_ok()
    });
    let envelopes = tree.owners.iter().filter(|owner| owner.envelope.is_some());
    Ok(Measurement {
        per_second: ours,
        scan_per_second: theirs,
        envelopes: u64::try_from(envelopes.count())?,
        claims: u64::try_from(claims.len())?,
        requests: u64::try_from(asked.len())?,
    })
}

const DURATION: Millis = Millis::from_hours(1);

/// The family with its full groups.
fn world(levels: usize) -> anyhow::Result<(Tree, Vec<Held>)> {
    let group = |position: usize| position / CHILDREN % CHILDREN;
    let limits = |level: usize, position: usize| {
        let is_by_gpus = group(position).is_multiple_of(2);
        (level + 1 == levels).then_some(Limits {
            gpus: if is_by_gpus { GPUS } else { GPUS * HOURS },
            hours: GPUS * HOURS,
        })
    };
    let mut tree = Tree::new(levels, 1_000, limits)?;
    let with_envelope = tree.owners.iter().enumerate();
    let with_envelope = with_envelope.filter(|(_, owner)| owner.envelope.is_some());
    let full = with_envelope
        .enumerate()
        .filter(|(position, _)| group(*position) < FULL);
    let claims: Vec<Held> = full
        .map(|(_, (owner, _))| Held {
            owner,
            gpus: GPUS,
            duration: Millis::from_hours(HOURS),
        })
        .collect();
    tree.fill(NOW, &claims)?;
    Ok((tree, claims))
}

/// One request for each owner of a full envelope.
fn requests(tree: &Tree, claims: &[Held]) -> anyhow::Result<Vec<Asked>> {
    let owners = claims.iter().map(|claim| claim.owner);
    let asked = owners.map(|owner| {
        let request = tree.request(owner, GPUS, DURATION)?;
        Ok(Asked { owner, request })
    });
    asked.collect()
}

/// Fails unless envelope number [`PAYER`] of the walk pays for all, in our plan and in the scan's.
fn check(tree: &Tree, scan: &Scan, one: &Asked) -> anyhow::Result<()> {
    let plan = tree.accounts.plan(NOW, &one.request);
    let plan = plan.map_err(|failure| anyhow::anyhow!("no cover: {failure:?}"))?;
    if Ok(&plan.takes) != scan.cover(one.owner, GPUS, DURATION).as_ref() {
        bail!("the scan does not agree: {:?}", plan.takes);
    }
    let trace = tree.accounts.trace(NOW, &one.request);
    let payer = trace.rows.iter().position(|row| 0 < row.gpus);
    if payer != Some(PAYER - 1) || plan.takes.len() != 1 {
        bail!("row {payer:?} of the walk pays, from 0");
    }
    Ok(())
}

/// Decisions per second, in a random order of the requests.
fn rate(time: Duration, asked: &[Asked], decide: impl Fn(&Asked) -> bool) -> u64 {
    let mut rng = Rng::new(1);
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < time {
        for _ in 0..BATCH {
            let one = asked.get(rng.place(asked.len()));
            black_box(one.map(|one| decide(black_box(one))));
        }
        count += BATCH;
    }
    per_second(count, began.elapsed())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::{Scan, check, requests, world};

    #[test]
    fn the_forty_first_envelope_pays_for_every_owner_that_asks() {
        let (tree, claims) = world(4).unwrap();
        let scan = Scan::new(&tree, &claims);
        let asked = requests(&tree, &claims).unwrap();
        assert_eq!(asked.len(), 400);
        for one in &asked {
            check(&tree, &scan, one).unwrap();
        }
    }
}
