//! Shapes of trees, and the check that finds all mistakes in a tree.
//!
//! Each kind of object or request has one table of fields. Mistakes are unknown fields (reported
//! with the nearest name), missing fields, fields given twice, and values of another kind.

use bursar_units::INTEGER_MAX;
use bursar_units::hidden::is_hidden;

use crate::tree::{Entry, Kind, Node, Position};

pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) presence: Presence,
    pub(crate) shape: Shape,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    Required,
    /// The field may be absent or null.
    Optional,
    /// The field may be absent, but not null.
    Defaulted,
}

pub(crate) enum Shape {
    /// A text that the reader accepts.
    Text(Reader),
    /// A text that no message repeats (L13), not even the reader's.
    Secret(Reader),
    /// A quantity: a text, or a number without quotes.
    Quantity(Reader),
    Whole {
        min: u64,
        max: u64,
    },
    /// A whole number that may be negative, such as an exit code.
    Signed32,
    Bool,
    Word(&'static [&'static str]),
    /// A list of values of one shape.
    List(&'static Shape),
    /// A map with these fields and no others.
    Map(&'static [Field]),
    /// A map with the fields of both lists and no others.
    Both(&'static [Field], &'static [Field]),
    /// A map with these fields; others are ignored.
    Open(&'static [Field]),
    /// A map of a foreign kind: these fields and any others, except misspellings of these.
    Foreign(&'static [Field]),
    /// A map of names that the reader accepts to values of one shape.
    Named(Reader, &'static Shape),
    /// A map whose fields depend on the word in the field `key`.
    By {
        key: &'static str,
        shared: &'static [Field],
        cases: &'static [Case],
    },
    /// A field that a later version brings. Only these values, its defaults, are accepted.
    Later(&'static [&'static str]),
    /// A map with a rule over several fields.
    Ruled(&'static Shape, Rule),
    Any,
}

/// A word, and the fields of a map with this word besides the shared ones.
pub(crate) type Case = (&'static str, &'static [Field]);

pub(crate) type Reader = fn(&str) -> Result<(), Wrong>;

/// Finds violations of a rule over several fields. It must not depend on values that have mistakes.
pub(crate) type Rule = fn(&Node) -> Vec<Violation>;

pub(crate) type Violation = (&'static str, Wrong);

/// Description of a mistake in a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FieldMistake {
    pub(crate) position: Position,
    pub(crate) path: String,
    pub(crate) wrong: Wrong,
    /// Line of another field that the mistake is about; zero for none.
    pub(crate) beside: usize,
}

/// Any whole number that JSON readers read exactly.
pub(crate) const WHOLE: Shape = Shape::Whole {
    min: 0,
    max: INTEGER_MAX,
};

/// Number of mistakes after which the check of a list or map stops.
const MISTAKES_MAX: usize = 1_000;
/// Maximum edit distance of a name that is taken for a typo.
const SLIP_MAX: usize = 2;
/// Names that are compared with a typo; more would cost more than the hint is worth.
const NAMES_MAX: usize = 10_000;

impl Field {
    pub(crate) const fn required(name: &'static str, shape: Shape) -> Self {
        Self {
            name,
            presence: Presence::Required,
            shape,
        }
    }

    pub(crate) const fn optional(name: &'static str, shape: Shape) -> Self {
        Self {
            name,
            presence: Presence::Optional,
            shape,
        }
    }

    pub(crate) const fn defaulted(name: &'static str, shape: Shape) -> Self {
        Self {
            name,
            presence: Presence::Defaulted,
            shape,
        }
    }
}

impl FieldMistake {
    pub(crate) fn new(position: Position, path: impl Into<String>, wrong: Wrong) -> Self {
        let path = path.into();
        Self {
            position,
            path,
            wrong,
            beside: 0,
        }
    }
}

/// The message of an error is the description of the mistake.
impl<E: std::error::Error> From<E> for Wrong {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl Wrong {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            suggestion: None,
        }
    }

    pub(crate) fn with(message: impl Into<String>, suggestion: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            suggestion: Some(suggestion.into()),
        }
    }
}

/// The name that is nearest to a mistyped one; `None` if all are too different.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let length = lower.chars().count();
    names
        .into_iter()
        .take(NAMES_MAX)
        .filter(|known| known.chars().count().abs_diff(length) <= SLIP_MAX)
        .map(|known| {
            (
                strsim::damerau_levenshtein(&lower, &known.to_lowercase()),
                known,
            )
        })
        .filter(|(distance, known)| *distance <= SLIP_MAX && *distance < known.chars().count())
        .min()
        .map(|(_, known)| known)
}

pub(crate) fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

pub(crate) fn check(shape: &Shape, node: &Node, path: &str, mistakes: &mut Vec<FieldMistake>) {
    match (shape, &node.kind) {
        (Shape::Any, _) => {}
        (Shape::Later(defaults), kind) => {
            let is_default = match kind {
                Kind::Bool(value) => defaults.contains(&value.to_string().as_str()),
                Kind::Number(text) | Kind::Text(text) => defaults.contains(&text.as_str()),
                _ => false,
            };
            if !is_default {
                let wrong = Wrong::with("is not supported yet", "leave it out");
                mistakes.push(FieldMistake::new(node.position, path, wrong));
            }
        }
        (Shape::Map(fields), Kind::Map(entries)) => {
            check_names(&fields.iter(), entries, path, mistakes);
            check_fields(*fields, node, path, mistakes);
        }
        (Shape::Both(fields, more), Kind::Map(entries)) => {
            check_names(&fields.iter().chain(*more), entries, path, mistakes);
            check_fields(fields.iter().chain(*more), node, path, mistakes);
        }
        (Shape::Open(fields), Kind::Map(entries)) => {
            check_twice(entries, path, mistakes);
            check_fields(*fields, node, path, mistakes);
        }
        (Shape::Foreign(fields), Kind::Map(entries)) => {
            check_twice(entries, path, mistakes);
            check_slips(fields, entries, path, mistakes);
            check_fields(*fields, node, path, mistakes);
        }
        (Shape::By { key, shared, cases }, Kind::Map(_)) => match case_of(key, cases, node) {
            Ok(fields) => {
                check_names(&shared.iter().chain(fields), node.entries(), path, mistakes);
                check_fields(*shared, node, path, mistakes);
                check_fields(fields, node, path, mistakes);
            }
            Err((position, wrong)) => {
                mistakes.push(FieldMistake::new(position, join(path, key), wrong));
                let others = shared.iter().filter(|field| field.name != *key);
                check_fields(others, node, path, mistakes);
            }
        },
        (Shape::Named(name, shape), Kind::Map(entries)) => {
            check_twice(entries, path, mistakes);
            for entry in entries {
                match name(&entry.key) {
                    Ok(()) => check(
                        shape,
                        &entry.value,
                        &join(path, &shown(&entry.key)),
                        mistakes,
                    ),
                    Err(wrong) => mistakes.push(FieldMistake::new(entry.position, path, wrong)),
                }
            }
        }
        (Shape::Ruled(shape, rule), _) => {
            check(shape, node, path, mistakes);
            let is_map = matches!(node.kind, Kind::Map(_));
            for (field, wrong) in is_map.then(|| rule(node)).into_iter().flatten() {
                let position = node
                    .get(field)
                    .map_or(first_position(node), |node| node.position);
                add(mistakes, position, join(path, field), wrong);
            }
        }
        (Shape::List(item), Kind::List(items)) => {
            for (index, node) in items.iter().enumerate() {
                if MISTAKES_MAX < mistakes.len() {
                    break;
                }
                check(item, node, &format!("{path}[{index}]"), mistakes);
            }
        }
        _ => {
            if let Err(wrong) = check_scalar(shape, node) {
                mistakes.push(FieldMistake::new(node.position, path, wrong));
            }
        }
    }
}

/// Adds a mistake unless its path has one already.
pub(crate) fn add(
    mistakes: &mut Vec<FieldMistake>,
    position: Position,
    path: String,
    wrong: Wrong,
) {
    if mistakes.iter().all(|said| said.path != path) {
        mistakes.push(FieldMistake::new(position, path, wrong));
    }
}

fn check_names<'a>(
    fields: &(impl Iterator<Item = &'a Field> + Clone),
    entries: &[Entry],
    path: &str,
    mistakes: &mut Vec<FieldMistake>,
) {
    check_twice(entries, path, mistakes);
    for entry in entries {
        if MISTAKES_MAX < mistakes.len() {
            break;
        }
        if fields.clone().any(|field| field.name == entry.key) {
            continue;
        }
        let is_now = |field: &&Field| !matches!(field.shape, Shape::Later(_));
        let names = || fields.clone().filter(is_now).map(|field| field.name);
        let near =
            nearest(&entry.key, names()).or_else(|| required_end(fields.clone(), &entry.key));
        let suggestion = match near {
            Some(name) => format!("did you mean `{name}`?"),
            None if names().next().is_none() => "no fields are allowed here".to_owned(),
            None => format!("fields are {}", names().collect::<Vec<_>>().join(", ")),
        };
        let path = join(path, &shown(&entry.key));
        let wrong = Wrong::with("is not a field", suggestion);
        mistakes.push(FieldMistake::new(entry.position, path, wrong));
    }
}

/// The required field whose name ends with another name: `totalGPUs` for `gpus`.
fn required_end<'a>(fields: impl Iterator<Item = &'a Field>, name: &str) -> Option<&'static str> {
    let end = name.to_lowercase();
    let mut required = fields.filter(|field| field.presence == Presence::Required);
    let found = required.find(|field| field.name.to_lowercase().ends_with(&end));
    found.map(|field| field.name).filter(|_| !end.is_empty())
}

/// Reports names that are nearly those of known fields, and accepts other unknown names.
fn check_slips(fields: &[Field], entries: &[Entry], path: &str, mistakes: &mut Vec<FieldMistake>) {
    let names = || fields.iter().map(|field| field.name);
    for entry in entries {
        if names().any(|name| name == entry.key) {
            continue;
        }
        if let Some(name) = nearest(&entry.key, names()) {
            let path = join(path, &shown(&entry.key));
            let wrong = Wrong::with("is not a field", format!("did you mean `{name}`?"));
            mistakes.push(FieldMistake::new(entry.position, path, wrong));
        }
    }
}

fn check_twice(entries: &[Entry], path: &str, mistakes: &mut Vec<FieldMistake>) {
    let mut seen = std::collections::BTreeSet::new();
    for entry in entries {
        if !seen.insert(entry.key.as_str()) {
            let path = join(path, &shown(&entry.key));
            let wrong = Wrong::with("is given twice", "leave one of them out");
            mistakes.push(FieldMistake::new(entry.position, path, wrong));
        }
    }
}

fn check_fields<'a>(
    fields: impl IntoIterator<Item = &'a Field>,
    node: &Node,
    path: &str,
    mistakes: &mut Vec<FieldMistake>,
) {
    for field in fields {
        let parent = path;
        let path = join(path, field.name);
        match (node.get(field.name), field.presence) {
            (
                Some(Node {
                    kind: Kind::Null, ..
                })
                | None,
                Presence::Optional,
            )
            | (None, Presence::Defaulted) => {}
            (Some(value), _) => check(&field.shape, value, &path, mistakes),
            // A field under a misspelt name was reported with the name that it should have.
            (None, Presence::Required) if is_misspelt(field.name, parent, mistakes) => {}
            (None, Presence::Required) => {
                let wrong = Wrong::new("is missing");
                mistakes.push(FieldMistake::new(first_position(node), path, wrong));
            }
        }
    }
}

/// Whether an unknown name in the object at `parent` was reported as this field.
fn is_misspelt(name: &str, parent: &str, mistakes: &[FieldMistake]) -> bool {
    let suggestion = format!("did you mean `{name}`?");
    mistakes.iter().any(|mistake| {
        let own = mistake.path.strip_prefix(parent);
        let own = own.map(|rest| rest.strip_prefix('.').unwrap_or(rest));
        let is_here = own.is_some_and(|key| !key.contains(['.', '[']));
        is_here && mistake.wrong.suggestion.as_ref() == Some(&suggestion)
    })
}

fn case_of(key: &str, cases: &[Case], node: &Node) -> Result<&'static [Field], (Position, Wrong)> {
    let words = || cases.iter().map(|(word, _)| *word);
    let Some(value) = node.get(key) else {
        return Err((
            first_position(node),
            Wrong::with("is missing", one_of(words())),
        ));
    };
    let case = cases.iter().find(|(word, _)| Some(*word) == value.text());
    case.map(|(_, fields)| *fields).ok_or_else(|| {
        (
            value.position,
            wrong_word(words(), value.text().unwrap_or_default()),
        )
    })
}

fn check_scalar(shape: &Shape, node: &Node) -> Result<(), Wrong> {
    match (shape, &node.kind) {
        (Shape::Bool, Kind::Bool(_)) => Ok(()),
        (Shape::Text(reader) | Shape::Secret(reader), Kind::Text(text))
        | (Shape::Quantity(reader), Kind::Text(text) | Kind::Number(text)) => reader(text),
        // Only a duration needs the unit.
        (Shape::Text(reader), Kind::Number(text))
            if reader(text).is_err() && reader(&format!("{text}s")).is_ok() =>
        {
            Err(Wrong::with("has no unit", format!("write {text}s")))
        }
        (Shape::Text(_), Kind::Number(text)) => Err(Wrong::with(
            "must be a text",
            format!("put it in quotes: \"{text}\""),
        )),
        (Shape::Text(_) | Shape::Secret(_), _) => Err(Wrong::new("must be a text")),
        (Shape::Quantity(_), _) => Err(Wrong::new("must be a quantity, as in 500m, 2 or 256Mi")),
        (Shape::Whole { min, max }, Kind::Number(text)) => check_whole(text, *min, *max),
        (Shape::Whole { min, max }, Kind::Text(text)) if text.parse::<u64>().is_ok() => {
            let quotes = format!("leave out the quotes: {text}");
            Err(Wrong::with(whole_number(*min, *max), quotes))
        }
        (Shape::Whole { min, max }, _) => Err(Wrong::new(whole_number(*min, *max))),
        (Shape::Signed32, Kind::Number(text)) if text.parse::<i32>().is_ok() => Ok(()),
        (Shape::Signed32, _) => Err(Wrong::new("must be a whole number of 32 bits")),
        (Shape::Bool, _) => Err(Wrong::new("must be true or false")),
        (Shape::Word(words), Kind::Text(text)) if words.contains(&text.as_str()) => Ok(()),
        (Shape::Word(words), Kind::Text(text)) => Err(wrong_word(words.iter().copied(), text)),
        (Shape::Word(words), _) => {
            Err(Wrong::with("must be a word", one_of(words.iter().copied())))
        }
        (Shape::List(_), _) => Err(Wrong::new("must be a list")),
        _ => Err(Wrong::new(format!(
            "must be an object, not {}",
            node.word()
        ))),
    }
}

pub(crate) fn check_whole(text: &str, min: u64, max: u64) -> Result<(), Wrong> {
    let bounds = || format!("{min} to {max} is allowed");
    match text.strip_prefix('+').unwrap_or(text).parse::<u64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(()),
        Ok(value) if value < min => Err(Wrong::with(format!("must be at least {min}"), bounds())),
        Ok(_) => Err(Wrong::with(format!("must be at most {max}"), bounds())),
        Err(_) if text.parse::<i64>().is_ok() => Err(Wrong::with("must not be negative", bounds())),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(Wrong::with(format!("must be at most {max}"), bounds()))
        }
        Err(_) => Err(Wrong::new(whole_number(min, max))),
    }
}

/// Message for a value that is not a whole number.
pub fn whole_number(min: u64, max: u64) -> String {
    if max < INTEGER_MAX {
        format!("must be a whole number from {min} to {max}")
    } else {
        format!("must be a whole number from {min}")
    }
}

fn wrong_word<'a>(words: impl Iterator<Item = &'a str> + Clone, text: &str) -> Wrong {
    let suggestion = match nearest(text, words.clone()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => one_of(words),
    };
    Wrong::with(
        format!("is `{}`, which is not an allowed value", shown(text)),
        suggestion,
    )
}

fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", words.collect::<Vec<_>>().join(", "))
}

/// Position for a missing field: that of the first field of the map.
fn first_position(node: &Node) -> Position {
    node.entries()
        .first()
        .map_or(node.position, |entry| entry.position)
}

/// A text from outside, shortened and without invisible characters.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .take(60)
        .map(|c| if is_hidden(c) { '\u{fffd}' } else { c })
        .collect()
}
