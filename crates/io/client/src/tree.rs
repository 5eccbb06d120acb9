//! Untyped trees of YAML and JSON, with positions.
//!
//! A typed reader stops at the first mistake. To report all mistakes with their lines, text is read
//! as a tree, [`crate::shape`] checks the whole tree, and only a tree without mistakes is typed.

mod yaml;

pub(crate) use yaml::read_yaml;

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Position in a text. Line and column count from 1; zero means unknown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) width: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    /// A number as written; its bounds depend on the field.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) position: Position,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// The value at a path such as `spec.envelopes[0].end`, or the nearest one around it.
    pub(crate) fn at(&self, path: &str) -> &Self {
        let steps = path
            .split(['.', '['])
            .map(|step| step.trim_end_matches(']'));
        let mut node = self;
        for step in steps {
            let next = match &node.kind {
                Kind::List(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
                _ => node.get(step),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    pub(crate) fn given(&self, key: &str) -> Option<&Self> {
        self.get(key)
            .filter(|node| !matches!(node.kind, Kind::Null))
    }

    pub(crate) const fn word(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "an object",
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The same without positions. A number that JSON cannot hold becomes its text.
    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(text) => match text.parse::<u64>() {
                Ok(whole) => Value::from(whole),
                Err(_) => text
                    .parse::<i64>()
                    .map_or_else(|_| text.clone().into(), Value::from),
            },
            Kind::Text(text) => text.clone().into(),
            Kind::List(items) => items.iter().map(Self::to_value).collect(),
            Kind::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_value()))
                    .collect(),
            ),
        }
    }
}

/// Reads JSON and keeps fields that are given twice.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KindVisitor;
        impl<'de> Visitor<'de> for KindVisitor {
            type Value = Kind;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Kind, E> {
                Ok(Kind::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
                Ok(Kind::Bool(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
                Ok(Kind::Number(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
                Ok(Kind::Number(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
                // `Debug` writes a point, which a whole number does not have.
                Ok(Kind::Number(format!("{value:?}")))
            }
            fn visit_str<E>(self, text: &str) -> Result<Kind, E> {
                Ok(Kind::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Kind, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Kind::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, value)) = map.next_entry()? {
                    entries.push(Entry {
                        key,
                        position: Position::default(),
                        value,
                    });
                }
                Ok(Kind::Map(entries))
            }
        }
        deserializer.deserialize_any(KindVisitor).map(|kind| Self {
            position: Position::default(),
            kind,
        })
    }
}
