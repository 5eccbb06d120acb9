//! Files are read whole or not at all, and every mistake is shown at its line.

use std::fmt::Write as _;

use bursar_booking::{Bound, Limit, Scope};
use bursar_client::Code;
use bursar_client::api::body::read_declared;
use bursar_client::object::limit::{from_spec, to_spec};
use bursar_client::object::{
    Address, File, Mistakes, Object, ObjectKind, locate, read_files, read_values,
};
use bursar_client::problem::FieldError;
use bursar_units::{Amount, INTEGER_MAX, Label, Millis, ObjectName};
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use serde_json::{Value, json};

fn file(text: &str) -> File {
    File {
        name: "limits.yaml".to_owned(),
        bytes: text.as_bytes().to_vec(),
    }
}

fn read(text: &str) -> Result<Vec<Object>, Mistakes> {
    read_files(&[file(text)])
}

/// Terminal output for a limit with this spec.
fn shown(spec: &str) -> String {
    let text = format!(
        "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {{name: python}}\nspec:\n{spec}"
    );
    read(&text).unwrap_err().to_string()
}

/// The body of an apply of these objects.
fn apply(objects: &[Value]) -> Vec<u8> {
    json!({ "objects": objects }).to_string().into_bytes()
}

/// Mistakes of a body that was sent to the path of this limit.
fn mistakes_of(body: &Value, name: &str) -> Vec<String> {
    let name = ObjectName::new(name).ok();
    let address = Address {
        kind: ObjectKind::Limit,
        namespace: None,
        name: name.as_ref(),
    };
    let read = read_declared(body.to_string().as_bytes(), address);
    let problem = read.map(|object| panic!("{object:?}")).unwrap_err();
    problem.errors.iter().map(FieldError::sentence).collect()
}

const PAGE: &str = r#"apiVersion: bursar.dev/v1alpha1
kind: Limit
metadata: {name: default}
spec: {class: each, slots: 100}
---
apiVersion: bursar.dev/v1alpha1
kind: Limit
metadata: {name: python}
spec: {class: python, slots: 120, cpu: "60", memory: 240Gi}
---
apiVersion: bursar.dev/v1alpha1
kind: Limit
metadata: {name: tenant}
spec: {tenant: each, slots: 64}
---
apiVersion: bursar.dev/v1alpha1
kind: Limit
metadata: {name: everything}
spec: {slots: 400}
---
apiVersion: v1
kind: Node
metadata:
  name: a01
  labels:
    topology.kubernetes.io/region: us-west
status:
  allocatable: {cpu: "96", memory: 1000Gi, nvidia.com/gpu: "8"}
"#;

#[test]
fn the_documented_files_are_read() {
    let objects = read(PAGE).unwrap();
    let references: Vec<_> = objects.iter().map(Object::reference).collect();
    assert_eq!(
        references,
        [
            "limit/default",
            "limit/python",
            "limit/tenant",
            "limit/everything",
            "node/a01"
        ]
    );
    let Object::Limit { limit: values, .. } = &objects[1] else {
        panic!()
    };
    assert_eq!(
        values.class,
        Some(Scope::Named(Label::new("python").unwrap()))
    );
    assert_eq!(
        (values.cpu, values.memory),
        (
            Some(Bound::Exactly(60_000)),
            Some(Bound::Exactly(240 << 30))
        )
    );
    assert_eq!(
        (values.queue_max, values.wait_max),
        (10_000, Millis::from_hours(24))
    );
    let Object::Limit { limit: values, .. } = &objects[2] else {
        panic!()
    };
    assert_eq!(
        (values.tenant.clone(), values.weight),
        (Some(Scope::Each), Some(100))
    );
    let Object::Node(node) = &objects[4] else {
        panic!()
    };
    let expected = Amount {
        slots: 0,
        cpu_milli: 96_000,
        memory_bytes: 1000 << 30,
        gpus: 8,
    };
    assert_eq!(node.capacity(), expected);
}

#[test]
fn printed_objects_show_defaults_and_are_read_back_equal() {
    let objects = read(PAGE).unwrap();
    let printed = Object::to_yaml(&objects);
    assert_eq!(read(&printed).unwrap(), objects);
    let python = printed.split("---\n").nth(1).unwrap();
    assert_eq!(
        python,
        "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata:\n  name: python\nspec:\n  \
         class: python\n  slots: 120\n  cpu: \"60\"\n  memory: 240Gi\n  maxQueue: 10000\n  \
         maxQueuePerTenant: 1000\n  maxWait: 24h\n  maxTTL: 24h\n"
    );
    let values: Vec<_> = objects.iter().map(Object::to_value).collect();
    assert_eq!(read_values(&apply(&values)).unwrap(), objects);
}

#[test]
fn json_and_lists_are_read_too() {
    let json = "{\n\t\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n\t{\"apiVersion\": \"bursar.dev/v1alpha1\",\n\t \"kind\": \"Limit\", \"metadata\": {\"name\": \"a\"}, \"spec\": {\"slots\": 1}}]}";
    assert_eq!(read(json).unwrap()[0].reference(), "limit/a");
    let wrong = json.replace("slots", "slot");
    let mistakes = read(&wrong).unwrap_err();
    assert_eq!(mistakes.mistakes[0].path, "items[0].spec.slot");
    assert_eq!(mistakes.mistakes[0].line, Some(4));
}

#[test]
fn mistakes_are_shown_with_their_lines() {
    let text = "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata:\n  name: python\nspec:\n  \
                class: python\n  solts: 120\n  # not all of it\n  cpu: 101%\n---\n\
                apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {name: fine}\nspec: {slots: 1}\n";
    let expected = "\
error: limits.yaml:7:3: spec.solts is not a field
  |
7 |   solts: 120
  |   ^^^^^ did you mean `slots`?

error: limits.yaml:9:8: spec.cpu must be a whole percentage
  |
9 |   cpu: 101%
  |        ^^^^ 1% to 100% is allowed

error: 2 mistakes in limit/python, nothing was applied (2 documents read)";
    assert_eq!(read(text).unwrap_err().to_string(), expected);
}

#[test]
fn lines_of_two_digits_keep_the_bar_straight() {
    let node = "apiVersion: v1\nkind: Nod\nmetadata: {name: a01}\nstatus: {allocatable: {}}\n";
    let text = format!("{}{node}", "# \n".repeat(10));
    let expected = "\
error: limits.yaml:12:7: kind `Nod` is not a kind that can be applied
   |
12 | kind: Nod
   |       ^^^ did you mean `Node`?

error: 1 mistake in nod/a01, nothing was applied (1 document read)";
    assert_eq!(read(&text).unwrap_err().to_string(), expected);
}

#[test]
fn every_wrong_value_is_reported_with_its_path() {
    for (spec, path, message) in [
        ("  slots: -1", "spec.slots", "must not be negative"),
        (
            "  slots: 9007199254740992",
            "spec.slots",
            "must be at most 9007199254740991",
        ),
        (
            "  slots: 99999999999999999999999",
            "spec.slots",
            "must be at most 9007199254740991",
        ),
        ("  slots: 1.5", "spec.slots", "must be a whole number"),
        ("  slots: \"5\"", "spec.slots", "must be a whole number"),
        ("  slots: [1]", "spec.slots", "must be a whole number"),
        ("  cpu: -1", "spec.cpu", "must not be negative"),
        ("  cpu: five", "spec.cpu", "is not a quantity"),
        ("  cpu: 0%", "spec.cpu", "must be a whole percentage"),
        ("  cpu: 1.5%", "spec.cpu", "must be a whole percentage"),
        ("  memory: 9Ei", "spec.memory", "is too large"),
        ("  memory: {}", "spec.memory", "must be a quantity"),
        ("  gpus: -3", "spec.gpus", "must not be negative"),
        ("  maxWait: 1", "spec.maxWait", "has no unit"),
        ("  maxWait: [1]", "spec.maxWait", "must be a text"),
        ("  maxWait: soon", "spec.maxWait", "is not a duration"),
        ("  maxTTL: 25h", "spec.maxTTL", "must be between 1s and 24h"),
        (
            "  maxTTL: 999ms",
            "spec.maxTTL",
            "must be between 1s and 24h",
        ),
        (
            "  tenant: a\n  weight: 0",
            "spec.weight",
            "must be at least 1",
        ),
        (
            "  tenant: a\n  weight: 1001",
            "spec.weight",
            "must be at most 1000",
        ),
        (
            "  weight: 5",
            "spec.weight",
            "is for limits of tenants alone",
        ),
        ("  weight: 0", "spec.weight", "must be at least 1"),
        (
            "  class: b\n  tenant: a\n  weight: 5",
            "spec.weight",
            "is for limits of tenants alone",
        ),
        ("  class: a b", "spec.class", "has the character ' '"),
        ("  class: 3.12", "spec.class", "must be a text"),
        ("  slots: 1\n  slots: 2", "spec.slots", "is given twice"),
        ("  maxttl: 1h", "spec.maxttl", "is not a field"),
    ] {
        let shown = shown(spec);
        assert!(
            shown.contains(&format!(" {path} {message}")),
            "{spec}: {shown}"
        );
        assert!(
            shown.contains("\nerror: 1 mistake in limit/python, nothing"),
            "{spec}: {shown}"
        );
    }
    assert!(shown("  maxttl: 1h").contains("did you mean `maxTTL`?"));
}

#[test]
fn zero_pauses_and_percentages_reach_from_one_to_a_hundred() {
    for (cpu, bound) in [
        ("0", Bound::Exactly(0)),
        ("1%", Bound::Percent(1)),
        ("100%", Bound::Percent(100)),
    ] {
        let value = json!({"apiVersion": "bursar.dev/v1alpha1", "kind": "Limit",
            "metadata": {"name": "a"}, "spec": {"cpu": cpu, "slots": 0}});
        let objects = read_values(&apply(&[value])).unwrap();
        let Some(Object::Limit { limit: values, .. }) = objects.first() else {
            panic!("{cpu}")
        };
        assert_eq!((values.cpu, values.slots), (Some(bound), Some(0)));
    }
}

#[test]
fn documents_that_are_no_objects_are_reported() {
    for (text, sentence) in [
        ("", "limits.yaml: has no objects"),
        ("---\n---\n", "limits.yaml: has no objects"),
        (
            "just words",
            "must be an object with apiVersion, kind, metadata and spec",
        ),
        ("kind: Limit", "apiVersion is missing"),
        (
            "apiVersion: v1\nkind: Limit",
            "apiVersion `v1` is not the version of a Limit",
        ),
        (
            "apiVersion: v1\nkind: Secret",
            "kinds are Budget, Run, Limit and Node",
        ),
        (
            "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nspec: {}",
            "metadata is missing",
        ),
        (
            "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {name: A}\nspec: {}",
            "metadata.name has the character 'A'",
        ),
        ("a: b: c", "limits.yaml:1:"),
        (
            "a: !secret b",
            "tags other than the standard ones are not read",
        ),
        ("a: \"open", "cannot be read"),
        ("? [a]\n: b", "a field's name must be a text"),
    ] {
        let shown = read(text).unwrap_err().to_string();
        assert!(shown.contains(sentence), "{text:?}: {shown}");
    }
}

#[test]
fn an_object_may_be_in_a_set_of_files_once() {
    let one =
        "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {name: a}\nspec: {slots: 1}\n";
    let mistakes = read_files(&[file(one), file(one)]).unwrap_err();
    assert_eq!(mistakes.mistakes[0].message, "names limit/a twice");
    // The same for an object with other mistakes, but not for an object of another kind.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
        "status": {"allocatable": {}}});
    let mut wrong = node.clone();
    wrong["status"] = json!({"allocatable": {"cpu": "much"}});
    let limit = json!({"apiVersion": "bursar.dev/v1alpha1", "kind": "Limit",
        "metadata": {"name": "a"}, "spec": {}});
    let problem = read_values(&apply(&[wrong.clone(), limit, node, wrong])).unwrap_err();
    let paths: Vec<_> = problem.errors.iter().map(|error| &error.path).collect();
    assert_eq!(
        paths,
        [
            "objects[0].status.allocatable.cpu",
            "objects[2].metadata.name",
            "objects[3].status.allocatable.cpu",
            "objects[3].metadata.name",
        ]
    );
}

#[test]
fn an_object_without_a_kind_is_checked_as_the_kind_of_its_path() {
    assert_eq!(
        mistakes_of(&json!({"slots": -2}), "x"),
        [
            "slots is not a field, fields are apiVersion, kind, metadata, spec, status",
            "apiVersion is missing",
            "kind is missing",
            "metadata is missing",
            "spec is missing",
        ]
    );
    let spec = json!({"slot": 1, "cpu": "much", "weight": 5});
    let wrong_spec = [
        "spec.slot is not a field, did you mean `slots`?",
        "spec.cpu is not a quantity, write it as in 500m, 2, 1.5, 256Mi or 4Gi",
        "spec.weight is for limits of tenants alone, leave it out, or give `tenant` and no `class`",
        "metadata.name is y, the path has x",
    ];
    for (version, kind, head) in [
        (
            json!(null),
            json!(7),
            [
                "apiVersion must be a text",
                "kind must be a text, put it in quotes: \"7\"",
            ],
        ),
        (
            json!("v1"),
            json!("Limt"),
            [
                "kind `Limt` is not a kind that can be applied, must be `Limit`",
                "apiVersion `v1` is not the version of a Limit, must be `bursar.dev/v1alpha1`",
            ],
        ),
    ] {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "y"},
            "spec": spec});
        let mut expected = [&head[..], &wrong_spec].concat();
        assert_eq!(mistakes_of(&body, "x"), expected);
        // A mistake in the path is reported by the reader of the path.
        expected.pop();
        assert_eq!(mistakes_of(&body, "not a name"), expected);
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "y"},
        "status": {"allocatable": {}}});
    assert_eq!(
        mistakes_of(&node, "x"),
        [
            "kind is Node, the path is that of a Limit",
            "metadata.name is y, the path has x"
        ]
    );
}

#[test]
fn an_object_without_a_kind_is_checked_by_its_version() {
    let version = "bursar.dev/v1alpha1";
    for (object, expected) in [
        (
            json!({"slots": -2}),
            vec!["apiVersion is missing", "kind is missing"],
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}),
            vec![
                "kind `Deployment` is not a kind that can be applied, \
                 kinds are Budget, Run, Limit and Node",
                "apiVersion `apps/v1` is not the version of a kind that can be applied, \
                 versions are `bursar.dev/v1alpha1` and `v1`",
            ],
        ),
        (
            json!({"apiVersion": "v1", "metadata": {"name": "A"}}),
            vec![
                "kind is missing",
                "metadata.name has the character 'A'; allowed are lower-case letters, digits, \
                 - and . (not first or last)",
                "status is missing",
            ],
        ),
        // Several kinds have this version.
        (
            json!({"apiVersion": version, "metadata": {"name": "A"}, "spec": {"slots": -2}}),
            vec!["kind is missing"],
        ),
        (
            json!({"apiVersion": version, "kind": "Quota", "metadata": {"name": "a"}}),
            vec![
                "kind `Quota` is not a kind that can be applied, \
                 kinds are Budget, Run, Limit and Node",
            ],
        ),
        (
            json!({"kind": "limit", "metadata": {"name": "a"}}),
            vec![
                "kind `limit` is not a kind that can be applied, did you mean `Limit`?",
                "apiVersion is missing",
                "spec is missing",
            ],
        ),
        (
            json!({"kind": "Node", "status": {"allocatable": {"cpu": -1}}}),
            vec![
                "apiVersion is missing",
                "metadata is missing",
                "status.allocatable.cpu must not be negative",
            ],
        ),
        (
            json!([]),
            vec!["must be an object with apiVersion, kind, metadata and spec"],
        ),
    ] {
        let of_list = read_values(&apply(std::slice::from_ref(&object))).unwrap_err();
        let of_file = read(&object.to_string()).unwrap_err().to_problem();
        for problem in [*of_list, of_file] {
            let sentences = problem.errors.into_iter().map(|error| {
                let object = None;
                FieldError { object, ..error }.sentence()
            });
            let sentences = sentences.map(|sentences| {
                sentences
                    .replace("objects[0]", "")
                    .trim_start_matches(['.', ' '])
                    .to_owned()
            });
            assert_eq!(sentences.collect::<Vec<_>>(), expected, "{object}");
        }
    }
}

#[test]
fn mistakes_of_an_apply_and_of_its_objects_are_reported_together() {
    let body = r#"{"object": [], "objects": [7, {"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "a", "name": "b"}, "status": {"allocatable": {}}}]}"#;
    let problem = read_values(body.as_bytes()).unwrap_err();
    let sentences: Vec<_> = problem.errors.iter().map(FieldError::sentence).collect();
    assert_eq!(
        sentences,
        [
            "object is not a field, did you mean `objects`?",
            "objects[0] must be an object with apiVersion, kind, metadata and spec",
            "objects[1].metadata.name is given twice, leave one of them out",
        ]
    );
    let many = apply(&vec![json!(1); 10_001]);
    assert_eq!(read_values(&many).unwrap_err().code, Code::TooLarge);
}

#[test]
fn binary_and_very_large_files_are_refused_by_name() {
    let binary = File {
        name: "x.yaml".to_owned(),
        bytes: b"a: 1\nb: \xff\n".to_vec(),
    };
    let shown = read_files(&[binary]).unwrap_err().to_string();
    assert!(
        shown.starts_with("error: x.yaml: is not UTF-8: line 2 has"),
        "{shown}"
    );
    let large = File {
        name: "x.yaml".to_owned(),
        bytes: vec![b' '; (16 << 20) + 1],
    };
    assert!(
        read_files(&[large])
            .unwrap_err()
            .to_string()
            .contains("at most 16 MiB")
    );
    for deep in [
        format!("a: {}", "[".repeat(5_000)),
        "- ".repeat(5_000),
        "{a: ".repeat(5_000),
    ] {
        let shown = read(&deep).unwrap_err().to_string();
        assert!(
            shown.contains("nested") || shown.contains("cannot be read"),
            "{shown:.300}"
        );
    }
}

#[test]
fn a_small_file_cannot_become_a_large_one() {
    let mut bomb = String::from("a: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let alias = format!("*a{}", level - 1);
        let items = [alias.as_str(); 10].join(", ");
        writeln!(bomb, "b{level}: &a{level} [{items}]").unwrap();
    }
    assert!(
        read(&bomb)
            .unwrap_err()
            .to_string()
            .contains("has too many values")
    );
    let aliased = "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {name: &n python}\nspec: {class: *n, slots: 1}\n";
    assert_eq!(read(aliased).unwrap()[0].reference(), "limit/python");
    assert!(
        read("a: &a [*a]")
            .unwrap_err()
            .to_string()
            .contains("inside its own anchor")
    );
}

/// Limits with one mistake each.
fn wrong_limits(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        writeln!(
            text,
            "---\napiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {{name: l{number}}}\nspec: {{solts: 1}}"
        )
        .unwrap();
    }
    text
}

#[test]
fn the_last_line_counts_all_objects_with_mistakes_and_names_three() {
    let text = wrong_limits(6) + "  max: 1\n";
    let text = text.replace(
        "spec: {solts: 1}\n  max: 1\n",
        "spec: {solts: 1, maximum: 1}\n",
    );
    let shown = read(&text).unwrap_err().to_string();
    assert_eq!(
        shown.lines().last(),
        Some(
            "error: 1 mistake in limit/l0, 1 in limit/l1, 1 in limit/l2, 4 in 3 other objects, \
             nothing was applied (6 documents read)"
        )
    );
}

#[test]
fn a_hundred_thousand_documents_with_mistakes_are_counted_and_the_first_hundred_shown() {
    let mistakes = read(&wrong_limits(100_000)).unwrap_err();
    let shown = mistakes.to_string();
    assert_eq!(shown.matches("did you mean `slots`?").count(), 100);
    assert!(
        shown.ends_with(
            "error: 99,900 other mistakes are not shown\n\n\
             error: 1 mistake in limit/l0, 1 in limit/l1, 1 in limit/l2, 99,997 in 99,997 other \
             objects, nothing was applied (100,000 documents read)"
        ),
        "{}",
        &shown[shown.len() - 300..]
    );
    assert_eq!(mistakes.to_problem().errors.len(), 100);
}

#[test]
fn mistakes_of_the_server_are_found_in_the_files_that_were_sent() {
    let budget = |namespace: &str, parent: &str| {
        format!(
            "apiVersion: bursar.dev/v1alpha1\nkind: Budget\nmetadata: {{name: q4{namespace}}}\n\
             spec:\n  owner: a\n  parents:\n    - {parent}\n---\n"
        )
    };
    let files = [
        file(&budget(", namespace: x", "b")),
        File {
            name: "second.yaml".to_owned(),
            ..file(&budget("", "c"))
        },
    ];
    let error = |object: &str| FieldError {
        suggestion: Some("leave it out".to_owned()),
        ..FieldError::new("spec.parents[0]", "makes a cycle").of(object.to_owned())
    };
    let errors = [
        error("budget/z/q4"),
        error("budget/y/q4"),
        error("budget/x/q4"),
    ];
    let shown = locate(&files, "y", &errors).to_string();
    let expected = "error: limits.yaml:7:7: spec.parents[0] makes a cycle
  |
7 |     - b
  |       ^ leave it out

error: second.yaml:7:7: spec.parents[0] makes a cycle
  |
7 |     - c
  |       ^ leave it out

error: budget/z/q4: spec.parents[0] makes a cycle, leave it out

error: 1 mistake in budget/x/q4, 1 in budget/y/q4, 1 in budget/z/q4, nothing was applied (2 documents read)";
    assert_eq!(shown, expected);
}

#[test]
fn mistakes_are_one_problem_for_programs() {
    let text =
        "apiVersion: bursar.dev/v1alpha1\nkind: Limit\nmetadata: {name: a}\nspec: {solts: 1}\n";
    let problem = read(text).unwrap_err().to_problem();
    assert_eq!(
        (problem.code, problem.errors[0].line),
        (Code::Invalid, Some(4))
    );
    assert_eq!(
        problem.errors[0].suggestion.as_deref(),
        Some("did you mean `slots`?")
    );
}

fn scopes() -> impl Strategy<Value = Option<Scope>> {
    let named = "[a-z0-9.:-]{1,12}|true|null|1e3|~|yes|é"
        .prop_filter("the word for all", |text| text != "each")
        .prop_map(|text| Some(Scope::Named(Label::new(&text).unwrap())));
    prop_oneof![Just(None), Just(Some(Scope::Each)), named]
}

fn bounds() -> impl Strategy<Value = Option<Bound>> {
    prop_oneof![
        Just(None),
        (0..=INTEGER_MAX).prop_map(|value| Some(Bound::Exactly(value))),
        (1_u64..=100).prop_map(|percent| Some(Bound::Percent(percent))),
    ]
}

fn limits() -> impl Strategy<Value = Limit> {
    let numbers = (
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        0..=INTEGER_MAX,
        0..=INTEGER_MAX,
    );
    let times = (0..=INTEGER_MAX, 1_000_u64..=86_400_000, 1_u64..=1_000);
    (scopes(), scopes(), bounds(), bounds(), numbers, times).prop_map(
        |(
            class,
            tenant,
            cpu,
            memory,
            (slots, gpus, queue_max, of_tenant),
            (wait_ms, ttl_ms, weight),
        )| {
            let is_tenant_alone = class.is_none() && tenant.is_some();
            Limit {
                slots: slots.map(u64::from),
                gpus: gpus.map(u64::from),
                cpu,
                memory,
                queue_max,
                tenant_queue_max: Some(of_tenant),
                wait_max: Millis::from_ms(wait_ms),
                ttl_max: Millis::from_ms(ttl_ms),
                weight: is_tenant_alone.then_some(weight),
                ..Limit::unbounded(ObjectName::known("a"), class, tenant)
            }
        },
    )
}

proptest! {
    #[test]
    fn limits_survive_yaml_and_json(values in limits()) {
        let objects = vec![Object::Limit { resource_version: None, limit: values.clone() }];
        prop_assert_eq!(&read(&Object::to_yaml(&objects)).unwrap(), &objects);
        prop_assert_eq!(read_values(&apply(&[objects[0].to_value()])).unwrap(), objects);
        prop_assert_eq!(from_spec(values.name.clone(), &to_spec(&values)).unwrap(), values);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let result = read_files(&[File { name: "x".to_owned(), bytes }]);
        let _ = result.map_err(|mistakes| mistakes.to_string());
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in r#"(a|kind: Limit|apiVersion: bursar.dev/v1alpha1|metadata|name|spec|slots|: |- |\n|  |\{|\}|\[|\]|,|"|'|&x |\*x|!|#|\||>|%|\t|---\n|1|é){0,40}"#) {
        let _ = read(&text).map_err(|mistakes| mistakes.to_string());
    }
}

/// A node as `kubectl get nodes -o yaml` prints it.
const KUBECTL: &str = r#"
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: a01
    uid: 5c8b
    resourceVersion: "123"
    creationTimestamp: "2026-01-01T00:00:00Z"
    annotations: {node.alpha.kubernetes.io/ttl: "0"}
    labels:
      kubernetes.io/arch: amd64
      node.kubernetes.io/instance-type: p5
      topology.kubernetes.io/region: us-west
      topology.kubernetes.io/zone: us-west-1
      bursar.dev/cluster: west-1
      bursar.dev/domain: rack-a
      bursar.dev/flavor: h100
  spec: {podCIDR: 10.0.0.0/24, providerID: "aws:///i", taints: [], unschedulable: true}
  status:
    addresses: [{address: 10.0.0.1, type: InternalIP}]
    allocatable: {cpu: "96", ephemeral-storage: "1", hugepages-1Gi: "0", memory: 1000Gi, nvidia.com/gpu: "8", pods: "110"}
    capacity: {cpu: "96"}
    conditions: []
    daemonEndpoints: {kubeletEndpoint: {Port: 10250}}
    images: []
    nodeInfo: {architecture: amd64}
"#;

#[test]
fn a_node_of_kubectl_is_read_with_its_place_flavor_gpus_and_cordon() {
    let objects = read(KUBECTL).unwrap();
    let [Object::Node(node)] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    assert_eq!(node.gpus, 8);
    assert_eq!(
        [node.region(), node.cluster(), node.domain(), node.flavor()],
        [
            Some("us-west"),
            Some("west-1"),
            Some("rack-a"),
            Some("h100")
        ]
    );
    assert_eq!(node.labels.len(), 4, "foreign labels are not kept");
    assert!(node.unschedulable);
    assert_eq!(read(&Object::to_yaml(&objects)).unwrap(), objects);
}

#[test]
fn a_misspelt_field_of_a_node_is_reported_and_a_foreign_one_is_not() {
    for (right, wrong, expected) in [
        (
            "allocatable:",
            "alocatable:",
            "items[0].status.alocatable is not a field",
        ),
        (
            "unschedulable:",
            "unscheduleable:",
            "items[0].spec.unscheduleable is not a field",
        ),
        (
            "bursar.dev/flavor:",
            "bursar.dev/flavour:",
            "items[0].metadata.labels.bursar.dev/flavour is not a field",
        ),
        (
            "nvidia.com/gpu:",
            "nvidia.com/gpus:",
            "items[0].status.allocatable.nvidia.com/gpus is not a field",
        ),
        (
            "  labels:",
            "  labls:",
            "items[0].metadata.labls is not a field",
        ),
    ] {
        let mistakes = read(&KUBECTL.replace(right, wrong)).unwrap_err();
        let first = &mistakes.mistakes[0];
        assert_eq!(format!("{} {}", first.path, first.message), expected);
        assert!(first.line.is_some_and(|line| line > 6), "{first}");
        let suggestion = format!("did you mean `{}`?", right.trim().trim_end_matches(':'));
        assert_eq!(first.suggestion, Some(suggestion));
    }
}

#[test]
fn a_node_without_allocatable_is_a_mistake_and_not_a_node_without_cpu() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";
    let of = |text: &str| read(text).unwrap_err().mistakes[0].clone();
    assert_eq!(of(node).path, "status");
    assert_eq!(
        of(&format!("{node}status: {{}}\n")).path,
        "status.allocatable"
    );
    let null = format!("{node}status: {{allocatable: null}}\n");
    assert_eq!(of(&null).path, "status.allocatable");
}

#[test]
fn the_value_of_a_label_that_is_read_is_checked_and_an_empty_one_is_absent() {
    let mistakes = read(&KUBECTL.replace("rack-a", "rack/a")).unwrap_err();
    assert_eq!(
        mistakes.mistakes[0].path,
        "items[0].metadata.labels.bursar.dev/domain"
    );
    let objects = read(&KUBECTL.replace("rack-a", "\"\"")).unwrap();
    let [Object::Node(node)] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    assert_eq!(
        node.missing_labels().collect::<Vec<_>>(),
        ["bursar.dev/domain"]
    );
}
