//! Writes the journal of this version into `tests/journals`, with the hash of its state (L8).

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a tool of the developer that writes two files"
)]

#[path = "../tests/it/runs.rs"]
mod runs;
#[path = "../tests/it/script.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod script;
#[path = "../tests/it/world.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod world;

fn main() {
    let world = script::everything_happens();
    let mut journal = Vec::new();
    for record in &world.journal {
        journal.extend(record);
        journal.push(b'\n');
    }
    let hash = bursar_engine::snapshot::hash(&world.state).unwrap();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../tests/journals/",
        env!("CARGO_PKG_VERSION")
    );
    std::fs::write(format!("{path}.jsonl"), journal).unwrap();
    std::fs::write(format!("{path}.sha256"), format!("{hash}\n")).unwrap();
}
