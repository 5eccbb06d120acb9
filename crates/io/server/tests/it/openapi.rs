//! The description of the API: in the tree, served, and sound.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::world::World;

#[test]
fn the_file_in_the_tree_is_what_the_routes_say() {
    let committed = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../openapi.json"
    ));
    assert!(
        committed.unwrap() == bursar_server::http::description(),
        "openapi.json is not what the routes say; `cargo xtask update` writes it anew"
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_served_as_it_is() {
    let world = World::new();
    let served = world.ask("GET", "/openapi.json", "").await;
    assert_eq!(served.text(), bursar_server::http::description());
}

#[test]
fn operations_have_names_of_their_own_and_references_lead_somewhere() {
    let text = bursar_server::http::description();
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
