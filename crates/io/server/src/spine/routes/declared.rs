//! `/v1/limits`, `/v1/nodes`, `/v1/apply`, `/v1/explain`.

use bursar_client::api::query::no_subject;
use bursar_client::object::{Address, ObjectKind};
use bursar_engine::Reference;
use bursar_schema::route;
use bursar_units::ObjectName;

use crate::http::Route;
use crate::http::call::{Call, Reading};
use crate::http::respond::{Handled, json};
use crate::service::{EXPLAINED, ObjectChange, WriteOptions};

pub(crate) const ROUTES: &[Route] = &[
    list_limits::ROUTE,
    get_limit::ROUTE,
    put_limit::ROUTE,
    delete_limit::ROUTE,
    list_nodes::ROUTE,
    get_node::ROUTE,
    put_node::ROUTE,
    delete_node::ROUTE,
    apply::ROUTE,
    explain::ROUTE,
];

/// Limits with their state, by name.
#[route(get, path = "/v1/limits", tag = "limits",
    params(Page, MinRecord),
    responses((status = 200, body = ListAnswer<Limit>), Refusals))]
async fn list_limits(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let (page, cursor) = reading.page();
    reading.end(Some(())).await?;
    json(call.service().limits(&call.caller, page, cursor).await?)
}

/// A limit with its state.
#[route(get, path = "/v1/limits/{name}", tag = "limits",
    params(("name" = String, Path, max_length = 253), MinRecord),
    responses((status = 200, body = Limit), Refusals))]
async fn get_limit(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let name = reading.part("name");
    let name: ObjectName = reading.end(name).await?;
    json(call.service().limit(&call.caller, &name).await?)
}

/// Creates or changes a limit, and returns the effect.
#[route(put, path = "/v1/limits/{name}", tag = "limits",
    params(("name" = String, Path, max_length = 253), DryRun,
           ("If-Match" = Option<String>, Header, description = "Change the limit only if its `resourceVersion` is this")),
    request_body = Limit,
    responses((status = 200, body = ApplyAnswer), (status = 201, body = ApplyAnswer, description = "Created"), Refusals))]
async fn put_limit(call: Call) -> Handled {
    put(call, ObjectKind::Limit).await
}

/// Removes a limit.
#[route(delete, path = "/v1/limits/{name}", tag = "limits",
    params(("name" = String, Path, max_length = 253), DryRun, ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = ApplyAnswer), Refusals))]
async fn delete_limit(call: Call) -> Handled {
    drop_one(call, ObjectChange::DropLimit).await
}

/// Nodes, by name.
#[route(get, path = "/v1/nodes", tag = "nodes",
    params(Page, MinRecord),
    responses((status = 200, body = ListAnswer<Node>), Refusals))]
async fn list_nodes(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let (page, cursor) = reading.page::<String>();
    reading.end(Some(())).await?;
    json(call.service().nodes(page, cursor.as_deref()))
}

/// A node.
#[route(get, path = "/v1/nodes/{name}", tag = "nodes",
    params(("name" = String, Path, max_length = 253), MinRecord),
    responses((status = 200, body = Node), Refusals))]
async fn get_node(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let name = reading.part("name");
    let name: ObjectName = reading.end(name).await?;
    json(call.service().node(&name)?)
}

/// Creates or changes a node.
#[route(put, path = "/v1/nodes/{name}", tag = "nodes",
    params(("name" = String, Path, max_length = 253), DryRun, ("If-Match" = Option<String>, Header)),
    request_body = Node,
    responses((status = 200, body = ApplyAnswer), (status = 201, body = ApplyAnswer, description = "Created"), Refusals))]
async fn put_node(call: Call) -> Handled {
    put(call, ObjectKind::Node).await
}

/// Removes a node.
#[route(delete, path = "/v1/nodes/{name}", tag = "nodes",
    params(("name" = String, Path, max_length = 253), DryRun, ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = ApplyAnswer), Refusals))]
async fn delete_node(call: Call) -> Handled {
    drop_one(call, ObjectChange::DropNode).await
}

/// Changes several objects, all or none.
#[route(post, path = "/v1/apply", tag = "limits",
    params(DryRun),
    request_body = ApplyRequest,
    responses((status = 200, body = ApplyAnswer), (status = 201, body = ApplyAnswer, description = "The request has one object, which was created"), Refusals))]
async fn apply(call: Call) -> Handled {
    let mut reading = call.reading();
    let options = WriteOptions {
        mode: reading.mode(),
        if_match: None,
    };
    let objects = reading.objects();
    let objects = reading.end(objects).await?;
    let changes = objects.into_iter().map(ObjectChange::Set).collect();
    json(
        call.service()
            .change(&call.caller, changes, options)
            .await?,
    )
}

/// Explanation of the state of an object: why it is so, when it changes, and whom it concerns.
#[route(get, path = "/v1/explain/{kind}/{name}", tag = "answers",
    params(("kind" = String, Path, description = "`booking` or `limit`"), ("name" = String, Path), MinRecord),
    responses((status = 200, body = Explanation), Refusals))]
async fn explain(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let kind = reading.part::<String>("kind");
    let name = reading.part::<String>("name");
    let explained = kind.zip(name).and_then(|(kind, name)| {
        let object = Reference::of(&kind, &name, EXPLAINED);
        reading.take(object.map_err(|error| no_subject("kind", "name", &error)))
    });
    let explained = reading.end(explained).await?;
    json(call.service().explain(&call.caller, &explained)?)
}

async fn put(call: Call, kind: ObjectKind) -> Handled {
    let mut reading = call.reading();
    let name = reading.part::<ObjectName>("name");
    let options = WriteOptions::read(&mut reading);
    let object = reading.declared(Address {
        kind,
        namespace: None,
        name: name.as_ref(),
    });
    let changes = vec![ObjectChange::Set(reading.end(object).await?)];
    json(
        call.service()
            .change(&call.caller, changes, options)
            .await?,
    )
}

async fn drop_one(call: Call, change: fn(ObjectName) -> ObjectChange) -> Handled {
    let mut reading = call.reading();
    let name = reading.part("name");
    let options = WriteOptions::read(&mut reading);
    let changes = vec![change(reading.end(name).await?)];
    json(
        call.service()
            .change(&call.caller, changes, options)
            .await?,
    )
}

impl WriteOptions {
    /// Reads the version that the object must have, and the mode.
    pub(crate) fn read(reading: &mut Reading<'_>) -> Self {
        let if_match = reading.header::<String>("If-Match");
        Self {
            if_match: if_match.map(|version| version.trim_matches('"').to_owned()),
            mode: reading.mode(),
        }
    }
}
