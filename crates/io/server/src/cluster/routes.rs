//! `/v1/runs`, `/v1/budgets`, `/v1/envelopes`, `/v1/leases`, `/v1/usage`.

use bursar_client::api::CancelRequest;
use bursar_client::api::cluster::{
    GetRun, GetUsage, ListBudgets, ListLeases, ListRuns, PutRun, RotateRequest,
};
use bursar_client::api::query::no_subject;
use bursar_client::object::{Address, ObjectKind};
use bursar_engine::cluster::budget::BudgetId;
use bursar_engine::{Kind, Reference};
use bursar_schema::route;
use bursar_units::{BookingId, ObjectName, ScopedName};

use crate::http::Route;
use crate::http::call::{Call, Reading};
use crate::http::respond::{Handled, json};
use crate::service::{ObjectChange, WriteOptions};

pub(crate) const ROUTES: &[Route] = &[
    list_runs::ROUTE,
    get_run::ROUTE,
    put_run::ROUTE,
    cancel_run::ROUTE,
    list_budgets::ROUTE,
    get_budget::ROUTE,
    put_budget::ROUTE,
    delete_budget::ROUTE,
    rotate_envelope::ROUTE,
    list_envelopes::ROUTE,
    list_leases::ROUTE,
    get_lease::ROUTE,
    get_usage::ROUTE,
    explain_scoped::ROUTE,
];

/// Runs that the caller may see, by namespace and name.
#[route(get, path = "/v1/runs", tag = "runs",
    params(ListRuns, Page, MinRecord),
    responses((status = 200, body = ListAnswer<Run>), Refusals))]
async fn list_runs(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let filter: ListRuns = reading.query();
    let (page, cursor) = reading.page();
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.runs(&call.caller, filter, page, cursor).await?)
}

/// The newest run of a name.
#[route(get, path = "/v1/runs/{namespace}/{name}", tag = "runs",
    params(("namespace" = String, Path, max_length = 253), ("name" = String, Path, max_length = 253), GetRun, MinRecord),
    responses((status = 200, body = Run), Refusals))]
async fn get_run(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let name = scoped(&mut reading);
    let GetRun { wait } = reading.query();
    let name = reading.end(name).await?;
    let answer = call.service().run(&call.caller, &name, wait);
    json(call.hold(answer).await?)
}

/// Submits a run, or edits the live one of that name. A run that has to wait is accepted too.
#[route(put, path = "/v1/runs/{namespace}/{name}", tag = "runs",
    params(("namespace" = String, Path, max_length = 253), ("name" = String, Path, max_length = 253), PutRun, DryRun,
           ("If-Match" = Option<String>, Header, description = "Edit the run only if its `resourceVersion` is this")),
    request_body = Run,
    responses((status = 200, body = RunAnswer, description = "Edited, or submitted before"),
              (status = 201, body = RunAnswer, description = "Submitted; it may wait"), Refusals))]
async fn put_run(call: Call) -> Handled {
    let mut reading = call.reading();
    let PutRun { now } = reading.query();
    let (object, options) = declared(&mut reading, ObjectKind::Run);
    let object = reading.end(object).await?;
    let service = call.service();
    let now = now.unwrap_or_default();
    json(service.put_run(&call.caller, object, options, now).await?)
}

/// Ends the wait of a run, or stops it.
#[route(post, path = "/v1/runs/{namespace}/{name}/cancel", tag = "runs",
    params(("namespace" = String, Path, max_length = 253), ("name" = String, Path, max_length = 253), DryRun),
    request_body = Option<CancelRequest>,
    responses((status = 200, body = RunAnswer), Refusals))]
async fn cancel_run(call: Call) -> Handled {
    let mut reading = call.reading();
    let name = scoped(&mut reading);
    let mode = reading.mode();
    let body = reading.body_or_empty();
    let (name, CancelRequest {}) = reading.end(name.zip(body)).await?;
    json(call.service().cancel_run(&call.caller, name, mode).await?)
}

/// Budgets that the caller may see, by namespace and name.
#[route(get, path = "/v1/budgets", tag = "budgets",
    params(ListBudgets, Page, MinRecord),
    responses((status = 200, body = ListAnswer<Budget>), Refusals))]
async fn list_budgets(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let filter: ListBudgets = reading.query();
    let (page, cursor) = reading.page::<String>();
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.budgets(&call.caller, &filter, page, cursor.as_deref()))
}

/// A budget with its meters and conditions.
#[route(get, path = "/v1/budgets/{namespace}/{name}", tag = "budgets",
    params(("namespace" = String, Path, max_length = 253), ("name" = String, Path, max_length = 253), MinRecord),
    responses((status = 200, body = Budget), Refusals))]
async fn get_budget(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = budget_id(&mut reading);
    let id = reading.end(id).await?;
    json(call.service().budget(&call.caller, &id)?)
}

/// Creates or changes a budget, and returns the effect.
#[route(put, path = "/v1/budgets/{namespace}/{name}", tag = "budgets",
    params(("namespace" = String, Path, max_length = 253), ("name" = String, Path, max_length = 253), DryRun, ("If-Match" = Option<String>, Header)),
    request_body = Budget,
    responses((status = 200, body = ApplyAnswer), (status = 201, body = ApplyAnswer, description = "Created"), Refusals))]
async fn put_budget(call: Call) -> Handled {
    let mut reading = call.reading();
    let (object, options) = declared(&mut reading, ObjectKind::Budget);
    let changes = vec![ObjectChange::Set(reading.end(object).await?)];
    let service = call.service();
    json(service.change(&call.caller, changes, options).await?)
}

/// Removes a budget; its meters are kept.
#[route(delete, path = "/v1/budgets/{namespace}/{name}", tag = "budgets",
    params(("namespace" = String, Path, max_length = 253), ("name" = String, Path, max_length = 253), DryRun, ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = ApplyAnswer), Refusals))]
async fn delete_budget(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = budget_id(&mut reading);
    let options = WriteOptions::read(&mut reading);
    let changes = vec![ObjectChange::DropBudget(reading.end(id).await?)];
    let service = call.service();
    json(service.change(&call.caller, changes, options).await?)
}

/// Closes the epoch of an envelope now. The end of its window stays.
#[route(post, path = "/v1/budgets/{namespace}/{name}/rotate", tag = "budgets",
    params(("namespace" = String, Path, max_length = 253), ("name" = String, Path, max_length = 253), DryRun, ("Idempotency-Key" = Option<String>, Header)),
    request_body = RotateRequest,
    responses((status = 200, body = Budget), Refusals))]
async fn rotate_envelope(call: Call) -> Handled {
    let mut reading = call.reading();
    let id = budget_id(&mut reading);
    let (key, mode) = (reading.idempotency_key(), reading.mode());
    let request = reading.body::<RotateRequest>();
    let (id, request) = reading.end(id.zip(request)).await?;
    let service = call.service();
    json(
        service
            .rotate(&call.caller, &id, request, key, mode)
            .await?,
    )
}

/// Envelopes with their meters, by identity.
#[route(get, path = "/v1/envelopes", tag = "budgets",
    params(ListBudgets, Page, MinRecord),
    responses((status = 200, body = ListAnswer<Envelope>), Refusals))]
async fn list_envelopes(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let filter: ListBudgets = reading.query();
    let (page, cursor) = reading.page::<String>();
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.envelopes(&call.caller, &filter, page, cursor.as_deref()))
}

/// Leases by run, pod and time, the open ones first.
#[route(get, path = "/v1/leases", tag = "runs",
    params(ListLeases, Page, MinRecord),
    responses((status = 200, body = ListAnswer<GpuLease>), Refusals))]
async fn list_leases(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let filter: ListLeases = reading.query();
    let (page, cursor) = reading.page();
    let filter = reading.end(Some(filter)).await?;
    let service = call.service();
    json(service.leases(&call.caller, filter, page, cursor).await?)
}

/// The leases of the pod that a lease belongs to.
#[route(get, path = "/v1/leases/{id}", tag = "runs",
    params(("id" = String, Path, max_length = 128), MinRecord),
    responses((status = 200, body = GpuLease), Refusals))]
async fn get_lease(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let id = reading.part("id");
    let id: BookingId = reading.end(id).await?;
    json(call.service().lease(&call.caller, &id)?)
}

/// Used GPU time.
#[route(get, path = "/v1/usage", tag = "budgets",
    params(GetUsage, MinRecord),
    responses((status = 200, body = Usage), Refusals))]
async fn get_usage(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let query: GetUsage = reading.query();
    let query = reading.end(Some(query)).await?;
    json(call.service().usage(&call.caller, &query)?)
}

/// Explanation of the state of an object in a namespace: why it is so, and who pays.
#[route(get, path = "/v1/explain/{kind}/{namespace}/{name}", tag = "answers",
    params(("kind" = String, Path, description = "`run`"), ("namespace" = String, Path), ("name" = String, Path), MinRecord),
    responses((status = 200, body = Explanation), Refusals))]
async fn explain_scoped(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let kind = reading.part::<String>("kind");
    let name = scoped(&mut reading);
    let run = kind.zip(name).and_then(|(kind, name)| {
        let object = Reference::of(&kind, name.as_str(), &[Kind::Run]);
        let object = object.map_err(|error| no_subject("kind", "name", &error));
        reading.take(object.map(|_| name))
    });
    let run = reading.end(run).await?;
    json(call.service().explain_run(&call.caller, &run)?)
}

/// Namespace and name of the address.
fn scoped(reading: &mut Reading<'_>) -> Option<ScopedName> {
    let namespace = reading.part::<ObjectName>("namespace");
    let name = reading.part::<ObjectName>("name");
    Some(ScopedName::of(&namespace?, &name?))
}

fn budget_id(reading: &mut Reading<'_>) -> Option<BudgetId> {
    let namespace = reading.part::<ObjectName>("namespace");
    let name = reading.part::<ObjectName>("name");
    Some(BudgetId::of(&namespace?, &name?))
}

/// The object in the body, which must be that of the address, and the options of the write.
fn declared(
    reading: &mut Reading<'_>,
    kind: ObjectKind,
) -> (Option<bursar_client::object::Object>, WriteOptions) {
    let namespace = reading.part::<ObjectName>("namespace");
    let name = reading.part::<ObjectName>("name");
    let options = WriteOptions::read(reading);
    let object = reading.declared(Address {
        kind,
        namespace: namespace.as_ref(),
        name: name.as_ref(),
    });
    (object, options)
}
