//! The one rule under every policy (design 10, "One kernel").
//!
//! Maximise Σ bᵢ·ln(xᵢ − oᵢ) subject to Σ xᵢ ≤ C and loᵢ ≤ xᵢ ≤ hiᵢ. The solution is
//!
//! ```text
//! xᵢ = clamp(oᵢ + bᵢ·t, loᵢ, hiᵢ)      for one common t; λ = 1/t is the price of a millicore
//! ```
//! Example: C = 1000, two pods with o = lo = 100, hi = 1000 and bids 6 and 4. Σx = 200 + 10·t, so
//! t = 80: they get 580 and 420.
//!
//! As t rises, each pod leaves its lower bound at (lo − o)/b and reaches its upper one at
//! (hi − o)/b. Σx is a rising broken line with its corners there; the one that C falls behind is
//! found by halving, in linear time, with fractions compared exactly. Since C is an integer the
//! leftover of rounding down can be handed out whole, by the largest remainder and then in the
//! order of the pods, and no bound is ever broken. `tests/it/oracle.rs` checks it.

/// One participant, in whole units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim {
    /// o: what its share is counted from; at most `lo`.
    pub offset: u64,
    /// The least it gets.
    pub lo: u64,
    /// The most it gets; at least `lo`.
    pub hi: u64,
    /// b: how strongly it pulls; nothing pulls it above its lower bound if that is zero.
    pub bid: u64,
}

/// Where the line was cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// Everyone who pulls has all that it may get.
    Full,
    /// t = `numerator` / `denominator`, the second above zero.
    At {
        /// What is shared among those between their bounds.
        numerator: u64,
        /// What they pull together.
        denominator: u128,
    },
}

/// What each gets, in the order of the claims, and the common t.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Solution {
    /// Whole units.
    pub shares: Vec<u64>,
    /// The common t.
    pub level: Level,
}

/// A corner of the line: at t = `distance` / `bid` a pod leaves its lower bound or reaches its
/// upper one.
#[derive(Clone, Copy)]
struct Corner {
    distance: u64,
    bid: u64,
    leaves: bool,
}

/// Divides `capacity`, which must not be below the sum of the lower bounds.
pub fn solve(claims: &[Claim], capacity: u64) -> Solution {
    let level = level(claims, capacity);
    let Level::At {
        numerator,
        denominator,
    } = level
    else {
        let all = |claim: &Claim| if claim.bid > 0 { claim.hi } else { claim.lo };
        let shares = claims.iter().map(all).collect();
        return Solution { shares, level };
    };
    let mut shares = Vec::with_capacity(claims.len());
    let mut remainders: Vec<(u128, usize)> = Vec::new();
    let mut left = capacity;
    for (place, claim) in claims.iter().enumerate() {
        let pulled = u128::from(claim.bid) * u128::from(numerator);
        let whole = u64::try_from(pulled / denominator).unwrap_or(u64::MAX);
        let reached = claim.offset.saturating_add(whole);
        let share = if claim.hi <= reached {
            claim.hi
        } else if reached < claim.lo {
            claim.lo
        } else {
            let remainder = pulled % denominator;
            if remainder > 0 {
                remainders.push((remainder, place));
            }
            reached
        };
        left = left.saturating_sub(share);
        shares.push(share);
    }
    hand_out(&mut shares, &mut remainders, left);
    Solution { shares, level }
}

/// One more unit for each of the `left` largest remainders; of equal ones the first in order.
fn hand_out(shares: &mut [u64], remainders: &mut [(u128, usize)], left: u64) {
    let count = usize::try_from(left)
        .unwrap_or(usize::MAX)
        .min(remainders.len());
    if count == 0 {
        return;
    }
    let by_size = |a: &(u128, usize), b: &(u128, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
    if count < remainders.len() {
        remainders.select_nth_unstable_by(count, by_size);
    }
    for (_, place) in remainders.iter().take(count) {
        if let Some(share) = shares.get_mut(*place) {
            *share += 1;
        }
    }
}

/// The t at which Σx = capacity.
fn level(claims: &[Claim], capacity: u64) -> Level {
    // Σx(t) = fixed + pull·t between two corners: `fixed` is what those at a bound have and what
    // the others count from, `pull` is what the others pull.
    let (mut fixed, mut pull) = (0_i128, 0_i128);
    let mut corners = Vec::with_capacity(claims.len());
    for claim in claims {
        if claim.bid == 0 || claim.lo == claim.hi {
            fixed += i128::from(claim.lo);
            continue;
        }
        let corner = |bound: u64, leaves| Corner {
            distance: bound.saturating_sub(claim.offset),
            bid: claim.bid,
            leaves,
        };
        corners.push(corner(claim.hi, false));
        if claim.lo == claim.offset {
            fixed += i128::from(claim.offset);
            pull += i128::from(claim.bid);
        } else {
            fixed += i128::from(claim.lo);
            corners.push(corner(claim.lo, true));
        }
    }
    let capacity = i128::from(capacity);
    let mut rest = corners.as_mut_slice();
    while !rest.is_empty() {
        let middle = rest.len() / 2;
        let (before, pivot, after) = rest.select_nth_unstable_by(middle, earlier);
        let (mut fixed_then, mut pull_then) = (fixed, pull);
        for corner in before.iter().chain(std::iter::once(&*pivot)) {
            let (distance, bid) = (i128::from(corner.distance), i128::from(corner.bid));
            let sign = if corner.leaves { 1 } else { -1 };
            fixed_then -= sign * distance;
            pull_then += sign * bid;
        }
        // Σx at the pivot's corner, times its bid: with bounds of 10⁹ millicores, 10¹⁵ of bid and
        // 10⁵ pods every term stays below 10³⁰. Beyond that the answer may be wrong, but it comes.
        let (distance, bid) = (i128::from(pivot.distance), i128::from(pivot.bid));
        let reached = fixed_then.saturating_mul(bid);
        let reached = reached.saturating_add(pull_then.saturating_mul(distance));
        if reached <= capacity.saturating_mul(bid) {
            (fixed, pull) = (fixed_then, pull_then);
            rest = after;
        } else {
            rest = before;
        }
    }
    let shared = u64::try_from(capacity - fixed).unwrap_or(0);
    match u128::try_from(pull) {
        Ok(pull) if pull > 0 => Level::At {
            numerator: shared,
            denominator: pull,
        },
        _ => Level::Full,
    }
}

/// By a/b < c/d iff a·d < c·b.
fn earlier(a: &Corner, b: &Corner) -> std::cmp::Ordering {
    let cross = |x: &Corner, y: &Corner| u128::from(x.distance) * u128::from(y.bid);
    cross(a, b).cmp(&cross(b, a))
}
