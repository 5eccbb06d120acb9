//! Problems (RFC 9457), with one table of codes for HTTP statuses, exit codes and pages.
//!
//! A refusal is a value that names the limit, its size, its holders and the ways out.

mod code;

pub use code::{Code, Page};

use bursar_units::{Dimension, Instant, Label, ObjectName, is_default};
use serde::{Deserialize, Serialize};

use crate::ToSchema;
use crate::api::booking::End;
use crate::api::cluster::CoverRow;
use crate::api::instant;

/// Refusal or failure of a request, as `application/problem+json`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `/problems/{code}`, a page of the server.
    #[serde(rename = "type")]
    pub type_: String,
    /// Short title of the code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Code for programs.
    pub code: Code,
    /// Description of this case, in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Last ledger record that this answer reflects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// Actions that would change the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// All mistakes in the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Bounds of a number that is outside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Range>,
    /// Limits that bind; the first gives the headline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitUse>,
    /// Holders, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// The walk over all envelopes that may pay, of a run that nobody can pay for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<CoverRow>,
    /// Remark on the case, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time until the next try, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Existing name that is nearest to one that was not found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Other namespaces that have an object of the name that was not found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Present version of an object that was not as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Kind of end of the booking whose fence is stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::word::End>)]
    pub end: Option<End>,
    /// Time of that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Instant>,
}

/// Mistake in a request.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldError {
    /// Object that has the field, as in `budget/rai/q4`; absent if the request is about one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Path of the field, as in `spec.slots` or `operations[3].fence`; empty for the whole request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Line, for texts with lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Description of the mistake.
    pub message: String,
    /// Probable intention, or advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// Bounds of a number, in the refusal of a number outside them.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// Bounded field of the request, as in `waitMs`, or of the limit, as in `maxQueue`.
    pub field: String,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Limit that has the bound; absent for a bound of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub limit: Option<ObjectName>,
}

/// One counter of a limit against its bound.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitUse {
    /// Name of the limit.
    #[schema(value_type = String)]
    pub name: ObjectName,
    /// `slots`, `cpu` (millicores), `memory` (bytes) or `gpus`.
    #[schema(value_type = String)]
    pub dimension: Dimension,
    /// Bound; 0 means paused.
    pub size: u64,
    /// Held amount.
    pub in_use: u64,
    /// Number of bookings that wait under the limit.
    pub waiting: u64,
}

/// Holder of slots or GPUs: a tenant or a run that the caller may see, or all others together.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Tenant; absent for all others together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<Label>,
    /// Number of tenants that are counted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<u64>,
    /// Slots held.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slots: u64,
    /// The run, as in `run/rai/llm-7b`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Owner of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<Label>,
    /// GPUs held.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: u64,
    /// End that the run stated, if it is ahead.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stated_end: Option<Instant>,
}

/// Maximum number of mistakes in the detail of a problem; all are in its `errors`.
const NAMED_MAX: usize = 8;

impl Problem {
    /// Problem of a code; `detail` is one sentence, in lower case, without a full stop.
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
            trace: Vec::new(),
            note: None,
            retry_after_ms: None,
            suggestion: None,
            namespaces: Vec::new(),
            resource_version: None,
            end: None,
            ended_at: None,
        }
    }

    /// Problem `invalid` with all mistakes; its detail has the first few of them.
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

    /// Exit code of a command that ends with this problem.
    pub fn exit_code(&self) -> u8 {
        self.code.page().exit
    }
}

impl FieldError {
    /// Mistake at a path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            object: None,
            path: path.into(),
            line: None,
            message: message.into(),
            suggestion: None,
        }
    }

    /// Mistake at a path of an object such as `budget/rai/q4`.
    #[must_use]
    pub fn of(self, object: String) -> Self {
        Self {
            object: Some(object),
            ..self
        }
    }

    /// Object, path, message and suggestion as one sentence.
    pub fn sentence(&self) -> String {
        let space = if self.path.is_empty() { "" } else { " " };
        let suggestion = self.suggestion.as_ref().map(|text| format!(", {text}"));
        let object = self.object.as_ref().map(|object| format!("{object}: "));
        format!(
            "{}{}{space}{}{}",
            object.unwrap_or_default(),
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
