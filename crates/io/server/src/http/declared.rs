//! `/v1/limits`, `/v1/nodes`, `/v1/apply`, `/v1/explain`.

use bursar_client::Problem;
use bursar_client::api::{ApplyAnswer, ApplyRequest, Explanation, Limit, ListAnswer, Node};
use bursar_client::object::{self, Object};
use bursar_client::problem::FieldError;
use bursar_units::ObjectName;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::call::Call;
use super::respond::{Handled, json};
use crate::service::{Asked, Write};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_limits))
        .routes(routes!(get_limit, put_limit, delete_limit))
        .routes(routes!(list_nodes))
        .routes(routes!(get_node, put_node, delete_node))
        .routes(routes!(apply))
        .routes(routes!(explain))
}

/// Limits with how they stand, by name.
#[utoipa::path(get, path = "/v1/limits", tag = "limits",
    params(("limit" = Option<u64>, Query, minimum = 1, maximum = 1000), ("cursor" = Option<String>, Query),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = ListAnswer<Limit>),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn list_limits(call: Call) -> Handled {
    call.query.only(&["limit", "cursor", "minRecord"])?;
    let cursor = call.query.get("cursor").map(str::to_owned);
    json(
        call.service()
            .limits(&call.caller, call.query.page()?, cursor)
            .await?,
    )
}

/// One limit with how it stands.
#[utoipa::path(get, path = "/v1/limits/{name}", tag = "limits",
    params(("name" = String, Path, max_length = 253), ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = Limit),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn get_limit(call: Call) -> Handled {
    call.query.only(&["minRecord"])?;
    let name: ObjectName = call.name("name")?;
    json(call.service().limit(&call.caller, &name).await?)
}

/// Declares a limit or changes it, and says what that comes to.
#[utoipa::path(put, path = "/v1/limits/{name}", tag = "limits",
    params(("name" = String, Path, max_length = 253), ("dryRun" = Option<bool>, Query),
           ("If-Match" = Option<String>, Header, description = "Change it only if this is its `resourceVersion`")),
    request_body = Limit,
    responses((status = 200, body = ApplyAnswer), (status = 201, body = ApplyAnswer, description = "It is new"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn put_limit(call: Call) -> Handled {
    put(call, "Limit").await
}

/// Removes a limit.
#[utoipa::path(delete, path = "/v1/limits/{name}", tag = "limits",
    params(("name" = String, Path, max_length = 253), ("dryRun" = Option<bool>, Query), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = ApplyAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn delete_limit(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let asked = vec![Asked::DropLimit(call.name("name")?)];
    json(
        call.service()
            .change(&call.caller, asked, write(&call)?)
            .await?,
    )
}

/// Machines, by name.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes",
    params(("limit" = Option<u64>, Query, minimum = 1, maximum = 1000), ("cursor" = Option<String>, Query),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = ListAnswer<Node>),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn list_nodes(call: Call) -> Handled {
    call.query.only(&["limit", "cursor", "minRecord"])?;
    json(
        call.service()
            .nodes(call.query.page()?, call.query.get("cursor")),
    )
}

/// One machine.
#[utoipa::path(get, path = "/v1/nodes/{name}", tag = "nodes",
    params(("name" = String, Path, max_length = 253), ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = Node),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn get_node(call: Call) -> Handled {
    call.query.only(&["minRecord"])?;
    let name: ObjectName = call.name("name")?;
    json(call.service().node(&name)?)
}

/// Adds a machine or changes it.
#[utoipa::path(put, path = "/v1/nodes/{name}", tag = "nodes",
    params(("name" = String, Path, max_length = 253), ("dryRun" = Option<bool>, Query), ("If-Match" = Option<String>, Header)),
    request_body = Node,
    responses((status = 200, body = ApplyAnswer), (status = 201, body = ApplyAnswer, description = "It is new"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn put_node(call: Call) -> Handled {
    put(call, "Node").await
}

/// Removes a machine.
#[utoipa::path(delete, path = "/v1/nodes/{name}", tag = "nodes",
    params(("name" = String, Path, max_length = 253), ("dryRun" = Option<bool>, Query), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = ApplyAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn delete_node(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let asked = vec![Asked::DropNode(call.name("name")?)];
    json(
        call.service()
            .change(&call.caller, asked, write(&call)?)
            .await?,
    )
}

/// Changes several objects, all or none.
#[utoipa::path(post, path = "/v1/apply", tag = "limits",
    params(("dryRun" = Option<bool>, Query)),
    request_body = ApplyRequest,
    responses((status = 200, body = ApplyAnswer), (status = 201, body = ApplyAnswer, description = "It is one, and new"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn apply(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let request: ApplyRequest = call.body()?;
    let objects = object::read_values(&request.objects).map_err(Problem::invalid)?;
    let asked = objects.into_iter().map(Asked::Set).collect();
    let write = Write {
        mode: call.mode()?,
        if_match: None,
    };
    json(call.service().change(&call.caller, asked, write).await?)
}

/// Why a thing is as it is, when that changes, and who counts.
#[utoipa::path(get, path = "/v1/explain/{kind}/{name}", tag = "answers",
    params(("kind" = String, Path, description = "`booking` or `limit`"), ("name" = String, Path), ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = Explanation),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn explain(call: Call) -> Handled {
    call.query.only(&["minRecord"])?;
    json(
        call.service()
            .explain(&call.caller, call.part("kind"), call.part("name"))?,
    )
}

async fn put(call: Call, kind: &str) -> Handled {
    call.query.only(&["dryRun"])?;
    let name: ObjectName = call.name("name")?;
    let object = call.declared()?;
    let found = match &object {
        Object::Limit { .. } => "Limit",
        Object::Node { .. } => "Node",
    };
    let mut errors = Vec::new();
    if found != kind {
        errors.push(FieldError::new(
            "kind",
            format!("is {found}, the address is of a {kind}"),
        ));
    }
    if *object.name() != name {
        let message = format!("is {}, the address says {name}", object.name());
        errors.push(FieldError::new("metadata.name", message));
    }
    if !errors.is_empty() {
        return Err(Problem::invalid(errors).into());
    }
    json(
        call.service()
            .change(&call.caller, vec![Asked::Set(object)], write(&call)?)
            .await?,
    )
}

fn write(call: &Call) -> Result<Write, Problem> {
    let if_match = call
        .header("if-match")?
        .map(|version| version.trim_matches('"').to_owned());
    Ok(Write {
        mode: call.mode()?,
        if_match,
    })
}
