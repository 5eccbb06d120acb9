//! Cost of a lease event, and of a copy of the accounts, as the ended or the live leases grow.
//!
//! A lease here is a claim of 8 GPUs of a run of its own. Ended runs stay remembered with their
//! debits, and the leases are 30 s apart, so a million of them fill 347 days of usage. The two states
//! are measured in turns, so that a change of the machine's speed concerns both. The measured runs
//! are forgotten after each batch, so a state keeps its size.

use std::time::{Duration, Instant as Clock};

use anyhow::Context as _;
use bursar_budget::{ClaimLine, Funded, Terms, Work};
use bursar_units::{Instant, Millis};

use super::super::world::Ids;
use super::tree::{Limits, Tree};
use crate::rng::Rng;

const LEVELS: usize = 5;
const GPUS: u64 = 8;
/// Time from one lease to the next.
const STEP: Millis = Millis::from_secs(30);
/// Run time of a lease that ends.
const RUN_TIME: Millis = Millis::from_secs(20);
/// Promise of a lease that lives until the end of the bench.
const LONG: Millis = Millis::from_hours(10_000);
/// Leases of one batch.
const BATCH: usize = 2_000;
/// Least number of batches of a state.
const BATCHES: usize = 11;
/// Limits that no number of leases reaches.
const LIMITS: Limits = Limits {
    gpus: 1_000_000,
    hours: 2_000_000_000,
};

/// Leases of a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    pub(super) ended: u64,
    pub(super) live: u64,
}

/// Measured cost in one state.
pub(super) struct Cost {
    pub(super) history: History,
    /// Median time of funding and closing one claim.
    pub(super) pair_ns: u64,
    /// Median time of a copy of the accounts, as a dry run makes it.
    pub(super) copy_ns: u64,
    pub(super) batches: u64,
}

/// Cost in two states.
pub(super) struct Growth {
    pub(super) few: Cost,
    pub(super) many: Cost,
}

struct World {
    tree: Tree,
    first_leaf: usize,
    ids: Ids,
    rng: Rng,
    now: Instant,
}

struct Lease {
    at: Instant,
    work: Work,
    terms: Terms,
    lines: [ClaimLine; 1],
}

/// Measures both states in turns.
pub(super) fn measure(few: History, many: History, time: Duration) -> anyhow::Result<Growth> {
    let (mut small, mut large) = (World::new(few)?, World::new(many)?);
    let (mut small_ns, mut large_ns) = (Vec::new(), Vec::new());
    let (mut small_copy_ns, mut large_copy_ns) = (Vec::new(), Vec::new());
    let began = Clock::now();
    while large_ns.len() < BATCHES || began.elapsed() < time {
        small_ns.push(small.batch()?);
        large_ns.push(large.batch()?);
        small_copy_ns.push(small.copy()?);
        large_copy_ns.push(large.copy()?);
    }
    Ok(Growth {
        few: cost(few, small_ns, small_copy_ns),
        many: cost(many, large_ns, large_copy_ns),
    })
}

fn cost(history: History, batches_ns: Vec<u64>, copies_ns: Vec<u64>) -> Cost {
    let batches = u64::try_from(batches_ns.len()).unwrap_or(u64::MAX);
    let pairs = u64::try_from(BATCH).unwrap_or(u64::MAX);
    Cost {
        history,
        pair_ns: median(batches_ns) / pairs,
        copy_ns: median(copies_ns),
        batches,
    }
}

fn median(mut list: Vec<u64>) -> u64 {
    list.sort_unstable();
    list.get(list.len() / 2).copied().unwrap_or_default()
}

impl World {
    fn new(history: History) -> anyhow::Result<Self> {
        let limits = |level: usize, _: usize| (level + 1 == LEVELS).then_some(LIMITS);
        let tree = Tree::new(LEVELS, LIMITS.gpus, limits)?;
        let first_leaf = tree
            .owners
            .iter()
            .position(|owner| owner.envelope.is_some());
        let mut world = Self {
            tree,
            first_leaf: first_leaf.context("no envelope")?,
            ids: Ids::new(1),
            rng: Rng::new(1),
            now: Instant::from_ms(0),
        };
        for _ in 0..history.live {
            let lease = world.lease(LONG)?;
            world.fund(&lease);
        }
        for _ in 0..history.ended {
            let lease = world.lease(RUN_TIME)?;
            world.fund(&lease);
            world.close(&lease);
        }
        Ok(world)
    }

    /// The next lease, of a random owner.
    fn lease(&mut self, duration: Millis) -> anyhow::Result<Lease> {
        self.now = self.now.after(STEP);
        let at = self.now;
        let leaves = self.tree.owners.len() - self.first_leaf;
        let owner = self.first_leaf + self.rng.place(leaves);
        let run = self.ids.text(at.ms());
        let (work, terms, line) = self.tree.lease(&run, owner, GPUS, at.after(duration))?;
        Ok(Lease {
            at,
            work,
            terms,
            lines: [line],
        })
    }

    fn fund(&mut self, lease: &Lease) {
        let (cause, lines) = (Funded::Take, &lease.lines);
        let accounts = &mut self.tree.accounts;
        accounts.fund(lease.at, &lease.work, &lease.terms, cause, None, lines);
    }

    fn close(&mut self, lease: &Lease) {
        let at = lease.at.after(RUN_TIME);
        self.tree.accounts.close(at, &lease.work, GPUS);
    }

    /// Time of one batch in nanoseconds. Making and forgetting its runs is not counted.
    fn batch(&mut self) -> anyhow::Result<u64> {
        let leases: anyhow::Result<Vec<Lease>> = (0..BATCH).map(|_| self.lease(RUN_TIME)).collect();
        let leases = leases?;
        let began = Clock::now();
        for lease in &leases {
            self.fund(lease);
            self.close(lease);
        }
        let took = began.elapsed();
        for lease in &leases {
            self.tree.accounts.forget(&lease.work.run);
        }
        Ok(u64::try_from(took.as_nanos())?)
    }

    /// Time of one copy of the accounts in nanoseconds, with its end.
    fn copy(&self) -> anyhow::Result<u64> {
        let began = Clock::now();
        drop(std::hint::black_box(self.tree.accounts.clone()));
        Ok(u64::try_from(began.elapsed().as_nanos())?)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_budget::accounts::Fact;

    use super::{BATCH, GPUS, History, RUN_TIME, World, cost, median};

    #[test]
    fn the_cost_of_a_pair_is_the_median_batch_over_its_pairs() {
        assert_eq!([3, 0], [median(vec![9, 1, 3]), median(Vec::new())]);
        let history = History { ended: 1, live: 1 };
        let pairs = u64::try_from(BATCH).unwrap();
        let cost = cost(history, vec![5 * pairs, 900 * pairs, 7 * pairs], vec![4]);
        assert_eq!((7, 4, 3), (cost.pair_ns, cost.copy_ns, cost.batches));
    }

    #[test]
    fn a_batch_leaves_the_live_claims_and_the_remembered_runs_as_they_were() {
        let mut world = World::new(History { ended: 20, live: 5 }).unwrap();
        let claims = |world: &World| {
            let facts = world.tree.accounts.facts();
            facts.filter(|fact| matches!(fact, Fact::Claim(_))).count()
        };
        let rows = |world: &World| {
            let rows = world.tree.accounts.usage(world.now);
            rows.map(|row| u128::from(row.gpu_ms)).sum::<u128>()
        };
        assert_eq!(claims(&world), 5);
        let (before, began) = (rows(&world), world.now);
        world.batch().unwrap();
        assert_eq!(claims(&world), 5);
        let live = u128::from(5 * GPUS * world.now.since(began).ms());
        let ended = u128::from(u64::try_from(BATCH).unwrap() * GPUS * RUN_TIME.ms());
        assert_eq!(rows(&world) - before, live + ended);
    }
}
