//! Declared budgets: the form of the journal, and mistakes with their paths.

use bursar_budget::{Budget, BudgetId, MeterId, Mistake, Pattern};
use bursar_units::Millis;

use crate::world::*;

fn paths(budget: &Budget) -> Vec<String> {
    budget.mistakes().iter().map(ToString::to_string).collect()
}

#[test]
fn a_budget_is_read_back_from_its_record_and_defaults_are_omitted() {
    let mut full = envelope("x", 4);
    full.gpu_hours_max = Some(7);
    full.admission_horizon = Some(Millis::from_hours(24));
    full.lending = lends(&["org:ai:*", "*", "lab"], Some(2));
    let budget = budget("a", "a", &["org"], vec![full, envelope("y", 1)]);
    let text = serde_json::to_string(&budget).unwrap();
    assert_eq!(
        text,
        "{\"namespace\":\"a\",\"name\":\"b\",\"owner\":\"a\",\"parents\":[\"org\"],\"envelopes\":[\
         {\"name\":\"x\",\"flavor\":\"h100\",\"concurrency\":4,\"maxGPUHours\":7,\
         \"lending\":{\"allow\":true,\"to\":[\"org:ai:*\",\"*\",\"lab\"],\"maxConcurrency\":2},\
         \"admissionHorizonMs\":86400000},\
         {\"name\":\"y\",\"flavor\":\"h100\",\"concurrency\":1}]}"
    );
    assert_eq!(serde_json::from_str::<Budget>(&text).unwrap(), budget);
    let unknown = text.replacen("\"owner\"", "\"colour\":1,\"owner\"", 1);
    assert!(serde_json::from_str::<Budget>(&unknown).is_err());
}

#[test]
fn each_mistake_names_its_field() {
    let mut e = envelope("x", 0);
    e.gpu_hours_max = Some(u64::MAX);
    (e.start, e.end) = (Some(at(10)), Some(at(10)));
    e.admission_horizon = Some(Millis::from_ms(999));
    let mut twice = envelope("x", 1);
    twice.renew = Some(bursar_budget::Renew::Day);
    let mut wrong = budget("a", "a", &["a", "o", "o"], vec![e, twice]);
    wrong.aggregate_caps = vec![cap("c", &[], None)];
    assert_eq!(
        paths(&wrong),
        [
            "spec.parents[0] is the owner itself",
            "spec.parents[2] `o` is given twice",
            "spec.envelopes[1].name `x` is given twice",
            "spec.envelopes[0].concurrency must be at least 1",
            "spec.envelopes[0].maxGPUHours is 18446744073709551615, at most 2501999792 is allowed",
            "spec.envelopes[0].end is not after start",
            "spec.envelopes[0].admissionHorizon must be from 1s to 3650d",
            "spec.envelopes[1].renew needs an end",
            "spec.aggregateCaps[0].envelopes must name an envelope",
            "spec.aggregateCaps[0] needs maxConcurrency or maxGPUHours",
        ]
    );
    assert_eq!(
        paths(&budget("a", "a", &["o"], vec![envelope("x", 1)])),
        [""; 0]
    );
}

#[test]
fn mistakes_that_need_other_budgets_are_found_in_the_set() {
    let world = World::new(&[
        budget("a", "a", &["o"], vec![envelope("x", 1)]),
        budget("z", "z", &[], vec![envelope("x", 1)]),
    ]);
    let mut parent = budget("o", "o", &["a"], vec![envelope("x", 1)]);
    let mut other = cap("c", &["a/b/x", "z/b/x", "a/b/none", "o/b/x"], Some(1));
    other.flavor = label("h100");
    parent.aggregate_caps = vec![other];
    let found = world.accounts.mistakes(&[&parent], &[]);
    let found: Vec<String> = found
        .iter()
        .map(|(_, mistake)| mistake.to_string())
        .collect();
    assert_eq!(
        found,
        [
            "spec.parents[0] makes a cycle: o → a → o",
            "spec.aggregateCaps[0].envelopes[1] `z/b/x` belongs to z, which does not descend from o",
            "spec.aggregateCaps[0].envelopes[2] `a/b/none` is not declared",
        ]
    );
    let dropped = world.budget_id("a");
    let mut alone = budget("o", "o", &["a"], vec![]);
    alone.aggregate_caps = Vec::new();
    assert!(world.accounts.mistakes(&[&alone], &[&dropped]).is_empty());
}

/// The mistakes of an edit beside a cap of `o` over `c/b/x`, whose owner descends from `o` by `m`.
fn beside_a_cap(edit: &Budget) -> Vec<String> {
    let world = capped();
    let found = world.accounts.mistakes(&[edit], &[]);
    let line = |(id, mistake): &(BudgetId, Mistake)| format!("{id} {mistake}");
    found.iter().map(line).collect()
}

fn capped() -> World {
    let mut top = budget("o", "o", &[], vec![]);
    top.aggregate_caps = vec![cap("cap", &["c/b/x"], Some(4))];
    World::new(&[
        budget("c", "c", &["m"], vec![envelope("y", 1), envelope("x", 1)]),
        budget("m", "m", &["o"], vec![]),
        top,
    ])
}

#[test]
fn an_edit_leaves_no_envelope_under_a_cap_that_may_not_name_it() {
    let list = || vec![envelope("y", 1), envelope("x", 2)];
    let under = "leaves `c/b/x` under the cap o/b/cap, but";
    for (edit, expected) in [
        (budget("c", "c", &["m"], list()), vec![]),
        (budget("c", "c", &["m"], vec![envelope("y", 1)]), vec![]),
        (
            budget("c", "c", &[], list()),
            vec![format!(
                "c/b spec.parents {under} c would not descend from o"
            )],
        ),
        (
            budget("c", "z", &["m2"], list()),
            vec![format!("c/b spec.owner {under} z would not descend from o")],
        ),
        (
            budget("m", "m", &["p"], vec![]),
            vec![format!(
                "m/b spec.parents {under} c would not descend from o"
            )],
        ),
    ] {
        assert_eq!(beside_a_cap(&edit), expected);
    }
    let mut other = budget("c", "c", &["m"], list());
    other.envelopes[1].flavor = label("a100");
    let flavor = "c/b spec.envelopes[1].flavor is a100, but `c/b/x` is under the cap o/b/cap of \
                  another flavor";
    assert_eq!(beside_a_cap(&other), [flavor]);
}

#[test]
fn a_dropped_member_of_a_cap_hinders_no_edit_and_counts_again_when_it_is_back() {
    let mut world = capped();
    let dropped = world.budget_id("c");
    assert!(world.accounts.mistakes(&[], &[&dropped]).is_empty());
    world.remove(&dropped);
    let mut top = world
        .accounts
        .budget(&world.budget_id("o"))
        .unwrap()
        .clone();
    assert!(
        world.accounts.mistakes(&[&top], &[]).is_empty(),
        "the same budget"
    );
    top.aggregate_caps[0].concurrency_max = Some(3);
    assert!(
        world.accounts.mistakes(&[&top], &[]).is_empty(),
        "another limit"
    );
    top.aggregate_caps[0].envelopes.push(envelope_id("c/b/y"));
    let found = world.accounts.mistakes(&[&top], &[]);
    let path = "spec.aggregateCaps[0].envelopes[1] `c/b/y` is not declared";
    assert_eq!(
        found[0].1.to_string(),
        path,
        "a new member must be declared"
    );
    let foreign = budget("c", "c", &[], vec![envelope("x", 9)]);
    let found = world.accounts.mistakes(&[&foreign], &[]);
    assert_eq!(found[0].1.path, "spec.owner", "{found:?}");
    world.set(&budget("c", "c", &["m"], vec![envelope("x", 9)]));
    let failure = world
        .accounts
        .plan(world.now, &request("c", 9))
        .unwrap_err();
    assert_eq!(failure.found, 4);
}

#[test]
fn patterns_have_a_star_only_at_the_end() {
    for (text, owner, matches) in [
        ("org:ai:*", "org:ai:rai", true),
        ("org:ai:*", "org:ai:", true),
        ("org:ai:*", "org:bio", false),
        ("*", "anybody", true),
        ("lab", "lab", true),
        ("lab", "lab2", false),
    ] {
        let pattern = Pattern::new(text).unwrap();
        assert_eq!(pattern.matches(&label(owner)), matches, "{text} {owner}");
        assert_eq!(pattern.to_string(), text);
    }
    for text in ["a*b", "**", "*a", "", "a b"] {
        assert!(Pattern::new(text).is_err(), "{text}");
    }
}

#[test]
fn meters_are_ordered_by_their_text() {
    let mut list: Vec<MeterId> = [
        "lending/a/b/c",
        "z/b/c",
        "a-b/b/c",
        "cap/a/b/c",
        "a/b/c",
        "cap/b/c",
    ]
    .map(meter)
    .to_vec();
    list.sort();
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    assert!(texts.is_sorted(), "{texts:?}");
    assert!(matches!(meter("cap/b/c"), MeterId::Envelope(_)));
    assert!(matches!(meter("cap/a/b/c"), MeterId::Cap(_)));
    assert!(MeterId::new("a/b").is_err() && MeterId::new("A/b/c").is_err());
}
