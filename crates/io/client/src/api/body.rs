//! Reading of request bodies.
//!
//! A valid body is read by its typed reader alone. If that fails, the body is read again as a
//! tree, to report every mistake in it and not only the first (problem code `invalid`).

use bursar_booking::execution::{GRACE_MAX, MAX_TIME_MAX, START_TIMEOUT_MAX, TIME_MIN};
use bursar_booking::{NOTE_LENGTH_MAX, TTL_MAX, TTL_MIN};
use bursar_units::{BookingId, Millis, ObjectName, hidden};
use serde::de::DeserializeOwned;

use super::booking::batch::OperationKind;
use super::booking::{
    BookingRequest, CancelRequest, NoteRequest, Outcome, Priority, ReleaseRequest, RenewRequest,
};
use super::cluster::RotateRequest;
use super::execution::{ExecutionRequest, argument};
use super::fields::Fields;
use super::instant;
use super::ledger::{ExportedRequest, PruneRequest, RotateKeyRequest};
use super::market::RestoreRequest;
use super::token::{Role, TokenRequest};
use super::{APPLY_OBJECTS_MAX, BATCH_OPERATIONS_MAX, BODY_BYTES_MAX, Batch};
use crate::object::limit::new_label;
use crate::object::{self, Address, Object};
use crate::problem::{Code, FieldError, Problem};
use crate::shape::{self, Field, FieldMistake, Shape, Violation, Wrong};
use crate::tree::{Kind, Node};

/// Maximum number of mistakes that are reported for one request.
pub const MISTAKES_MAX: usize = 64;

mod sealed {
    pub trait Shaped {
        fn shape() -> BodyShape;
    }

    /// Hides the shape from other crates.
    pub struct BodyShape(pub(crate) &'static crate::shape::Shape);
}

/// A request body.
pub trait Body: DeserializeOwned + sealed::Shaped {
    /// Checks the rules that the types of the fields do not express.
    fn check(&self) -> Result<(), Box<Problem>> {
        Ok(())
    }
}

/// Reads a body, or returns all mistakes in it. An empty body counts as an empty object.
pub fn read<T: Body>(bytes: &[u8]) -> Result<T, Box<Problem>> {
    check_size(bytes)?;
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    match serde_json::from_slice::<Fields<T>>(bytes) {
        Ok(Fields(body)) => body.check().map(|()| body),
        Err(error) => Err(all_mistakes(bytes, T::shape().0, &error)),
    }
}

/// Reads a body that is a declared object, or returns all mistakes in it.
pub fn read_declared(bytes: &[u8], address: Address<'_>) -> Result<Object, Box<Problem>> {
    check_size(bytes)?;
    object::read_object(&tree(bytes)?, "", Some(address)).map_err(invalid_fields)
}

/// Reads the objects of a [`super::ApplyRequest`], or returns all mistakes in it.
pub fn read_values(bytes: &[u8]) -> Result<Vec<Object>, Box<Problem>> {
    check_size(bytes)?;
    let tree = tree(bytes)?;
    let objects = match tree.get(OBJECTS).map(|objects| &objects.kind) {
        Some(Kind::List(objects)) => objects.as_slice(),
        _ => &[],
    };
    if objects.len() > APPLY_OBJECTS_MAX {
        let count = objects.len();
        let detail =
            format!("the request has {count} objects, at most {APPLY_OBJECTS_MAX} are allowed");
        return Err(refusal(Code::TooLarge, detail));
    }
    let mut mistakes = Vec::new();
    shape::check(&APPLY, &tree, "", &mut mistakes);
    let objects = object::read_list(objects, OBJECTS, &mut mistakes);
    if mistakes.is_empty() {
        Ok(objects)
    } else {
        Err(invalid_fields(mistakes))
    }
}

fn check_size(bytes: &[u8]) -> Result<(), Box<Problem>> {
    if bytes.len() <= BODY_BYTES_MAX {
        return Ok(());
    }
    let detail = format!(
        "the body has {} bytes, at most {BODY_BYTES_MAX} are allowed",
        bytes.len()
    );
    Err(refusal(Code::TooLarge, detail))
}

fn all_mistakes(bytes: &[u8], shape: &Shape, error: &serde_json::Error) -> Box<Problem> {
    let tree = match tree(bytes) {
        Ok(tree) => tree,
        Err(problem) => return problem,
    };
    let mut mistakes: Vec<FieldMistake> = Vec::new();
    shape::check(shape, &tree, "", &mut mistakes);
    if mistakes.is_empty() {
        // Unreachable while the shape refuses all that the type refuses.
        return invalid(vec![FieldError::new("", error.to_string())]);
    }
    invalid_fields(mistakes)
}

/// Reads a body as a tree; it must be a JSON object.
fn tree(bytes: &[u8]) -> Result<Node, Box<Problem>> {
    if let Err(error) = std::str::from_utf8(bytes) {
        let byte = error.valid_up_to();
        let detail = format!("the body is not UTF-8: byte {byte} is not text");
        return Err(refusal(Code::Malformed, detail));
    }
    let tree: Node = serde_json::from_slice(bytes)
        .map_err(|error| refusal(Code::Malformed, format!("the body is not JSON: {error}")))?;
    if matches!(tree.kind, Kind::Map(_)) {
        return Ok(tree);
    }
    let message = format!("the body must be a JSON object, not {}", tree.word());
    Err(invalid(vec![FieldError::new("", message)]))
}

/// Declares bodies: a type, its shape, and the method that checks the rules beyond it.
macro_rules! bodies {
    (@shape $type:ty, $shape:expr) => {
        impl sealed::Shaped for $type {
            fn shape() -> sealed::BodyShape {
                const SHAPE: Shape = $shape;
                sealed::BodyShape(&SHAPE)
            }
        }
    };
    ($($type:ty = $shape:expr $(, $check:ident)?;)+) => {
        $(bodies!(@shape $type, $shape);
        impl Body for $type {
            $(fn check(&self) -> Result<(), Box<Problem>> {
                unless_empty(self.$check())
            })?
        })+
    };
}

bodies! {
    BookingRequest = Shape::Map(BookingRequest::FIELDS), mistakes;
    RenewRequest = Shape::Map(RenewRequest::FIELDS), mistakes;
    ReleaseRequest = Shape::Ruled(&Shape::Map(ReleaseRequest::FIELDS), release_rule), mistakes;
    CancelRequest = Shape::Map(&[]);
    RotateRequest = Shape::Map(RotateRequest::FIELDS);
    NoteRequest = Shape::Map(NoteRequest::FIELDS), mistakes;
    TokenRequest = Shape::Ruled(&Shape::Map(TokenRequest::FIELDS), token_rule), mistakes;
    ExecutionRequest = Shape::Map(ExecutionRequest::FIELDS), mistakes;
    PruneRequest = Shape::Map(PruneRequest::FIELDS);
    ExportedRequest = Shape::Map(ExportedRequest::FIELDS);
    RotateKeyRequest = Shape::Map(&[]);
    RestoreRequest = Shape::Map(&[]);
}
bodies!(@shape Batch, Shape::Map(&[Field::required("operations", Shape::List(&OPERATION))]));

/// Mistakes in an operation are the result of that operation ([`super::Operation::mistakes`]).
impl Body for Batch {
    fn check(&self) -> Result<(), Box<Problem>> {
        if self.operations.len() > BATCH_OPERATIONS_MAX {
            let count = self.operations.len();
            let detail = format!(
                "the batch has {count} operations, at most {BATCH_OPERATIONS_MAX} are allowed"
            );
            return Err(refusal(Code::TooLarge, detail));
        }
        Ok(())
    }
}

/// Maximum lifetime of a token: ten years.
const EXPIRES_MAX: Millis = Millis::from_hours(3_650 * 24);
const REASON_LENGTH_MAX: usize = 1_024;

impl BookingRequest {
    /// Mistakes that the types of the fields do not exclude.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let tenant = self.tenant.as_ref().map_or("", |tenant| tenant.as_str());
        let ttl = self.ttl_ms.map(Millis::from_ms);
        let mut errors = Vec::new();
        errors.extend(hidden_mistake(|| "class".to_owned(), self.class.as_str()));
        errors.extend(hidden_mistake(|| "tenant".to_owned(), tenant));
        errors.extend(slots_mistake(self.slots));
        errors.extend(time_mistake("ttlMs", ttl, TTL_MIN, TTL_MAX));
        errors
    }
}

impl RenewRequest {
    /// Mistakes that the types of the fields do not exclude.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let ttl = self.ttl_ms.map(Millis::from_ms);
        let mistake = time_mistake("ttlMs", ttl, TTL_MIN, TTL_MAX);
        mistake.into_iter().collect()
    }
}

impl TokenRequest {
    fn mistakes(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Err(wrong) = token_name(self.name.as_str()) {
            errors.push(FieldError::new("name", wrong.message));
        }
        let roles: Vec<&str> = self.roles.iter().map(|role| role.word()).collect();
        let has_owners = !self.owners.is_empty();
        let violations = token_violations(&roles, true, !self.tenants.is_empty(), has_owners);
        errors.extend(violations.into_iter().map(field_error));
        for (at, tenant) in self.tenants.iter().enumerate() {
            let path = || format!("tenants[{at}]");
            errors.extend(hidden_mistake(path, tenant.as_str()));
        }
        for (at, owner) in self.owners.iter().enumerate() {
            let path = || format!("owners[{at}]");
            errors.extend(hidden_mistake(path, owner.as_str()));
        }
        if let Err(message) = self.lifetime() {
            errors.push(FieldError::new("expires", message));
        }
        errors
    }

    /// The requested lifetime, or the mistake in it; `None` if the request has none.
    pub fn lifetime(&self) -> Result<Option<Millis>, String> {
        let lifetime = self.expires.as_deref().map(lifetime);
        lifetime.transpose().map_err(|wrong| wrong.message)
    }
}

impl NoteRequest {
    /// Mistakes in the text.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let wrong = note_text(&self.text).err();
        wrong
            .map(|wrong| field_error(("text", wrong)))
            .into_iter()
            .collect()
    }
}

impl ReleaseRequest {
    /// Mistakes that the types of the fields do not exclude.
    pub fn mistakes(&self) -> Vec<FieldError> {
        let reason = self.reason.as_deref();
        let violations = release_violations(self.force, self.fence.is_some(), reason);
        let mut errors: Vec<_> = violations.into_iter().map(field_error).collect();
        let wrong = reason.and_then(|text| reason_of_force(text).err());
        errors.extend(wrong.map(|wrong| field_error(("reason", wrong))));
        errors
    }
}

impl ExecutionRequest {
    /// Mistakes that the types of the fields do not exclude. No message repeats the command, its
    /// arguments or its environment (L13).
    pub fn mistakes(&self) -> Vec<FieldError> {
        let tenant = self.tenant.as_ref().map_or("", |tenant| tenant.as_str());
        let mut errors = Vec::new();
        errors.extend(hidden_mistake(|| "class".to_owned(), self.class.as_str()));
        errors.extend(hidden_mistake(|| "tenant".to_owned(), tenant));
        errors.extend(slots_mistake(self.slots));
        errors.extend(self.program_mistakes());
        for (field, ms, min, max) in [
            (
                "startTimeoutMs",
                self.start_timeout_ms,
                TIME_MIN,
                START_TIMEOUT_MAX,
            ),
            ("maxTimeMs", self.max_time_ms, TIME_MIN, MAX_TIME_MAX),
            ("graceMs", self.grace_ms, Millis::ZERO, GRACE_MAX),
        ] {
            let length = ms.map(Millis::from_ms);
            errors.extend(time_mistake(field, length, min, max));
        }
        errors
    }
}

/// Mistake of a text that has an invisible character: such texts would go into records.
fn hidden_mistake(path: impl FnOnce() -> String, text: &str) -> Option<FieldError> {
    let error = hidden::check(text).err()?;
    Some(FieldError::new(path(), error.to_string()))
}

fn slots_mistake(slots: u64) -> Option<FieldError> {
    (slots == 0).then(|| FieldError::new("slots", "must be at least 1"))
}

fn time_mistake(
    field: &str,
    length: Option<Millis>,
    min: Millis,
    max: Millis,
) -> Option<FieldError> {
    let is_wrong = length.is_some_and(|length| !(min..=max).contains(&length));
    let message = || format!("must be between {} and {}", min.ms(), max.ms());
    is_wrong.then(|| FieldError::new(field, message()))
}

fn refusal(code: Code, detail: String) -> Box<Problem> {
    Box::new(Problem::new(code, detail))
}

fn invalid(mut errors: Vec<FieldError>) -> Box<Problem> {
    errors.truncate(MISTAKES_MAX);
    Box::new(Problem::invalid(errors))
}

fn invalid_fields(mistakes: Vec<FieldMistake>) -> Box<Problem> {
    invalid(mistakes.into_iter().map(FieldError::from).collect())
}

fn unless_empty(errors: Vec<FieldError>) -> Result<(), Box<Problem>> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(invalid(errors))
    }
}

pub(super) const LABEL: Shape = Shape::Text(|text| new_label(text).map(drop));
pub(super) const ID: Shape =
    Shape::Text(|text| BookingId::new(text).map(drop).map_err(Wrong::from));
pub(super) const ARGUMENT: Shape = Shape::Secret(argument);
pub(super) const SLOTS: Shape = Shape::Whole {
    min: 1,
    max: bursar_units::INTEGER_MAX,
};
/// A limit other than 0, with which nothing can run.
pub(super) const SOME: Shape = SLOTS;
pub(super) const TTL: Shape = time(TTL_MIN, TTL_MAX);
pub(super) const PRIORITY: Shape = Shape::Word(&Priority::WORDS);
pub(super) const OUTCOME: Shape = Shape::Word(&Outcome::WORDS);

const OBJECTS: &str = "objects";
/// The objects themselves are checked by [`object::read_list`].
const APPLY: Shape = Shape::Map(&[Field::required(OBJECTS, Shape::List(&Shape::Any))]);

/// The operations of a batch: the bodies above, with `op` and `id`.
const OPERATION: Shape = Shape::Ruled(&OPERATIONS, |node| {
    match node
        .get("op")
        .and_then(Node::text)
        .and_then(OperationKind::from_word)
    {
        Some(OperationKind::Release) => release_rule(node),
        _ => Vec::new(),
    }
});
const OPERATIONS: Shape = Shape::By {
    key: "op",
    shared: &[
        Field::required("op", Shape::Text(|_| Ok(()))),
        Field::required("id", ID),
    ],
    cases: &[
        OperationKind::Reserve.case(),
        OperationKind::Renew.case(),
        OperationKind::Release.case(),
        OperationKind::Cancel.case(),
    ],
};

fn release_violations(force: bool, has_fence: bool, reason: Option<&str>) -> Vec<Violation> {
    let fence = match (force, has_fence) {
        (false, false) => Some("is missing; an operator without it sends `force` and `reason`"),
        (true, true) => Some("cannot be combined with `force`"),
        _ => None,
    };
    let reason = match (force, reason.map(str::trim)) {
        (false, Some(_)) => Some("requires `force`"),
        (true, None | Some("")) => Some("is missing; `force` requires it"),
        _ => None,
    };
    let violations = [("fence", fence), ("reason", reason)].into_iter();
    violations
        .filter_map(|(field, message)| Some((field, Wrong::new(message?))))
        .collect()
}

fn release_rule(node: &Node) -> Vec<Violation> {
    let force = match node.get("force").map(|force| &force.kind) {
        None => false,
        Some(Kind::Bool(force)) => *force,
        Some(_) => return Vec::new(),
    };
    let reason = node.given("reason");
    let reason = reason.map(|reason| reason.text().unwrap_or_default());
    release_violations(force, node.given("fence").is_some(), reason)
}

/// `roles` are those that could be read; `are_all` is true if that is all of them.
fn token_violations(
    roles: &[&str],
    are_all: bool,
    has_tenants: bool,
    has_owners: bool,
) -> Vec<Violation> {
    let has = |role| roles.contains(&role);
    let mut violations = Vec::new();
    if are_all && roles.is_empty() {
        let message = "is empty; give `view`, `use` or `operate`";
        violations.push(("roles", Wrong::new(message)));
    }
    if has("use") && !has_tenants && !has_owners {
        let message = "is missing; `use` acts as the tenants and owners listed";
        violations.push(("tenants", Wrong::new(message)));
    }
    for (field, is_given) in [("tenants", has_tenants), ("owners", has_owners)] {
        if are_all && is_given && !has("use") && !has("operate") {
            violations.push((field, Wrong::new("requires the role `use`")));
        }
    }
    violations
}

fn token_rule(node: &Node) -> Vec<Violation> {
    let list = |field: &str| match &node.get(field)?.kind {
        Kind::List(items) => Some(items.as_slice()),
        _ => None,
    };
    let written = list("roles");
    let roles = written.unwrap_or_default().iter().filter_map(Node::text);
    let roles: Vec<&str> = roles.filter(|role| Role::WORDS.contains(role)).collect();
    let are_all = written.is_some_and(|written| written.len() == roles.len());
    let has = |field| node.get(field).is_some() && list(field).is_none_or(|list| !list.is_empty());
    token_violations(&roles, are_all, has("tenants"), has("owners"))
}

fn field_error((field, wrong): Violation) -> FieldError {
    FieldError::new(field, wrong.message)
}

pub(in crate::api) fn reason_of_force(text: &str) -> Result<(), Wrong> {
    remark(text, REASON_LENGTH_MAX)
}

/// Accepts the text of a note.
pub(super) fn note_text(text: &str) -> Result<(), Wrong> {
    match text.trim() {
        "" => Err(Wrong::new("is empty")),
        text => remark(text, NOTE_LENGTH_MAX),
    }
}

/// Accepts a text that is recorded in clear.
fn remark(text: &str, length_max: usize) -> Result<(), Wrong> {
    let text = text.trim();
    if text.chars().count() > length_max {
        let message = format!("is longer than {length_max} characters");
        return Err(Wrong::new(message));
    }
    hidden::check(text).map_err(Wrong::from)
}

/// Checks the name of a token. It is also the name of the caller, which must be a label.
pub(super) fn token_name(text: &str) -> Result<(), Wrong> {
    ObjectName::new(text)?;
    new_label(text).map(drop)
}

pub(super) fn lifetime(text: &str) -> Result<Millis, Wrong> {
    let length: Millis = text.parse()?;
    if (Millis::from_ms(1)..=EXPIRES_MAX).contains(&length) {
        Ok(length)
    } else {
        Err(Wrong::new("must be more than 0 and at most 3650d"))
    }
}

pub(super) const fn time(min: Millis, max: Millis) -> Shape {
    Shape::Whole {
        min: min.ms(),
        max: max.ms(),
    }
}

pub(super) fn an_instant(text: &str) -> Result<(), Wrong> {
    instant::parse(text).map(drop).map_err(Wrong::from)
}
