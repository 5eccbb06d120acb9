//! Declared objects in files: YAML or JSON, with several documents.
//!
//! All mistakes are reported at once, and no object of a set of files is used if one has a mistake.
//! The server reads the same objects from JSON with [`read_values`], by the same rules.

pub mod budget;
pub mod limit;
mod locate;
mod market;
mod mistake;
pub mod node;
pub mod run;
mod simulation;
pub(crate) mod spec;

pub use crate::api::body::read_values;
pub use locate::locate;
pub use market::read_market;
pub use mistake::{Mistake, Mistakes};
pub use simulation::{Simulation, read_simulation};

use std::collections::BTreeSet;

use bursar_units::{DEFAULT_NAMESPACE, ObjectName};
use serde_json::Value;

use crate::api;
use crate::api::cluster::RunSpec;
use crate::problem::FieldError;
use crate::shape::{self, Field, FieldMistake, Shape, Wrong, join, nearest};
use crate::tree::{Kind, Node, read_yaml};

/// Maximum size of a file. It is larger than a request, because only a part of the nodes of a
/// copied cluster is sent.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// A file that was read.
#[derive(Clone, Debug)]
pub struct File {
    /// Name for messages.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// A checked declared object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// A budget.
    Budget {
        /// Version that it replaces, if the file names one.
        resource_version: Option<String>,
        /// The budget.
        budget: Box<bursar_engine::cluster::budget::Budget>,
    },
    /// A run. The server knows the owner of one that names none.
    Run {
        /// Version that it replaces, if the file names one.
        resource_version: Option<String>,
        /// Namespace.
        namespace: ObjectName,
        /// Name in the namespace.
        name: ObjectName,
        /// The run as written.
        spec: Box<RunSpec>,
    },
    /// A limit.
    Limit {
        /// Version that it replaces, if the file names one.
        resource_version: Option<String>,
        /// The limit.
        limit: bursar_booking::Limit,
    },
    /// A node.
    Node(bursar_engine::Node),
}

/// Kind of a declared object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectKind {
    /// A budget.
    Budget,
    /// A run.
    Run,
    /// A limit.
    Limit,
    /// A node.
    Node,
}

/// Kind and name of an object in the path of a request.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// Kind.
    pub kind: ObjectKind,
    /// Namespace; `None` if the kind has none, or the path has no valid one.
    pub namespace: Option<&'a ObjectName>,
    /// Name; `None` if the path has no valid one.
    pub name: Option<&'a ObjectName>,
}

impl ObjectKind {
    const ALL: [Self; 4] = [Self::Budget, Self::Run, Self::Limit, Self::Node];

    /// Value of the field `kind`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Budget => "Budget",
            Self::Run => "Run",
            Self::Limit => "Limit",
            Self::Node => "Node",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    fn from_version(version: &str) -> Option<Self> {
        let mut kinds = Self::ALL
            .into_iter()
            .filter(|kind| kind.version() == version);
        kinds.next().filter(|_| kinds.next().is_none())
    }

    /// Whether its objects have a namespace.
    const fn is_scoped(self) -> bool {
        match self {
            Self::Budget | Self::Run => true,
            Self::Limit | Self::Node => false,
        }
    }

    /// `limit/python` or `budget/rai/q4`.
    fn reference(self, namespace: &str, name: &str) -> String {
        let kind = self.word().to_lowercase();
        if self.is_scoped() {
            format!("{kind}/{namespace}/{name}")
        } else {
            format!("{kind}/{name}")
        }
    }

    const fn version(self) -> &'static str {
        match self {
            Self::Budget | Self::Run | Self::Limit => api::limit::API_VERSION,
            Self::Node => "v1",
        }
    }

    const fn shape(self) -> &'static Shape {
        match self {
            Self::Budget => &budget::SHAPE,
            Self::Run => &run::SHAPE,
            Self::Limit => &limit::SHAPE,
            Self::Node => &node::SHAPE,
        }
    }

    fn read(self, node: &Node) -> Option<Object> {
        match self {
            Self::Budget => budget::read(node),
            Self::Run => run::read(node),
            Self::Limit => limit::read(node),
            Self::Node => node::read(node),
        }
    }
}

impl Object {
    /// Name.
    pub fn name(&self) -> &ObjectName {
        match self {
            Self::Budget { budget, .. } => &budget.name,
            Self::Run { name, .. } => name,
            Self::Limit { limit, .. } => &limit.name,
            Self::Node(node) => &node.name,
        }
    }

    /// `limit/python` or `budget/rai/q4`.
    pub fn reference(&self) -> String {
        let namespace = match self {
            Self::Budget { budget, .. } => budget.namespace.as_str(),
            Self::Run { namespace, .. } => namespace.as_str(),
            Self::Limit { .. } | Self::Node { .. } => "",
        };
        let kind = match self {
            Self::Budget { .. } => ObjectKind::Budget,
            Self::Run { .. } => ObjectKind::Run,
            Self::Limit { .. } => ObjectKind::Limit,
            Self::Node(_) => ObjectKind::Node,
        };
        kind.reference(namespace, self.name().as_str())
    }

    /// The object in JSON, with defaults.
    pub fn to_value(&self) -> Value {
        let value = match self {
            Self::Budget {
                resource_version,
                budget,
            } => {
                let mut shown = budget::object(budget);
                shown.metadata.resource_version.clone_from(resource_version);
                serde_json::to_value(shown)
            }
            Self::Run {
                resource_version,
                namespace,
                name,
                spec,
            } => {
                let mut shown = run::object_of(namespace, name, (**spec).clone());
                shown.metadata.resource_version.clone_from(resource_version);
                serde_json::to_value(shown)
            }
            Self::Limit {
                resource_version,
                limit,
            } => {
                let mut shown = limit::object(limit);
                shown.metadata.resource_version.clone_from(resource_version);
                serde_json::to_value(shown)
            }
            Self::Node(node) => serde_json::to_value(node::object(node)),
        };
        // These types can always be written as JSON.
        value.unwrap_or_default()
    }

    /// Several objects as one YAML text, with defaults.
    pub fn to_yaml(objects: &[Self]) -> String {
        let documents: Vec<_> = objects
            .iter()
            .map(|object| match object {
                Self::Budget { budget, .. } => serde_saphyr::to_string(&budget::object(budget)),
                Self::Run {
                    namespace,
                    name,
                    spec,
                    ..
                } => {
                    let shown = run::object_of(namespace, name, (**spec).clone());
                    serde_saphyr::to_string(&shown)
                }
                Self::Limit { limit, .. } => serde_saphyr::to_string(&limit::object(limit)),
                Self::Node(node) => serde_saphyr::to_string(&node::object(node)),
            })
            .map(Result::unwrap_or_default)
            .collect();
        documents.join("---\n")
    }

    /// The mistakes that the plane finds, each with its path.
    fn mistakes(&self) -> Vec<(String, Wrong)> {
        match self {
            Self::Budget { budget, .. } => {
                let found = budget.mistakes().into_iter();
                found
                    .map(|of| (of.path.clone(), budget::wrong(&of)))
                    .collect()
            }
            Self::Run {
                namespace,
                name,
                spec,
                ..
            } => {
                let found = run::mistakes(namespace, name, spec).into_iter();
                found.map(|of| run::written(spec, &of)).collect()
            }
            Self::Limit { .. } | Self::Node { .. } => Vec::new(),
        }
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
pub(crate) fn read_list(
    nodes: &[Node],
    path: &str,
    mistakes: &mut Vec<FieldMistake>,
) -> Vec<Object> {
    let mut named = BTreeSet::new();
    let mut objects = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match read_named(node, &path, &mut named) {
            Ok(object) => objects.push(object),
            Err(more) => mistakes.extend(more),
        }
    }
    objects
}

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
                let mistake = FieldMistake::new(unreadable.position, "", wrong);
                self.mistakes
                    .push(Mistake::new(&file.name, &lines, None, mistake));
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
        for (path, object) in objects_of(document) {
            self.object(file, lines, object, &path);
        }
    }

    fn object(&mut self, file: &str, lines: &[&str], node: &Node, path: &str) {
        match read_named(node, path, &mut self.named) {
            Ok(object) => self.objects.push(object),
            Err(mistakes) => {
                let reference = reference_of(node, DEFAULT_NAMESPACE);
                let mistakes = mistakes.into_iter();
                self.mistakes.extend(
                    mistakes.map(|mistake| Mistake::new(file, lines, reference.clone(), mistake)),
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

/// The objects of a document, each with its path: the document itself, or the items of a list.
fn objects_of(document: &Node) -> Vec<(String, &Node)> {
    let is_list = document.get("kind").and_then(Node::text) == Some("List");
    match document.get("items").map(|items| &items.kind) {
        Some(Kind::List(items)) if is_list => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (format!("items[{index}]"), item))
                .collect()
        }
        _ => vec![(String::new(), document)],
    }
}

/// `limit/python`, if the document has a kind and a name. An object that names no namespace is in
/// `namespace`.
fn reference_of(node: &Node, namespace: &str) -> Option<String> {
    let word = node.get("kind")?.text()?;
    let name = name_of(node)?.text()?;
    let reference = match ObjectKind::from_word(word) {
        Some(kind) => kind.reference(stated_namespace(node).unwrap_or(namespace), name),
        None => format!("{}/{name}", word.to_lowercase()),
    };
    Some(shape::shown(&reference))
}

/// Whether an object of a file names its namespace; others are in the default one.
pub fn names_namespace(file: &File) -> bool {
    let documents = std::str::from_utf8(&file.bytes).ok().map(read_yaml);
    let Some(Ok(documents)) = documents else {
        return false;
    };
    let names = |node: &Node| {
        let metadata = node.get("metadata");
        metadata.is_some_and(|of| of.given("namespace").is_some())
    };
    documents.iter().any(names)
}

fn namespace_of(node: &Node) -> &str {
    stated_namespace(node).unwrap_or(DEFAULT_NAMESPACE)
}

/// The namespace as written.
fn stated_namespace(node: &Node) -> Option<&str> {
    let namespace = node.get("metadata")?.given("namespace")?;
    namespace.text()
}

/// Namespace, name and version of a scoped object of the right shape.
fn scope_of(node: &Node) -> Option<(ObjectName, ObjectName, Option<String>)> {
    let version = node.get("metadata")?.given("resourceVersion");
    Some((
        ObjectName::new(namespace_of(node)).ok()?,
        ObjectName::new(name_of(node)?.text()?).ok()?,
        version.and_then(Node::text).map(str::to_owned),
    ))
}

fn name_of(node: &Node) -> Option<&Node> {
    node.get("metadata")?.get("name")
}

/// Reads one of several objects, whose names must differ.
fn read_named(
    node: &Node,
    path: &str,
    named: &mut BTreeSet<String>,
) -> Result<Object, Vec<FieldMistake>> {
    let read = read_object(node, path, None);
    let kind = node.get("kind").and_then(Node::text);
    let name = name_of(node).and_then(|name| Some((name.position, name.text()?)));
    // A second use of a name is reported together with other mistakes.
    let Some((kind, (position, name))) = kind.and_then(ObjectKind::from_word).zip(name) else {
        return read;
    };
    let reference = kind.reference(namespace_of(node), name);
    let message = format!("names {} twice", shape::shown(&reference));
    if named.insert(reference) {
        return read;
    }
    let mut mistakes = read.err().unwrap_or_default();
    let wrong = Wrong::with(message, "leave one of them out");
    shape::add(&mut mistakes, position, join(path, "metadata.name"), wrong);
    Err(mistakes)
}

/// Reads one object, or all mistakes in it.
pub(crate) fn read_object(
    node: &Node,
    path: &str,
    address: Option<Address<'_>>,
) -> Result<Object, Vec<FieldMistake>> {
    if !matches!(node.kind, Kind::Map(_)) {
        let wrong = Wrong::new("must be an object with apiVersion, kind, metadata and spec");
        return Err(vec![FieldMistake::new(node.position, path, wrong)]);
    }
    let mut mistakes = Vec::new();
    let kind = kind_of(
        node,
        path,
        address.map(|address| address.kind),
        &mut mistakes,
    );
    let shape = kind.map_or(&HEAD, ObjectKind::shape);
    shape::check(shape, node, path, &mut mistakes);
    let stated = name_of(node).and_then(|name| Some((name.position, name.text()?)));
    let addressed = address.and_then(|address| address.name);
    if let (Some((position, stated)), Some(addressed)) = (stated, addressed)
        && stated != addressed.as_str()
    {
        let message = format!("is {}, the path has {addressed}", shape::shown(stated));
        let path = join(path, "metadata.name");
        shape::add(&mut mistakes, position, path, Wrong::new(message));
    }
    let addressed = address.and_then(|address| address.namespace);
    if let Some(addressed) = addressed.filter(|of| of.as_str() != namespace_of(node)) {
        let stated = shape::shown(namespace_of(node));
        let message = format!("is {stated}, the path has {addressed}");
        let position = node.at("metadata.namespace").position;
        let path = join(path, "metadata.namespace");
        shape::add(&mut mistakes, position, path, Wrong::new(message));
    }
    for mistake in &mut mistakes {
        mistake.beside = beside(node, path, &mistake.path);
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    // A document of the right shape can be read.
    let object = kind.and_then(|kind| kind.read(node)).ok_or_else(|| {
        let wrong = Wrong::new("cannot be read");
        vec![FieldMistake::new(node.position, path, wrong)]
    })?;
    let found = object.mistakes().into_iter();
    let found: Vec<_> = found
        .map(|(field, wrong)| {
            FieldMistake::new(node.at(&field).position, join(path, &field), wrong)
        })
        .collect();
    if found.is_empty() {
        Ok(object)
    } else {
        Err(found)
    }
}

/// Line of the start of a window whose end has a mistake; zero for none.
fn beside(node: &Node, path: &str, mistake: &str) -> usize {
    let inner = mistake.strip_prefix(path).unwrap_or(mistake);
    let window = inner.trim_start_matches('.').strip_suffix(".end");
    let start = window.and_then(|window| node.at(window).get("start"));
    start.map_or(0, |start| start.position.line)
}

/// The values of these two fields are checked by [`kind_of`].
const API_VERSION: Field = Field::required("apiVersion", Shape::Text(|_| Ok(())));
const KIND: Field = Field::required("kind", Shape::Text(|_| Ok(())));
const SCOPED_METADATA: Field = Field::required(
    "metadata",
    Shape::Map(&[
        Field::required("name", budget::name_shape()),
        Field::optional("namespace", budget::name_shape()),
        Field::optional("resourceVersion", Shape::Text(|_| Ok(()))),
    ]),
);
const HEAD: Shape = Shape::Open(&[API_VERSION, KIND]);

/// Kind as which an object is checked: the kind that it names, else that of the path, of the
/// nearest word, or of the version. Adds the mistakes in kind and version.
fn kind_of(
    node: &Node,
    path: &str,
    addressed: Option<ObjectKind>,
    mistakes: &mut Vec<FieldMistake>,
) -> Option<ObjectKind> {
    let text = |field: &str| {
        let node = node.get(field)?;
        Some((node.position, node.text()?))
    };
    let (word, version) = (text("kind"), text("apiVersion"));
    let words = ObjectKind::ALL.map(ObjectKind::word);
    let named = word.and_then(|(_, word)| ObjectKind::from_word(word));
    let near = word.and_then(|(_, word)| ObjectKind::from_word(nearest(word, words)?));
    let versioned = version.and_then(|(_, version)| ObjectKind::from_version(version));
    let kind = named.or(addressed).or(near).or(versioned);
    let mut wrong = |position, field, wrong| {
        mistakes.push(FieldMistake::new(position, join(path, field), wrong));
    };
    match (word, named, addressed) {
        (Some((position, word)), None, _) => {
            let suggestion = match (addressed, near) {
                (Some(kind), _) => format!("must be `{}`", kind.word()),
                (None, Some(kind)) => format!("did you mean `{}`?", kind.word()),
                (None, None) => format!("kinds are {}", listed(&words)),
            };
            let message = format!("`{}` is not a kind that can be applied", shape::shown(word));
            wrong(position, "kind", Wrong::with(message, suggestion));
        }
        (Some((position, word)), Some(named), Some(addressed)) if named != addressed => {
            let message = format!("is {word}, the path is that of a {}", addressed.word());
            wrong(position, "kind", Wrong::new(message));
        }
        _ => {}
    }
    match (version, kind) {
        (Some((position, version)), Some(kind)) if version != kind.version() => {
            let shown = shape::shown(version);
            let message = format!("`{shown}` is not the version of a {}", kind.word());
            let suggestion = format!("must be `{}`", kind.version());
            wrong(position, "apiVersion", Wrong::with(message, suggestion));
        }
        // A version of several kinds is right, whichever is meant.
        (Some((position, version)), None) if !is_version(version) => {
            let shown = shape::shown(version);
            let message = format!("`{shown}` is not the version of a kind that can be applied");
            let versions: BTreeSet<_> = ObjectKind::ALL.map(ObjectKind::version).into();
            let versions: Vec<_> = versions.iter().map(|of| format!("`{of}`")).collect();
            let suggestion = format!("versions are {}", listed(&versions));
            wrong(position, "apiVersion", Wrong::with(message, suggestion));
        }
        _ => {}
    }
    kind
}

fn is_version(text: &str) -> bool {
    ObjectKind::ALL.iter().any(|kind| kind.version() == text)
}

/// `a, b and c`.
fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

impl From<FieldMistake> for FieldError {
    fn from(mistake: FieldMistake) -> Self {
        Self {
            object: None,
            path: mistake.path,
            line: u64::try_from(mistake.position.line)
                .ok()
                .filter(|line| *line > 0),
            message: mistake.wrong.message,
            suggestion: mistake.wrong.suggestion,
        }
    }
}
