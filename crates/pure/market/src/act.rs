//! The order of writes that keeps the sum of limits within capacity (M5).
//!
//! Decreases come first, the largest first, and each is read back. Increases follow in the order of
//! the ids, each at most as large as the free capacity. Small changes are not written, except small
//! decreases while the sum is above capacity or while an increase that is worth a write lacks room.
//! A pod without a limit gets one.

use std::cmp::Reverse;

/// Minimum change that is written, in millicores.
pub const CHANGE_MIN_MILLI: u64 = 10;
/// Minimum change that is written: a twentieth of the present limit.
const CHANGE_MIN_PART: u64 = 20;

/// The present and the wanted limit of one pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Move {
    /// The pod.
    pub id: String,
    /// The limit in the kernel.
    pub effective_milli: u64,
    /// The share from the clearing.
    pub wanted_milli: u64,
    /// Whether the kernel has no limit; then `effective_milli` is the ceiling.
    pub is_unlimited: bool,
}

/// A limit to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Write {
    /// The pod.
    pub id: String,
    /// The new limit.
    pub milli: u64,
}

/// The decreases, in the order of their writes.
pub fn decreases(moves: &[Move], capacity_milli: u64) -> Vec<Write> {
    let capacity_milli = u128::from(capacity_milli);
    let is_over = sum(moves) > capacity_milli;
    let mut falling: Vec<&Move> = moves.iter().filter(|change| change.falls()).collect();
    falling.sort_by_key(|change| (Reverse((change.is_unlimited, change.fall())), &change.id));
    let fallen: u128 = falling
        .iter()
        .filter(|change| change.is_worth_it())
        .map(|change| u128::from(change.fall()))
        .sum();
    let raised: u128 = moves
        .iter()
        .filter(|change| change.is_worth_it())
        .map(|change| u128::from(change.rise()))
        .sum();
    let mut lacking = (sum(moves) + raised).saturating_sub(capacity_milli + fallen);
    falling.retain(|change| {
        if is_over || change.is_worth_it() {
            return true;
        }
        let is_lacking = lacking > 0;
        lacking = lacking.saturating_sub(change.fall().into());
        is_lacking
    });
    let write = |change: &Move| Write {
        id: change.id.clone(),
        milli: change.wanted_milli,
    };
    falling.into_iter().map(write).collect()
}

/// The increases in the order of the ids, after the decreases were read back into `moves`. Each is at
/// most the free capacity, in whole quanta.
pub fn increases(moves: &[Move], capacity_milli: u64, quantum_milli: u64) -> Vec<Write> {
    let mut free = u128::from(capacity_milli).saturating_sub(sum(moves));
    let mut rising: Vec<&Move> = moves
        .iter()
        .filter(|change| change.effective_milli < change.wanted_milli)
        .collect();
    rising.sort_by(|a, b| a.id.cmp(&b.id));
    let mut writes = Vec::new();
    for change in rising {
        let step = u64::try_from(free).unwrap_or(u64::MAX).min(change.rise());
        let reached = whole(change.effective_milli + step, quantum_milli);
        if change.effective_milli < reached && is_worth_it(change.effective_milli, reached) {
            free -= u128::from(reached - change.effective_milli);
            writes.push(Write {
                id: change.id.clone(),
                milli: reached,
            });
        }
    }
    writes
}

fn sum(moves: &[Move]) -> u128 {
    moves
        .iter()
        .map(|change| u128::from(change.effective_milli))
        .sum()
}

impl Move {
    fn falls(&self) -> bool {
        self.is_unlimited || self.fall() > 0
    }

    fn fall(&self) -> u64 {
        self.effective_milli.saturating_sub(self.wanted_milli)
    }

    fn rise(&self) -> u64 {
        self.wanted_milli.saturating_sub(self.effective_milli)
    }

    fn is_worth_it(&self) -> bool {
        self.is_unlimited || is_worth_it(self.effective_milli, self.wanted_milli)
    }
}

/// Whether the difference is large enough for a write.
pub(crate) fn is_worth_it(effective_milli: u64, wanted_milli: u64) -> bool {
    let least = effective_milli.div_ceil(CHANGE_MIN_PART);
    CHANGE_MIN_MILLI.max(least) <= effective_milli.abs_diff(wanted_milli)
}

fn whole(milli: u64, quantum_milli: u64) -> u64 {
    let quantum = quantum_milli.max(1);
    milli / quantum * quantum
}
