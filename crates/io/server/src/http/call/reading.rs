//! Parsing of a request, which collects all mistakes for one answer.

use std::collections::BTreeSet;

use bursar_client::api::body::{self, Body, MISTAKES_MAX};
use bursar_client::api::query::{Parameter, Parameters, invalid};
use bursar_client::api::{DryRun, MinRecord, PAGE_DEFAULT, Page, PageSize};
use bursar_client::object::{Address, Object};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_units::{BookingId, Label};
use serde_json::Value;

use super::Call;
use crate::service::{WriteMode, missing_tenant};

/// Reads path parts, headers, query parameters and the body of a request. A query parameter that is
/// in no set that was read is a mistake. A wrong value reads as absent, and [`Reading::end`] refuses the
/// request with every mistake. Handlers read requests only through this.
pub(crate) struct Reading<'a> {
    call: &'a Call,
    min_record: Option<u64>,
    /// Names of the query parameters of this address.
    known: BTreeSet<&'static str>,
    problems: Vec<Problem>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(call: &'a Call) -> Self {
        let mut reading = Self {
            call,
            min_record: None,
            known: BTreeSet::new(),
            problems: Vec::new(),
        };
        if call.path.is_none() {
            reading.mistake("address", "is not text: percent-encode it as UTF-8");
        }
        reading
    }

    /// Reads the record that the answer must reflect; [`Reading::end`] waits for it.
    pub(crate) fn min_record(mut self) -> Self {
        self.min_record = self.query::<MinRecord>().min_record;
        self
    }

    pub(crate) fn part<T: Parameter>(&mut self, name: &str) -> Option<T> {
        let mut parts = self.call.path.iter().flatten();
        let (_, text) = parts.find(|(known, _)| known == name)?;
        self.take(T::read(name, text))
    }

    pub(crate) fn header<T: Parameter>(&mut self, name: &str) -> Option<T> {
        let text = self.call.headers.get(name)?.to_str();
        let text = self.take(text.map_err(|_| invalid(name, "is not plain text")))?;
        self.take(T::read(name, text))
    }

    pub(crate) fn idempotency_key(&mut self) -> Option<BookingId> {
        self.header("Idempotency-Key")
    }

    pub(crate) fn query<T: Parameters>(&mut self) -> T {
        self.known.extend(T::NAMES);
        T::read(|name| self.call.query.get(name), &mut self.problems)
    }

    pub(crate) fn mode(&mut self) -> WriteMode {
        match self.query() {
            DryRun {
                dry_run: Some(true),
            } => WriteMode::DryRun,
            DryRun { .. } => WriteMode::Real,
        }
    }

    /// Reads the number of items of a page, and its cursor.
    pub(crate) fn page<C: Parameter>(&mut self) -> (usize, Option<C>) {
        let Page { limit, cursor } = self.query();
        (page_size(limit), self.cursor(cursor))
    }

    pub(crate) fn cursor<C: Parameter>(&mut self, cursor: Option<String>) -> Option<C> {
        self.take(C::read("cursor", &cursor?))
    }

    pub(crate) fn body<T: Body>(&mut self) -> Option<T> {
        self.require_body()?;
        self.body_or_empty()
    }

    /// Reads the body; an empty one is an empty object.
    pub(crate) fn body_or_empty<T: Body>(&mut self) -> Option<T> {
        self.take(body::read(&self.call.body).map_err(|problem| *problem))
    }

    /// Reads the body of a request that counts for a tenant. A missing tenant is a mistake if the
    /// caller has several.
    pub(crate) fn body_for_tenant<T: Body>(
        &mut self,
        tenant: impl Fn(&T) -> Option<&Label>,
    ) -> Option<T> {
        let body = self.body();
        let is_named = match &body {
            Some(body) => tenant(body).is_some(),
            None => !is_without_tenant(&self.call.body),
        };
        if !is_named && let Some(missing) = missing_tenant(&self.call.caller) {
            self.problems.push(Problem::invalid(vec![missing]));
        }
        body
    }

    /// Reads the body as the object that the address names.
    pub(crate) fn declared(&mut self, address: Address<'_>) -> Option<Object> {
        self.require_body()?;
        let read = body::read_declared(&self.call.body, address);
        self.take(read.map_err(|problem| *problem))
    }

    /// Reads the body as a list of objects.
    pub(crate) fn objects(&mut self) -> Option<Vec<Object>> {
        self.require_body()?;
        self.take(body::read_values(&self.call.body).map_err(|problem| *problem))
    }

    fn require_body(&mut self) -> Option<()> {
        if self.call.body.is_empty() {
            let detail = "the body is empty; it must be a JSON object";
            self.problems.push(Problem::new(Code::Malformed, detail));
            return None;
        }
        Some(())
    }

    /// Returns a parsed value, or notes its problem.
    pub(crate) fn take<T>(&mut self, read: Result<T, Problem>) -> Option<T> {
        read.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Notes a mistake in a named part of the request.
    fn mistake(&mut self, name: &str, message: &str) {
        self.problems.push(invalid(name, message));
    }

    /// Refuses a request that has mistakes, with all of them. Otherwise waits for `minRecord` and
    /// returns `read`.
    pub(crate) async fn end<T>(self, read: Option<T>) -> Result<T, Problem> {
        let mistakes = self.call.query.mistakes(&self.known).take(MISTAKES_MAX);
        let mistakes = mistakes.map(|error| Problem::invalid(vec![error]));
        if let Some(problem) = merged(mistakes.chain(self.problems).collect()) {
            return Err(problem);
        }
        if let Some(record) = self.min_record {
            let service = self.call.service();
            self.call.hold(service.reach(record)).await?;
        }
        // `read` is absent only where a mistake was noted.
        read.ok_or_else(|| Problem::new(Code::Internal, "the request was not read"))
    }
}

pub(crate) fn page_size(limit: Option<PageSize>) -> usize {
    let PageSize(items) = limit.unwrap_or(PageSize(PAGE_DEFAULT));
    usize::try_from(items).unwrap_or(usize::MAX)
}

/// Merges problems into one. A problem without fields, such as a body that is not JSON, is returned
/// alone. A single problem is returned unchanged, because it has its own code and text.
fn merged(mut problems: Vec<Problem>) -> Option<Problem> {
    if let Some(index) = problems
        .iter()
        .position(|problem| problem.errors.is_empty())
    {
        return Some(problems.swap_remove(index));
    }
    let mut errors: Vec<&FieldError> = Vec::new();
    for error in problems.iter().flat_map(|problem| &problem.errors) {
        if errors.len() < MISTAKES_MAX && !errors.contains(&error) {
            errors.push(error);
        }
    }
    match problems.as_slice() {
        [] => None,
        [only] if only.errors.len() == errors.len() => problems.pop(),
        _ => Some(Problem::invalid(errors.into_iter().cloned().collect())),
    }
}

/// Checks whether a body with mistakes lacks its tenant.
fn is_without_tenant(body: &[u8]) -> bool {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => fields.get("tenant").is_none_or(Value::is_null),
        _ => false,
    }
}
