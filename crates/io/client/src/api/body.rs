//! Reading request bodies: quickly when they are right, thoroughly when they are not.
//!
//! The typed reader runs alone for a good body. Only when it fails is the body read again as a
//! tree, to name every mistake in it and not just the first (`invalid`, design 80, 4.2).

use bursar_units::{BookingId, Label, NameError, ObjectName};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::booking::{BookingRequest, CancelRequest, ReleaseRequest, RenewRequest};
use super::ledger::{ExportedRequest, PruneRequest, RotateKeyRequest};
use super::token::TokenRequest;
use super::{
    APPLY_OBJECTS_MAX, ApplyRequest, BATCH_OPERATIONS_MAX, BODY_BYTES_MAX, Batch, Operation,
};
use super::{Role, instant};
use crate::problem::{Code, FieldError, Problem};
use crate::shape::{self, Field, Shape, WHOLE, Wrong};
use crate::tree::Node;

mod sealed {
    /// How a body looks, for naming every mistake in it.
    pub trait Shaped {
        fn look() -> Look;
    }

    /// A shape that only this crate can look into.
    pub struct Look(pub(crate) &'static crate::shape::Shape);
}

/// A request body.
pub trait Body: DeserializeOwned + sealed::Shaped {
    /// What is wrong although every field has the right kind.
    fn check(&self) -> Result<(), Box<Problem>> {
        Ok(())
    }
}

/// Reads a body, or says everything that is wrong with it. An empty body is an empty object.
pub fn read<T: Body>(bytes: &[u8]) -> Result<T, Box<Problem>> {
    if bytes.len() > BODY_BYTES_MAX {
        return Err(refusal(
            Code::TooLarge,
            format!(
                "the body has {} bytes, at most {BODY_BYTES_MAX} are allowed",
                bytes.len()
            ),
        ));
    }
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    match serde_json::from_slice::<T>(bytes) {
        Ok(body) => body.check().map(|()| body),
        Err(error) => Err(mistakes(bytes, T::look().0, &error)),
    }
}

/// All that is wrong in a body that its type does not accept.
fn mistakes(bytes: &[u8], shape: &Shape, error: &serde_json::Error) -> Box<Problem> {
    if let Err(error) = std::str::from_utf8(bytes) {
        let detail = format!(
            "the body is not UTF-8: byte {} is not text",
            error.valid_up_to()
        );
        return refusal(Code::Malformed, detail);
    }
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            return refusal(Code::Malformed, format!("the body is not JSON: {error}"));
        }
    };
    let mut found = Vec::new();
    shape::check(shape, &Node::from(&value), "", &mut found);
    if found.is_empty() {
        // A field given twice is the one mistake that a tree of JSON no longer shows.
        return invalid(vec![FieldError::new("", error.to_string())]);
    }
    invalid(found.into_iter().map(FieldError::from).collect())
}

macro_rules! shaped {
    ($($type:ty = $shape:expr;)+) => {
        $(impl sealed::Shaped for $type {
            fn look() -> sealed::Look {
                const SHAPE: Shape = $shape;
                sealed::Look(&SHAPE)
            }
        })+
    };
}

shaped! {
    BookingRequest = Shape::Map(RESERVE);
    RenewRequest = Shape::Map(RENEW);
    ReleaseRequest = Shape::Map(RELEASE);
    CancelRequest = Shape::Map(&[]);
    Batch = Shape::Map(&[Field::required("operations", Shape::List(&OPERATION))]);
    ApplyRequest = Shape::Map(&[Field::required("objects", Shape::List(&Shape::Any))]);
    TokenRequest = Shape::Map(&[
        Field::required("name", OBJECT_NAME),
        Field::required("roles", Shape::List(&Shape::Word(&ROLES))),
        Field::optional("tenants", Shape::List(&LABEL)),
        Field::optional("expires", Shape::Text(duration)),
    ]);
    PruneRequest = Shape::Map(&[Field::required("before", Shape::Text(an_instant))]);
    ExportedRequest = Shape::Map(&[
        Field::required("from", WHOLE),
        Field::required("below", WHOLE),
    ]);
    RotateKeyRequest = Shape::Map(&[]);
}

impl Body for BookingRequest {
    fn check(&self) -> Result<(), Box<Problem>> {
        unless_empty(self.mistakes(""))
    }
}

impl Body for RenewRequest {
    fn check(&self) -> Result<(), Box<Problem>> {
        unless_empty(ttl_mistake("", self.ttl_ms).into_iter().collect())
    }
}

impl Body for ReleaseRequest {
    fn check(&self) -> Result<(), Box<Problem>> {
        unless_empty(self.mistakes(""))
    }
}

impl Body for CancelRequest {}
impl Body for ExportedRequest {}
impl Body for PruneRequest {}
impl Body for RotateKeyRequest {}

impl Body for Batch {
    fn check(&self) -> Result<(), Box<Problem>> {
        if self.operations.len() > BATCH_OPERATIONS_MAX {
            let count = self.operations.len();
            let detail = format!(
                "the batch has {count} operations, at most {BATCH_OPERATIONS_MAX} are allowed"
            );
            return Err(refusal(Code::TooLarge, detail));
        }
        let mistakes = self
            .operations
            .iter()
            .enumerate()
            .flat_map(|(index, operation)| {
                let path = || format!("operations[{index}]");
                match operation {
                    Operation::Reserve { request, .. } if !request.is_in_bounds() => {
                        request.mistakes(&path())
                    }
                    Operation::Renew { request, .. } => {
                        ttl_mistake(&path(), request.ttl_ms).into_iter().collect()
                    }
                    Operation::Release { request, .. } if !request.is_in_bounds() => {
                        request.mistakes(&path())
                    }
                    _ => Vec::new(),
                }
            });
        unless_empty(mistakes.collect())
    }
}

impl Body for ApplyRequest {
    fn check(&self) -> Result<(), Box<Problem>> {
        if self.objects.len() > APPLY_OBJECTS_MAX {
            let count = self.objects.len();
            let detail =
                format!("the request has {count} objects, at most {APPLY_OBJECTS_MAX} are allowed");
            return Err(refusal(Code::TooLarge, detail));
        }
        Ok(())
    }
}

impl Body for TokenRequest {
    fn check(&self) -> Result<(), Box<Problem>> {
        let mut errors = Vec::new();
        if self.roles.is_empty() {
            errors.push(FieldError::new(
                "roles",
                "must have at least one of view, use, operate",
            ));
        }
        if self.roles.contains(&Role::Use) && self.tenants.is_empty() {
            errors.push(FieldError::new(
                "tenants",
                "must name at least one tenant for `use`",
            ));
        }
        if let Some(Err(wrong)) = self.expires.as_deref().map(duration) {
            errors.push(FieldError::new("expires", wrong.message));
        }
        unless_empty(errors)
    }
}

/// The shortest and the longest ttl that can be asked for, in milliseconds (S7).
const TTL_MS: std::ops::RangeInclusive<u64> = 1_000..=86_400_000;
/// Characters of a reason that goes on record.
const REASON_LENGTH_MAX: usize = 1_024;

impl BookingRequest {
    fn is_in_bounds(&self) -> bool {
        self.slots > 0 && self.ttl_ms.is_none_or(|ttl| TTL_MS.contains(&ttl))
    }

    fn mistakes(&self, path: &str) -> Vec<FieldError> {
        let slots = (self.slots == 0)
            .then(|| FieldError::new(shape::join(path, "slots"), "must be at least 1"));
        slots
            .into_iter()
            .chain(ttl_mistake(path, self.ttl_ms))
            .collect()
    }
}

impl ReleaseRequest {
    fn is_in_bounds(&self) -> bool {
        self.mistakes("").is_empty()
    }

    fn mistakes(&self, path: &str) -> Vec<FieldError> {
        let at = |field: &str| shape::join(path, field);
        let reason = self.reason.as_deref().map(str::trim);
        let mut errors = Vec::new();
        match (self.force, self.fence) {
            (false, None) => errors.push(FieldError::new(at("fence"), "is missing")),
            (true, Some(_)) => {
                errors.push(FieldError::new(
                    at("fence"),
                    "must be left out with `force`",
                ));
            }
            _ => {}
        }
        match (self.force, reason) {
            (true, None | Some("")) => {
                errors.push(FieldError::new(
                    at("reason"),
                    "is missing: say why, it goes on record",
                ));
            }
            (true, Some(text)) if text.chars().count() > REASON_LENGTH_MAX => {
                let message = format!("is too long, at most {REASON_LENGTH_MAX} are allowed");
                errors.push(FieldError::new(at("reason"), message));
            }
            (false, Some(_)) => {
                errors.push(FieldError::new(at("reason"), "goes with `force` only"));
            }
            _ => {}
        }
        errors
    }
}

fn ttl_mistake(path: &str, ttl_ms: Option<u64>) -> Option<FieldError> {
    let is_wrong = ttl_ms.is_some_and(|ttl| !TTL_MS.contains(&ttl));
    let message = || format!("must be between {} and {}", TTL_MS.start(), TTL_MS.end());
    is_wrong.then(|| FieldError::new(shape::join(path, "ttlMs"), message()))
}

fn refusal(code: Code, detail: String) -> Box<Problem> {
    Box::new(Problem::new(code, detail))
}

fn invalid(errors: Vec<FieldError>) -> Box<Problem> {
    Box::new(Problem::invalid(errors))
}

fn unless_empty(errors: Vec<FieldError>) -> Result<(), Box<Problem>> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(invalid(errors))
    }
}

const LABEL: Shape = Shape::Text(|text| Label::new(text).map(drop).map_err(wrong_name));
const ID: Shape = Shape::Text(|text| BookingId::new(text).map(drop).map_err(wrong_name));
const OBJECT_NAME: Shape = Shape::Text(|text| ObjectName::new(text).map(drop).map_err(wrong_name));
const SLOTS: Shape = Shape::Whole {
    min: 1,
    max: bursar_units::INTEGER_MAX,
};
const TTL: Shape = Shape::Whole {
    min: *TTL_MS.start(),
    max: *TTL_MS.end(),
};
const ROLES: [&str; 3] = ["view", "use", "operate"];
const PRIORITY: Shape = Shape::Word(&["urgent", "high", "normal", "low", "batch"]);
const OUTCOME: Shape = Shape::Word(&["ok", "failed"]);

const RESERVE: &[Field] = &[
    Field::required("class", LABEL),
    Field::optional("tenant", LABEL),
    Field::optional("slots", SLOTS),
    Field::optional("cpuMilli", WHOLE),
    Field::optional("memoryBytes", WHOLE),
    Field::optional("gpus", WHOLE),
    Field::optional("ttlMs", TTL),
    Field::optional("waitMs", WHOLE),
    Field::optional("priority", PRIORITY),
    Field::optional("executionId", ID),
    Field::optional("cpuLimitMilli", WHOLE),
    Field::optional("memoryLimitBytes", WHOLE),
];
const RENEW: &[Field] = &[
    Field::required("fence", WHOLE),
    Field::optional("ttlMs", TTL),
];
const RELEASE: &[Field] = &[
    Field::optional("fence", WHOLE),
    Field::optional("outcome", OUTCOME),
    Field::optional("exitCode", Shape::Signed32),
    Field::optional("force", Shape::Bool),
    Field::optional("reason", Shape::Text(|_| Ok(()))),
];
/// The operations of a batch: the bodies above, with `op` and `id`.
const OPERATION: Shape = Shape::By {
    key: "op",
    shared: &[
        Field::required("op", Shape::Text(|_| Ok(()))),
        Field::required("id", ID),
    ],
    cases: &[
        ("reserve", RESERVE),
        ("renew", RENEW),
        ("release", RELEASE),
        ("cancel", &[]),
    ],
};

#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn wrong_name(error: NameError) -> Wrong {
    Wrong::new(error.to_string())
}

fn duration(text: &str) -> Result<(), Wrong> {
    text.parse::<bursar_units::Millis>()
        .map(drop)
        .map_err(|error| Wrong::new(error.to_string()))
}

fn an_instant(text: &str) -> Result<(), Wrong> {
    instant::parse(text)
        .map(drop)
        .map_err(|error| Wrong::new(error.to_string()))
}
