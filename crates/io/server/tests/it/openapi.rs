//! The OpenAPI description: up to date, served, and consistent.

use std::collections::BTreeSet;

use bursar_server::http::{DESCRIPTION, generate};
use serde_json::Value;

use crate::world::World;

#[test]
fn the_openapi_file_matches_the_routes() {
    assert!(
        DESCRIPTION == generate(),
        "openapi.json differs from the routes; run `cargo xtask update`"
    );
}

#[tokio::test(start_paused = true)]
async fn the_openapi_file_is_served() {
    let world = World::new();
    let served = world.ask("GET", "/openapi.json", "").await;
    assert_eq!(served.text(), DESCRIPTION);
}

#[test]
fn operation_ids_are_unique_and_references_resolve() {
    let text = DESCRIPTION;
    let description: Value = serde_json::from_str(text).unwrap();
    let mut names = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(
                names.insert(name),
                "{method} {path} is named {name} like another"
            );
            assert!(
                operation["summary"].is_string(),
                "{method} {path} says nothing"
            );
        }
    }
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(
            description["components"]["schemas"][name].is_object(),
            "{name}"
        );
    }
}
