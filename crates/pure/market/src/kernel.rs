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

use std::cmp::Ordering;

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
    let mut remainders = Vec::with_capacity(claims.len());
    let mut left = capacity;
    for (place, claim) in (0_u32..).zip(claims) {
        let (whole, remainder) = split(claim.bid, numerator, denominator);
        let reached = claim.offset.saturating_add(whole);
        let share = if claim.hi <= reached {
            claim.hi
        } else if reached < claim.lo {
            claim.lo
        } else {
            if remainder > 0 {
                remainders.push(rank(remainder, place));
            }
            reached
        };
        left = left.saturating_sub(share);
        shares.push(share);
    }
    hand_out(&mut shares, &mut remainders, left);
    Solution { shares, level }
}

/// ⌊bid·numerator/denominator⌋ and what remains, in one machine word where that is enough.
fn split(bid: u64, numerator: u64, denominator: u128) -> (u64, u128) {
    if let (Some(pulled), Ok(denominator)) =
        (bid.checked_mul(numerator), u64::try_from(denominator))
        && denominator > 0
    {
        return (pulled / denominator, (pulled % denominator).into());
    }
    let pulled = u128::from(bid) * u128::from(numerator);
    let whole = u64::try_from(pulled / denominator).unwrap_or(u64::MAX);
    (whole, pulled % denominator)
}

/// A number by which remainders are ordered, and of equal ones the first in order comes last: a sum
/// of 2³² bids of 64 bits leaves room for a place below it.
fn rank(remainder: u128, place: u32) -> u128 {
    remainder << u32::BITS | u128::from(u32::MAX - place)
}

/// One more unit for each of the `left` largest remainders; of equal ones the first in order.
fn hand_out(shares: &mut [u64], ranks: &mut [u128], left: u64) {
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(ranks.len());
    let first = ranks.len() - count;
    if count > 0 && first > 0 {
        ranks.select_nth_unstable(first);
    }
    for rank in ranks.iter().skip(first) {
        let place = u32::MAX - u32::try_from(rank & u128::from(u32::MAX)).unwrap_or(0);
        let share = usize::try_from(place)
            .ok()
            .and_then(|place| shares.get_mut(place));
        if let Some(share) = share {
            *share += 1;
        }
    }
}

/// The t at which Σx = capacity.
fn level(claims: &[Claim], capacity: u64) -> Level {
    // Σx(t) = fixed + pull·t between two corners: `fixed` is what those at a bound have and what
    // the others count from, `pull` is what the others pull.
    let (mut fixed, mut pull) = (0_i128, 0_i128);
    let mut corners = Vec::with_capacity(2 * claims.len());
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
    loop {
        middle_last(rest);
        let Some((pivot, others)) = rest.split_last_mut() else {
            break;
        };
        let passed = part(others, pivot, Ordering::is_le);
        let (own_fixed, own_pull) = pivot.changes();
        let fixed_then = fixed + passed.fixed + own_fixed;
        let pull_then = pull + passed.pull + own_pull;
        // Σx at the pivot's corner, times its bid: with bounds of 10⁹ millicores, 10¹⁵ of bid and
        // 10⁵ pods every term stays below 10³⁰. Beyond that the answer may be wrong, but it comes.
        let (distance, bid) = (i128::from(pivot.distance), i128::from(pivot.bid));
        let reached = fixed_then.saturating_mul(bid);
        let reached = reached.saturating_add(pull_then.saturating_mul(distance));
        let (before, after) = others.split_at_mut(passed.count);
        rest = if reached <= capacity.saturating_mul(bid) {
            (fixed, pull) = (fixed_then, pull_then);
            after
        } else {
            // Many stand at one corner where claims are all cut by one ratio.
            let count = part(before, pivot, Ordering::is_lt).count;
            before.split_at_mut(count).0
        };
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

/// What changes behind a number of corners, which stand first now.
struct Passed {
    count: usize,
    fixed: i128,
    pull: i128,
}

impl Corner {
    /// What changes behind it in what is fixed, and in what is pulled.
    fn changes(&self) -> (i128, i128) {
        let (distance, bid) = (i128::from(self.distance), i128::from(self.bid));
        if self.leaves {
            (-distance, bid)
        } else {
            (distance, -bid)
        }
    }
}

/// Puts the middle one of three corners last, as a guess at the middle of all.
fn middle_last(corners: &mut [Corner]) {
    let last = corners.len().saturating_sub(1);
    let places = [0, corners.len() / 2, last];
    let [Some(a), Some(b), Some(c)] = places.map(|place| corners.get(place)) else {
        return;
    };
    let (ab, bc, ac) = (order(a, b), order(b, c), order(a, c));
    if ab == bc {
        corners.swap(corners.len() / 2, last);
    } else if ab != ac {
        corners.swap(0, last);
    }
}

/// Puts the corners first that are on one side of the pivot. Which side a corner is on cannot be
/// guessed, so nothing here depends on a guess: every corner is swapped, and counted if it counts.
fn part(corners: &mut [Corner], pivot: &Corner, is_in: impl Fn(Ordering) -> bool) -> Passed {
    let mut passed = Passed {
        count: 0,
        fixed: 0,
        pull: 0,
    };
    for at in 0..corners.len() {
        let Some(corner) = corners.get(at) else {
            break;
        };
        let is_in = is_in(order(corner, pivot));
        let (fixed, pull) = corner.changes();
        passed.fixed += if is_in { fixed } else { 0 };
        passed.pull += if is_in { pull } else { 0 };
        corners.swap(at, passed.count);
        passed.count += usize::from(is_in);
    }
    passed
}

/// By a/b < c/d iff a·d < c·b.
fn order(a: &Corner, b: &Corner) -> Ordering {
    let cross = |x: &Corner, y: &Corner| u128::from(x.distance) * u128::from(y.bid);
    cross(a, b).cmp(&cross(b, a))
}
