//! The files people write: YAML or JSON, several documents, all mistakes at once (design 80, 5).
//!
//! Text becomes checked values here and nowhere else; the server reads the same objects from
//! JSON with [`read_values`], so a file and a request meet one set of rules. Nothing of a set of
//! files is used if any of it has a mistake.

pub mod limit;
mod market;
mod mistake;
pub mod node;
pub(crate) mod spec;

pub use crate::api::body::read_values;
pub use market::read_market;
pub use mistake::{Mistake, Mistakes};

use std::collections::BTreeSet;

use bursar_units::{Amount, ObjectName};
use serde_json::Value;

use crate::api;
use crate::problem::FieldError;
use crate::shape::{self, Field, Found, Shape, Wrong, join, nearest};
use crate::tree::{Kind, Node, read_yaml};

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

/// What can be declared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectKind {
    /// A bound on slots.
    Limit,
    /// A machine.
    Node,
}

/// What the address of a request says of the object in its body.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name; `None` where the address has none that is right.
    pub name: Option<&'a ObjectName>,
}

impl ObjectKind {
    const ALL: [Self; 2] = [Self::Limit, Self::Node];

    /// The word for it in `kind`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limit => "Limit",
            Self::Node => "Node",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    fn from_version(version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.version() == version)
    }

    /// `limit/python`.
    fn reference(self, name: &str) -> String {
        format!("{}/{name}", self.word().to_lowercase())
    }

    /// What `apiVersion` must say.
    const fn version(self) -> &'static str {
        match self {
            Self::Limit => api::limit::API_VERSION,
            Self::Node => "v1",
        }
    }

    const fn shape(self) -> &'static Shape {
        match self {
            Self::Limit => &limit::SHAPE,
            Self::Node => &node::SHAPE,
        }
    }

    /// Reads a document that has the shape.
    fn read(self, node: &Node) -> Option<Object> {
        match self {
            Self::Limit => limit::read(node),
            Self::Node => node::read(node),
        }
    }
}

impl Object {
    /// Its name.
    pub fn name(&self) -> &ObjectName {
        match self {
            Self::Limit { limit, .. } => &limit.name,
            Self::Node { name, .. } => name,
        }
    }

    /// `limit/python`.
    pub fn reference(&self) -> String {
        let kind = match self {
            Self::Limit { .. } => ObjectKind::Limit,
            Self::Node { .. } => ObjectKind::Node,
        };
        kind.reference(self.name().as_str())
    }

    /// The object as it travels, with defaults shown.
    pub fn to_value(&self) -> Value {
        let value = match self {
            Self::Limit {
                resource_version,
                limit,
            } => {
                let mut shown = limit::object(limit);
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
                Self::Limit { limit, .. } => serde_saphyr::to_string(&limit::object(limit)),
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

/// Reads the objects of a list, and adds all mistakes in them.
pub(crate) fn read_list(nodes: &[Node], path: &str, found: &mut Vec<Found>) -> Vec<Object> {
    let mut named = BTreeSet::new();
    let mut objects = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match read_named(node, &path, &mut named) {
            Ok(object) => objects.push(object),
            Err(more) => found.extend(more),
        }
    }
    objects
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    objects: Vec<Object>,
    named: BTreeSet<String>,
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
        match read_named(node, path, &mut self.named) {
            Ok(object) => self.objects.push(object),
            Err(found) => {
                let reference = reference_of(node);
                let mistakes = found.into_iter();
                self.mistakes.extend(
                    mistakes.map(|found| Mistake::new(file, lines, reference.clone(), found)),
                );
            }
        }
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
    let name = name_of(node)?.text()?;
    Some(shape::shown(&format!("{kind}/{name}")))
}

fn name_of(node: &Node) -> Option<&Node> {
    node.get("metadata")?.get("name")
}

/// Reads one of several objects, which have names of their own.
fn read_named(node: &Node, path: &str, named: &mut BTreeSet<String>) -> Result<Object, Vec<Found>> {
    let read = read_object(node, path, None);
    let kind = node.get("kind").and_then(Node::text);
    let name = name_of(node).and_then(|name| Some((name.place, name.text()?)));
    // Also where it has other mistakes.
    let Some((kind, (place, name))) = kind.and_then(ObjectKind::from_word).zip(name) else {
        return read;
    };
    let reference = kind.reference(name);
    let message = format!("names {} twice", shape::shown(&reference));
    if named.insert(reference) {
        return read;
    }
    let mut found = read.err().unwrap_or_default();
    let wrong = Wrong::with(message, "leave one of them out");
    shape::add(&mut found, place, join(path, "metadata.name"), wrong);
    Err(found)
}

/// Reads one object, or all mistakes in it.
pub(crate) fn read_object(
    node: &Node,
    path: &str,
    address: Option<Address<'_>>,
) -> Result<Object, Vec<Found>> {
    let mut found = Vec::new();
    if !matches!(node.kind, Kind::Map(_)) {
        found.push(Found {
            place: node.place,
            path: path.to_owned(),
            wrong: Wrong::new("must be an object with apiVersion, kind, metadata and spec"),
        });
        return Err(found);
    }
    let kind = kind_of(node, path, address.map(|address| address.kind), &mut found);
    let shape = kind.map_or(&HEAD, ObjectKind::shape);
    shape::check(shape, node, path, &mut found);
    let stated = name_of(node).and_then(|name| Some((name.place, name.text()?)));
    let addressed = address.and_then(|address| address.name);
    if let (Some((place, stated)), Some(addressed)) = (stated, addressed)
        && stated != addressed.as_str()
    {
        let message = format!("is {}, the address says {addressed}", shape::shown(stated));
        let path = join(path, "metadata.name");
        shape::add(&mut found, place, path, Wrong::new(message));
    }
    if !found.is_empty() {
        return Err(found);
    }
    // What has the shape can be read.
    kind.and_then(|kind| kind.read(node)).ok_or_else(|| {
        vec![Found {
            place: node.place,
            path: path.to_owned(),
            wrong: Wrong::new("cannot be read"),
        }]
    })
}

/// What says which kind an object is. [`kind_of`] knows the words.
const API_VERSION: Field = Field::required("apiVersion", Shape::Text(|_| Ok(())));
const KIND: Field = Field::required("kind", Shape::Text(|_| Ok(())));
/// What every object has, whatever it is.
const HEAD: Shape = Shape::Open(&[API_VERSION, KIND]);

/// The kind as which an object is checked: the one that it names or, where it names none, that of
/// the address, of the nearest word or of the version. Adds what is wrong with kind and version.
fn kind_of(
    node: &Node,
    path: &str,
    addressed: Option<ObjectKind>,
    found: &mut Vec<Found>,
) -> Option<ObjectKind> {
    let text = |field: &str| {
        let node = node.get(field)?;
        Some((node.place, node.text()?))
    };
    let (word, version) = (text("kind"), text("apiVersion"));
    let words = ObjectKind::ALL.map(ObjectKind::word);
    let named = word.and_then(|(_, word)| ObjectKind::from_word(word));
    let near = word.and_then(|(_, word)| ObjectKind::from_word(nearest(word, words)?));
    let versioned = version.and_then(|(_, version)| ObjectKind::from_version(version));
    let kind = named.or(addressed).or(near).or(versioned);
    let mut wrong = |place, field, wrong| {
        found.push(Found {
            place,
            path: join(path, field),
            wrong,
        });
    };
    match (word, named, addressed) {
        (Some((place, word)), None, _) => {
            let suggestion = match (addressed, near) {
                (Some(kind), _) => format!("must be `{}`", kind.word()),
                (None, Some(kind)) => format!("did you mean `{}`?", kind.word()),
                (None, None) => format!("kinds are {}", words.join(" and ")),
            };
            let message = format!("`{}` is not a kind that can be applied", shape::shown(word));
            wrong(place, "kind", Wrong::with(message, suggestion));
        }
        (Some((place, word)), Some(named), Some(addressed)) if named != addressed => {
            let message = format!("is {word}, the address is of a {}", addressed.word());
            wrong(place, "kind", Wrong::new(message));
        }
        _ => {}
    }
    match (version, kind) {
        (Some((place, version)), Some(kind)) if version != kind.version() => {
            let shown = shape::shown(version);
            let message = format!("`{shown}` is not the version of a {}", kind.word());
            let suggestion = format!("must be `{}`", kind.version());
            wrong(place, "apiVersion", Wrong::with(message, suggestion));
        }
        (Some((place, version)), None) => {
            let shown = shape::shown(version);
            let message = format!("`{shown}` is not the version of a kind that can be applied");
            let versions = ObjectKind::ALL.map(|kind| format!("`{}`", kind.version()));
            let suggestion = format!("versions are {}", versions.join(" and "));
            wrong(place, "apiVersion", Wrong::with(message, suggestion));
        }
        _ => {}
    }
    kind
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
