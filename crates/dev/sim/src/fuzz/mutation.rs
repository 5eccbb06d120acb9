//! Mutations of valid inputs, which find wrong assumptions of a parser.

use super::corpus::Corpus;
use crate::rng::Rng;

/// Maximum size of an input in bytes: more than a record, but not so much that runs get slow.
const LENGTH_MAX: usize = 80_000;

/// Fragments that often break parsers.
const PIECES: [&str; 40] = [
    "",
    "0",
    "-0",
    "-1",
    "1e999",
    "1E-7",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0.0000000000000000001",
    "null",
    "true",
    "\"",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\u{202e}",
    "é",
    "\n",
    "\r\n",
    "\t",
    "---\n",
    "&a ",
    "*a",
    "!!binary ",
    "{}",
    "[]",
    ",",
    ":",
    "/",
    "..",
    "%00",
    "%2e%2e",
    "24h",
    "1ms",
    "100%",
    "256Mi",
    "8Ei",
];

/// Prefixes that can be nested without end.
const NESTS: [&str; 5] = ["[", "{\"a\":", "- ", "(", "a:\n "];

/// A mutated input of a corpus.
pub fn mutated(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let mut input = rng.pick(corpus.inputs()).cloned().unwrap_or_default();
    for _ in 0..rng.between(1, 6) {
        mutate(rng, corpus, &mut input);
    }
    input.truncate(LENGTH_MAX);
    input
}

fn mutate(rng: &mut Rng, corpus: &Corpus, input: &mut Vec<u8>) {
    let at = rng.place(input.len() + 1);
    let end = at + rng.place((input.len() - at).min(64) + 1);
    match rng.below(10) {
        0 => flip(rng, input, at),
        1 => set(rng, input, at),
        2 => drop(input.drain(at..end)),
        3 => {
            let again = input.get(at..end).unwrap_or_default().to_vec();
            splice(input, at, at, &again);
        }
        4 | 5 => {
            let piece = rng.pick(&PIECES).copied().unwrap_or_default();
            splice(
                input,
                at,
                if rng.once_in(2) { end } else { at },
                piece.as_bytes(),
            );
        }
        6 => replace_number(rng, input, at),
        7 => {
            let other = rng.pick(corpus.inputs()).cloned().unwrap_or_default();
            let from = rng.place(other.len() + 1);
            let tail = other.get(from..).unwrap_or_default();
            splice(input, at, input.len(), tail);
        }
        8 => input.truncate(at),
        _ => {
            let nest = rng.pick(&NESTS).copied().unwrap_or_default();
            let depth = usize::try_from(rng.one_of([2, 100, 130, 3_000, 20_000])).unwrap_or(2);
            splice(input, at, at, nest.repeat(depth).as_bytes());
        }
    }
}

fn flip(rng: &mut Rng, input: &mut [u8], at: usize) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}

fn set(rng: &mut Rng, input: &mut [u8], at: usize) {
    let value = rng.one_of([0, 0x20, 0x22, 0x2C, 0x7F, 0x80, 0xC3, 0xFF]);
    if let Some(byte) = input.get_mut(at) {
        *byte = u8::try_from(value).unwrap_or(0);
    }
}

/// Replaces the next number with an edge value.
fn replace_number(rng: &mut Rng, input: &mut Vec<u8>, at: usize) {
    let rest = input.get(at..).unwrap_or_default();
    let Some(first) = rest.iter().position(u8::is_ascii_digit) else {
        return;
    };
    let digits = rest
        .iter()
        .skip(first)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let edge = [
        "0",
        "1",
        "-1",
        "00",
        "4294967295",
        "4294967296",
        "9007199254740991",
        "9007199254740992",
        "18446744073709551615",
        "18446744073709551616",
        "1.5",
        "1e3",
    ];
    let edge = rng.pick(&edge).copied().unwrap_or_default();
    splice(input, at + first, at + first + digits, edge.as_bytes());
}

fn splice(input: &mut Vec<u8>, from: usize, until: usize, with: &[u8]) {
    input.splice(from..until, with.iter().copied());
}
