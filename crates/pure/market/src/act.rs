//! In which order limits are written, so that their sum never rises above capacity (M5).
//!
//! Decreases come first, the biggest first; each is read back before the increases follow, in the
//! order of the ids, each at most as large as what is free by then. A small change is not worth a
//! write, unless the sum is above capacity and it is a decrease.

/// The least change that is written, in millicores.
pub const CHANGE_MIN_MILLI: u64 = 10;
/// The least change that is written: this part of the present limit, a twentieth.
const CHANGE_MIN_PART: u64 = 20;

/// One pod's limit as the kernel has it, and as it should be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Move {
    /// Which pod.
    pub id: String,
    /// What the kernel says now.
    pub effective_milli: u64,
    /// What the clearing gave.
    pub wanted_milli: u64,
}

/// A limit to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Write {
    /// Which pod.
    pub id: String,
    /// The new limit.
    pub milli: u64,
}

/// The decreases, in the order in which they are written.
pub fn decreases(moves: &[Move], capacity_milli: u64) -> Vec<Write> {
    let is_over = sum(moves) > u128::from(capacity_milli);
    let mut falling: Vec<&Move> = moves
        .iter()
        .filter(|change| change.wanted_milli < change.effective_milli)
        .filter(|change| is_over || is_worth_it(change))
        .collect();
    falling.sort_by(|a, b| drop_of(b).cmp(&drop_of(a)).then(a.id.cmp(&b.id)));
    let write = |change: &Move| Write {
        id: change.id.clone(),
        milli: change.wanted_milli,
    };
    falling.into_iter().map(write).collect()
}

/// The increases, after the decreases were read back into `moves`, in the order of the ids; each
/// at most what is free, in whole quanta.
pub fn increases(moves: &[Move], capacity_milli: u64, quantum_milli: u64) -> Vec<Write> {
    let mut free = u128::from(capacity_milli).saturating_sub(sum(moves));
    let mut rising: Vec<&Move> = moves
        .iter()
        .filter(|change| change.effective_milli < change.wanted_milli)
        .collect();
    rising.sort_by(|a, b| a.id.cmp(&b.id));
    let mut writes = Vec::new();
    for change in rising {
        let wish = change.wanted_milli - change.effective_milli;
        let step = u64::try_from(free).unwrap_or(u64::MAX).min(wish);
        let reached = Move {
            wanted_milli: whole(change.effective_milli + step, quantum_milli),
            ..change.clone()
        };
        if change.effective_milli < reached.wanted_milli && is_worth_it(&reached) {
            free -= u128::from(reached.wanted_milli - change.effective_milli);
            writes.push(Write {
                id: reached.id,
                milli: reached.wanted_milli,
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

fn drop_of(change: &Move) -> u64 {
    change.effective_milli - change.wanted_milli
}

fn is_worth_it(change: &Move) -> bool {
    let least = change.effective_milli.div_ceil(CHANGE_MIN_PART);
    CHANGE_MIN_MILLI.max(least) <= change.effective_milli.abs_diff(change.wanted_milli)
}

fn whole(milli: u64, quantum_milli: u64) -> u64 {
    let quantum = quantum_milli.max(1);
    milli / quantum * quantum
}
