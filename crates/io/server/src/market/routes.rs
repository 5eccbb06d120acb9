//! `/v1/nodes/{name}/market` and `…/restore`.

use bursar_client::api::{GetMarket, RestoreRequest};
use bursar_schema::route;
use bursar_units::ObjectName;

use crate::http::Route;
use crate::http::call::Call;
use crate::http::respond::{Handled, json};

pub(crate) const ROUTES: &[Route] = &[get_market::ROUTE, restore_node::ROUTE];

/// The CPU market of a node: its capacity, and the need and share of each pod, with the reasons.
#[route(get, path = "/v1/nodes/{name}/market", tag = "nodes",
    params(("name" = String, Path, max_length = 253), GetMarket, MinRecord),
    responses((status = 200, body = NodeMarket), Refusals))]
async fn get_market(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let name = reading.part("name");
    let GetMarket { since, at } = reading.query();
    let name: ObjectName = reading.end(name).await?;
    let service = call.service();
    match at {
        Some(at) => json(service.market_at(&call.caller, &name, at).await?),
        None => json(service.market(&call.caller, &name, since)?),
    }
}

/// Restores every original CPU limit on a node, and stops acting there.
#[route(post, path = "/v1/nodes/{name}/restore", tag = "nodes",
    params(("name" = String, Path, max_length = 253), DryRun),
    request_body = Option<RestoreRequest>,
    responses((status = 200, body = RestoreAnswer), Refusals))]
async fn restore_node(call: Call) -> Handled {
    let mut reading = call.reading();
    let name = reading.part("name");
    let mode = reading.mode();
    let body = reading.body_or_empty();
    let (name, RestoreRequest {}): (ObjectName, _) = reading.end(name.zip(body)).await?;
    let service = call.service();
    json(service.restore_node(&call.caller, &name, mode).await?)
}
