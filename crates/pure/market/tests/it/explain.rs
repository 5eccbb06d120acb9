//! The explanations, word for word, with their numbers.

use bursar_market::cgroup::Quota;
use bursar_market::clear::{BoundBy, Cleared, Market, Pod, Policy, Want, clear};
use bursar_market::decimal::{fraction, percent, price};
use bursar_market::explain::{
    Asked, Evidence, Explanation, Home, Scene, explain, headline, price_line, to_share, why,
};
use bursar_market::node::{Held, Node, Settings, Supply};
use bursar_market::params::Params;
use bursar_market::sense::Sample;

/// The node of the examples.
fn market() -> Market {
    let pod = |id: &str, max_milli, percent: u64| Pod {
        id: id.into(),
        min_milli: 100,
        max_milli,
        weight: 100,
        want: Want::Demand(percent * 10_000),
        headroom_permille: 100,
    };
    Market {
        capacity_milli: 1500,
        policy: Policy::Proportional,
        quantum_milli: 10,
        pods: vec![
            pod("batch/thumbs-x1", 600, 70),
            pod("shop/api-7c9f", 1000, 90),
            pod("shop/search-5d2b", 1000, 90),
        ],
    }
}

fn scene(market: &Market, cleared: &Cleared) -> Scene {
    Scene {
        node: Some("w-17".to_owned()),
        allocatable_milli: 1800,
        unmanaged_milli: 300,
        ..Scene::of_market(market, cleared)
    }
}

fn evidence() -> Evidence {
    Evidence {
        home: Home::Kubernetes,
        limit_milli: Some(580),
        original_milli: Some(1000),
        asked: None,
        left_out: None,
        changed_s: Some(240),
        cooldown_s: 30,
        max_step: Some(4),
        held: None,
    }
}

fn explained(market: &Market, at: usize) -> Explanation {
    let cleared = clear(market);
    explain(&scene(market, &cleared), &cleared.shares[at], None)
}

fn how<'a>(explanation: &'a Explanation, word: &str) -> &'a str {
    let mut lines = explanation.how.iter();
    &lines.find(|(line, _)| *line == word).unwrap().1
}

#[test]
fn a_limit_that_differs_from_its_share_is_explained() {
    let market = market();
    let cleared = clear(&market);
    let scene = scene(&market, &cleared);
    let has = |limit_milli| {
        let evidence = Evidence {
            limit_milli: Some(limit_milli),
            ..evidence()
        };
        let explanation = explain(&scene, &cleared.shares[1], Some(&evidence));
        let has = explanation.how.into_iter().find(|(word, _)| *word == "has");
        has.map(|(_, words)| words)
    };
    assert_eq!(has(580), None);
    let small = "570m: less than 10m or 5% of it is not worth a write";
    assert_eq!(has(570).as_deref(), Some(small));
    let large = "400m, until there is room for the rest";
    assert_eq!(has(400).as_deref(), Some(large));
}

/// A node after two seconds: id, maximum, limit, size, then use and throttled time of the last second.
struct Measured {
    node: Node,
    interval_ms: u64,
}

type Row = (&'static str, u64, u64, u64, (u64, u64));

const CROWD: [Row; 3] = [
    ("batch/thumbs-x1", 600, 370, 394, (370, 230)),
    ("shop/api-7c9f", 1000, 580, 700, (580, 420)),
    ("shop/search-5d2b", 1000, 550, 656, (550, 450)),
];

impl Measured {
    fn new(rows: &[Row], allocatable_milli: u64, settings: Settings) -> Self {
        let mut node = Node::new(settings);
        let mut all: Vec<Sample> = Vec::new();
        for (id, max_milli, limit, ..) in rows {
            let params = Params {
                min_milli: 100,
                max_milli: *max_milli,
                weight: 100,
            };
            let quota = Quota::of_milli(*limit, 100_000);
            node.adopt(id, params, quota, quota);
            all.push(Sample {
                throttled_us: Some(0),
                periods: Some(0),
                throttled_periods: Some(0),
                ..Sample::default()
            });
            node.observe(id, all.last().copied());
        }
        for second in 1..=2 {
            for ((id, _, _, size, (used, throttled)), sample) in rows.iter().zip(&mut all) {
                let (used, throttled) = if second == 1 {
                    (*size, 0)
                } else {
                    (*used, *throttled)
                };
                let periods = if throttled > 0 { 10 } else { 0 };
                *sample = Sample {
                    at_us: second * 1_000_000,
                    usage_us: sample.usage_us + used * 1_000,
                    throttled_us: sample.throttled_us.map(|us| us + throttled * 1_000),
                    periods: sample.periods.map(|all| all + 10),
                    throttled_periods: sample.throttled_periods.map(|all| all + periods),
                };
                node.observe(id, Some(*sample));
            }
            let supply = Supply {
                allocatable_milli,
                unmanaged_milli: Some(300),
            };
            node.clear(second * 1_000_000, supply);
        }
        Self {
            node,
            interval_ms: 1_000,
        }
    }

    fn scene(&self) -> Scene {
        let last = self.node.last().unwrap();
        let market = Market {
            capacity_milli: last.cleared.capacity_milli,
            ..market()
        };
        let asks = self.node.standings().filter(|standing| {
            let estimate = standing.estimate;
            estimate.is_some_and(|estimate| estimate.asks)
        });
        Scene {
            node: Some("w-17".to_owned()),
            mode: last.label,
            quantum_milli: 10,
            allocatable_milli: last.allocatable_milli,
            unmanaged_milli: last.unmanaged_milli,
            interval_ms: self.interval_ms,
            asking: asks.map(|standing| standing.id).collect(),
            ..Scene::of_market(&market, &last.cleared)
        }
    }

    fn explain(&self, id: &str) -> Explanation {
        let last = self.node.last().unwrap();
        let standing = self.node.standings().find(|standing| standing.id == id);
        let standing = standing.unwrap();
        let estimate = standing.estimate.unwrap();
        let evidence = Evidence {
            limit_milli: Some(standing.bidder.limit_milli),
            asked: Some(Asked {
                milli: estimate.ask_milli,
                firm_milli: estimate.firm_milli,
                used_milli: estimate.reading.used_milli,
                throttled_permille: standing.throttled_permille,
                size_milli: estimate.size_milli,
                size_s: 600,
                is_stepped: estimate.is_stepped,
                asks: estimate.asks,
            }),
            left_out: standing.left_out,
            ..evidence()
        };
        explain(
            &self.scene(),
            last.cleared.share(id).unwrap(),
            Some(&evidence),
        )
    }
}

fn kubernetes() -> Settings {
    Settings {
        quantum_milli: 10,
        ..Settings::default()
    }
}

#[test]
fn the_transcript_of_one_pod_is_word_for_word() {
    let measured = Measured::new(&CROWD, 1800, kubernetes());
    let expected = Explanation {
        headline: "shop/api-7c9f may use 580m of CPU on w-17 and asks for 1000m: the node is congested".to_owned(),
        why: Some("3 pods ask for 2600m, 1500m can be shared: each keeps its minimum, the rest goes by size".to_owned()),
        how: vec![
            ("wrote", "request 100m, limit 1000m (kept, and put back if you opt out)".to_owned()),
            ("asks", "1000m: it used 580m in the last second and was held back in every period".to_owned()),
            ("size", "700m: the most it used in a second of the last 10 minutes; all sizes are 1750m".to_owned()),
            ("gets", "100m + 1200m × 700/1750 = 580m, in steps of 10m".to_owned()),
            ("price", "1.92 = 2300m asked above the minimums / 1200m; 0 when nothing had to be forgotten".to_owned()),
        ],
        sooner: Some("it gets 1000m when the others ask for 1100m less, or on a node with that much room".to_owned()),
        out: Some("label it `bursar.dev/market: \"off\"`: its own limit is back at the next clearing".to_owned()),
    };
    assert_eq!(measured.explain("shop/api-7c9f"), expected);
    assert_eq!(
        headline(&measured.scene()),
        "node w-17: congested, price 1.92; 1500m to share (1800m allocatable less 300m unmanaged)"
    );
}

#[test]
fn an_explanation_names_the_rung_the_window_and_who_asked() {
    // api used much more a second ago than now; search asks for a size that it is known to have.
    let rows: [Row; 3] = [
        ("api", 1000, 900, 800, (300, 0)),
        ("batch", 600, 400, 120, (120, 0)),
        ("search", 1000, 300, 700, (300, 400)),
    ];
    let measured = Measured::new(&rows, 2000, Settings::default());
    let scene = measured.scene();
    assert_eq!(
        why(&scene),
        "3 pods need 1618m, 1700m can be shared: search asks for more than its limit, \
         so use older than 1s is not kept"
    );
    assert_eq!(
        price_line(&scene),
        "0.90: of the last 10s, 1s are kept; 0 when nothing had to be forgotten"
    );
    let api = measured.explain("api");
    assert_eq!(
        how(&api, "gets"),
        "646m: what it used in the last 5s, plus headroom; older use is not kept because others ask"
    );
    assert_eq!(
        how(&api, "asks"),
        "300m: it used 300m in the last second and was not held back"
    );
    let search = measured.explain("search");
    assert_eq!(
        how(&search, "gets"),
        "840m: what it asks for, plus headroom"
    );
    // With room for all of it, nothing is forgotten.
    let roomy = Measured::new(&rows, 9000, Settings::default());
    assert_eq!(
        (
            why(&roomy.scene()).as_str(),
            price_line(&roomy.scene()).as_str()
        ),
        (
            "3 pods need 2140m, 8700m can be shared: each gets what it needs",
            "0: nothing had to be forgotten"
        )
    );
    assert_eq!(
        how(&roomy.explain("batch"), "gets"),
        "400m, what it has: it does not ask for more"
    );
}

#[test]
fn a_share_that_was_not_written_is_explained() {
    let rows: [Row; 1] = [("a", 1000, 200, 700, (200, 500))];
    let check = |settings, word: BoundBy, words: &str| {
        let measured = Measured::new(&rows, 4000, settings);
        let standing = measured.node.standings().next().unwrap();
        assert_eq!(standing.left_out, Some(word));
        assert_eq!(how(&measured.explain("a"), "has"), words);
    };
    check(
        Settings {
            writes_per_hour: 0,
            ..Settings::default()
        },
        BoundBy::Budget,
        "200m: the budget of writes is used up for the moment",
    );
    check(
        Settings {
            max_step: Some(2),
            ..Settings::default()
        },
        BoundBy::MaxStep,
        "200m: a raise multiplies a limit by at most 4",
    );
}

#[test]
fn the_first_line_of_top_is_word_for_word() {
    let market = market();
    let cleared = clear(&market);
    let scene = scene(&market, &cleared);
    assert_eq!(
        headline(&scene),
        "node w-17: congested, price 1.88; 1500m to share (1800m allocatable less 300m unmanaged)"
    );
    let observed = Scene {
        acts: false,
        ..scene
    };
    assert_eq!(
        headline(&observed),
        "node w-17: only observed; would be congested, price 1.88"
    );
    assert_eq!(
        headline(&Scene {
            pods: 0,
            ..observed
        }),
        "node w-17: only observed; 1800m allocatable, 300m unmanaged"
    );
}

#[test]
fn the_shared_capacity_is_explained() {
    let market = market();
    let cleared = clear(&market);
    let check = |min, allocatable, unmanaged, held, words: &str| {
        let left = allocatable - held;
        let capacity_milli = bursar_market::capacity::capacity_milli(left, unmanaged, min);
        let scene = Scene {
            capacity_milli,
            allocatable_milli: allocatable,
            unmanaged_milli: unmanaged,
            held_milli: held,
            min_milli: min,
            ..scene(&market, &cleared)
        };
        assert_eq!(to_share(&scene), words);
    };
    check(300, 1800, 0, 0, "1800m to share (1800m allocatable)");
    check(
        300,
        1800,
        300,
        100,
        "1400m to share (1800m allocatable less 300m unmanaged and 100m held)",
    );
    // Unmanaged use takes surplus, never floors: here nothing is subtracted.
    check(
        1500,
        1800,
        600,
        0,
        "1500m to share (the minimums; 1800m allocatable, 600m unmanaged)",
    );
    check(
        300,
        1800,
        1994,
        100,
        "300m to share (the minimums; 1800m allocatable, 1994m unmanaged, 100m held)",
    );
    check(
        2000,
        1800,
        600,
        0,
        "1800m to share (less than the minimums; 1800m allocatable, 600m unmanaged)",
    );
    check(
        0,
        1800,
        1994,
        0,
        "0m to share (1800m allocatable, 1994m unmanaged)",
    );
}

#[test]
fn each_rule_has_its_arithmetic() {
    let mut market = market();
    assert_eq!(
        how(&explained(&market, 0), "need"),
        "100m + 0.70 × 500m = 450m, plus 20.5% headroom = 542m, 550m in steps of 10m"
    );
    market.quantum_milli = 1;
    market.pods[2].weight = 300;
    market.policy = Policy::WeightedNash;
    let nash = explained(&market, 2);
    assert_eq!(
        how(&nash, "gets"),
        "100m + 300 × 2.400m = 820m, by its weight 300"
    );
    assert_eq!(
        how(&nash, "price"),
        "0.42 for one more millicore; 0 when nobody is held back"
    );
    market.policy = Policy::FullCapacity;
    let full = explained(&market, 2);
    assert_eq!(
        how(&full, "gets"),
        "100m + 270.00 × 2.791m = 854m, by weight × demand"
    );
    market.policy = Policy::Proportional;
    market.capacity_milli = 200;
    let overloaded = explained(&market, 0);
    assert_eq!(how(&overloaded, "gets"), "67.0% of its minimum 100m = 67m");
    assert_eq!(how(&overloaded, "price"), "no millicore is free");
    market.capacity_milli = 9000;
    let fits = explained(&market, 1);
    assert_eq!(how(&fits, "gets"), "its maximum: 1000m");
    assert_eq!(
        (how(&fits, "price"), fits.sooner.as_ref()),
        ("0: nobody is held back", None)
    );
    assert_eq!(
        fits.why.as_deref(),
        Some("3 pods need 2542m, 9000m can be shared: each gets what it needs")
    );
    market.pods[1].want = Want::Need(640);
    let given = explained(&market, 1);
    assert_eq!(
        (how(&given, "need"), how(&given, "gets")),
        ("640m, as given", "all it needs: 640m")
    );
}

fn asked(milli: u64) -> Asked {
    Asked {
        milli,
        firm_milli: milli,
        used_milli: 500,
        throttled_permille: Some(0),
        size_milli: 500,
        size_s: 600,
        is_stepped: false,
        asks: false,
    }
}

#[test]
fn equal_floor_and_ceiling_leave_nothing_to_share() {
    let mut market = market();
    market.quantum_milli = 1;
    market.pods[1].min_milli = 500;
    market.pods[1].max_milli = 500;
    let cleared = clear(&market);
    let evidence = Evidence {
        home: Home::Execution {
            booking: "job".to_owned(),
        },
        asked: Some(asked(910)),
        ..evidence()
    };
    let scene = Scene {
        interval_ms: 1_000,
        ..scene(&market, &cleared)
    };
    let fixed = explain(&scene, &cleared.shares[1], Some(&evidence));
    assert_eq!(
        fixed.why.as_deref(),
        Some("it was given 500m, no more and no less: nothing to share")
    );
    assert_eq!(
        how(&fixed, "need"),
        "500m, its minimum and its maximum; it used 500m in the last second"
    );
    assert_eq!(
        fixed.sooner.as_deref(),
        Some("with `--cpu-limit` above `--cpu` it could use what others leave")
    );
    assert_eq!(
        fixed.out.as_deref(),
        Some("`bursar booking cancel job` ends it; until then it takes part")
    );
    let idle = Evidence {
        asked: Some(asked(499)),
        ..evidence
    };
    assert_eq!(
        explain(&scene, &cleared.shares[1], Some(&idle)).sooner,
        None
    );
    // In overload it is cut like the others.
    market.capacity_milli = 350;
    let why = explained(&market, 1).why.unwrap();
    assert!(why.starts_with("the minimums are 700m together"), "{why}");
}

#[test]
fn the_condition_for_more_is_possible() {
    // The others keep their floors, so they cannot make room for the whole need of one pod.
    let mut market = market();
    market.quantum_milli = 1;
    market.capacity_milli = 300;
    for pod in &mut market.pods {
        pod.want = Want::Need(100);
    }
    market.pods[1].want = Want::Need(1000);
    let cleared = clear(&market);
    let check = |allocatable_milli, unmanaged_milli, words: &str| {
        let scene = Scene {
            allocatable_milli,
            unmanaged_milli,
            ..scene(&market, &cleared)
        };
        let told = explain(&scene, &cleared.shares[1], None);
        assert_eq!(told.sooner.as_deref(), Some(words));
        told
    };
    let told = check(
        1800,
        1700,
        "it gets 1000m when 1100m less is used unmanaged, or on a node with that much more room",
    );
    assert_eq!(
        (told.why.as_deref(), how(&told, "price")),
        (
            Some(
                "3 pods need 1200m, 300m can be shared: each keeps its minimum, and nothing is left"
            ),
            "no millicore is free"
        )
    );
    check(300, 0, "it gets 1000m on a node with 900m more room");
}

#[test]
fn an_observed_pod_is_explained_hypothetically() {
    let market = market();
    let cleared = clear(&market);
    let scene = Scene {
        acts: false,
        ..scene(&market, &cleared)
    };
    let evidence = Evidence {
        home: Home::Declared,
        ..evidence()
    };
    let told = explain(&scene, &cleared.shares[1], Some(&evidence));
    assert_eq!(
        told.headline,
        "shop/api-7c9f may use 580m of CPU on w-17 and needs 1000m: it is only observed"
    );
    let why = told.why.unwrap();
    let begin = "nothing is changed here; if it were: 3 pods need 2550m, ";
    assert!(why.starts_with(begin), "{why}");
    assert_eq!(
        (told.sooner, told.out.as_deref()),
        (
            None,
            Some("nothing to opt out of: no limit is written here")
        )
    );
}

#[test]
fn a_held_pod_is_explained_by_its_reason() {
    let market = market();
    let cleared = clear(&market);
    let evidence = Evidence {
        held: Some(Held::Conflict),
        home: Home::Declared,
        original_milli: None,
        ..evidence()
    };
    let held = explain(
        &scene(&market, &cleared),
        &cleared.shares[1],
        Some(&evidence),
    );
    assert_eq!(
        held.headline,
        "shop/api-7c9f may use 580m of CPU on w-17 and is left as it is: somebody else changed its limit"
    );
    assert_eq!((held.why, held.sooner), (None, None));
    assert_eq!(
        held.how,
        [(
            "wrote",
            "minimum 100m, maximum 1000m, limit none (kept, and put back if you opt out)"
                .to_owned()
        )]
    );
}

#[test]
fn numbers_are_rounded_to_the_nearest_without_a_float() {
    assert_eq!(fraction(120, 225, 3), "0.533");
    assert_eq!(fraction(9_996, 10_000, 3), "1.000");
    assert_eq!(fraction(5, 10, 0), "1");
    assert_eq!(fraction(u128::MAX, 0, 2), format!("{}.00", u128::MAX));
    assert_eq!(percent(120, 225), "53.3%");
    assert_eq!(
        [0, 5, 3_750, 125_000, 1_875_000, 1_000_000_000_000].map(price),
        ["0", "0.000005", "0.0038", "0.13", "1.88", "max"]
    );
}
