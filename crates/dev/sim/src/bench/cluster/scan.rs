//! The peer of the cover: a scan over a flat list of all envelopes, without an index (D2–D4).
//!
//! It knows one flavor, one parent for each owner, envelopes for any place, and no loans, because the
//! measured family has nothing else. Its rooms come from the list of claims, not from the accounts.

use bursar_budget::spec::GPU_MS_PER_HOUR;
use bursar_budget::{EnvelopeId, Pool, Take};
use bursar_units::{Instant, Label, Millis};

use super::tree::{Held, Owner, Tree};

/// All envelopes, and the family as a list of parents.
pub(super) struct Scan {
    parents: Vec<Option<usize>>,
    lines: Vec<Line>,
    /// Free GPUs under the cap of each owner.
    caps: Vec<u64>,
}

struct Line {
    owner: usize,
    name: Label,
    envelope: EnvelopeId,
    gpus_free: u64,
    /// GPU-milliseconds.
    time_free: u64,
    /// Owner whose cap bounds it.
    cap: Option<usize>,
}

/// Relation of an owner to the owner of a run, in the order of D3. Ancestors go by distance.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
enum Tier {
    Own,
    Sibling,
    Ancestor(usize),
    Cousin,
}

impl Scan {
    /// The envelopes of a tree whose claims are these.
    pub(super) fn new(tree: &Tree, claims: &[Held]) -> Self {
        let mut scan = Self {
            parents: tree.owners.iter().map(|owner| owner.parent).collect(),
            lines: tree.owners.iter().enumerate().filter_map(line).collect(),
            caps: vec![tree.cap_gpus; tree.owners.len()],
        };
        for claim in claims {
            let line = scan.lines.iter_mut().find(|line| line.owner == claim.owner);
            let Some(line) = line else { continue };
            let time = claim.gpus.saturating_mul(claim.duration.ms());
            line.gpus_free = line.gpus_free.saturating_sub(claim.gpus);
            line.time_free = line.time_free.saturating_sub(time);
            if let Some(cap) = line.cap.and_then(|cap| scan.caps.get_mut(cap)) {
                *cap = cap.saturating_sub(claim.gpus);
            }
        }
        scan
    }

    /// The takes for GPUs of an owner, or the number of GPUs that find no payer.
    pub(super) fn cover(
        &self,
        owner: usize,
        gpus: u64,
        duration: Millis,
    ) -> Result<Vec<Take>, u64> {
        let tiers = self.lines.iter().filter_map(|line| {
            let tier = self.tier(owner, line.owner)?;
            Some((tier, line))
        });
        let mut rows: Vec<(Tier, &Line)> = tiers.collect();
        rows.sort_by_key(|(tier, line)| (*tier, &line.name, &line.envelope));
        let (mut left, mut takes) = (gpus, Vec::new());
        let mut capped: Vec<(usize, u64)> = Vec::new();
        for (tier, line) in rows {
            // Rounded down: the last GPU must be paid for the whole duration.
            let by_time_floor = line.time_free / duration.ms().max(1);
            let mut take = left.min(line.gpus_free).min(by_time_floor);
            if let Some(cap) = line.cap {
                let of_cap = capped.iter().filter(|(other, _)| *other == cap);
                let charged: u64 = of_cap.map(|(_, gpus)| gpus).sum();
                let free = self.caps.get(cap).copied().unwrap_or_default();
                take = take.min(free.saturating_sub(charged));
                capped.push((cap, take));
            }
            if 0 < take {
                left -= take;
                takes.push(Take {
                    envelope: line.envelope.clone(),
                    pool: if tier == Tier::Own {
                        Pool::Own
                    } else {
                        Pool::Family
                    },
                    gpus: take,
                });
            }
            if left == 0 {
                return Ok(takes);
            }
        }
        Err(left)
    }

    /// The first relation that applies; `None` for a stranger.
    fn tier(&self, of: usize, other: usize) -> Option<Tier> {
        let parent = |owner: usize| self.parents.get(owner).copied().flatten();
        if of == other {
            return Some(Tier::Own);
        }
        let (mine, theirs) = (parent(of), parent(other));
        if mine.is_some() && mine == theirs {
            return Some(Tier::Sibling);
        }
        let ancestors = std::iter::successors(mine, |owner| parent(*owner));
        if let Some(distance) = ancestors.into_iter().position(|owner| owner == other) {
            return Some(Tier::Ancestor(distance));
        }
        let (mine, theirs) = (mine.and_then(parent), theirs.and_then(parent));
        (mine.is_some() && mine == theirs).then_some(Tier::Cousin)
    }
}

fn line((number, owner): (usize, &Owner)) -> Option<Line> {
    let (envelope, limits) = owner.envelope.as_ref()?;
    Some(Line {
        owner: number,
        name: owner.name.clone(),
        envelope: envelope.clone(),
        gpus_free: limits.gpus,
        time_free: limits.hours.saturating_mul(GPU_MS_PER_HOUR),
        cap: owner.parent,
    })
}

/// Instant of all claims and decisions.
pub(super) const NOW: Instant = Instant::from_ms(1_000);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_units::Millis;
    use proptest::prelude::*;

    use super::super::tree::{Held, Limits, Tree};
    use super::{NOW, Scan};

    fn check(claims: &[(usize, u64, u64)], owner: usize, gpus: u64, hours: u64, cap: u64) {
        let limits = |level: usize, position: usize| {
            (position % 7 != 3).then(|| Limits {
                gpus: 4 + u64::try_from(level + position % 5).unwrap_or(0),
                hours: 20 + u64::try_from(position % 11).unwrap_or(0),
            })
        };
        let mut tree = Tree::new(4, cap, limits).unwrap();
        let owners = tree.owners.len();
        let mut held: Vec<Held> = Vec::new();
        for (owner, gpus, hours) in claims {
            let claim = Held {
                owner: owner % owners,
                gpus: *gpus,
                duration: Millis::from_hours(*hours),
            };
            // Claims above a limit are not part of a legal state.
            let is_legal = Scan::new(&tree, &held)
                .cover(claim.owner, claim.gpus, claim.duration)
                .is_ok_and(|takes| {
                    takes.first().is_some_and(|take| {
                        take.gpus == claim.gpus && take.pool == bursar_budget::Pool::Own
                    })
                });
            if is_legal {
                held.push(claim);
            }
        }
        tree.fill(NOW, &held).unwrap();
        let (owner, duration) = (owner % owners, Millis::from_hours(hours));
        let request = tree.request(owner, gpus, duration).unwrap();
        let ours = tree.accounts.plan(NOW, &request);
        let ours = ours.map(|plan| plan.takes).map_err(|failure| failure.short);
        assert_eq!(ours, Scan::new(&tree, &held).cover(owner, gpus, duration));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn the_cover_takes_the_same_as_a_scan(
            claims in prop::collection::vec((0_usize..1_111, 1_u64..6, 1_u64..9), 0..200),
            owner in 0_usize..1_111,
            gpus in 1_u64..900,
            hours in 1_u64..12,
            cap in 10_u64..90,
        ) {
            check(&claims, owner, gpus, hours, cap);
        }
    }
}
