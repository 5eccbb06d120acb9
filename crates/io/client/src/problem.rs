//! Problems: RFC 9457, with one table of codes for HTTP, exit codes and pages (design 80, 4.2).
//!
//! A refusal is a value that names the limit, its size, its holders and what would change it.
//! Which code goes with which status is decided here and nowhere else.

mod code;

pub use code::{Code, Page};

use bursar_units::{Dimension, Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::booking::End;
use crate::api::instant;
use crate::api::word;

/// Why a request was not done, as `application/problem+json`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `/problems/{code}`, a page that the server itself serves.
    #[serde(rename = "type")]
    pub type_: String,
    /// The code in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The code: what programs look at.
    pub code: Code,
    /// What happened here, in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The address that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The last ledger record this answer reflects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// What would change the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// What is wrong in the request: all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// What a number that is out of bounds may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Range>,
    /// The limits that bind, headline first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitUse>,
    /// Who holds them, most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// When to try again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The nearest name to one that was not found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The present version of an object that was not as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// How the booking ended whose fence is stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<word::End>)]
    pub end: Option<End>,
    /// When it did.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Instant>,
}

/// One thing that is wrong in a request.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldError {
    /// Where, as in `spec.slots` or `operations[3].fence`; empty for the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// On which line, where lines mean something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
    /// What may have been meant, or what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// The bounds of a number, as the refusal of one outside them names them.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// The field that is bounded: of the request, as in `waitMs`, or of the limit, as in `maxQueue`.
    pub field: String,
    /// The least that is allowed.
    pub min: u64,
    /// The most that is allowed.
    pub max: u64,
    /// The limit that says so; absent for a bound of the server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub limit: Option<ObjectName>,
}

/// One counter of a limit against its bound.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitUse {
    /// The limit's name.
    #[schema(value_type = String)]
    pub name: ObjectName,
    /// What is counted: `slots`, `cpu` (millicores), `memory` (bytes) or `gpus`.
    #[schema(value_type = String)]
    pub dimension: Dimension,
    /// Its bound; 0 means paused.
    pub size: u64,
    /// What is held.
    pub in_use: u64,
    /// How many bookings wait under it.
    pub waiting: u64,
}

/// Who holds slots: a tenant that the caller may see, or the others together.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The tenant; absent for the others together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<Label>,
    /// How many tenants are taken together here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<u64>,
    /// Slots held.
    pub slots: u64,
}

/// Mistakes that the detail of a problem names; all are in its `errors`.
const NAMED_MAX: usize = 8;

impl Problem {
    /// A problem of that code; `detail` is one sentence, lower case, without a full stop.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let page = code.page();
        Self {
            type_: format!("/problems/{}", page.code),
            title: page.title.to_owned(),
            status: page.status,
            code,
            detail: detail.into(),
            instance: None,
            record: None,
            changes: Vec::new(),
            errors: Vec::new(),
            bounds: None,
            limits: Vec::new(),
            holders: Vec::new(),
            retry_after_ms: None,
            suggestion: None,
            resource_version: None,
            end: None,
            ended_at: None,
        }
    }

    /// An `invalid` with all that is wrong; its detail names them, or as many as a line holds.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let mut named: Vec<String> = errors
            .iter()
            .take(NAMED_MAX)
            .map(FieldError::sentence)
            .collect();
        if let more @ 1.. = errors.len().saturating_sub(NAMED_MAX) {
            named.push(format!("and {more} more"));
        }
        let detail = named.join("; ");
        Self {
            errors,
            ..Self::new(Code::Invalid, detail)
        }
    }

    /// The exit code of a command that ends with it.
    pub fn exit_code(&self) -> u8 {
        self.code.page().exit
    }
}

impl FieldError {
    /// Something wrong at a path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: None,
            message: message.into(),
            suggestion: None,
        }
    }

    /// Path, message and suggestion as one sentence.
    pub fn sentence(&self) -> String {
        let space = if self.path.is_empty() { "" } else { " " };
        let suggestion = self.suggestion.as_ref().map(|text| format!(", {text}"));
        format!(
            "{}{space}{}{}",
            self.path,
            self.message,
            suggestion.unwrap_or_default()
        )
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.detail.is_empty() {
            &self.title
        } else {
            &self.detail
        })
    }
}

impl std::error::Error for Problem {}
