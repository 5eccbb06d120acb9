//! Times to encode and decode one record of each frequent kind.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a tool of the developer that reads the clock and prints"
)]

#[path = "../tests/it/world.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod world;

use std::hint::black_box;
use std::time::Instant;

use bursar_engine::codec::{decode, decode_events, encode};
use world::{World, request, reserve};

/// Rounds in a batch, and batches; the quickest counts, since others work on the machine too.
const ROUNDS: u32 = 2_000;
const BATCHES: u32 = 200;

fn main() {
    let mut world = World::new();
    let id = "exec-0198f3c2-1a2b-7abc-8def-0123456789ab";
    world.run(reserve(id, request("python", "acme"))).unwrap();
    world.release(id).unwrap();
    for (seq, bytes) in (0..).zip(&world.journal).skip(1) {
        let record = decode(seq, bytes, |_| None).unwrap();
        let written = quickest(|| drop(black_box(encode(black_box(&record)))));
        let read = quickest(|| drop(black_box(decode_events(seq, black_box(bytes), |_| None))));
        let whole = quickest(|| drop(black_box(decode(seq, black_box(bytes), |_| None))));
        let size = bytes.len();
        println!("{size} bytes: encode {written} ns, decode events {read} ns, decode {whole} ns");
    }
}

fn quickest(mut work: impl FnMut()) -> u128 {
    let batch = |_| {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work();
        }
        start.elapsed().as_nanos() / u128::from(ROUNDS)
    };
    (0..BATCHES).map(batch).min().unwrap_or_default()
}
