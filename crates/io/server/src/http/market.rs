//! `/v1/nodes/{name}/market` and `…/restore`.

use bursar_client::Problem;
use bursar_client::api::{NodeMarket, RestoreAnswer, RestoreRequest, instant};
use bursar_units::{Millis, ObjectName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::call::Call;
use super::query::invalid;
use super::respond::{Handled, json};
use crate::service::Since;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get_market))
        .routes(routes!(restore_node))
}

/// How the CPU of a node is divided: what can be shared, who needs what, who gets what and why.
#[utoipa::path(get, path = "/v1/nodes/{name}/market", tag = "nodes",
    params(("name" = String, Path, max_length = 253),
           ("since" = Option<String>, Query, description = "Tell past clearings too, from this time on: `-10m`, which is the most that is kept, or an instant"),
           ("at" = Option<String>, Query, description = "Tell the last clearing before this time instead, played back from the agent's record of the last day: `-5m`, or an instant; without what the record does not hold, such as use and originals"),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = NodeMarket),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn get_market(call: Call) -> Handled {
    call.query.only(&["since", "at", "minRecord"])?;
    let name: ObjectName = call.name("name")?;
    let time = |field| {
        let text = call.query.get(field);
        text.map(|text| time(field, text)).transpose()
    };
    let service = call.service();
    match (time("since")?, time("at")?) {
        (Some(_), Some(_)) => {
            Err(invalid("at", "it cannot be asked for together with `since`").into())
        }
        (None, Some(at)) => json(service.market_at(&call.caller, &name, at).await?),
        (since, None) => json(service.market(&call.caller, &name, since)?),
    }
}

/// Puts back every CPU limit that users wrote on a node, and stops acting there.
#[utoipa::path(post, path = "/v1/nodes/{name}/restore", tag = "nodes",
    params(("name" = String, Path, max_length = 253), ("dryRun" = Option<bool>, Query)),
    request_body = Option<RestoreRequest>,
    responses((status = 200, body = RestoreAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn restore_node(call: Call) -> Handled {
    call.query.only(&["dryRun"])?;
    let name: ObjectName = call.name("name")?;
    call.body_or_empty::<RestoreRequest>()?;
    let mode = call.mode()?;
    json(
        call.service()
            .restore_node(&call.caller, &name, mode)
            .await?,
    )
}

/// A time in the past, as a distance or an instant.
fn time(field: &str, text: &str) -> Result<Since, Problem> {
    let wrong = |error: &dyn std::fmt::Display| invalid(field, &error.to_string());
    if let Some(back) = text.strip_prefix('-') {
        let back = back.parse::<Millis>();
        return back.map(Since::Back).map_err(|error| wrong(&error));
    }
    let at = instant::parse(text);
    at.map(Since::At).map_err(|error| wrong(&error))
}
