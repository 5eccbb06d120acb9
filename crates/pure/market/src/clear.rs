//! Clears a node once: who gets how many millicores, why, and at what price (M4–M7).
//!
//! Precedence: capacity, floor, ceiling, guard, need. Modes are outcomes, not branches that a pod
//! could fall between: what each gets is continuous across their borders.
//!
//! 1. The floors alone exceed capacity: overload. 2. All upper bounds fit: everyone has its own.
//! 3. All lower bounds fit: the kernel divides by the policy. 4. Guards yield, floors do not.

use crate::kernel::{Claim, Level, solve};
use crate::need::{self, Need, PPM};

/// The price where a millicore cannot be had at all, in parts per million.
pub const PRICE_MAX_PPM: u64 = 1_000_000_000_000;
/// What a pod keeps even when the floors do not fit, in millicores (M4).
pub const SURVIVAL_MILLI: u64 = 10;
/// The largest number of millicores, and of weight, that is counted with; larger ones are cut.
pub const VALUE_MAX: u64 = 1_000_000_000;
/// How much a limit may shrink in one step: to half.
const STEP_DOWN: u64 = 2;
/// How much it may grow in one step: fourfold.
const STEP_UP: u64 = 4;

/// By which rule what is scarce is divided.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Policy {
    /// Everyone's claim above its floor is cut by the same ratio (seed 001).
    #[default]
    Proportional,
    /// By weight, capped at need: small needs first, and inflating a claim buys nothing.
    WeightedNash,
    /// By weight × demand, up to the ceilings, until nothing is left (seed 000).
    FullCapacity,
}

/// What came of it, as the seed names it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Mode {
    /// All needs fit.
    #[default]
    Uncongested,
    /// They do not.
    Congested,
    /// Not even the floors do.
    Overloaded,
}

/// A node to be cleared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Market {
    /// C: what can be shared.
    pub capacity_milli: u64,
    /// By which rule.
    pub policy: Policy,
    /// The step in which limits can be written (M6).
    pub quantum_milli: u64,
    /// Who takes part; in any order.
    pub pods: Vec<Pod>,
}

/// A participant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pod {
    /// Its name; ties go by it.
    pub id: String,
    /// m: its floor. Above the ceiling it counts as the ceiling.
    pub min_milli: u64,
    /// M: its ceiling.
    pub max_milli: u64,
    /// w: how much it counts.
    pub weight: u64,
    /// What it wants.
    pub want: Want,
    /// h: its headroom in permille.
    pub headroom_permille: u64,
    /// What it may use now; guards count from there. Absent: no guard.
    pub current_milli: Option<u64>,
    /// Whether that was changed so recently that it may not shrink.
    pub cooling: bool,
}

/// What a pod wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Want {
    /// d: where its demand lies between floor and ceiling, in parts per million.
    Demand(u64),
    /// n: what it needs.
    Need(u64),
}

/// What everyone gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cleared {
    /// What came of it.
    pub mode: Mode,
    /// λ in parts per million: 0 when nobody is held back.
    pub price_ppm: u64,
    /// What could be shared, in whole quanta.
    pub capacity_milli: u64,
    /// The sum of the floors.
    pub min_milli: u64,
    /// The sum of the needs.
    pub need_milli: u64,
    /// Which of the four steps divided it.
    pub step: Step,
    /// Each pod that takes part, by id.
    pub shares: Vec<Share>,
    /// Those whose range is narrower than a quantum, by id: not managed.
    pub too_narrow: Vec<String>,
}

/// Which rule divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// The floors do not fit.
    Overload,
    /// Everything fits.
    AllFits,
    /// The kernel divided by the policy, at this level.
    Shared(Level),
    /// Guards had to yield.
    GuardsYield,
}

/// What one pod gets, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Share {
    /// Which.
    pub id: String,
    /// Its floor, in whole quanta.
    pub min_milli: u64,
    /// Its ceiling, in whole quanta.
    pub max_milli: u64,
    /// What it needs, in whole quanta.
    pub need_milli: u64,
    /// How its need came about, where demand was given.
    pub need: Option<Need>,
    /// What pulled it upwards: n − m, w, or w·d in parts per million.
    pub bid: u64,
    /// What it gets.
    pub allocated_milli: u64,
    /// What kept it from more, or from less.
    pub bound_by: BoundBy,
}

/// What decided a share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BoundBy {
    /// It has all it needs.
    Need,
    /// What there was, divided.
    Share,
    /// Its floor.
    Min,
    /// Its ceiling.
    Max,
    /// It was changed too recently to shrink.
    Cooldown,
    /// It may only change so much at a time.
    Step,
    /// The floor under the floors.
    Survival,
}

impl Policy {
    /// All, the default first.
    pub const ALL: [Self; 3] = [Self::Proportional, Self::WeightedNash, Self::FullCapacity];

    /// The word people write.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Proportional => "proportional",
            Self::WeightedNash => "weighted-nash",
            Self::FullCapacity => "full-capacity",
        }
    }

    /// The policy of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.word() == word)
    }
}

impl Mode {
    /// All, mildest first.
    pub const ALL: [Self; 3] = [Self::Uncongested, Self::Congested, Self::Overloaded];

    /// The word people see.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Uncongested => "uncongested",
            Self::Congested => "congested",
            Self::Overloaded => "overloaded",
        }
    }
}

impl BoundBy {
    /// The word people see.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Need => "need",
            Self::Share => "share",
            Self::Min => "min",
            Self::Max => "max",
            Self::Cooldown => "cooldown",
            Self::Step => "step",
            Self::Survival => "survival",
        }
    }
}

impl Share {
    /// (need − allocation) / (need − floor) in parts per million, rounded down; 0 where need is
    /// the floor.
    pub fn reduction_ppm(&self) -> u64 {
        let held_back = self.need_milli.saturating_sub(self.allocated_milli);
        match self.need_milli.saturating_sub(self.min_milli) {
            0 => 0,
            claim => need::floor(held_back, PPM, claim),
        }
    }
}

/// A pod in whole quanta.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    m: u64,
    max: u64,
    need: u64,
    /// The policy's upper bound.
    wish: u64,
    bid: u64,
    guard_lo: u64,
    guard_hi: u64,
    lo: u64,
    hi: u64,
    weight: u64,
}

/// Divides the CPU of a node.
pub fn clear(market: &Market) -> Cleared {
    let quantum = market.quantum_milli.clamp(1, VALUE_MAX);
    let capacity = market.capacity_milli.min(VALUE_MAX) / quantum;
    let mut pods: Vec<&Pod> = market.pods.iter().collect();
    pods.sort_by(|a, b| a.id.cmp(&b.id));
    let mut too_narrow = Vec::new();
    let mut managed = Vec::with_capacity(pods.len());
    for pod in pods {
        match bounds(pod, market.policy, quantum) {
            Some((bounds, need)) => managed.push((pod, bounds, need)),
            None => too_narrow.push(pod.id.clone()),
        }
    }
    let all: Vec<Bounds> = managed.iter().map(|(_, bounds, _)| *bounds).collect();
    let total = |value: fn(&Bounds) -> u64| all.iter().map(value).sum::<u64>();
    let (min, need) = (total(|pod| pod.m), total(|pod| pod.need));
    let divided = divide(&all, market.policy, capacity, min, quantum);
    let mode = if min > capacity {
        Mode::Overloaded
    } else if need <= capacity {
        Mode::Uncongested
    } else {
        Mode::Congested
    };
    let shares = managed.into_iter().zip(&divided.shares);
    let shares = shares.map(|((pod, bounds, need), units)| Share {
        id: pod.id.clone(),
        min_milli: bounds.m * quantum,
        max_milli: bounds.max * quantum,
        need_milli: bounds.need * quantum,
        need,
        bid: bounds.bid,
        allocated_milli: units * quantum,
        bound_by: bound_by(pod, &bounds, *units, divided.step, quantum),
    });
    Cleared {
        mode,
        price_ppm: divided.price_ppm,
        capacity_milli: capacity * quantum,
        min_milli: min * quantum,
        need_milli: need * quantum,
        step: divided.step,
        shares: shares.collect(),
        too_narrow,
    }
}

/// Whether no limit in whole quanta lies between a floor and a ceiling: not managed (M6).
pub fn is_too_narrow(min_milli: u64, max_milli: u64, quantum_milli: u64) -> bool {
    let max_milli = max_milli.min(VALUE_MAX);
    let quantum = quantum_milli.clamp(1, VALUE_MAX);
    range(min_milli.min(max_milli), max_milli, quantum).is_none()
}

/// A pod in whole quanta, or `None` where its range holds none.
fn bounds(pod: &Pod, policy: Policy, quantum: u64) -> Option<(Bounds, Option<Need>)> {
    let max_milli = pod.max_milli.min(VALUE_MAX);
    let min_milli = pod.min_milli.min(max_milli);
    let (m, max) = range(min_milli, max_milli, quantum)?;
    let weight = pod.weight.min(VALUE_MAX);
    let (need_milli, made, demand) = match pod.want {
        Want::Demand(demand) => {
            let made = need::need(min_milli, max_milli, demand, pod.headroom_permille);
            (made.milli, Some(made), demand.min(PPM))
        }
        Want::Need(need) => {
            let need = need.clamp(min_milli, max_milli);
            (need, None, need::demand_ppm(min_milli, max_milli, need))
        }
    };
    let need = need_milli.div_ceil(quantum).clamp(m, max);
    let (wish, bid) = match policy {
        Policy::Proportional => (need, need - m),
        Policy::WeightedNash => (need, weight.max(1)),
        Policy::FullCapacity => (max, weight * demand),
    };
    let (guard_lo, guard_hi) = match pod.current_milli {
        None => (m, max),
        Some(current) => {
            let current = current.min(VALUE_MAX);
            let least = if pod.cooling {
                current
            } else {
                current.div_ceil(STEP_DOWN)
            };
            // From nothing it may grow as from one quantum, or it would stay there for ever.
            let most = current.max(quantum) * STEP_UP / quantum;
            (least.div_ceil(quantum).clamp(m, max), most.clamp(m, max))
        }
    };
    let bounds = Bounds {
        m,
        max,
        need,
        wish,
        bid,
        guard_lo,
        guard_hi,
        lo: guard_lo,
        hi: guard_lo.max(wish.min(guard_hi)),
        weight,
    };
    Some((bounds, made))
}

/// Floor (rounded up) and ceiling (rounded down) in whole quanta, unless they pass each other.
fn range(min_milli: u64, max_milli: u64, quantum: u64) -> Option<(u64, u64)> {
    let (m, max) = (min_milli.div_ceil(quantum), max_milli / quantum);
    (m <= max).then_some((m, max))
}

/// What the four steps come to, in whole quanta.
struct Divided {
    shares: Vec<u64>,
    step: Step,
    price_ppm: u64,
}

fn divide(pods: &[Bounds], policy: Policy, capacity: u64, min: u64, quantum: u64) -> Divided {
    let total = |value: fn(&Bounds) -> u64| pods.iter().map(value).sum::<u64>();
    if min > capacity {
        return Divided {
            shares: overload(pods, capacity, quantum),
            step: Step::Overload,
            price_ppm: PRICE_MAX_PPM,
        };
    }
    if total(|pod| pod.hi) <= capacity {
        return Divided {
            shares: pods.iter().map(|pod| pod.hi).collect(),
            step: Step::AllFits,
            price_ppm: 0,
        };
    }
    if total(|pod| pod.lo) <= capacity {
        return shared(pods, policy, capacity, quantum);
    }
    let claims: Vec<Claim> = pods
        .iter()
        .map(|pod| Claim {
            offset: pod.m,
            lo: pod.m,
            hi: pod.lo,
            bid: pod.lo - pod.m,
        })
        .collect();
    Divided {
        shares: solve(&claims, capacity).shares,
        step: Step::GuardsYield,
        price_ppm: PRICE_MAX_PPM,
    }
}

/// Step 3: by the policy, tier after tier. Only full capacity has more than one: whoever bids
/// nothing gets what bidders cannot take, by weight, and then equally (M7).
fn shared(pods: &[Bounds], policy: Policy, capacity: u64, quantum: u64) -> Divided {
    let tiers: &[Tier] = match policy {
        Policy::Proportional => &[Tier::Claim],
        Policy::WeightedNash => &[Tier::Weight],
        Policy::FullCapacity => &[Tier::Bid, Tier::ZeroBid, Tier::Equal],
    };
    let mut shares: Vec<u64> = pods.iter().map(|pod| pod.lo).collect();
    let mut left = capacity.saturating_sub(shares.iter().sum());
    let mut last: Option<(Tier, Level)> = None;
    for tier in tiers {
        // Where nothing is left to begin with, the first tier says what a millicore would cost.
        if left == 0 && last.is_some() {
            break;
        }
        let claim = |(pod, given): (&Bounds, &u64)| match tier.bid(pod) {
            0 => fixed(*given),
            bid => Claim {
                offset: pod.m,
                lo: pod.lo,
                hi: pod.hi,
                bid,
            },
        };
        let claims: Vec<Claim> = pods.iter().zip(&shares).map(claim).collect();
        let Some(last_corner) = last_corner(&claims) else {
            continue;
        };
        let solution = solve(&claims, capacity);
        last = Some(match solution.level {
            Level::Full => (*tier, last_corner),
            at @ Level::At { .. } => (*tier, at),
        });
        shares = solution.shares;
        left = capacity.saturating_sub(shares.iter().sum());
    }
    let price = |(tier, level): (Tier, Level)| tier.price_ppm(level, quantum);
    Divided {
        shares,
        step: last.map_or(Step::AllFits, |(_, level)| Step::Shared(level)),
        price_ppm: last.map_or(0, price),
    }
}

/// By what those pull who are served together; a pod that pulls by nothing is not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tier {
    /// n − m, in quanta.
    Claim,
    /// w.
    Weight,
    /// w·d in parts per million.
    Bid,
    /// w, if d is 0.
    ZeroBid,
    /// One for each, if both are 0.
    Equal,
}

impl Tier {
    fn bid(self, pod: &Bounds) -> u64 {
        match self {
            Self::Claim | Self::Weight | Self::Bid => pod.bid,
            Self::ZeroBid if pod.bid == 0 => pod.weight,
            Self::Equal if pod.bid == 0 && pod.weight == 0 => 1,
            Self::ZeroBid | Self::Equal => 0,
        }
    }

    /// ⌊10⁶/t⌋ for a t in millicores per unit of bid. What is divided here are quanta, so t is
    /// too small by as much, except where bids are quanta too; and where bids are in parts per
    /// million they are too large.
    fn price_ppm(self, level: Level, quantum: u64) -> u64 {
        let Level::At {
            numerator,
            denominator,
        } = level
        else {
            return 0;
        };
        let per_bid = if self == Self::Bid { 1 } else { PPM };
        let per_share = if self == Self::Claim { 1 } else { quantum };
        let pull = denominator.saturating_mul(per_bid.into());
        let price = pull.checked_div(u128::from(numerator) * u128::from(per_share));
        price
            .and_then(|price| u64::try_from(price).ok())
            .map_or(PRICE_MAX_PPM, |price| price.min(PRICE_MAX_PPM))
    }
}

/// Where the last of those who pull reaches its upper bound; `None` if nobody does.
fn last_corner(claims: &[Claim]) -> Option<Level> {
    let pulling = claims
        .iter()
        .filter(|claim| claim.bid > 0 && claim.lo < claim.hi);
    let corners = pulling.map(|claim| (claim.hi - claim.offset, claim.bid));
    let last = corners.max_by(|a, b| {
        (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
    });
    last.map(|(numerator, bid)| Level::At {
        numerator,
        denominator: bid.into(),
    })
}

const fn fixed(units: u64) -> Claim {
    Claim {
        offset: units,
        lo: units,
        hi: units,
        bid: 0,
    }
}

/// Step 1: everyone shrinks by the same ratio, down to what lets it survive; if not even that
/// fits, all get the same below it (M4).
fn overload(pods: &[Bounds], capacity: u64, quantum: u64) -> Vec<u64> {
    let survival = |pod: &Bounds| pod.m.min(SURVIVAL_MILLI.div_ceil(quantum));
    let survives = pods.iter().map(survival).sum::<u64>() <= capacity;
    let claims: Vec<Claim> = pods
        .iter()
        .map(|pod| {
            let floor = survival(pod);
            let (lo, hi, bid) = if survives {
                (floor, pod.m, pod.m)
            } else {
                (0, floor, 1)
            };
            Claim {
                offset: 0,
                lo,
                hi,
                bid,
            }
        })
        .collect();
    solve(&claims, capacity).shares
}

fn bound_by(pod: &Pod, bounds: &Bounds, units: u64, step: Step, quantum: u64) -> BoundBy {
    let guard = if pod.cooling {
        BoundBy::Cooldown
    } else {
        BoundBy::Step
    };
    match step {
        Step::Overload | Step::GuardsYield if units == bounds.m => BoundBy::Min,
        Step::Overload if units <= SURVIVAL_MILLI.div_ceil(quantum) => BoundBy::Survival,
        Step::Overload | Step::GuardsYield => BoundBy::Share,
        Step::AllFits | Step::Shared(_) => {
            if units == bounds.hi && bounds.wish < bounds.guard_lo {
                guard
            } else if units == bounds.hi && bounds.guard_hi < bounds.wish {
                BoundBy::Step
            } else if units == bounds.hi && units == bounds.max && bounds.m < bounds.max {
                BoundBy::Max
            } else if units == bounds.hi && units == bounds.need {
                BoundBy::Need
            } else if units == bounds.lo && bounds.m < bounds.lo {
                guard
            } else if units == bounds.m {
                BoundBy::Min
            } else {
                BoundBy::Share
            }
        }
    }
}
