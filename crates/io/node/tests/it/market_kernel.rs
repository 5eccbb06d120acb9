//! The node market on the real kernel, with CPU burners: needs are met, scarce CPU is shared by the
//! rule, and the originals are always restored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar_market::cgroup::Quota;
use bursar_market::clear::{self, Mode};
use bursar_market::node::{Held, Settings};
use bursar_node::executor::{Begun, Executor as _};
use bursar_node::market::originals::Originals;
use bursar_node::market::{
    self, Acts, Agent, Deed, Execution, Executions, Place, Unmanaged, View, record,
};

use crate::host::{Host, id};
use crate::market_ground::{Ground, limit, share, wait_for};

/// The shared capacity.
const CAPACITY_MILLI: u64 = 600;
/// The limit of an idle pod is below this: its floor of 50m with headroom, and changes too small for a
/// write.
const NEAR_FLOOR_MILLI: u64 = 70;

fn label(view: &View) -> Option<Mode> {
    view.clearing.as_ref().map(|clearing| clearing.label)
}

/// Whether a limit differs from its share by less than is worth a write.
fn is_near(limit_milli: u64, share_milli: u64) -> bool {
    limit_milli.abs_diff(share_milli) < 10.max(limit_milli.div_ceil(20))
}

#[test]
fn a_limit_rises_to_need_with_a_load_spike_and_falls_back_after_it() {
    let mut ground = Ground::new();
    ground.group("a", Some(400));
    ground.group("b", None);
    let cgroups = vec![ground.declared("a", 50, 400), ground.declared("b", 50, 300)];
    let agent = Agent::start(ground.options(CAPACITY_MILLI, cgroups)).unwrap();
    let watch = ground.watch(CAPACITY_MILLI, &[("a", 400), ("b", 300)]);
    wait_for(&agent, "idle pods are near their floors", |view| {
        limit(view, "a") < NEAR_FLOOR_MILLI && limit(view, "b") < NEAR_FLOOR_MILLI
    });
    assert_eq!(label(&agent.view()), Some(Mode::Uncongested));
    ground.burn("a");
    wait_for(&agent, "the burner has all it may need", |view| {
        limit(view, "a") == 400
    });
    assert_eq!(ground.quota("a").milli_ceil(), Some(400));
    let view = agent.view();
    assert_eq!(share(&view, "a"), Some((400, 400)));
    assert_eq!(label(&view), Some(Mode::Uncongested));
    assert_eq!(view.clearing.as_ref().unwrap().cleared.price_ppm, 0);
    ground.rest("a");
    wait_for(&agent, "it falls back", |view| {
        limit(view, "a") < NEAR_FLOOR_MILLI
    });
    let most = watch.most();
    assert!((1..=CAPACITY_MILLI).contains(&most), "{most}");
    let told = agent.stop().unwrap();
    assert_eq!(told.failed, []);
    assert_eq!(ground.quota("a").milli_ceil(), Some(400));
    assert_eq!(ground.quota("b").quota_us, None);
}

#[test]
fn scarce_cpu_is_shared_by_the_rule_until_one_leaves() {
    let mut ground = Ground::new();
    for name in ["a", "b", "c"] {
        ground.group(name, None);
        ground.burn(name);
    }
    let cgroups = vec![
        ground.declared("a", 50, 250),
        ground.declared("b", 50, 250),
        ground.declared("c", 100, 200),
    ];
    let options = ground.options(CAPACITY_MILLI, cgroups);
    let directory = options.directory.clone();
    let agent = Agent::start(options).unwrap();
    // Asks of 250, 250 and 200: each keeps its floor, and the rest goes by size.
    let all = ["a", "b", "c"];
    let watch = ground.watch(CAPACITY_MILLI, &[("a", 250), ("b", 250), ("c", 200)]);
    wait_for(&agent, "all shares are as the rule says", |view| {
        let is_written =
            |pod: &&str| share(view, pod).is_some_and(|(_, got)| is_near(limit(view, pod), got));
        label(view) == Some(Mode::Congested) && all.iter().all(is_written)
    });
    let view = agent.view();
    let clearing = view.clearing.as_ref().unwrap();
    assert_eq!(clearing.cleared.price_ppm, 1_250_000);
    let shares = &clearing.cleared.shares;
    let sum: u64 = shares.iter().map(|share| share.allocated_milli).sum();
    assert_eq!(sum, CAPACITY_MILLI);
    // Less than the ask only in proportion to the size.
    let per_size =
        |share: &clear::Share| (share.allocated_milli - share.min_milli) * 1_000 / share.bid;
    let cut = shares
        .iter()
        .filter(|share| share.allocated_milli < share.need_milli);
    let cut: Vec<u64> = cut.map(per_size).collect();
    let (least, most) = (cut.iter().min().unwrap(), cut.iter().max().unwrap());
    assert!(most - least <= 10, "{shares:?}");
    for share in shares {
        // In the kernel too, not only in the view.
        let milli = ground.quota(&share.id).milli_ceil().unwrap();
        assert!(is_near(milli, share.allocated_milli), "{share:?} {milli}");
    }
    ground.remove("c");
    wait_for(&agent, "nobody is held back any more", |view| {
        label(view) == Some(Mode::Uncongested) && is_near(limit(view, "a"), 250)
    });
    let most = watch.most();
    assert!((1..=CAPACITY_MILLI).contains(&most), "{most}");
    let view = agent.view();
    assert!(is_near(limit(&view, "b"), 250), "{}", limit(&view, "b"));
    assert_eq!(view.clearing.as_ref().unwrap().cleared.price_ppm, 0);
    let gone: Vec<&str> = view
        .unmanaged
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(gone, ["c"]);
    agent.stop().unwrap();
    assert_eq!(ground.quota("a").quota_us, None);
    // Every clearing replays with the same result.
    let mut floors_kept = true;
    let verified = record::read(&directory, |past| {
        let mut shares = past
            .replayed
            .iter()
            .flat_map(|past| &past.clearing.cleared.shares);
        floors_kept &= shares.all(|share| share.min_milli <= share.allocated_milli);
    });
    assert_eq!(verified.unwrap().lines, agent.view().clearings + 1);
    assert!(floors_kept);
}

/// Method: a pod at the default interval of a second; the time from a spike until the limit covers it,
/// for a size that is new and for one that is known. Other tests burn CPU beside it, and a burner that
/// does not get its limit does not ask: so one of some pods has to be in time, each fresh.
#[test]
fn a_new_size_is_followed_within_5_s_and_a_known_one_within_2_s() {
    let mut seen = Vec::new();
    let is_in_time = (0..4).any(|_| {
        let [new, known] = spikes();
        seen.push([new, known]);
        new <= Duration::from_secs(5) && known <= Duration::from_secs(2)
    });
    assert!(is_in_time, "{seen:?}");
}

/// The times until the limit of a pod covers two spikes to sixteen times its minimum.
fn spikes() -> [Duration; 2] {
    let mut ground = Ground::new();
    ground.group("a", None);
    let mut options = ground.options(CAPACITY_MILLI, vec![ground.declared("a", 25, 400)]);
    options.settings = Settings::default();
    options.interval = Duration::from_secs(1);
    let agent = Agent::start(options).unwrap();
    let watch = ground.watch(CAPACITY_MILLI, &[("a", 400)]);
    let took = [(); 2].map(|()| {
        wait_for(&agent, "it is idle", |view| limit(view, "a") < 50);
        ground.burn("a");
        let began = Instant::now();
        wait_for(&agent, "the burner has its ceiling", |view| {
            is_near(limit(view, "a"), 400)
        });
        let took = began.elapsed();
        ground.rest("a");
        took
    });
    let most = watch.most();
    assert!((1..=CAPACITY_MILLI).contains(&most), "{most}");
    agent.stop().unwrap();
    assert_eq!(ground.quota("a").quota_us, None);
    took
}

/// Method: two burners in no declared group take what they can. They take at most their bound of the
/// shared capacity, so two pods keep the rest of the node.
#[test]
fn beside_unmanaged_hogs_the_limits_keep_all_but_their_bound() {
    let mut ground = Ground::new();
    for name in ["a", "b", "hog", "pig"] {
        ground.group(name, None);
        ground.burn(name);
    }
    // Together what the hogs must leave, and little enough that the pods use it on a busy machine.
    let cgroups = vec![ground.declared("a", 10, 50), ground.declared("b", 10, 50)];
    let mut options = ground.options(CAPACITY_MILLI, cgroups);
    // A pod that does not run for a moment is not forgotten.
    options.settings.windows = 40;
    options.unmanaged = Unmanaged::Measured;
    options.settings.unmanaged_milli_max = Some(500);
    let agent = Agent::start(options).unwrap();
    let least = CAPACITY_MILLI - 500;
    let sum = |view: &View| limit(view, "a") + limit(view, "b");
    let is_bound = |view: &View| {
        let clearing = view.clearing.as_ref();
        clearing.is_some_and(|clearing| {
            clearing.unmanaged_milli == 500 && clearing.cleared.capacity_milli == least
        })
    };
    wait_for(&agent, "the hogs are measured", |view| {
        is_bound(view) && sum(view) <= least
    });
    let before = agent.view().clearings;
    wait_for(&agent, "a while has passed", |view| {
        assert!(is_bound(view), "{:?}", view.clearing);
        // Changes too small for a write may be missing.
        assert!(least <= sum(view) + 20, "{}", sum(view));
        before + 20 < view.clearings
    });
    agent.stop().unwrap();
}

#[test]
fn a_foreign_limit_stays_and_is_the_new_original() {
    let mut ground = Ground::new();
    ground.group("a", Some(300));
    ground.group("b", Some(300));
    ground.burn("b");
    let cgroups = vec![ground.declared("a", 50, 300), ground.declared("b", 50, 300)];
    let agent = Agent::start(ground.options(CAPACITY_MILLI, cgroups)).unwrap();
    wait_for(&agent, "the agent has written to a", |view| {
        limit(view, "a") < NEAR_FLOOR_MILLI
    });
    let theirs = bursar_market::cgroup::Quota::of_milli(222, 50_000);
    ground.set_quota("a", theirs);
    let held = |view: &View| {
        let mut standings = view.standings.iter();
        standings.find(|one| one.id == "a").and_then(|one| one.held)
    };
    wait_for(&agent, "it is left alone", |view| {
        held(view) == Some(Held::Conflict)
    });
    assert_eq!(ground.quota("a"), theirs);
    assert_eq!(limit(&agent.view(), "b"), 300);
    wait_for(&agent, "it takes part again", |view| {
        held(view).is_none() && limit(view, "a") < NEAR_FLOOR_MILLI
    });
    assert_eq!(ground.quota("a").period_us, 50_000);
    agent.stop().unwrap();
    assert_eq!(ground.quota("a"), theirs);
}

#[test]
fn a_missing_declared_cgroup_is_listed_and_found_when_it_appears() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    let mut cgroups = vec![
        ground.declared("a", 50, 300),
        ground.declared("late", 50, 300),
    ];
    for (name, path) in [("root", "/"), ("up", "/a/../b")] {
        let mut wrong = ground.declared("a", 1, 2);
        wrong.name = name.to_owned();
        wrong.place = Place::Path(path.into());
        cgroups.push(wrong);
    }
    let agent = Agent::start(ground.options(CAPACITY_MILLI, cgroups)).unwrap();
    let named = |view: &View| {
        let words = view.unmanaged.iter();
        let words = words.map(|(name, why)| format!("{name} {}", why.word()));
        words.collect::<Vec<String>>()
    };
    let without = ["root root", "up not-a-path"];
    wait_for(&agent, "the missing one is named", |view| {
        named(view) == [&["late missing"][..], &without[..]].concat()
            || named(view) == [&without[..], &["late missing"][..]].concat()
    });
    ground.group("late", Some(200));
    wait_for(&agent, "it is taken in", |view| {
        named(view) == without && limit(view, "late") > 0
    });
    // The original does not apply to another group of the same name.
    let mut ground = ground;
    wait_for(&agent, "it is written to", |view| {
        limit(view, "late") < NEAR_FLOOR_MILLI
    });
    ground.remove("late");
    wait_for(&agent, "it is gone", |view| limit(view, "late") == 0);
    ground.group("late", Some(250));
    wait_for(&agent, "it is written to", |view| {
        (1..NEAR_FLOOR_MILLI).contains(&limit(view, "late"))
    });
    agent.stop().unwrap();
    assert_eq!(ground.quota("late").milli_ceil(), Some(250));
}

/// Method: a group is removed and created repeatedly while it is read; the other keeps its need.
#[test]
fn a_group_that_comes_and_goes_does_not_affect_others() {
    let mut ground = Ground::new();
    ground.group("stays", Some(300));
    ground.burn("stays");
    let cgroups = vec![
        ground.declared("stays", 50, 300),
        ground.declared("goes", 50, 300),
    ];
    let mut options = ground.options(CAPACITY_MILLI, cgroups);
    options.interval = Duration::from_millis(5);
    // A memory of five seconds, so that a moment without the burner changes nothing.
    options.settings.windows = 1_000;
    let agent = Agent::start(options).unwrap();
    wait_for(&agent, "the one that stays has its need", |view| {
        limit(view, "stays") == 300
    });
    for round in 0..30_u64 {
        ground.group("goes", Some(200));
        // It is removed alternately before and after the agent has seen it.
        if round % 2 == 1 {
            wait_for(&agent, "it is seen", |view| limit(view, "goes") > 0);
        }
        ground.remove("goes");
        assert_eq!(limit(&agent.view(), "stays"), 300, "round {round}");
    }
    wait_for(&agent, "it is named", |view| {
        let named = view.unmanaged.iter();
        let mut named = named.map(|(name, why)| (name.as_str(), why.word()));
        named.next() == Some(("goes", "missing")) && named.next().is_none()
    });
    assert_eq!(agent.view().acts, Acts::Yes);
    assert_eq!(agent.stop().unwrap().failed, []);
    assert_eq!(ground.quota("stays").milli_ceil(), Some(300));
}

#[test]
fn a_group_has_one_agent_at_a_time() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    let options = |directory: &str| {
        let mut options = ground.options(CAPACITY_MILLI, vec![ground.declared("a", 50, 300)]);
        options.directory = ground.scratch.path().join(directory);
        options.interval = Duration::from_millis(50);
        options
    };
    let first = Agent::start(options("first")).unwrap();
    wait_for(&first, "a is written to", |view| {
        limit(view, "a") < NEAR_FLOOR_MILLI
    });
    // An observing agent claims nothing.
    let mut looks = options("looks");
    looks.mode = bursar_node::market::Mode::Observe;
    let looks = Agent::start(looks).unwrap();
    assert!(limit(&looks.view(), "a") < NEAR_FLOOR_MILLI);
    let second = Agent::start(options("second")).unwrap();
    let is_taken = |view: &View| {
        let mut named = view.unmanaged.iter();
        named.any(|(name, why)| (name.as_str(), why.word()) == ("a", "taken"))
    };
    assert!(is_taken(&second.view()));
    // The original that another agent left waits too.
    let third = options("third").directory;
    std::fs::create_dir(&third).unwrap();
    let mut originals = Originals::open_in(&third, &ground.hierarchies).unwrap();
    let path = ground.path("a");
    let files = ground.hierarchies.limit(&path).unwrap();
    let ours = (Quota::of_milli(300, 100_000), ground.quota("a"));
    originals.intend("a", (&path, files.identity()), Quota::NONE, ours);
    originals.store().unwrap();
    let restore = || market::restore(&third, "/proc/self".as_ref(), Deed::Real).unwrap();
    let reason = "another agent manages it".to_owned();
    assert_eq!(restore().failed, [("a".to_owned(), reason)]);
    first.stop().unwrap();
    wait_for(&second, "it takes over", |view| {
        view.unmanaged.is_empty() && (1..NEAR_FLOOR_MILLI).contains(&limit(view, "a"))
    });
    second.stop().unwrap();
    assert_eq!(ground.quota("a").milli_ceil(), Some(300));
    assert_eq!(restore().restored.len(), 1);
    assert_eq!(ground.quota("a"), Quota::NONE);
}

#[test]
fn a_restore_restores_everything_and_stops_acting() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    let cgroups = vec![ground.declared("a", 50, 300)];
    let agent = Agent::start(ground.options(CAPACITY_MILLI, cgroups)).unwrap();
    wait_for(&agent, "a is written to", |view| {
        limit(view, "a") < NEAR_FLOOR_MILLI
    });
    let dry = agent.restore(Deed::DryRun).unwrap();
    assert_eq!(dry.restored.len(), 1);
    assert_ne!(ground.quota("a").milli_ceil(), Some(300));
    let told = agent.restore(Deed::Real).unwrap();
    let pods: Vec<_> = told.restored.iter().map(|(pod, _, to)| (pod, to)).collect();
    assert_eq!(pods, [(&"a".to_owned(), &ground.quota("a"))]);
    assert_eq!(ground.quota("a").milli_ceil(), Some(300));
    let before = agent.view().clearings;
    wait_for(&agent, "it goes on observing", |view| {
        view.clearings > before + 3 && limit(view, "a") == 300
    });
    assert!(matches!(agent.view().acts, Acts::Cannot(_)));
    assert_eq!(ground.quota("a").milli_ceil(), Some(300));
    // No original is left.
    assert_eq!(agent.restore(Deed::Real).unwrap().restored, []);
}

#[test]
fn unmanaged_use_is_measured_and_subtracted() {
    let ground = Ground::new();
    ground.group("a", Some(300));
    let mut options = ground.options(600, vec![ground.declared("a", 50, 300)]);
    options.unmanaged = Unmanaged::Measured;
    let agent = Agent::start(options).unwrap();
    wait_for(&agent, "what others use is measured", |view| {
        let clearing = view.clearing.as_ref();
        clearing.is_some_and(|clearing| clearing.unmanaged_milli > 0)
    });
    let view = agent.view();
    let clearing = view.clearing.as_ref().unwrap();
    let left = clearing
        .allocatable_milli
        .saturating_sub(clearing.unmanaged_milli);
    assert_eq!(clearing.cleared.capacity_milli, left.max(50));
}

#[tokio::test]
async fn our_own_executions_are_managed_while_they_run() {
    let ground = Ground::new();
    let host = Host::new();
    let (id, mut job) = (id("burns"), host.shell("while :; do :; done"));
    job.cpu_milli = Some(400);
    let begun = host.local().start(&id, &job).await;
    assert!(matches!(begun, Begun::Running(_)), "{begun:?}");
    let mut options = ground.options(CAPACITY_MILLI, Vec::new());
    let running = vec![Execution {
        id: id.to_string(),
        cpu_milli: 0,
        limit_milli: Some(400),
    }];
    options.executions = Some(Executions {
        ledger: host.options.ledger.clone(),
        list: Arc::new(move || running.clone()),
    });
    // Too little capacity for its limit.
    options.unmanaged = Unmanaged::Given(CAPACITY_MILLI - 250);
    let agent = Agent::start(options).unwrap();
    wait_for(&agent, "it is held to what there is", |view| {
        limit(view, "e-burns") == 250 && label(view) == Some(Mode::Congested)
    });
    let params = agent.view().standings.first().unwrap().bidder.params;
    assert_eq!((params.min_milli, params.max_milli), (100, 400));
    host.stop(&id, Duration::ZERO).await;
    host.exit(&id).await;
    wait_for(&agent, "it is forgotten", |view| view.standings.is_empty());
    assert_eq!(agent.stop().unwrap().failed, []);
}
