//! Rules about Rust code. Comments and literals are blanked first, so that they may contain any word.

use crate::Finding;
use crate::tidy::text::holds_word;
use crate::tree::File;

/// Modules of the standard library with side effects. Clippy forbids their functions one by one, with
/// reasons; this rule also catches functions that are not listed there.
const OUTSIDE_WORLD: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
];

/// Lint exceptions use `expect` with a reason, because an exception that is no longer needed then fails.
pub(super) fn lint_exceptions(files: &[File]) -> Vec<Finding> {
    attributes(files, concat!("all", "ow"), |inner| {
        let silenced = inner.split(',').any(|part| {
            part.trim_start_matches(['#', '!', '[', ' '])
                .starts_with(concat!("all", "ow("))
        });
        silenced
            .then_some("write `#[expect(lint, reason = \"…\")]`, which fails once it is not needed")
    })
}

/// Slow tests are a separate part of `cargo xtask test`; no test is skipped.
pub(super) fn skipped_tests(files: &[File]) -> Vec<Finding> {
    attributes(files, "ignore", |inner| {
        let skipped = holds_word(inner, "ignore") && !inner.contains("serde");
        skipped.then_some("no test is skipped: fix it, or make it a part of `cargo xtask test`")
    })
}

/// Pure crates decide with integers.
pub(super) fn floats_in_pure_crates(files: &[File]) -> Vec<Finding> {
    in_pure_sources(files, |line| {
        let named = holds_word(line, "f32") || holds_word(line, "f64");
        (named || holds_float_literal(line))
            .then_some("no floats in a pure crate: integers with units, and named rounding")
    })
}

/// Pure crates have no side effects.
pub(super) fn outside_world_in_pure_crates(files: &[File]) -> Vec<Finding> {
    in_pure_sources(files, |line| {
        let reaches = OUTSIDE_WORLD.iter().any(|module| holds_word(line, module));
        reaches.then_some("a pure crate reaches nothing outside: take the value as an argument, return the effect as data")
    })
}

/// One finding for each code line below `crates/pure/*/src` for which `complain` returns a message.
fn in_pure_sources(
    files: &[File],
    complain: impl Fn(&str) -> Option<&'static str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in rust(files) {
        let mut parts = file.path.split('/');
        if parts.next() != Some("crates")
            || parts.next() != Some("pure")
            || parts.nth(1) != Some("src")
        {
            continue;
        }
        for (index, line) in code_only(&file.text).lines().enumerate() {
            findings.extend(complain(line).map(|message| Finding::at(&file.path, index, message)));
        }
    }
    findings
}

/// One finding for each attribute that contains `word` and for which `complain` returns a message.
fn attributes(
    files: &[File],
    word: &str,
    complain: impl Fn(&str) -> Option<&'static str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in rust(files) {
        let code = code_only(&file.text);
        for (start, _) in code.match_indices('#') {
            let (before, rest) = code.split_at(start);
            let Some(attribute) =
                whole_attribute(rest).filter(|attribute| attribute.contains(word))
            else {
                continue;
            };
            let index = before.matches('\n').count();
            findings
                .extend(complain(attribute).map(|message| Finding::at(&file.path, index, message)));
        }
    }
    findings
}

/// The text from `#` to the bracket that closes the attribute, if one starts here.
fn whole_attribute(rest: &str) -> Option<&str> {
    if !rest.starts_with("#[") && !rest.starts_with("#![") {
        return None;
    }
    let mut depth = 0_u32;
    for (offset, c) in rest.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return rest.get(..=offset),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.extension() == "rs")
}

/// Whether `line` contains a number with a decimal point or an exponent; `pair.0.1` and `0..9` do not count.
fn holds_float_literal(line: &str) -> bool {
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
    words.flat_map(|word| word.split("..")).any(|number| {
        let decimal = number.split_once('.').is_some_and(|(whole, rest)| {
            digits(whole) && (rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        let exponent = number
            .split_once(['e', 'E'])
            .is_some_and(|(whole, power)| digits(whole) && digits(power));
        decimal || exponent
    })
}

fn digits(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '_')
}

/// `text` with every comment and literal blanked and every line kept.
///
/// Example: `let a = "b"; // c` becomes `let a =    ;     `.
pub(super) fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        // A quote or `r` inside a word is not the start of a literal.
        let fresh = !(previous.is_alphanumeric() || previous == '_');
        let length = if fresh {
            blank_length(rest)
        } else {
            comment_length(rest).or_else(|| quote_length(rest))
        };
        let (taken, after) = rest.split_at(length.unwrap_or(c.len_utf8()));
        match length {
            Some(_) => out.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
            None => out.push_str(taken),
        }
        previous = if length.is_some() { ' ' } else { c };
        rest = after;
    }
    out
}

/// Length in bytes of the comment or literal at the start of `rest`.
fn blank_length(rest: &str) -> Option<usize> {
    comment_length(rest)
        .or_else(|| raw_length(rest))
        .or_else(|| quote_length(rest))
        .or_else(|| character_length(rest))
}

fn comment_length(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let mut depth = 0_u32;
    let mut position = 0;
    while let Some(tail) = rest.get(position..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            depth += 1;
            position += 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return Some(position);
            }
        } else {
            position += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(rest.len())
}

/// A raw string with its prefix: `r"…"`, `br#"…"#`, `cr"…"`.
fn raw_length(rest: &str) -> Option<usize> {
    let unprefixed = rest
        .strip_prefix("br")
        .or_else(|| rest.strip_prefix("cr"))
        .or_else(|| rest.strip_prefix('r'))?;
    let inner = unprefixed.trim_start_matches('#');
    let hashes = unprefixed.len() - inner.len();
    let body = inner.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opened = rest.len() - body.len();
    Some(
        body.find(&end)
            .map_or(rest.len(), |found| opened + found + end.len()),
    )
}

fn quote_length(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('"')?;
    Some(closing(body, '"').map_or(rest.len(), |found| found + 2))
}

/// A character literal, as opposed to a lifetime.
fn character_length(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    let first = body.chars().next()?;
    let closes = body.get(first.len_utf8()..)?.starts_with('\'');
    if first != '\\' && !closes {
        return None;
    }
    closing(body, '\'').map(|found| found + 2)
}

/// Offset of the first `quote` without a backslash before it.
fn closing(body: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (offset, c) in body.char_indices() {
        if !escaped && c == quote {
            return Some(offset);
        }
        escaped = !escaped && c == '\\';
    }
    None
}
