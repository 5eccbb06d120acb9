//! The rule under every policy.
//!
//! Maximise Σ bᵢ·ln(xᵢ − oᵢ) subject to Σ xᵢ ≤ C and loᵢ ≤ xᵢ ≤ hiᵢ. The solution is
//!
//! ```text
//! xᵢ = clamp(oᵢ + bᵢ·t, loᵢ, hiᵢ)      for one common t; λ = 1/t is the price of a millicore
//! ```
//! Example: C = 1000, two pods with o = lo = 100, hi = 1000 and bids 6 and 4. Σx = 200 + 10·t, so
//! t = 80: they get 580 and 420.
//!
//! As t rises, each pod leaves its lower bound at (lo − o)/b and reaches its upper one at (hi − o)/b.
//! Σx is piecewise linear and rising, with corners there. The segment that contains C is found by
//! guesses and bisection, in linear time, with exact comparison of fractions. C is an integer, so the
//! units left by rounding down go to the largest remainders, and of equal ones to the first pod; no
//! bound is ever broken. `tests/it/oracle.rs` checks it.

use std::cmp::Ordering;

/// Guesses before bisection: two leave about a third of the corners, more leave little less.
const GUESSES_MAX: u32 = 2;

/// The claim of one pod, in whole units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim {
    /// o: the origin of its share; at most `lo`.
    pub offset: u64,
    /// Lower bound.
    pub lo: u64,
    /// Upper bound; at least `lo`.
    pub hi: u64,
    /// b: its pull; with 0 it stays at its lower bound.
    pub bid: u64,
}

/// The common t of a solution.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// Every pod with a bid has its upper bound.
    Full,
    /// t = `numerator` / `denominator`, the second above zero.
    At {
        /// Units shared among the pods between their bounds.
        numerator: u64,
        /// Sum of their bids.
        denominator: u128,
    },
}

/// The shares in the order of the claims, and the common t.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Solution {
    /// Whole units.
    pub shares: Vec<u64>,
    /// The common t.
    pub level: Level,
}

/// A t as the fraction `distance / bid` with `bid` above zero: mostly a corner, at which a pod leaves
/// its lower bound or reaches its upper one.
#[derive(Clone, Copy)]
struct Corner {
    distance: u64,
    bid: u64,
}

/// A segment, Σx = fixed + pull·t: `fixed` sums the shares of pods at a bound and the offsets of the
/// others, `pull` sums the bids of the others.
#[derive(Clone, Copy)]
struct Segment {
    fixed: i128,
    pull: i128,
}

/// The segment after some corner, and the later corners that are not yet known to be before or after
/// the point where Σx reaches the capacity.
struct Search<'a> {
    capacity: i128,
    line: Segment,
    leaving: &'a mut [Corner],
    reaching: &'a mut [Corner],
}

struct Sum {
    count: usize,
    distance: u128,
    bid: u128,
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

/// ⌊bid·numerator/denominator⌋ and the remainder, in one machine word if that is enough.
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

/// A number that orders by remainder, and equal remainders by descending place: a sum of 2³² bids of
/// 64 bits leaves 32 bits for the place.
fn rank(remainder: u128, place: u32) -> u128 {
    remainder << u32::BITS | u128::from(u32::MAX - place)
}

/// Adds one unit for each of the `left` largest ranks.
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
    let mut line = Segment { fixed: 0, pull: 0 };
    // The segment if no pod had bounds: its intersection with the capacity is the first guess.
    let mut free = line;
    let mut leaving = Vec::with_capacity(claims.len());
    let mut reaching = Vec::with_capacity(claims.len());
    for claim in claims {
        line.fixed += i128::from(claim.lo);
        if claim.bid == 0 || claim.lo == claim.hi {
            free.fixed += i128::from(claim.lo);
            continue;
        }
        free.fixed += i128::from(claim.offset);
        free.pull += i128::from(claim.bid);
        let corner = |bound: u64| Corner {
            distance: bound.saturating_sub(claim.offset),
            bid: claim.bid,
        };
        reaching.push(corner(claim.hi));
        if claim.lo == claim.offset {
            line.pull += i128::from(claim.bid);
        } else {
            leaving.push(corner(claim.lo));
        }
    }
    let search = Search {
        capacity: capacity.into(),
        line,
        leaving: &mut leaving,
        reaching: &mut reaching,
    };
    search.level(free)
}

impl Search<'_> {
    /// Guesses by the extension of a segment, which is near the solution and leaves few corners;
    /// bisection bounds the time.
    fn level(mut self, mut segment: Segment) -> Level {
        for _ in 0..GUESSES_MAX {
            let Some(pivot) = self.meets(&segment) else {
                break;
            };
            segment = self.cut(&pivot).0;
        }
        while let Some(pivot) = middle(self.leaving).or_else(|| middle(self.reaching)) {
            if self.cut(&pivot).1 == Ordering::Greater {
                self.leaving = before(std::mem::take(&mut self.leaving), &pivot);
                self.reaching = before(std::mem::take(&mut self.reaching), &pivot);
            }
        }
        let shared = u64::try_from(self.capacity - self.line.fixed).unwrap_or(0);
        match u128::try_from(self.line.pull) {
            Ok(pull) if pull > 0 => Level::At {
                numerator: shared,
                denominator: pull,
            },
            _ => Level::Full,
        }
    }

    /// Keeps only the corners on the side of the pivot where Σx reaches the capacity. Returns the
    /// segment at the pivot, and how Σx there compares with the capacity.
    fn cut(&mut self, pivot: &Corner) -> (Segment, Ordering) {
        let left = part(self.leaving, pivot, Ordering::is_le);
        let reached = part(self.reaching, pivot, Ordering::is_le);
        let there = self.line.behind(&left, &reached);
        let leaving = std::mem::take(&mut self.leaving).split_at_mut(left.count);
        let reaching = std::mem::take(&mut self.reaching).split_at_mut(reached.count);
        // Σx at the pivot, times its bid: with bounds of 10⁹ millicores, bids of 10¹⁵ and 10⁵ pods
        // every term is below 10³⁵. Beyond that the result may be wrong, but nothing overflows.
        let (distance, bid) = (i128::from(pivot.distance), i128::from(pivot.bid));
        let sum = there.fixed.saturating_mul(bid);
        let sum = sum.saturating_add(there.pull.saturating_mul(distance));
        let order = sum.cmp(&self.capacity.saturating_mul(bid));
        match order {
            Ordering::Greater => (self.leaving, self.reaching) = (leaving.0, reaching.0),
            // The solution; every later corner exceeds it.
            Ordering::Equal if there.pull > 0 => self.line = there,
            Ordering::Less | Ordering::Equal => {
                self.line = there;
                (self.leaving, self.reaching) = (leaving.1, reaching.1);
            }
        }
        (there, order)
    }

    /// The t at which a segment meets the capacity.
    fn meets(&self, line: &Segment) -> Option<Corner> {
        Some(Corner {
            distance: u64::try_from(self.capacity - line.fixed).ok()?,
            bid: u64::try_from(line.pull).ok().filter(|pull| *pull > 0)?,
        })
    }
}

impl Segment {
    fn behind(&self, left: &Sum, reached: &Sum) -> Self {
        let signed = |sum: u128| i128::try_from(sum).unwrap_or(i128::MAX);
        Self {
            fixed: self.fixed + signed(reached.distance) - signed(left.distance),
            pull: self.pull + signed(left.bid) - signed(reached.bid),
        }
    }
}

/// The corners before the pivot. Many are equal to it when all claims are cut by one ratio.
fn before<'a>(corners: &'a mut [Corner], pivot: &Corner) -> &'a mut [Corner] {
    let count = part(corners, pivot, Ordering::is_lt).count;
    corners.split_at_mut(count).0
}

/// The median of three corners, as an estimate of the median of all.
fn middle(corners: &[Corner]) -> Option<Corner> {
    let (a, b) = (corners.first()?, corners.get(corners.len() / 2)?);
    let c = corners.last()?;
    let (ab, bc, ac) = (order(a, b), order(b, c), order(a, c));
    let middle = if ab == bc {
        b
    } else if ab == ac {
        c
    } else {
        a
    };
    Some(*middle)
}

/// Moves the corners on one side of the pivot to the front. Without unpredictable branches: every
/// corner is swapped, and the count advances if it belongs there.
fn part(corners: &mut [Corner], pivot: &Corner, is_in: impl Fn(Ordering) -> bool) -> Sum {
    let mut sum = Sum {
        count: 0,
        distance: 0,
        bid: 0,
    };
    for at in 0..corners.len() {
        let Some(corner) = corners.get(at) else {
            break;
        };
        let is_in = is_in(order(corner, pivot));
        sum.distance += u128::from(if is_in { corner.distance } else { 0 });
        sum.bid += u128::from(if is_in { corner.bid } else { 0 });
        corners.swap(at, sum.count);
        sum.count += usize::from(is_in);
    }
    sum
}

/// a/b < c/d iff a·d < c·b.
fn order(a: &Corner, b: &Corner) -> Ordering {
    let cross = |x: &Corner, y: &Corner| u128::from(x.distance) * u128::from(y.bid);
    cross(a, b).cmp(&cross(b, a))
}
