//! A second implementation of the market, directly from the formulas: fractions, every corner tried in
//! turn, and no code shared with the crate.

use std::cmp::Ordering;

use bursar_market::clear::{Market, Mode, Pod, Policy, Want};

/// One pod of the problem: maximise Σ b·ln(x − o) within lo ≤ x ≤ hi and Σx ≤ C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Participant {
    pub(crate) o: u128,
    pub(crate) lo: u128,
    pub(crate) hi: u128,
    pub(crate) b: u128,
}

/// A non-negative fraction; the second number is above zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fraction(pub(crate) u128, pub(crate) u128);

impl Fraction {
    pub(crate) fn cmp(self, other: Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

/// x·q for t = p/q.
pub(crate) fn share_times(participant: Participant, t: Fraction) -> u128 {
    let Participant { o, lo, hi, b } = participant;
    (o * t.1 + b * t.0).clamp(lo * t.1, hi * t.1)
}

/// The largest t with Σx ≤ C, or `None` if every pod with a bid is at its upper bound. Tries every
/// corner, then the segment between two of them.
pub(crate) fn common_t(all: &[Participant], capacity: u128) -> Option<Fraction> {
    let sum = |t: Fraction| all.iter().map(|one| share_times(*one, t)).sum::<u128>();
    let pulls = |one: &&Participant| one.b > 0 && one.lo < one.hi;
    let mut corners: Vec<Fraction> = all
        .iter()
        .filter(pulls)
        .flat_map(|one| {
            [
                Fraction(one.lo - one.o, one.b),
                Fraction(one.hi - one.o, one.b),
            ]
        })
        .collect();
    corners.push(Fraction(0, 1));
    corners.sort_by(|a, b| a.cmp(*b));
    let fits = |t: &Fraction| sum(*t) <= capacity * t.1;
    let from = corners.iter().rposition(fits)?;
    if from + 1 == corners.len() {
        return None;
    }
    let start = corners[from];
    let is_moving = |one: &&Participant| {
        pulls(one)
            && Fraction(one.lo - one.o, one.b).cmp(start) != Ordering::Greater
            && Fraction(one.hi - one.o, one.b).cmp(start) == Ordering::Greater
    };
    let pull: u128 = all.iter().filter(is_moving).map(|one| one.b).sum();
    // From `start` on the sum rises by `pull` for each unit of t: t = start + (C − Σ)/pull.
    let rest = capacity * start.1 - sum(start);
    let t = Fraction(start.0 * pull + rest, start.1 * pull);
    let divisor = common_divisor(t.0, t.1);
    Some(Fraction(t.0 / divisor, t.1 / divisor))
}

fn common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Whole shares: rounded down, and the rest to the largest remainders, then in order.
pub(crate) fn whole(all: &[Participant], capacity: u128) -> (Vec<u128>, Option<Fraction>) {
    let Some(t) = common_t(all, capacity) else {
        let full = |one: &Participant| if one.b > 0 { one.hi } else { one.lo };
        return (all.iter().map(full).collect(), None);
    };
    let exact: Vec<u128> = all.iter().map(|one| share_times(*one, t)).collect();
    let mut shares: Vec<u128> = exact.iter().map(|share| share / t.1).collect();
    let left = capacity - shares.iter().sum::<u128>();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|place| (std::cmp::Reverse(exact[*place] % t.1), *place));
    for place in order.into_iter().take(usize::try_from(left).unwrap()) {
        assert!(
            !exact[place].is_multiple_of(t.1),
            "only who has a remainder is rounded up"
        );
        shares[place] += 1;
    }
    (shares, Some(t))
}

/// The result of the formulas.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Expected {
    pub(crate) mode: Mode,
    pub(crate) price_ppm: u128,
    pub(crate) needs: Vec<u128>,
    pub(crate) shares: Vec<u128>,
}

/// One pod in whole quanta.
struct Row {
    m: u128,
    need: u128,
    hi: u128,
    weight: u128,
    demand: u128,
}

const CUT: u128 = 1_000_000_000;
const PPM: u128 = 1_000_000;
const PRICE_MAX: u128 = 1_000_000_000_000;

pub(crate) fn expected(market: &Market) -> Expected {
    let q = u128::from(market.quantum_milli).clamp(1, CUT);
    let c = u128::from(market.capacity_milli).min(CUT) / q;
    let mut pods: Vec<&Pod> = market.pods.iter().collect();
    pods.sort_by(|a, b| a.id.cmp(&b.id));
    let rows: Vec<Row> = pods
        .iter()
        .filter_map(|pod| row(pod, market.policy, q))
        .collect();
    let sum = |value: fn(&Row) -> u128| rows.iter().map(value).sum::<u128>();
    let (floors, needs) = (sum(|row| row.m), sum(|row| row.need));
    let (shares, price_ppm) = if floors > c {
        (overload(&rows, c, q), PRICE_MAX)
    } else if sum(|row| row.hi) <= c {
        (rows.iter().map(|row| row.hi).collect(), 0)
    } else {
        by_policy(&rows, market.policy, c, q)
    };
    Expected {
        mode: match () {
            () if floors > c => Mode::Overloaded,
            () if needs <= c => Mode::Uncongested,
            () => Mode::Congested,
        },
        price_ppm,
        needs: rows.iter().map(|row| row.need * q).collect(),
        shares: shares.into_iter().map(|share| share * q).collect(),
    }
}

fn row(pod: &Pod, policy: Policy, q: u128) -> Option<Row> {
    let ceiling = u128::from(pod.max_milli).min(CUT);
    let floor = u128::from(pod.min_milli).min(ceiling);
    let (m, max) = (floor.div_ceil(q), ceiling / q);
    if m > max {
        return None;
    }
    let range = ceiling - floor;
    let (need, demand) = match pod.want {
        Want::Demand(ppm) => {
            let d = u128::from(ppm).min(PPM);
            let h = u128::from(pod.headroom_permille).min(CUT);
            let raw = floor + range * d / PPM;
            let need = raw + raw * (PPM * h + 150 * d) / 1_000_000_000;
            (need.min(ceiling), d)
        }
        Want::Need(need) => {
            let need = u128::from(need).clamp(floor, ceiling);
            let above = (need - floor) * PPM;
            (need, if range == 0 { 0 } else { above.div_ceil(range) })
        }
    };
    let need = need.div_ceil(q).clamp(m, max);
    let wish = if policy == Policy::FullCapacity {
        max
    } else {
        need
    };
    Some(Row {
        m,
        need,
        hi: wish,
        weight: u128::from(pod.weight).min(CUT),
        demand,
    })
}

/// Σa ≤ C: clamp(θ·m, a, m); else clamp(t, 0, a), with a = min(10, m).
fn overload(rows: &[Row], c: u128, q: u128) -> Vec<u128> {
    let a = |row: &Row| row.m.min(10_u128.div_ceil(q));
    let survive = rows.iter().map(a).sum::<u128>() <= c;
    let all: Vec<Participant> = rows
        .iter()
        .map(|row| {
            let (lo, hi, b) = if survive {
                (a(row), row.m, row.m)
            } else {
                (0, a(row), 1)
            };
            Participant { o: 0, lo, hi, b }
        })
        .collect();
    whole(&all, c).0
}

/// The policies. Bids of full capacity are w·d; pods without a bid share the rest by weight, and those
/// without weight come last.
fn by_policy(rows: &[Row], policy: Policy, c: u128, q: u128) -> (Vec<u128>, u128) {
    type Bid = fn(&Row) -> u128;
    // The price is ⌊10⁶/t⌋ for t in millicores per unit of bid: t in quanta, times `scale`.
    let proportional: (Bid, u128) = (|row| row.need - row.m, 1);
    let nash: (Bid, u128) = (|row| row.weight.max(1), q);
    let bids: (Bid, u128) = (|row| row.weight * row.demand, q * PPM);
    let weights: (Bid, u128) = (|row| if row.demand == 0 { row.weight } else { 0 }, q);
    let equal: (Bid, u128) = (|row| u128::from(row.weight == 0), q);
    let tiers = match policy {
        Policy::Proportional => vec![proportional],
        Policy::WeightedNash => vec![nash],
        Policy::FullCapacity => vec![bids, weights, equal],
    };
    let mut shares: Vec<u128> = rows.iter().map(|row| row.m).collect();
    let mut price = None;
    for (bid, scale) in tiers {
        let participant = |(row, share): (&Row, &u128)| match bid(row) {
            0 => Participant {
                o: *share,
                lo: *share,
                hi: *share,
                b: 0,
            },
            b => Participant {
                o: row.m,
                lo: row.m,
                hi: row.hi,
                b,
            },
        };
        let all: Vec<Participant> = rows.iter().zip(&shares).map(participant).collect();
        let can_take = all.iter().any(|one| one.lo < one.hi);
        let left = c - shares.iter().sum::<u128>();
        if !can_take || (left == 0 && price.is_some()) {
            continue;
        }
        let (got, t) = whole(&all, c);
        let last = all
            .iter()
            .filter(|one| one.b > 0 && one.lo < one.hi)
            .map(|one| Fraction(one.hi - one.o, one.b))
            .max_by(|a, b| a.cmp(*b));
        let t = t.or(last).unwrap();
        price = Some(
            (t.1 * PPM)
                .checked_div(t.0 * scale)
                .map_or(PRICE_MAX, |p| p.min(PRICE_MAX)),
        );
        shares = got;
    }
    (shares, price.unwrap())
}
