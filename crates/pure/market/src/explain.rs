//! Explains shares in sentences: the reason, the arithmetic, and ways to change it.
//!
//! Works on plain data, so that the agent, the what-if from a file and API clients give the same
//! explanation. Prints the arithmetic of the clearing; displayed values are rounded to nearest.
//! Deliberately absent: columns, colours, and computing anything again.

use crate::act;
use crate::clear::{
    BoundBy, Cleared, Market, Mode, PRICE_MAX_PPM, Policy, SURVIVAL_MILLI, Share, Step,
};
use crate::decimal::{fraction, percent, price};
use crate::kernel::Level;
use crate::ladder::RECENT;
use crate::need::PPM;
use crate::node::Held;

/// The clearing that is explained.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scene {
    /// The node; `None` for a file.
    pub node: Option<String>,
    /// Whether limits are written; if not, the explanation is hypothetical.
    pub acts: bool,
    /// The displayed mode.
    pub mode: Mode,
    /// λ in parts per million.
    pub price_ppm: u64,
    /// The rule that divided.
    pub policy: Policy,
    /// The step of limits.
    pub quantum_milli: u64,
    /// The step of the clearing that divided.
    pub step: Step,
    /// K.
    pub allocatable_milli: u64,
    /// U.
    pub unmanaged_milli: u64,
    /// The limits of held pods.
    pub held_milli: u64,
    /// C.
    pub capacity_milli: u64,
    /// Number of pods.
    pub pods: u64,
    /// The sum of their needs.
    pub need_milli: u64,
    /// The sum of their floors.
    pub min_milli: u64,
    /// W: the number of samples that are remembered; 0 if needs were given.
    pub windows: u64,
    /// Time between samples, in milliseconds.
    pub interval_ms: u64,
    /// The pods that ask for more than their limit.
    pub asking: Vec<String>,
}

/// Data about a pod beside its share.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Evidence {
    /// Its origin.
    pub home: Home,
    /// Its limit, as read back; `None` without a quota.
    pub limit_milli: Option<u64>,
    /// The limit to restore; `None` for no limit.
    pub original_milli: Option<u64>,
    /// Its measured ask; `None` before it was measured.
    pub asked: Option<Asked>,
    /// Why its share was not written, or not all of it.
    pub left_out: Option<BoundBy>,
    /// Seconds since its limit was changed; `None` if it never was.
    pub changed_s: Option<u64>,
    /// Seconds after a change during which it is not changed again.
    pub cooldown_s: u64,
    /// The factor by which a raise multiplies a limit at most.
    pub max_step: Option<u64>,
    /// The reason why it is held.
    pub held: Option<Held>,
}

/// The ask of a pod, with its derivation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// a.
    pub milli: u64,
    /// f.
    pub firm_milli: u64,
    /// u.
    pub used_milli: u64,
    /// q; `None` if the kernel does not count throttling.
    pub throttled_permille: Option<u64>,
    /// S.
    pub size_milli: u64,
    /// The length of two blocks, in which the size was seen, in seconds.
    pub size_s: u64,
    /// Whether 2u bound the ask.
    pub is_stepped: bool,
    /// Whether it asks for more than its limit.
    pub asks: bool,
}

/// Origin of a pod, which determines how its user opts out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Home {
    /// A pod of Kubernetes.
    Kubernetes,
    /// A cgroup declared in the settings.
    Declared,
    /// Our own execution.
    Execution {
        /// The booking's name.
        booking: String,
    },
}

/// The explanation of a share.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Explanation {
    /// Limit, need, and mode of the node.
    pub headline: String,
    /// The rule that divided; `None` for a held pod.
    pub why: Option<String>,
    /// The arithmetic, line by line; a line without a label continues the one before.
    pub how: Vec<(&'static str, String)>,
    /// Conditions under which it gets more.
    pub sooner: Option<String>,
    /// How to opt out.
    pub out: Option<String>,
}

impl Scene {
    /// The scene of a market without a node, as from a file.
    pub fn of_market(market: &Market, cleared: &Cleared) -> Self {
        Self {
            node: None,
            acts: true,
            mode: cleared.mode,
            price_ppm: cleared.price_ppm,
            policy: market.policy,
            quantum_milli: market.quantum_milli,
            step: cleared.step,
            allocatable_milli: market.capacity_milli,
            unmanaged_milli: 0,
            held_milli: 0,
            capacity_milli: cleared.capacity_milli,
            pods: u64::try_from(cleared.shares.len()).unwrap_or(u64::MAX),
            need_milli: cleared.need_milli,
            min_milli: cleared.min_milli,
            windows: u64::try_from(cleared.windows).unwrap_or(u64::MAX),
            interval_ms: 0,
            asking: Vec::new(),
        }
    }

    /// Whether the pods were measured; otherwise demand or need was given.
    const fn is_measured(&self) -> bool {
        self.windows > 0
    }

    /// The length of a window of memory: `4s`.
    fn window(&self, samples: usize) -> String {
        let samples = u64::try_from(samples).unwrap_or(u64::MAX);
        length(samples.saturating_mul(self.interval_ms))
    }
}

/// The first line of `top`.
pub fn headline(scene: &Scene) -> String {
    let node = scene.node.as_deref().unwrap_or("this");
    let (mode, price) = (scene.mode.word(), price(scene.price_ppm));
    match (scene.acts, scene.pods) {
        (true, _) => format!("node {node}: {mode}, price {price}; {}", to_share(scene)),
        (false, 0) => format!(
            "node {node}: only observed; {}m allocatable, {}m unmanaged",
            scene.allocatable_milli, scene.unmanaged_milli
        ),
        (false, _) => format!("node {node}: only observed; would be {mode}, price {price}"),
    }
}

/// The shared capacity and its computation: C = max(min(Σm, K), K − U), with held CPU as part of U.
/// Unmanaged and held CPU takes surplus, never floors (M8).
pub fn to_share(scene: &Scene) -> String {
    let (capacity, allocatable) = (scene.capacity_milli, scene.allocatable_milli);
    let left = allocatable.saturating_sub(scene.held_milli);
    let parts = [
        (scene.unmanaged_milli, "unmanaged"),
        (scene.held_milli, "held"),
    ];
    let parts = parts.into_iter().filter(|(milli, _)| *milli > 0);
    let parts: Vec<String> = parts
        .map(|(milli, word)| format!("{milli}m {word}"))
        .collect();
    let beside = || {
        let beside = parts.iter().map(|part| format!(", {part}"));
        format!("{allocatable}m allocatable{}", beside.collect::<String>())
    };
    let basis = match left.checked_sub(scene.unmanaged_milli) {
        Some(surplus) if capacity <= surplus && parts.is_empty() => beside(),
        Some(surplus) if capacity <= surplus => {
            format!("{allocatable}m allocatable less {}", parts.join(" and "))
        }
        None if capacity == 0 => beside(),
        _ if capacity < scene.min_milli => format!("less than the minimums; {}", beside()),
        _ => format!("the minimums; {}", beside()),
    };
    format!("{capacity}m to share ({basis})")
}

/// Explains one pod.
pub fn explain(scene: &Scene, share: &Share, evidence: Option<&Evidence>) -> Explanation {
    let held = evidence.and_then(|evidence| evidence.held);
    let is_held = held.is_some();
    let mut how = Vec::new();
    how.extend(evidence.map(|evidence| ("wrote", wrote(scene, share, evidence))));
    if !is_held {
        how.extend(need_lines(scene, share, evidence));
        how.push(("gets", gets(scene, share, evidence)));
        how.extend(unwritten(scene, share, evidence).map(|words| ("has", words)));
        how.push(("price", price_line(scene)));
    }
    Explanation {
        headline: pod_headline(scene, share, evidence),
        why: (!is_held).then(|| pod_why(scene, share)),
        how,
        sooner: (!is_held).then(|| sooner(scene, share, evidence)).flatten(),
        out: evidence.map(|evidence| out(scene, &evidence.home)),
    }
}

fn pod_headline(scene: &Scene, share: &Share, evidence: Option<&Evidence>) -> String {
    let limit = evidence.and_then(|evidence| evidence.limit_milli);
    let limit_milli = limit.unwrap_or(share.allocated_milli);
    let place = match &scene.node {
        Some(node) => format!(" on {node}"),
        None => String::new(),
    };
    let may = format!("{} may use {limit_milli}m of CPU{place}", share.id);
    let held = evidence.and_then(|evidence| evidence.held);
    let need = share.need_milli;
    let wants = match scene.step {
        Step::Shared(_) | Step::Overload if scene.is_measured() => "asks for",
        _ => "needs",
    };
    match (held, scene.acts) {
        (Some(held), _) => format!("{may} and is left as it is: {}", held.sentence()),
        (None, true) => format!(
            "{may} and {wants} {need}m: the node is {}",
            scene.mode.word()
        ),
        (None, false) => format!("{may} and {wants} {need}m: it is only observed"),
    }
}

/// The rule that divided a node, in one sentence that is true of all pods.
pub fn why(scene: &Scene) -> String {
    let sum = format!(
        "{}, {}m can be shared",
        pods_need(scene),
        scene.capacity_milli
    );
    match (scene.step, scene.policy) {
        (Step::Rung(window), _) if whole(window) < scene.windows => {
            format!("{sum}: {}", forgotten(scene, window))
        }
        (Step::Rung(_), Policy::FullCapacity) if scene.is_measured() => {
            format!("{sum}: each gets what it needs, and the rest goes by weight and demand")
        }
        (Step::Rung(_), Policy::FullCapacity) => format!("{sum}: each gets its maximum"),
        (Step::Rung(_), _) => format!("{sum}: each gets what it needs"),
        (Step::Shared(Level::At { numerator: 0, .. }), _) => {
            format!("{sum}: each keeps its minimum, and nothing is left")
        }
        (Step::Shared(_), Policy::Proportional) if scene.is_measured() => {
            format!("{sum}: each keeps its minimum, the rest goes by size")
        }
        (Step::Shared(level), Policy::Proportional) => format!(
            "{sum}: each keeps its minimum and gets {} of the rest",
            ratio(level, percent)
        ),
        (Step::Shared(_), Policy::WeightedNash) => {
            format!("{sum}: each keeps its minimum, the rest goes by weight to those who need it")
        }
        (Step::Shared(_), Policy::FullCapacity) => {
            format!("{sum}: each keeps its minimum, all of the rest goes by weight and demand")
        }
        (Step::Overload, _) => format!(
            "the minimums are {}m together, {}m can be shared: each is cut alike, to {}m at least \
             while that fits",
            scene.min_milli, scene.capacity_milli, SURVIVAL_MILLI
        ),
    }
}

/// Who asked, and what is not kept because of that.
fn forgotten(scene: &Scene, window: usize) -> String {
    let who = match scene.asking.as_slice() {
        [] => "limits are above what fits".to_owned(),
        [one] => format!("{one} asks for more than its limit"),
        [one, other] => format!("{one} and {other} ask for more than their limits"),
        [one, rest @ ..] => format!(
            "{one} and {} others ask for more than their limits",
            rest.len()
        ),
    };
    match window {
        0 => format!("{who}, so each keeps what it uses and asks for, without headroom"),
        window => format!(
            "{who}, so use older than {} is not kept",
            scene.window(window)
        ),
    }
}

fn pod_why(scene: &Scene, share: &Share) -> String {
    if is_fixed(scene, share) {
        let min = share.min_milli;
        return format!("it was given {min}m, no more and no less: nothing to share");
    }
    if scene.acts {
        return why(scene);
    }
    format!("nothing is changed here; if it were: {}", why(scene))
}

/// Whether floor and ceiling are equal and the floor is kept, so that there is nothing to decide.
fn is_fixed(scene: &Scene, share: &Share) -> bool {
    share.min_milli == share.max_milli && scene.step != Step::Overload
}

fn pods_need(scene: &Scene) -> String {
    let is_asked = scene.is_measured() && matches!(scene.step, Step::Shared(_));
    let (noun, verb) = match (scene.pods, is_asked) {
        (1, false) => ("pod", "needs"),
        (1, true) => ("pod", "asks for"),
        (_, false) => ("pods", "need"),
        (_, true) => ("pods", "ask for"),
    };
    format!("{} {noun} {verb} {}m", scene.pods, scene.need_milli)
}

fn wrote(scene: &Scene, share: &Share, evidence: &Evidence) -> String {
    let (min, max) = (share.min_milli, share.max_milli);
    let wrote = match (&evidence.home, evidence.original_milli) {
        (Home::Kubernetes, _) => format!("request {min}m, limit {max}m"),
        (_, None) => format!("minimum {min}m, maximum {max}m, limit none"),
        (_, Some(limit)) => format!("minimum {min}m, maximum {max}m, limit {limit}m"),
    };
    match (scene.acts, &evidence.home) {
        (false, _) => wrote,
        (true, Home::Execution { .. }) => format!("{wrote} (kept, and put back in the end)"),
        (true, _) => format!("{wrote} (kept, and put back if you opt out)"),
    }
}

fn need_lines(
    scene: &Scene,
    share: &Share,
    evidence: Option<&Evidence>,
) -> Vec<(&'static str, String)> {
    let asked = evidence.and_then(|evidence| evidence.asked);
    if is_fixed(scene, share) {
        let used = asked.map(|asked| {
            format!(
                "; it used {}m in the last {}",
                asked.used_milli,
                second(scene)
            )
        });
        let (min, used) = (share.min_milli, used.unwrap_or_default());
        return vec![("need", format!("{min}m, its minimum and its maximum{used}"))];
    }
    if let Some(asked) = asked {
        return ask_lines(scene, share, &asked);
    }
    let Some(need) = share.need else {
        return vec![("need", format!("{}m, as given", share.need_milli))];
    };
    let demand = demand(need.demand_ppm);
    let capped = if need.milli < need.uncapped_milli {
        format!(", capped at {}m", need.milli)
    } else {
        String::new()
    };
    let stepped = if need.milli < share.need_milli {
        format!(", {}m{}", share.need_milli, in_steps(scene, " "))
    } else {
        String::new()
    };
    let line = format!(
        "{}m + {demand} × {}m = {}m, plus {} headroom = {}m{capped}{stepped}",
        need.min_milli,
        need.range_milli,
        need.raw_milli,
        percent(need.headroom_ppm.into(), PPM.into()),
        need.uncapped_milli,
    );
    vec![("need", line)]
}

/// The ask, and the size where it decides.
fn ask_lines(scene: &Scene, share: &Share, asked: &Asked) -> Vec<(&'static str, String)> {
    let used = format!(
        "it used {}m in the last {}",
        asked.used_milli,
        second(scene)
    );
    let line = match asked.throttled_permille {
        None if asked.used_milli < asked.milli => {
            format!("{used}, plus 30%, because throttling is not counted here")
        }
        None | Some(0) => format!("{used} and was not held back"),
        Some(1_000) => format!("{used} and was held back in every period"),
        Some(permille) => format!(
            "{used} and was held back in {} of the periods",
            percent(permille.into(), 1_000)
        ),
    };
    let step = match (asked.is_stepped, asked.used_milli < share.min_milli) {
        (false, _) => "",
        (true, false) => "; it asks for twice that at most, until it was seen to use more",
        (true, true) => "; it asks for twice its minimum at most, until it was seen to use more",
    };
    let mut lines = vec![("asks", format!("{}m: {line}{step}", asked.milli))];
    let is_by_size = scene.policy == Policy::Proportional;
    if let (Step::Shared(Level::At { denominator, .. }), true) = (scene.step, is_by_size) {
        lines.push((
            "size",
            format!(
                "{}m: the most it used in a {} of the last {}; all sizes are {denominator}m",
                asked.size_milli,
                second(scene),
                minutes(asked.size_s)
            ),
        ));
    }
    lines
}

/// The reason why the limit differs from the share, if it does.
fn unwritten(scene: &Scene, share: &Share, evidence: Option<&Evidence>) -> Option<String> {
    let (has, gets) = (evidence?.limit_milli?, share.allocated_milli);
    if has == gets || !scene.acts {
        return None;
    }
    let evidence = evidence?;
    Some(match evidence.left_out {
        Some(BoundBy::Budget) => {
            format!("{has}m: the budget of writes is used up for the moment")
        }
        Some(BoundBy::Cooldown) => format!("{has}m: {}", cooling(evidence)),
        Some(BoundBy::MaxStep) => format!(
            "{has}m: a raise multiplies a limit by at most {}",
            evidence.max_step.unwrap_or(1)
        ),
        // A share of 0 is written as 1m.
        _ if (has, gets) == (1, 0) => "1m: the kernel has no limit of 0m".to_owned(),
        _ if act::is_worth_it(has, gets) => format!("{has}m, until there is room for the rest"),
        _ => format!("{has}m: less than 10m or 5% of it is not worth a write"),
    })
}

fn gets(scene: &Scene, share: &Share, evidence: Option<&Evidence>) -> String {
    let (min, got) = (share.min_milli, share.allocated_milli);
    match share.bound_by {
        BoundBy::Max => format!("its maximum: {got}m"),
        BoundBy::Min => format!("its minimum: {got}m"),
        BoundBy::Survival => format!("{got}m, with which it survives, of its minimum {min}m"),
        BoundBy::Share => shared(scene, share),
        BoundBy::Need | BoundBy::Memory | BoundBy::Step => kept(scene, share, evidence),
        // These say why a share was not written, and decide none.
        BoundBy::Budget | BoundBy::Cooldown | BoundBy::MaxStep => format!("{got}m"),
    }
}

/// What a rung keeps of a pod's use.
fn kept(scene: &Scene, share: &Share, evidence: Option<&Evidence>) -> String {
    let got = share.allocated_milli;
    let Some(evidence) = evidence.filter(|_| scene.is_measured()) else {
        return format!("all it needs: {got}m");
    };
    let asks = evidence.asked.is_some_and(|asked| asked.asks);
    if evidence.limit_milli == Some(got) && !asks && share.bound_by == BoundBy::Need {
        return format!("{got}m, what it has: it does not ask for more");
    }
    let window = scene.step.rung().unwrap_or(0);
    let reason = match share.bound_by {
        BoundBy::Memory => "; older use is not kept because others ask",
        _ => "",
    };
    // The mean of recent use counts where it is above the present use.
    let is_mean = evidence
        .asked
        .is_some_and(|asked| asked.milli < asked.firm_milli);
    match (window, asks) {
        (1..RECENT, false) if is_mean => format!(
            "{got}m: what it used in the last {}, plus headroom{reason}",
            scene.window(RECENT)
        ),
        (0, _) => format!("{got}m: what it asks for, without headroom, because others ask"),
        (_, true) => format!("{got}m: what it asks for, plus headroom{reason}"),
        (window, false) => format!(
            "{got}m: the most it used in the last {}, plus headroom{reason}",
            scene.window(window)
        ),
    }
}

/// The arithmetic of a share.
fn shared(scene: &Scene, share: &Share) -> String {
    let (min, got) = (share.min_milli, share.allocated_milli);
    match (scene.step, scene.policy) {
        (Step::Shared(level), Policy::Proportional) if scene.is_measured() => {
            let Level::At {
                numerator,
                denominator,
            } = level
            else {
                return format!("{got}m");
            };
            let rest = numerator.saturating_mul(scene.quantum_milli.max(1));
            format!(
                "{min}m + {rest}m × {}/{denominator} = {got}m{}",
                share.bid,
                in_steps(scene, ", ")
            )
        }
        (Step::Shared(level), Policy::Proportional) => {
            let ratio = ratio(level, |numerator, denominator| {
                fraction(numerator, denominator, 3)
            });
            let need = share.need_milli;
            format!(
                "{min}m + {ratio} × ({need}m - {min}m) = {got}m{}",
                in_steps(scene, ", ")
            )
        }
        (Step::Shared(level), Policy::WeightedNash) => {
            let per_bid = per_bid(level, scene.quantum_milli, 1);
            format!(
                "{min}m + {} × {per_bid}m = {got}m, by its weight {}{}",
                share.bid,
                share.bid,
                in_steps(scene, ", ")
            )
        }
        (Step::Shared(level), Policy::FullCapacity) if share.bid > 0 => {
            let per_bid = per_bid(level, scene.quantum_milli, PPM);
            let bid = fraction(share.bid.into(), PPM.into(), 2);
            format!(
                "{min}m + {bid} × {per_bid}m = {got}m, by weight × demand{}",
                in_steps(scene, ", ")
            )
        }
        (Step::Shared(_) | Step::Rung(_), _) => {
            format!("{got}m: {min}m and what bidders left, by weight")
        }
        (Step::Overload, _) => {
            let part = percent(got.into(), min.max(1).into());
            format!("{part} of its minimum {min}m = {got}m")
        }
    }
}

/// `it was changed 3s ago, and may change again in 7s`.
fn cooling(evidence: &Evidence) -> String {
    match (evidence.changed_s, evidence.cooldown_s) {
        (Some(changed), cooldown) if changed <= cooldown => {
            let left = cooldown - changed;
            format!("it was changed {changed}s ago, and may change again in {left}s")
        }
        _ => "it was changed too recently".to_owned(),
    }
}

/// Suffix of a number that is a multiple of the quantum.
fn in_steps(scene: &Scene, joint: &str) -> String {
    match scene.quantum_milli {
        0 | 1 => String::new(),
        quantum => format!("{joint}in steps of {quantum}m"),
    }
}

/// The price and its computation.
pub fn price_line(scene: &Scene) -> String {
    let shown = price(scene.price_ppm);
    let zero = if scene.is_measured() {
        "0 when nothing had to be forgotten"
    } else {
        "0 when nobody is held back"
    };
    match (scene.price_ppm, scene.step, scene.policy) {
        (0, ..) if scene.is_measured() => "0: nothing had to be forgotten".to_owned(),
        (0, ..) => "0: nobody is held back".to_owned(),
        (PRICE_MAX_PPM, ..) => "no millicore is free".to_owned(),
        (_, Step::Rung(window), _) => {
            let windows = scene.window(usize::try_from(scene.windows).unwrap_or(0));
            let kept = scene.window(window);
            format!("{shown}: of the last {windows}, {kept} are kept; {zero}")
        }
        (_, Step::Shared(_), _) if scene.is_measured() => format!(
            "{shown} = {}m asked above the minimums / {}m; {zero}",
            scene.need_milli.saturating_sub(scene.min_milli),
            scene.capacity_milli.saturating_sub(scene.min_milli)
        ),
        (_, Step::Shared(level), Policy::Proportional) => {
            let ratio = ratio(level, |numerator, denominator| {
                fraction(numerator, denominator, 3)
            });
            format!("{shown} = 1 / {ratio}; {zero}")
        }
        _ => format!("{shown} for one more millicore; {zero}"),
    }
}

fn sooner(scene: &Scene, share: &Share, evidence: Option<&Evidence>) -> Option<String> {
    if is_fixed(scene, share) {
        return wider(share, evidence?);
    }
    if !scene.acts || share.need_milli <= share.allocated_milli {
        return None;
    }
    let need = share.need_milli;
    let short = scene.need_milli.saturating_sub(scene.capacity_milli);
    if short == 0 {
        return Some(format!("it goes on towards {need}m at the next clearing"));
    }
    // Needs do not fall below floors, so the others may not be able to make room.
    let claims = scene.need_milli.saturating_sub(scene.min_milli);
    let others = claims.saturating_sub(need.saturating_sub(share.min_milli));
    let room = scene.allocatable_milli.saturating_sub(scene.held_milli);
    let unmanaged = (scene.need_milli + scene.unmanaged_milli).saturating_sub(room);
    let verb = if scene.is_measured() {
        "ask for"
    } else {
        "need"
    };
    Some(if short <= others {
        format!(
            "it gets {need}m when the others {verb} {short}m less, or on a node with that much room"
        )
    } else if 0 < unmanaged && unmanaged <= scene.unmanaged_milli {
        format!(
            "it gets {need}m when {unmanaged}m less is used unmanaged, or on a node with that much \
             more room"
        )
    } else {
        format!("it gets {need}m on a node with {short}m more room")
    })
}

/// The setting that would let a pod with equal floor and ceiling use more, if its demand is higher.
fn wider(share: &Share, evidence: &Evidence) -> Option<String> {
    let milli = evidence.asked?.milli;
    let what = match evidence.home {
        Home::Kubernetes => "a limit above its request",
        Home::Declared => "a `max` above its `min`",
        Home::Execution { .. } => "`--cpu-limit` above `--cpu`",
    };
    let wants_more = share.max_milli <= milli;
    wants_more.then(|| format!("with {what} it could use what others leave"))
}

fn out(scene: &Scene, home: &Home) -> String {
    if !scene.acts {
        return "nothing to opt out of: no limit is written here".to_owned();
    }
    match home {
        Home::Kubernetes => {
            "label it `bursar.dev/market: \"off\"`: its own limit is back at the next clearing"
                .to_owned()
        }
        Home::Declared => {
            "take its `[[cgroup]]` out of the settings and start anew: its own limit is put back"
                .to_owned()
        }
        Home::Execution { booking } => {
            format!("`bursar booking cancel {booking}` ends it; until then it takes part")
        }
    }
}

fn whole(samples: usize) -> u64 {
    u64::try_from(samples).unwrap_or(u64::MAX)
}

/// The interval of samples: `second`, or its length.
fn second(scene: &Scene) -> String {
    match scene.interval_ms {
        1_000 => "second".to_owned(),
        ms => length(ms),
    }
}

/// `4s`, or `800ms`.
fn length(ms: u64) -> String {
    if ms.is_multiple_of(1_000) {
        format!("{}s", ms / 1_000)
    } else {
        format!("{ms}ms")
    }
}

/// `10 minutes`, or `20s`.
fn minutes(seconds: u64) -> String {
    match seconds / 60 {
        minutes if minutes >= 2 && seconds.is_multiple_of(60) => format!("{minutes} minutes"),
        _ => format!("{seconds}s"),
    }
}

/// Two decimals, or three if two are not exact.
fn demand(ppm: u64) -> String {
    let places = if ppm.is_multiple_of(10_000) { 2 } else { 3 };
    fraction(ppm.into(), PPM.into(), places)
}

fn ratio(level: Level, text: impl Fn(u128, u128) -> String) -> String {
    match level {
        Level::Full => text(1, 1),
        Level::At {
            numerator,
            denominator,
        } => text(numerator.into(), denominator),
    }
}

fn per_bid(level: Level, quantum_milli: u64, bids_per_unit: u64) -> String {
    ratio(level, |numerator, denominator| {
        let scale = u128::from(quantum_milli.max(1)) * u128::from(bids_per_unit);
        fraction(numerator.saturating_mul(scale), denominator, 3)
    })
}
