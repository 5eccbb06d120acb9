//! Trees of YAML, of which JSON is a subset.
//!
//! Aliases are resolved within a bound on the size of the result, so that a small file cannot become
//! a large tree. Non-standard tags are refused, and keys are texts.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{Entry, Kind, Node, Position};

/// Maximum depth: our own objects need six levels, Kubernetes nodes ten.
const DEPTH_MAX: usize = 64;
/// Maximum number of values with aliases resolved: a hundred thousand pods with every field, and
/// four times the values of 16 MiB of real nodes.
const VALUES_MAX: usize = 2_000_000;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Unreadable {
    pub(crate) position: Position,
    pub(crate) message: String,
}

/// Reads all documents of a text. An error in one is an error of all: a file is used whole or not
/// at all.
pub(crate) fn read_yaml(text: &str) -> Result<Vec<Node>, Unreadable> {
    let mut builder = Builder::default();
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| Unreadable {
            position: Position {
                line: error.marker().line(),
                column: error.marker().col().saturating_add(1),
                width: 1,
            },
            message: format!("cannot be read: {}", error.info()),
        })?;
        builder.take(event, &span)?;
    }
    Ok(builder.documents)
}

/// Builds trees from events; the stack replaces recursion.
#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, (Node, usize)>,
    values: usize,
}

/// List or map whose end event has not come.
struct Open {
    anchor: usize,
    node: Node,
    key: Option<(String, Position)>,
    values_before: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Unreadable> {
        let position = position_of(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let kind = scalar(&text, style, tag.as_deref(), position)?;
                self.count(position, 1)?;
                self.close(Node { position, kind }, anchor, 1)
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "seq", position)?;
                self.enter(
                    Node {
                        position,
                        kind: Kind::List(Vec::new()),
                    },
                    anchor,
                )
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "map", position)?;
                self.enter(
                    Node {
                        position,
                        kind: Kind::Map(Vec::new()),
                    },
                    anchor,
                )
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                let values = self.values.saturating_sub(open.values_before);
                self.close(open.node, open.anchor, values)
            }
            Event::Alias(anchor) => {
                let Some((node, values)) = self.anchors.get(&anchor).cloned() else {
                    return unreadable(position, "the alias is inside its own anchor");
                };
                self.count(position, values)?;
                self.close(node, 0, values)
            }
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn enter(&mut self, node: Node, anchor: usize) -> Result<(), Unreadable> {
        let position = node.position;
        if self.open.len() >= DEPTH_MAX {
            let message = format!("is nested too deeply, at most {DEPTH_MAX} levels are read");
            return unreadable(position, &message);
        }
        let values_before = self.values;
        self.count(position, 1)?;
        self.open.push(Open {
            anchor,
            node,
            key: None,
            values_before,
        });
        Ok(())
    }

    /// Adds a complete value to the innermost open list or map, or as a document.
    fn close(&mut self, node: Node, anchor: usize, values: usize) -> Result<(), Unreadable> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), values));
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match (&mut open.node.kind, open.key.take()) {
            (Kind::List(items), _) => items.push(node),
            (Kind::Map(entries), Some((key, position))) => {
                entries.push(Entry {
                    key,
                    position,
                    value: node,
                });
            }
            (Kind::Map(_), None) => open.key = Some((key_of(&node)?, node.position)),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, position: Position, values: usize) -> Result<(), Unreadable> {
        self.values = self.values.saturating_add(values);
        if self.values > VALUES_MAX {
            let message = format!("has too many values, at most {VALUES_MAX} are read");
            return unreadable(position, &message);
        }
        Ok(())
    }
}

fn key_of(node: &Node) -> Result<String, Unreadable> {
    match &node.kind {
        Kind::Text(text) | Kind::Number(text) => Ok(text.clone()),
        Kind::Bool(value) => Ok(value.to_string()),
        Kind::Null => Ok(String::new()),
        Kind::List(_) | Kind::Map(_) => unreadable(node.position, "a field's name must be a text"),
    }
}

fn position_of(span: &Span) -> Position {
    let (start, end) = (span.start, span.end);
    let one_line = start.line() == end.line();
    let width = if one_line {
        end.col().saturating_sub(start.col()).max(1)
    } else {
        1
    };
    Position {
        line: start.line(),
        column: start.col().saturating_add(1),
        width,
    }
}

/// Reads a scalar by the core schema of YAML 1.2; `yes`, `on` and `1_000` are texts.
fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    position: Position,
) -> Result<Kind, Unreadable> {
    match tag.map(Tag::core_suffix) {
        Some(Some("str")) => return Ok(Kind::Text(text.to_owned())),
        Some(Some("bool" | "int" | "float" | "null")) | None => {}
        Some(_) => return unreadable(position, "tags other than the standard ones are not read"),
    }
    if style != ScalarStyle::Plain {
        return Ok(Kind::Text(text.to_owned()));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Bool(true),
        "false" | "False" | "FALSE" => Kind::Bool(false),
        _ if is_number(text) => Kind::Number(text.to_owned()),
        _ => Kind::Text(text.to_owned()),
    })
}

fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.parse::<f64>().is_ok()
}

fn check_tag(tag: Option<&Tag>, standard: &str, position: Position) -> Result<(), Unreadable> {
    match tag.map(Tag::core_suffix) {
        None => Ok(()),
        Some(Some(suffix)) if suffix == standard => Ok(()),
        Some(_) => unreadable(position, "tags other than the standard ones are not read"),
    }
}

fn unreadable<T>(position: Position, message: &str) -> Result<T, Unreadable> {
    Err(Unreadable {
        position,
        message: message.to_owned(),
    })
}
