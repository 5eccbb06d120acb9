//! Budgets and runs in files.

use bursar_client::api::body::read_declared;
use bursar_client::object::{Address, File, Mistakes, Object, ObjectKind, read_files};
use bursar_units::ObjectName;

const BUDGETS: &str = r#"apiVersion: bursar.dev/v1alpha1
kind: Budget
metadata:
  name: q4
  namespace: rai
spec:
  owner: org:ai:rai
  parents: [org:ai]
  envelopes:
  - name: h100
    flavor: h100
    selector: {region: us-west}
    concurrency: 48
    maxGPUHours: 40000
    start: "2026-10-01T00:00:00Z"
    end: "2027-01-01T00:00:00Z"
    renew: quarter
    sharing: family
    onExhaustion: demote
    admissionHorizon: 24h
  aggregateCaps:
  - name: all-h100
    flavor: h100
    envelopes: [h100]
    maxConcurrency: 48
---
apiVersion: bursar.dev/v1alpha1
kind: Budget
metadata: {name: q4, namespace: bio}
spec:
  owner: org:bio
  envelopes:
  - name: h100
    flavor: h100
    concurrency: 32
    lending:
      allow: true
      to: ["org:ai:*"]
      maxConcurrency: 16
      maxGPUHours: 2000
"#;

const RUN: &str = r"apiVersion: bursar.dev/v1alpha1
kind: Run
metadata: {name: asr-xl, namespace: speech}
spec:
  owner: org:ai:speech
  flavor: h100
  totalGPUs: 24
  podGPUs: 8
  groupGPUs: 8
  spread: false
  location: {domain: rack-a}
  expectedDuration: 48h
  grace: 10m
  sparesPerGroup: 0
  funding: {allowBorrow: true, maxBorrowGPUs: 8, sponsors: [org:bio], allowUnfunded: false}
";

fn read(text: &str) -> Result<Vec<Object>, Mistakes> {
    read_files(&[File {
        name: "budgets.yaml".to_owned(),
        bytes: text.as_bytes().to_vec(),
    }])
}

fn sentences(text: &str) -> Vec<String> {
    let mistakes = read(text).unwrap_err().mistakes.into_iter();
    let sentence = |of: bursar_client::object::Mistake| {
        let advice = of.suggestion.map(|advice| format!(", {advice}"));
        let advice = advice.unwrap_or_default();
        format!("{} {}{advice}", of.path, of.message)
    };
    mistakes.map(sentence).collect()
}

/// Promise: the documented budgets are read, and written with defaults they are the same budgets.
#[test]
fn budgets_are_read_and_written() {
    let objects = read(BUDGETS).unwrap();
    let references: Vec<_> = objects.iter().map(Object::reference).collect();
    assert_eq!(references, ["budget/rai/q4", "budget/bio/q4"]);
    let Object::Budget { budget, .. } = &objects[0] else {
        panic!("{objects:?}")
    };
    let cap = &budget.aggregate_caps[0];
    assert_eq!(cap.envelopes[0].as_str(), "rai/q4/h100");
    assert_eq!(budget.envelopes[0].gpu_hours_max, Some(40_000));
    assert_eq!(read(&Object::to_yaml(&objects)).unwrap(), objects);
}

/// Promise: the documented run is read, with the defaults of later fields, and written again.
#[test]
fn runs_are_read_and_written() {
    let objects = read(RUN).unwrap();
    let Object::Run { spec, .. } = &objects[0] else {
        panic!("{objects:?}")
    };
    assert_eq!(objects[0].reference(), "run/speech/asr-xl");
    assert_eq!((spec.total_gpus, spec.pod_gpus), (24, Some(8)));
    assert_eq!(spec.expected_duration.as_deref(), Some("48h"));
    assert_eq!(read(&Object::to_yaml(&objects)).unwrap(), objects);
}

/// Promise: all mistakes of all documents are reported at once, with their lines and advice.
#[test]
fn mistakes_of_budgets_have_lines_and_advice() {
    let text = BUDGETS
        .replacen("concurrency: 48", "concurency: 48", 1)
        .replace("2027-01-01", "2026-01-01")
        .replace("org:ai:*", "org:*:ai");
    let expected = r#"error: budgets.yaml:13:5: spec.envelopes[0].concurency is not a field
   |
13 |     concurency: 48
   |     ^^^^^^^^^^ did you mean `concurrency`?

error: budgets.yaml:16:10: spec.envelopes[0].end is before start
   |
15 |     start: "2026-10-01T00:00:00Z"
16 |     end: "2026-01-01T00:00:00Z"
   |          ^^^^^^^^^^^^^^^^^^^^^^ must be later than 2026-10-01; 2027-01-01 would be one quarter

error: budgets.yaml:38:12: spec.envelopes[0].lending.to[0] is not a pattern
   |
38 |       to: ["org:*:ai"]
   |            ^^^^^^^^^^ a `*` stands alone or at the end

error: 2 mistakes in budget/rai/q4, 1 in budget/bio/q4, nothing was applied (2 documents read)"#;
    assert_eq!(read(&text).unwrap_err().to_string(), expected);
}

/// Promise: fields of later versions are refused by name, never ignored.
#[test]
fn later_fields_are_refused_by_name() {
    let later = [
        ("elastic", "{min: 8, max: 24}"),
        ("follow", "[asr-ft]"),
        ("array", "4"),
        ("notBefore", "\"2026-10-01T00:00:00Z\""),
        ("expireAfter", "1h"),
        ("rejoinWait", "1h"),
        ("onPreempt", "end"),
        ("sacrificeFirst", "true"),
        ("paused", "true"),
        ("template", "{}"),
    ];
    for (field, value) in later {
        let text = format!("{RUN}  {field}: {value}\n");
        let expected = format!("spec.{field} is not supported yet, leave it out");
        assert_eq!(sentences(&text), [expected]);
    }
    let spares = RUN.replace("sparesPerGroup: 0", "sparesPerGroup: 1");
    let expected = "spec.sparesPerGroup is not supported yet, leave it out";
    assert_eq!(sentences(&spares), [expected]);
    let unfunded = RUN.replace("allowUnfunded: false", "allowUnfunded: true");
    let expected = "spec.funding.allowUnfunded is not supported yet, leave it out";
    assert_eq!(sentences(&unfunded), [expected]);
}

/// Promise: the plane's own mistakes come with their fields.
#[test]
fn mistakes_of_the_plane_have_their_fields() {
    let pods = RUN.replace("podGPUs: 8", "podGPUs: 5");
    let expected = "spec.podGPUs is 5, which does not divide groupGPUs (8)";
    assert_eq!(sentences(&pods), [expected]);
    let twice = BUDGETS.replace(
        "  aggregateCaps:",
        "  - {name: h100, flavor: h100, concurrency: 1}\n  aggregateCaps:",
    );
    let expected = "spec.envelopes[1].name `h100` is given twice, leave one of them out";
    assert_eq!(sentences(&twice), [expected]);
    let endless = BUDGETS.replace("    end: \"2027-01-01T00:00:00Z\"\n", "");
    assert_eq!(
        sentences(&endless),
        ["spec.envelopes[0].renew needs an end"]
    );
}

/// Promise: an object in a request has the namespace and the name of its path.
#[test]
fn the_path_and_the_object_agree() {
    let body = read(RUN).unwrap()[0].to_value().to_string();
    let [speech, other] = ["speech", "other"].map(|name| ObjectName::new(name).unwrap());
    let name = ObjectName::new("asr-xl").unwrap();
    let mut address = Address {
        kind: ObjectKind::Run,
        namespace: Some(&speech),
        name: Some(&name),
    };
    assert!(read_declared(body.as_bytes(), address).is_ok());
    address.namespace = Some(&other);
    let problem = read_declared(body.as_bytes(), address).unwrap_err();
    let errors: Vec<_> = problem
        .errors
        .iter()
        .map(bursar_client::problem::FieldError::sentence)
        .collect();
    assert_eq!(errors, ["metadata.namespace is speech, the path has other"]);
}
