//! The files people write: YAML or JSON, several documents, all mistakes at once (design 80, 5).
//!
//! Text becomes checked values here and nowhere else; the server reads the same objects from
//! JSON with [`read_values`], so a file and a request meet one set of rules. Nothing of a set of
//! files is used if any of it has a mistake.

pub mod limit;
mod market;
mod mistake;
pub mod node;

pub use market::read_market;
pub use mistake::{Mistake, Mistakes};

use bursar_units::{Amount, ObjectName};
use serde_json::Value;

use crate::api;
use crate::problem::FieldError;
use crate::shape::{self, Field, Found, Shape, Wrong, join, nearest};
use crate::tree::{Kind, Node, Place, read_yaml};

/// Bytes that one file may have. More than a request, because of a copied cluster's nodes we
/// send only the part that we read.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// A file as found.
#[derive(Clone, Debug)]
pub struct File {
    /// What to call it in messages.
    pub name: String,
    /// Its bytes, whatever they are.
    pub bytes: Vec<u8>,
}

/// A declared object, checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// A bound on slots.
    Limit {
        /// Its name.
        name: ObjectName,
        /// The version it is meant to replace, where the writer wants to be sure.
        resource_version: Option<String>,
        /// What it says.
        limit: bursar_booking::Limit,
    },
    /// A machine.
    Node {
        /// Its name.
        name: ObjectName,
        /// What it has; slots are zero.
        capacity: Amount,
    },
}

/// The kinds that can be applied, with the version each has.
const KINDS: [(&str, &str); 2] = [("Limit", api::limit::API_VERSION), ("Node", "v1")];

impl Object {
    /// Its name.
    pub fn name(&self) -> &ObjectName {
        match self {
            Self::Limit { name, .. } | Self::Node { name, .. } => name,
        }
    }

    /// `limit/python`.
    pub fn reference(&self) -> String {
        match self {
            Self::Limit { name, .. } => format!("limit/{name}"),
            Self::Node { name, .. } => format!("node/{name}"),
        }
    }

    /// The object as it travels, with defaults shown.
    pub fn to_value(&self) -> Value {
        let value = match self {
            Self::Limit {
                name,
                resource_version,
                limit,
            } => {
                let mut shown = api::Limit::new(name.clone(), limit::to_spec(limit));
                shown.metadata.resource_version.clone_from(resource_version);
                serde_json::to_value(shown)
            }
            Self::Node { name, capacity } => serde_json::to_value(node::object(name, capacity)),
        };
        // These types have texts for keys and nothing that JSON lacks.
        value.unwrap_or_default()
    }

    /// Several objects as one YAML text, with defaults shown.
    pub fn to_yaml(objects: &[Self]) -> String {
        let documents: Vec<_> = objects
            .iter()
            .map(|object| match object {
                Self::Limit { name, limit, .. } => {
                    serde_saphyr::to_string(&api::Limit::new(name.clone(), limit::to_spec(limit)))
                }
                Self::Node { name, capacity } => {
                    serde_saphyr::to_string(&node::object(name, capacity))
                }
            })
            .map(Result::unwrap_or_default)
            .collect();
        documents.join("---\n")
    }
}

/// Reads all objects of some files, or all mistakes in them.
pub fn read_files(files: &[File]) -> Result<Vec<Object>, Mistakes> {
    let mut reading = Reading::default();
    for file in files {
        reading.file(file);
    }
    if reading.mistakes.is_empty() && reading.objects.is_empty() {
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        reading
            .mistakes
            .push(Mistake::of_file(&names.join(", "), "has no objects"));
    }
    if reading.mistakes.is_empty() {
        Ok(reading.objects)
    } else {
        Err(Mistakes {
            mistakes: reading.mistakes,
            documents: reading.documents,
            undone: "applied",
        })
    }
}

/// Reads objects from JSON, or all mistakes in them; paths begin `objects[n]`.
pub fn read_values(values: &[Value]) -> Result<Vec<Object>, Vec<FieldError>> {
    let mut found = Vec::new();
    let mut objects: Vec<Object> = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let path = format!("objects[{index}]");
        match read_object(&Node::from(value), &path) {
            Ok(object) => {
                let wrong = twice(&objects, &object);
                found.extend(wrong.map(|wrong| Found {
                    place: Place::default(),
                    path,
                    wrong,
                }));
                objects.push(object);
            }
            Err(more) => found.extend(more),
        }
    }
    if found.is_empty() {
        Ok(objects)
    } else {
        Err(found.into_iter().map(Into::into).collect())
    }
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    objects: Vec<Object>,
    mistakes: Vec<Mistake>,
    documents: usize,
}

impl Reading {
    fn file(&mut self, file: &File) {
        let text = match text_of(file) {
            Ok(text) => text,
            Err(message) => {
                self.mistakes.push(Mistake::of_file(&file.name, &message));
                return;
            }
        };
        let lines: Vec<&str> = text.lines().collect();
        let documents = match read_yaml(text) {
            Ok(documents) => documents,
            Err(unreadable) => {
                let wrong = Wrong::new(unreadable.message);
                let found = Found {
                    place: unreadable.place,
                    path: String::new(),
                    wrong,
                };
                self.mistakes
                    .push(Mistake::new(&file.name, &lines, None, found));
                return;
            }
        };
        for document in documents
            .iter()
            .filter(|node| !matches!(node.kind, Kind::Null))
        {
            self.documents = self.documents.saturating_add(1);
            self.document(&file.name, &lines, document);
        }
    }

    fn document(&mut self, file: &str, lines: &[&str], document: &Node) {
        let is_list = document.get("kind").and_then(Node::text) == Some("List");
        match document.get("items").map(|items| &items.kind) {
            Some(Kind::List(items)) if is_list => {
                for (index, item) in items.iter().enumerate() {
                    self.object(file, lines, item, &format!("items[{index}]"));
                }
            }
            _ => self.object(file, lines, document, ""),
        }
    }

    fn object(&mut self, file: &str, lines: &[&str], node: &Node, path: &str) {
        let found = match read_object(node, path) {
            Ok(object) => {
                let wrong = twice(&self.objects, &object);
                self.objects.push(object);
                let place = node
                    .get("metadata")
                    .and_then(|metadata| metadata.get("name"));
                let place = place.map_or(node.place, |name| name.place);
                let path = join(path, "metadata.name");
                wrong
                    .map(|wrong| Found { place, path, wrong })
                    .into_iter()
                    .collect()
            }
            Err(found) => found,
        };
        let reference = reference_of(node);
        self.mistakes.extend(
            found
                .into_iter()
                .map(|found| Mistake::new(file, lines, reference.clone(), found)),
        );
    }
}

fn text_of(file: &File) -> Result<&str, String> {
    if file.bytes.len() > FILE_BYTES_MAX {
        let mib = FILE_BYTES_MAX >> 20;
        return Err(format!(
            "is too large, at most {mib} MiB are read; apply it in parts"
        ));
    }
    std::str::from_utf8(&file.bytes).map_err(|error| {
        let good = file.bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = good.split(|byte| *byte == b'\n').count();
        format!("is not UTF-8: line {line} has a byte that no text has; save it as UTF-8")
    })
}

/// `limit/python`, as far as the document says.
fn reference_of(node: &Node) -> Option<String> {
    let kind = node.get("kind")?.text()?.to_lowercase();
    let name = node.get("metadata")?.get("name")?.text()?;
    Some(shape::shown(&format!("{kind}/{name}")))
}

pub(crate) fn read_object(node: &Node, path: &str) -> Result<Object, Vec<Found>> {
    let mut found = Vec::new();
    let kind = kind_of(node, path).map_err(|found| vec![found])?;
    let shape = match kind {
        "Limit" => &limit::SHAPE,
        _ => &node::SHAPE,
    };
    shape::check(shape, node, path, &mut found);
    let read = match kind {
        "Limit" => limit::read(node, path),
        _ => node::read(node),
    };
    match read {
        Ok(object) if found.is_empty() => Ok(object),
        Ok(_) => Err(found),
        Err(more) => {
            // What the shape has said already is not said again.
            let news = more
                .into_iter()
                .filter(|new| found.iter().all(|old| old.path != new.path));
            let news: Vec<_> = news.collect();
            found.extend(news);
            Err(found)
        }
    }
}

/// Which kind a document is, if its version is that kind's.
fn kind_of(node: &Node, path: &str) -> Result<&'static str, Found> {
    let fields: &[Field] = const {
        &[
            Field::required("apiVersion", Shape::Text(|_| Ok(()))),
            Field::required("kind", Shape::Text(|_| Ok(()))),
        ]
    };
    let mut found = Vec::new();
    if matches!(node.kind, Kind::Map(_)) {
        shape::check(&Shape::Open(fields), node, path, &mut found);
    } else {
        let wrong = Wrong::new("must be an object with apiVersion, kind, metadata and spec");
        found.push(Found {
            place: node.place,
            path: path.to_owned(),
            wrong,
        });
    }
    if let Some(first) = found.into_iter().next() {
        return Err(first);
    }
    let of = |field: &str| {
        let node = node.get(field);
        (
            node.map(|node| node.place).unwrap_or_default(),
            node.and_then(Node::text).unwrap_or_default(),
        )
    };
    let (place, word) = of("kind");
    let Some((kind, version)) = KINDS.iter().find(|(kind, _)| *kind == word) else {
        let kinds = || KINDS.iter().map(|(kind, _)| *kind);
        let suggestion = match nearest(word, kinds()) {
            Some(kind) => format!("did you mean `{kind}`?"),
            None => format!("kinds are {}", kinds().collect::<Vec<_>>().join(" and ")),
        };
        let wrong = Wrong::with(
            format!("`{}` is not a kind that can be applied", shape::shown(word)),
            suggestion,
        );
        return Err(Found {
            place,
            path: join(path, "kind"),
            wrong,
        });
    };
    let (place, word) = of("apiVersion");
    if word != *version {
        let wrong = Wrong::with(
            format!("`{}` is not the version of a {kind}", shape::shown(word)),
            format!("must be `{version}`"),
        );
        return Err(Found {
            place,
            path: join(path, "apiVersion"),
            wrong,
        });
    }
    Ok(kind)
}

fn twice(objects: &[Object], object: &Object) -> Option<Wrong> {
    let reference = object.reference();
    let is_twice = objects.iter().any(|other| other.reference() == reference);
    is_twice.then(|| Wrong::with(format!("names {reference} twice"), "leave one of them out"))
}

impl From<Found> for FieldError {
    fn from(found: Found) -> Self {
        Self {
            path: found.path,
            line: u64::try_from(found.place.line)
                .ok()
                .filter(|line| *line > 0),
            message: found.wrong.message,
            suggestion: found.wrong.suggestion,
        }
    }
}
