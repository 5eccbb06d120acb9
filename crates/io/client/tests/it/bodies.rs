//! All mistakes of a request body are reported at once.

use bursar_client::api::body::{Body, read, read_declared, read_values};
use bursar_client::api::{
    Batch, BookingRequest, CancelRequest, ExecutionRequest, ExportedRequest, PruneRequest,
    ReleaseRequest, RenewRequest, RestoreRequest, RotateKeyRequest, TokenRequest,
};
use bursar_client::object::{Address, Object, ObjectKind};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use proptest::prelude::{any, proptest};
use serde_json::{Value, json};

fn refusal<T: Body>(text: &str) -> Problem {
    match read::<T>(text.as_bytes()) {
        Ok(_) => panic!("{text} was accepted"),
        Err(problem) => *problem,
    }
}

/// Reads a limit of any name.
fn read_limit(bytes: &[u8]) -> Result<Object, Box<Problem>> {
    let address = Address {
        kind: ObjectKind::Limit,
        namespace: None,
        name: None,
    };
    read_declared(bytes, address)
}

fn sentences<T: Body>(text: &str) -> Vec<String> {
    let problem = refusal::<T>(text);
    assert_eq!(problem.code, Code::Invalid, "{problem:?}");
    problem.errors.iter().map(FieldError::sentence).collect()
}

#[test]
fn all_mistakes_of_a_reservation_are_named() {
    assert_eq!(
        sentences::<BookingRequest>(
            r#"{"clas": "a b", "slots": -1, "waitMs": 9007199254740992, "priority": "hihg", "ttlMs": "1"}"#
        ),
        [
            "clas is not a field, did you mean `class`?",
            "slots must not be negative, 1 to 9007199254740991 is allowed",
            "ttlMs must be a whole number from 1000 to 86400000, leave out the quotes: 1",
            "waitMs must be at most 9007199254740991, 0 to 9007199254740991 is allowed",
            "priority is `hihg`, which is not an allowed value, did you mean `high`?",
        ]
    );
    assert_eq!(
        sentences::<BookingRequest>(r#"{"class": "a", "slots": 0, "ttlMs": 999}"#),
        [
            "slots must be at least 1",
            "ttlMs must be between 1000 and 86400000"
        ]
    );
    assert_eq!(
        sentences::<BookingRequest>(r#"{"class": "a", "slots": -0.0, "ttlMs": 1.5}"#),
        [
            "slots must be a whole number from 1",
            "ttlMs must be a whole number from 1000 to 86400000"
        ]
    );
    assert_eq!(
        sentences::<BookingRequest>(r#"{"class": "a", "slots": 0, "class": "b", "slots": null}"#),
        [
            "class is given twice, leave one of them out",
            "slots is given twice, leave one of them out",
            "slots must be at least 1, 1 to 9007199254740991 is allowed",
        ]
    );
}

#[test]
fn mistakes_of_a_batch_name_the_operation() {
    assert_eq!(
        sentences::<Batch>(
            r#"{"operations": [{"op": "cancel", "id": "a"}, {"op": "renew", "id": "a"},
                {"op": "relase", "id": "a"}, {"op": "cancel", "id": "a", "fence": 1}, {"id": "é"}]}"#
        ),
        [
            "operations[1].fence is missing",
            "operations[2].op is `relase`, which is not an allowed value, did you mean `release`?",
            "operations[3].fence is not a field, fields are op, id",
            "operations[4].op is missing, one of reserve, renew, release, cancel",
            "operations[4].id has the character 'é'; allowed are letters, digits and . _ : -",
        ]
    );
    // A mistake within a readable operation is the result of that operation.
    let batch: Batch = read(
        r#"{"operations": [{"op": "release", "id": "a"}, {"op": "renew", "id": "a", "fence": 1},
            {"op": "reserve", "id": "a", "class": "a\u200b", "slots": 0, "ttlMs": 5}]}"#
            .as_bytes(),
    )
    .unwrap();
    let mistakes: Vec<Vec<String>> = batch
        .operations
        .iter()
        .map(|operation| {
            operation
                .mistakes()
                .iter()
                .map(FieldError::sentence)
                .collect()
        })
        .collect();
    assert_eq!(
        mistakes,
        [
            vec!["fence is missing; an operator without it sends `force` and `reason`"],
            vec![],
            vec![
                "class has the invisible character U+200B; leave it out",
                "slots must be at least 1",
                "ttlMs must be between 1000 and 86400000"
            ],
        ]
    );
    let many = json!({"operations": vec![json!({"op": "cancel", "id": "a"}); 1025]});
    assert_eq!(refusal::<Batch>(&many.to_string()).code, Code::TooLarge);
}

#[test]
fn a_forced_release_needs_its_reason_and_no_fence() {
    assert!(read::<ReleaseRequest>(br#"{"force": true, "reason": "stuck"}"#).is_ok());
    assert_eq!(
        sentences::<ReleaseRequest>(r#"{"force": true, "fence": 3}"#),
        [
            "fence cannot be combined with `force`",
            "reason is missing; `force` requires it"
        ]
    );
    assert_eq!(
        sentences::<ReleaseRequest>(r#"{"fence": 3, "reason": "done"}"#),
        ["reason requires `force`"]
    );
}

#[test]
fn a_token_needs_a_role_and_use_needs_a_tenant() {
    assert_eq!(
        sentences::<TokenRequest>(r#"{"name": "ci", "roles": ["use"], "expires": "soon"}"#).len(),
        2
    );
    assert_eq!(
        sentences::<TokenRequest>(r#"{"name": "ci", "roles": []}"#).len(),
        1
    );
    assert_eq!(
        sentences::<TokenRequest>(r#"{"name": "CI", "roles": ["admin"]}"#),
        [
            "name has the character 'C'; allowed are lower-case letters, digits, - and . (not first or last)",
            "roles[0] is `admin`, which is not an allowed value, one of view, use, operate",
        ]
    );
}

type Reader = fn(&[u8]) -> Result<(), Box<Problem>>;

/// A valid body of every kind with all its fields, and its reader.
fn every_body() -> Vec<(Value, Reader)> {
    fn only_read<T: Body>(bytes: &[u8]) -> Result<(), Box<Problem>> {
        read::<T>(bytes).map(drop)
    }
    let reserve = json!({
        "class": "python", "tenant": "acme", "slots": 1, "cpuMilli": 1, "memoryBytes": 1,
        "gpus": 1, "ttlMs": 1000, "waitMs": 1, "priority": "high", "executionId": "a",
        "cpuLimitMilli": 1, "memoryLimitBytes": 1
    });
    let release = json!({"fence": 1, "outcome": "ok", "exitCode": -1, "force": false});
    let operation = |op: &str, body: &Value| {
        let mut operation = body.clone();
        operation["op"] = op.into();
        operation["id"] = "a".into();
        operation
    };
    let renew = json!({"fence": 1, "ttlMs": 1000});
    let batch = json!({"operations": [
        operation("reserve", &reserve), operation("renew", &renew),
        operation("release", &release), operation("cancel", &json!({})),
    ]});
    let execution = json!({
        "class": "python", "tenant": "acme", "slots": 1, "command": "/bin/true", "args": ["a"],
        "env": {"A": "b"}, "directory": "/", "cpuMilli": 1, "memoryBytes": 1, "gpus": 1,
        "cpuLimitMilli": 1, "memoryLimitBytes": 1, "pids": 1, "priority": "low", "waitMs": 1,
        "startTimeoutMs": 1000, "maxTimeMs": 1000, "graceMs": 0, "retryOf": "a"
    });
    let token = json!({"name": "ci", "roles": ["use"], "tenants": ["acme"], "expires": "90d"});
    let limit = json!({
        "apiVersion": "bursar.dev/v1alpha1", "kind": "Limit", "metadata": {"name": "python"},
        "spec": {"class": "python", "slots": 1, "cpu": "1", "maxWait": "1h"}
    });
    let declared: Reader = |bytes| read_limit(bytes).map(drop);
    let apply: Reader = |bytes| read_values(bytes).map(drop);
    vec![
        (reserve, only_read::<BookingRequest>),
        (renew, only_read::<RenewRequest>),
        (release, only_read::<ReleaseRequest>),
        (json!({}), only_read::<CancelRequest>),
        (batch, only_read::<Batch>),
        (execution, only_read::<ExecutionRequest>),
        (token, only_read::<TokenRequest>),
        (
            json!({"before": "2026-11-16T10:00:00Z"}),
            only_read::<PruneRequest>,
        ),
        (json!({"from": 0, "below": 1}), only_read::<ExportedRequest>),
        (json!({}), only_read::<RotateKeyRequest>),
        (json!({}), only_read::<RestoreRequest>),
        (json!({"objects": []}), apply),
        (limit, declared),
    ]
}

/// JSON pointers to all values of a body.
fn pointers(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                pointers(value, &format!("{here}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                pointers(value, &format!("{here}/{at}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn a_list_is_not_accepted_as_an_object_at_any_depth() {
    for (good, read) in every_body() {
        assert!(read(good.to_string().as_bytes()).is_ok(), "{good}");
        let mut places = Vec::new();
        pointers(&good, "", &mut places);
        for place in places {
            let mut body = good.clone();
            let object = body.pointer_mut(&place).unwrap();
            let Value::Object(fields) = object.clone() else {
                continue;
            };
            // The values in the order of JSON, and the object as the only item.
            for list in [
                json!(fields.values().collect::<Vec<_>>()),
                json!([object.clone()]),
                json!([]),
            ] {
                *body.pointer_mut(&place).unwrap() = list;
                let problem = read(body.to_string().as_bytes()).unwrap_err();
                assert_eq!(problem.code, Code::Invalid, "{body}");
                assert!(problem.detail.contains("not a list"), "{problem:?}");
            }
        }
    }
    assert_eq!(
        refusal::<Batch>(r#"[[{"op": "reserve", "id": "a", "class": "python"}]]"#).detail,
        "the body must be a JSON object, not a list"
    );
    assert_eq!(
        refusal::<Batch>(r#"{"operations": [["cancel", "a"]]}"#).detail,
        "operations[0] must be an object, not a list"
    );
    assert_eq!(
        refusal::<BookingRequest>("7").detail,
        "the body must be a JSON object, not a number"
    );
}

#[test]
fn no_mistake_has_the_message_of_a_parser() {
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(-0.0),
        json!(1.5),
        json!(1e300),
        json!(1e18),
        json!(u64::MAX),
        json!(""),
        json!("nonsense"),
        json!("a b"),
        json!("a\u{202e}b"),
        json!([]),
        json!([1]),
        json!([[]]),
        json!({}),
        json!({"a": 1}),
    ];
    let foreign = [
        "invalid type",
        "invalid value",
        "expected",
        "floating point",
        "u64",
        "i32",
        "struct",
        "variant",
        "digit found",
        "at line",
        "a map",
        "sequence",
    ];
    for (good, read) in every_body() {
        let mut places = Vec::new();
        pointers(&good, "", &mut places);
        for place in places {
            for value in &odd {
                let mut body = good.clone();
                *body.pointer_mut(&place).unwrap() = value.clone();
                let Err(problem) = read(body.to_string().as_bytes()) else {
                    continue;
                };
                let errors = problem.errors.iter().map(FieldError::sentence);
                for sentence in errors.chain([problem.detail.clone()]) {
                    let is_foreign = |word: &&str| sentence.contains(*word);
                    assert_eq!(
                        foreign.iter().find(|word| is_foreign(word)),
                        None,
                        "{body}: {sentence}"
                    );
                }
            }
        }
    }
}

#[test]
fn all_mistakes_of_an_execution_and_of_a_token_are_named_at_once() {
    let body = r#"{"tenant": "a b", "slots": 0, "args": [1], "env": {"A": 5}, "pids": 0,
        "maxTimeMs": 1, "priority": 3}"#;
    let problem = refusal::<ExecutionRequest>(body);
    let mistakes: Vec<_> = problem.errors.iter().map(FieldError::sentence).collect();
    assert_eq!(
        mistakes,
        [
            "class is missing",
            "tenant has the character ' '; allowed are all but control characters, space and * / , =",
            "slots must be at least 1, 1 to 9007199254740991 is allowed",
            "command is missing",
            "args[0] must be a text",
            "env.A must be a text",
            "pids must be at least 1, 1 to 4294967295 is allowed",
            "priority must be a word, one of urgent, high, normal, low, batch",
            "maxTimeMs must be at least 1000, 1000 to 2592000000 is allowed",
        ]
    );
    let named = mistakes.get(..8).unwrap().join("; ");
    assert_eq!(problem.detail, format!("{named}; and 1 more"));
    // The same if every field has the right kind.
    let body = r#"{"class": "a", "command": "", "slots": 0, "maxTimeMs": 1, "pids": 0}"#;
    assert_eq!(
        sentences::<ExecutionRequest>(body),
        [
            "slots must be at least 1",
            "command is empty",
            "pids is 0, with which nothing can run; leave it out for no limit",
            "maxTimeMs must be between 1000 and 2592000000",
        ]
    );
    let body = r#"{"name": "ci", "roles": ["use"], "expires": "0"}"#;
    assert_eq!(
        sentences::<TokenRequest>(body),
        [
            "tenants is missing; `use` acts as the tenants and owners listed",
            "expires must be more than 0 and at most 3650d",
        ]
    );
}

/// Violations of rules over several fields are reported together with mistakes of single fields.
#[test]
fn rules_over_several_fields_are_reported_with_other_mistakes() {
    for (body, expected) in [
        (
            r#"{"exitCode": "x"}"#,
            vec![
                "exitCode must be a whole number of 32 bits",
                "fence is missing; an operator without it sends `force` and `reason`",
            ],
        ),
        (
            r#"{"force": true, "fence": 1, "outcome": "good"}"#,
            vec![
                "outcome is `good`, which is not an allowed value, one of ok, failed",
                "fence cannot be combined with `force`",
                "reason is missing; `force` requires it",
            ],
        ),
        // `force` is unknown, and a reason that is not a text is reported once.
        (
            r#"{"force": 1, "reason": 2}"#,
            vec![
                "force must be true or false",
                "reason must be a text, put it in quotes: \"2\"",
            ],
        ),
        (
            r#"{"fence": "1", "reason": "done"}"#,
            vec![
                "fence must be a whole number from 0, leave out the quotes: 1",
                "reason requires `force`",
            ],
        ),
    ] {
        assert_eq!(sentences::<ReleaseRequest>(body), expected, "{body}");
        let operation = body.replacen('{', r#"{"op": "release", "id": "a", "#, 1);
        let batch = format!(r#"{{"operations": [{operation}]}}"#);
        let of_operation = |sentence: &&str| format!("operations[0].{sentence}");
        let expected: Vec<_> = expected.iter().map(of_operation).collect();
        assert_eq!(sentences::<Batch>(&batch), expected, "{batch}");
    }
    for (body, expected) in [
        (
            r#"{"name": "CI", "roles": ["use"]}"#,
            vec![
                "name has the character 'C'; allowed are lower-case letters, digits, - and . (not first or last)",
                "tenants is missing; `use` acts as the tenants and owners listed",
            ],
        ),
        (
            r#"{"roles": []}"#,
            vec![
                "name is missing",
                "roles is empty; give `view`, `use` or `operate`",
            ],
        ),
        (
            r#"{"roles": ["view"], "tenants": ["a"]}"#,
            vec!["name is missing", "tenants requires the role `use`"],
        ),
        // The unknown role may have been meant as `use`.
        (
            r#"{"name": "ci", "roles": ["view", "used"], "tenants": ["a"]}"#,
            vec!["roles[1] is `used`, which is not an allowed value, did you mean `use`?"],
        ),
        (
            r#"{"name": "ci", "roles": ["use", 1], "tenants": []}"#,
            vec![
                "roles[1] must be a word, one of view, use, operate",
                "tenants is missing; `use` acts as the tenants and owners listed",
            ],
        ),
    ] {
        assert_eq!(sentences::<TokenRequest>(body), expected, "{body}");
    }
    let body = json!({"command": "", "args": ["a", "b\0"], "env": {"A=B": "", "C": "d\0"},
        "directory": "tmp"});
    assert_eq!(
        sentences::<ExecutionRequest>(&body.to_string()),
        [
            "class is missing",
            "command is empty",
            "args[1] contains a zero byte, which a program cannot receive",
            "env has a name that contains `=` or a zero byte",
            "env.C contains a zero byte, which a program cannot receive",
            "directory is not an absolute path",
        ]
    );
}

#[test]
fn the_number_of_reported_mistakes_is_bounded() {
    let body = format!(r#"{{"operations": [{}1]}}"#, "1,".repeat(500_000));
    assert_eq!(refusal::<Batch>(&body).errors.len(), 64);
}

#[test]
fn texts_of_a_request_have_no_invisible_characters() {
    for (hidden, named) in [
        ("\u{202e}", "U+202E"),
        ("\u{2066}", "U+2066"),
        ("\u{200e}", "U+200E"),
        ("\u{61c}", "U+061C"),
        ("\u{200b}", "U+200B"),
        ("\u{feff}", "U+FEFF"),
        ("\u{ad}", "U+00AD"),
        ("\u{fe0f}", "U+FE0F"),
        ("\u{e0041}", "U+E0041"),
    ] {
        let text = format!("ac{hidden}me");
        let message = format!("has the invisible character {named}; leave it out");
        let both = [format!("class {message}"), format!("tenant {message}")];
        let request = json!({"class": text, "tenant": text}).to_string();
        assert_eq!(sentences::<BookingRequest>(&request), both);
        let request = json!({"class": text, "tenant": text, "slots": "1"}).to_string();
        assert_eq!(sentences::<BookingRequest>(&request)[..2], both);
        let request = json!({"class": text, "tenant": text, "command": "a"}).to_string();
        assert_eq!(sentences::<ExecutionRequest>(&request), both);
        let request = json!({"name": "ci", "roles": ["use"], "tenants": ["a", text]}).to_string();
        assert_eq!(
            sentences::<TokenRequest>(&request),
            [format!("tenants[1] {message}")]
        );
        let request = json!({"force": true, "reason": text}).to_string();
        assert_eq!(
            sentences::<ReleaseRequest>(&request),
            [format!("reason {message}")]
        );
        let limit = json!({
            "apiVersion": "bursar.dev/v1alpha1", "kind": "Limit", "metadata": {"name": "a"},
            "spec": {"class": text, "tenant": text}
        });
        let problem = read_limit(limit.to_string().as_bytes()).unwrap_err();
        assert_eq!(
            problem.detail,
            format!("spec.class {message}; spec.tenant {message}")
        );
        // The command is never recorded, so any characters are allowed.
        let request = json!({"class": "a", "command": text, "args": [text, "a\nb"]}).to_string();
        assert!(read::<ExecutionRequest>(request.as_bytes()).is_ok());
        // Answers may have it: such records are older than this rule.
        let booking = json!({"id": "a", "state": "queued", "class": text, "tenant": text});
        assert!(serde_json::from_value::<bursar_client::api::Booking>(booking).is_ok());
    }
    let request = json!({"force": true, "reason": "stuck\u{1b}[2J"}).to_string();
    assert_eq!(
        sentences::<ReleaseRequest>(&request),
        ["reason has the invisible character U+001B; leave it out"]
    );
}

#[test]
fn an_unreadable_body_is_malformed_with_its_position() {
    for text in ["{", r#"{"class": "a""#, "nonsense", &"[".repeat(10_000)] {
        let problem = refusal::<BookingRequest>(text);
        assert_eq!(problem.code, Code::Malformed, "{text:.20}");
        assert!(
            problem.detail.contains("line 1 column"),
            "{}",
            problem.detail
        );
    }
    let problem = *read::<BookingRequest>(b"{\"class\": \"\xff\"}").unwrap_err();
    assert_eq!(
        (problem.code, problem.detail.contains("UTF-8")),
        (Code::Malformed, true)
    );
    let large = format!("{{\"class\": \"{}\"}}", "a".repeat(1 << 20));
    assert_eq!(refusal::<BookingRequest>(&large).code, Code::TooLarge);
}

#[test]
fn an_empty_body_is_an_empty_object() {
    assert!(read::<CancelRequest>(b"").is_ok());
    assert_eq!(sentences::<BookingRequest>(""), ["class is missing"]);
}

proptest! {
    #[test]
    fn no_bytes_make_a_body_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read::<BookingRequest>(&bytes);
        let _ = read::<Batch>(&bytes);
        let _ = read_values(&bytes);
    }

    #[test]
    fn no_json_makes_a_body_reader_panic(text in r#"(\{|\}|\[|\]|"op"|"id"|"fence"|:|,|1|-|"reserve"|"class"|null){0,30}"#) {
        let _ = read::<BookingRequest>(text.as_bytes());
        let _ = read::<Batch>(text.as_bytes());
    }
}
