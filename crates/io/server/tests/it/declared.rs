//! Limits, nodes, apply, explain.

use serde_json::json;

use crate::world::{World, limit_body, user};

#[tokio::test(start_paused = true)]
async fn a_limit_changes_at_once_and_its_dry_run_answers_the_same() {
    let world = World::new();
    let created = world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    assert_eq!(
        (
            created.status.as_u16(),
            &created.json()["results"][0]["change"]
        ),
        (201, &json!("created"))
    );
    world.grant("a", "python", "acme").await;
    for id in ["b", "c"] {
        let wait = r#"{"class":"python","tenant":"acme","waitMs":60000}"#;
        world.ask("PUT", &format!("/v1/bookings/{id}"), wait).await;
    }
    let body = limit_body("python", r#"{"class":"python","slots":5}"#);
    let planned = world
        .ask("PUT", "/v1/limits/python?dryRun=true", &body)
        .await
        .json();
    assert_eq!(planned["dryRun"], true);
    let fields = json!([{"path":"slots","from":"1","to":"5"}]);
    assert_eq!(planned["results"][0]["fields"], fields);
    assert_eq!(
        planned["results"][0]["effect"],
        "2 waiting bookings would be granted, 3/5 in use"
    );
    let done = world.ask("PUT", "/v1/limits/python", &body).await.json();
    assert_eq!(done["results"][0]["fields"], fields);
    assert_eq!(
        done["results"][0]["effect"],
        "2 waiting bookings granted, 3/5 in use"
    );
    let again = world.ask("PUT", "/v1/limits/python", &body).await.json();
    assert_eq!(again["results"][0]["change"], "unchanged");
    assert_eq!(
        again["record"], done["record"],
        "no record where nothing changes"
    );

    let limit = world.ask("GET", "/v1/limits/python", "").await.json();
    assert_eq!(limit["status"]["inUse"]["slots"], 3);
    assert_eq!(limit["spec"]["slots"], 5);
    let listed = world.ask("GET", "/v1/limits", "").await.json();
    let names: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["metadata"]["name"].clone())
        .collect();
    assert_eq!(json!(names), json!(["default", "python", "tenants"]));
    assert_eq!(
        world.ask("DELETE", "/v1/limits/python", "").await.json()["results"][0]["change"],
        "deleted"
    );
    let gone = world.ask("DELETE", "/v1/limits/pyton", "").await;
    gone.is_problem("not-found");
    world
        .ask("DELETE", "/v1/limits/default", "")
        .await
        .is_problem("conflict");
}

#[tokio::test(start_paused = true)]
async fn if_match_refuses_another_version() {
    let world = World::new();
    let seen = world.ask("GET", "/v1/limits/default", "").await.json();
    let version = seen["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let put = |slots: u64, version: String| {
        let body = limit_body("default", &format!(r#"{{"class":"each","slots":{slots}}}"#));
        let request = http::Request::put("/v1/limits/default").header("if-match", version);
        let router = world.router(crate::world::operator());
        async move { crate::world::send(&router, request.body(body.into()).unwrap()).await }
    };
    assert_eq!(put(50, version.clone()).await.status, 200);
    let refused = put(60, version).await.is_problem("conflict");
    let present = refused["resourceVersion"].as_str().unwrap().to_owned();
    assert_eq!(
        put(60, format!("\"{present}\"")).await.status,
        200,
        "quotes are as HTTP has them"
    );
}

#[tokio::test(start_paused = true)]
async fn an_apply_is_all_or_none_and_names_every_mistake() {
    let world = World::new();
    let limit: serde_json::Value =
        serde_json::from_str(&limit_body("python", r#"{"class":"python","slots":7}"#)).unwrap();
    let node = json!({"apiVersion":"v1","kind":"Node","metadata":{"name":"a01","uid":"x"},
                      "status":{"allocatable":{"cpu":"96","memory":"1000Gi","nvidia.com/gpu":"8"}}});
    let mut wrong = limit.clone();
    wrong["spec"]["slot"] = json!(3);
    wrong["metadata"]["name"] = json!("Other");
    let before = world.service.record();
    let refused = world
        .ask(
            "POST",
            "/v1/apply",
            &json!({"objects":[limit, node, wrong]}).to_string(),
        )
        .await;
    let errors = refused.is_problem("invalid")["errors"].clone();
    assert_eq!(errors.as_array().unwrap().len(), 2, "{errors:#}");
    assert!(
        errors.to_string().contains("did you mean `slots`?"),
        "{errors:#}"
    );
    assert_eq!(world.service.record(), before);

    let applied = world
        .ask(
            "POST",
            "/v1/apply",
            &json!({"objects":[limit, node]}).to_string(),
        )
        .await
        .json();
    assert_eq!(
        applied["results"][1],
        json!({"object":"node/a01","change":"created","fields":[
        {"path":"cpu","to":"96"},{"path":"memory","to":"1000Gi"},{"path":"nvidia.com/gpu","to":"8"}],
        "effect": "no run is placed here without topology.kubernetes.io/region, \
            bursar.dev/cluster, bursar.dev/domain, bursar.dev/flavor"})
    );
    let same = json!({"objects":[limit_clash()]}).to_string();
    world
        .ask("POST", "/v1/apply", &same)
        .await
        .is_problem("conflict");
    assert_eq!(
        world.ask("GET", "/v1/nodes", "").await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        world.ask("GET", "/v1/nodes/a01", "").await.json()["status"]["allocatable"]["cpu"],
        "96"
    );
    assert_eq!(world.ask("DELETE", "/v1/nodes/a01", "").await.status, 200);
    let near = world
        .ask("GET", "/v1/limits/pyhton", "")
        .await
        .is_problem("not-found");
    assert_eq!(near["suggestion"], "python");
}

#[tokio::test(start_paused = true)]
async fn an_explanation_hides_holders_the_caller_may_not_see() {
    let world = World::new();
    world
        .limit("tenants", r#"{"tenant":"each","slots":64}"#)
        .await;
    world.grant("a", "python", "acme").await;
    let explained = world.ask("GET", "/v1/explain/booking/a", "").await.json();
    assert!(
        explained["headline"]
            .as_str()
            .unwrap()
            .starts_with("a holds 1 python slot"),
        "{explained:#}"
    );
    assert_eq!(explained["who"][0]["tenant"], "acme");
    world
        .ask_as(user(&["zeta"]), "GET", "/v1/explain/booking/a", "")
        .await
        .is_problem("not-found");
    let explained = world
        .ask_as(user(&["zeta"]), "GET", "/v1/explain/limit/tenants", "")
        .await
        .json();
    assert_eq!(explained["headline"], "limit tenants is open: 0/64 in use");
    assert_eq!(
        world
            .ask("GET", "/v1/explain/limit/tenants", "")
            .await
            .status,
        200
    );
    let other = world
        .ask("GET", "/v1/explain/limits/x", "")
        .await
        .is_problem("not-found");
    assert_eq!(other["suggestion"], "limit");
    let limit = world
        .ask_as(user(&["zeta"]), "GET", "/v1/limits/tenants", "")
        .await
        .json();
    assert_eq!(
        limit["status"]["counters"],
        json!([]),
        "counters of others are not shown"
    );
    assert_eq!(
        limit["status"]["inUse"]["slots"], 0,
        "nor are they in the sum"
    );
}

fn limit_clash() -> serde_json::Value {
    serde_json::from_str(&limit_body("snake", r#"{"class":"python","slots":1}"#)).unwrap()
}
