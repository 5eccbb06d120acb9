//! What a tree must look like, and everything in it that does not.
//!
//! One table of fields per kind of object or request. A check finds all mistakes at once: fields
//! that do not exist (with the nearest that does), are missing, are given twice, or have a value
//! of another kind.

use bursar_units::INTEGER_MAX;
use bursar_units::hidden::is_hidden;

use crate::tree::{Entry, Kind, Node, Place};

/// One field of a map.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) presence: Presence,
    pub(crate) shape: Shape,
}

/// Whether a field must be there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    Required,
    /// It may be left out or be null.
    Optional,
    /// It may be left out, and is not null.
    Defaulted,
}

/// What a value must be.
pub(crate) enum Shape {
    /// A text that a reader accepts.
    Text(Reader),
    /// A text that no message repeats (L13), the reader's neither.
    Secret(Reader),
    /// A quantity: a text, or a number written without quotes.
    Quantity(Reader),
    /// A whole number within bounds.
    Whole { min: u64, max: u64 },
    /// A whole number that may be negative, as an exit code.
    Signed32,
    /// True or false.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of one shape.
    List(&'static Shape),
    /// A map of these fields and no others.
    Map(&'static [Field]),
    /// A map of which these fields are read and others are nobody's business.
    Open(&'static [Field]),
    /// A map of any names that a reader accepts, each with this shape.
    Named(Reader, &'static Shape),
    /// A map whose fields depend on a word in it.
    By {
        key: &'static str,
        shared: &'static [Field],
        cases: &'static [Case],
    },
    /// A map of a shape whose fields keep a rule together.
    Ruled(&'static Shape, Rule),
    /// Anything.
    Any,
}

/// A word and the fields that a map with this word may have beyond the shared ones.
pub(crate) type Case = (&'static str, &'static [Field]);

/// Accepts a text or says what is wrong with it.
pub(crate) type Reader = fn(&str) -> Result<(), Wrong>;

/// What the fields of a map break together, as far as they can be read. It must say nothing that
/// depends on a value which is wrong.
pub(crate) type Rule = fn(&Node) -> Vec<Broken>;

/// A field that breaks a rule, and how.
pub(crate) type Broken = (&'static str, Wrong);

/// What is wrong with a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
}

/// A mistake where it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) path: String,
    pub(crate) wrong: Wrong,
}

/// The largest whole number that travels.
pub(crate) const WHOLE: Shape = Shape::Whole {
    min: 0,
    max: INTEGER_MAX,
};

/// Mistakes after which a list or a map is not looked at further: nobody reads more.
const FOUND_MAX: usize = 1_000;
/// At this edit distance a name is taken for a slip of the fingers.
const SLIP_MAX: usize = 2;

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

/// The nearest of some names to one that does not exist, if it is near.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    names
        .into_iter()
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

/// The path of a field below another.
pub(crate) fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

/// Finds everything in a tree that is not of a shape.
pub(crate) fn check(shape: &Shape, node: &Node, path: &str, found: &mut Vec<Found>) {
    match (shape, &node.kind) {
        (Shape::Any, _) => {}
        (Shape::Map(fields), Kind::Map(entries)) => {
            check_names(&fields.iter(), entries, path, found);
            check_fields(*fields, node, path, found);
        }
        (Shape::Open(fields), Kind::Map(entries)) => {
            check_twice(entries, path, found);
            check_fields(*fields, node, path, found);
        }
        (Shape::By { key, shared, cases }, Kind::Map(_)) => match case_of(key, cases, node) {
            Ok(fields) => {
                check_names(&shared.iter().chain(fields), node.entries(), path, found);
                check_fields(*shared, node, path, found);
                check_fields(fields, node, path, found);
            }
            Err((place, wrong)) => {
                found.push(Found {
                    place,
                    path: join(path, key),
                    wrong,
                });
                let others = shared.iter().filter(|field| field.name != *key);
                check_fields(others, node, path, found);
            }
        },
        (Shape::Named(name, shape), Kind::Map(entries)) => {
            check_twice(entries, path, found);
            for entry in entries {
                match name(&entry.key) {
                    Ok(()) => check(shape, &entry.value, &join(path, &shown(&entry.key)), found),
                    Err(wrong) => found.push(Found {
                        place: entry.place,
                        path: path.to_owned(),
                        wrong,
                    }),
                }
            }
        }
        (Shape::Ruled(shape, rule), _) => {
            check(shape, node, path, found);
            let is_map = matches!(node.kind, Kind::Map(_));
            for (field, wrong) in is_map.then(|| rule(node)).into_iter().flatten() {
                let place = node.get(field).map_or(first_place(node), |node| node.place);
                add(found, place, join(path, field), wrong);
            }
        }
        (Shape::List(item), Kind::List(items)) => {
            for (index, node) in items.iter().enumerate() {
                if FOUND_MAX < found.len() {
                    break;
                }
                check(item, node, &format!("{path}[{index}]"), found);
            }
        }
        _ => {
            if let Err(wrong) = check_scalar(shape, node) {
                found.push(Found {
                    place: node.place,
                    path: path.to_owned(),
                    wrong,
                });
            }
        }
    }
}

/// Adds what is wrong in a place of which nothing is said yet.
pub(crate) fn add(found: &mut Vec<Found>, place: Place, path: String, wrong: Wrong) {
    if found.iter().all(|said| said.path != path) {
        found.push(Found { place, path, wrong });
    }
}

fn check_names<'a>(
    fields: &(impl Iterator<Item = &'a Field> + Clone),
    entries: &[Entry],
    path: &str,
    found: &mut Vec<Found>,
) {
    check_twice(entries, path, found);
    for entry in entries {
        if FOUND_MAX < found.len() {
            break;
        }
        if fields.clone().any(|field| field.name == entry.key) {
            continue;
        }
        let names = || fields.clone().map(|field| field.name);
        let suggestion = match nearest(&entry.key, names()) {
            Some(name) => format!("did you mean `{name}`?"),
            None if names().next().is_none() => "no field is needed here".to_owned(),
            None => format!("fields are {}", names().collect::<Vec<_>>().join(", ")),
        };
        found.push(Found {
            place: entry.place,
            path: join(path, &shown(&entry.key)),
            wrong: Wrong::with("is not a field", suggestion),
        });
    }
}

fn check_twice(entries: &[Entry], path: &str, found: &mut Vec<Found>) {
    let mut seen = std::collections::BTreeSet::new();
    for entry in entries {
        if !seen.insert(entry.key.as_str()) {
            found.push(Found {
                place: entry.place,
                path: join(path, &shown(&entry.key)),
                wrong: Wrong::with("is given twice", "leave one of them out"),
            });
        }
    }
}

fn check_fields<'a>(
    fields: impl IntoIterator<Item = &'a Field>,
    node: &Node,
    path: &str,
    found: &mut Vec<Found>,
) {
    for field in fields {
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
            (Some(value), _) => check(&field.shape, value, &path, found),
            (None, Presence::Required) => {
                found.push(Found {
                    place: first_place(node),
                    path,
                    wrong: Wrong::new("is missing"),
                });
            }
        }
    }
}

/// The fields that go with the word of a map.
fn case_of(key: &str, cases: &[Case], node: &Node) -> Result<&'static [Field], (Place, Wrong)> {
    let words = || cases.iter().map(|(word, _)| *word);
    let Some(value) = node.get(key) else {
        return Err((
            first_place(node),
            Wrong::with("is missing", one_of(words())),
        ));
    };
    let case = cases.iter().find(|(word, _)| Some(*word) == value.text());
    case.map(|(_, fields)| *fields).ok_or_else(|| {
        (
            value.place,
            wrong_word(words(), value.text().unwrap_or_default()),
        )
    })
}

fn check_scalar(shape: &Shape, node: &Node) -> Result<(), Wrong> {
    match (shape, &node.kind) {
        (Shape::Bool, Kind::Bool(_)) => Ok(()),
        (Shape::Text(reader) | Shape::Secret(reader), Kind::Text(text))
        | (Shape::Quantity(reader), Kind::Text(text) | Kind::Number(text)) => reader(text),
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

/// Whether a number as written is whole and within bounds.
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

/// The sentence about a number that is not whole, or no number.
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
        format!("is `{}`, which is not one of its words", shown(text)),
        suggestion,
    )
}

fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", words.collect::<Vec<_>>().join(", "))
}

/// Where to point when something is missing: the first field of what lacks it.
fn first_place(node: &Node) -> Place {
    node.entries()
        .first()
        .map_or(node.place, |entry| entry.place)
}

/// A name from outside, short enough to print.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .take(60)
        .map(|c| if is_hidden(c) { '\u{fffd}' } else { c })
        .collect()
}
