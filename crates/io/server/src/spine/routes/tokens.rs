//! `/v1/tokens`.

use bursar_client::Problem;
use bursar_client::api::{ApplyAnswer, ListAnswer, Token, TokenCreated, TokenRequest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::App;
use crate::http::call::Call;
use crate::http::respond::{Handled, json};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_tokens, create_token))
        .routes(routes!(revoke_token))
}

/// Tokens, without their secrets.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens",
    params(("limit" = Option<u64>, Query, minimum = 1, maximum = 1000), ("cursor" = Option<String>, Query),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = ListAnswer<Token>),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, with the reason")))]
async fn list_tokens(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let (page, cursor) = (reading.page(), reading.text("cursor"));
    reading.end(Some(())).await?;
    json(call.service().tokens(&call.caller, page, cursor)?)
}

/// Creates a token. Its secret is only in this answer.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens",
    params(("dryRun" = Option<bool>, Query), ("Idempotency-Key" = Option<String>, Header)),
    request_body = TokenRequest,
    responses((status = 201, body = TokenCreated),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, with the reason")))]
async fn create_token(call: Call) -> Handled {
    let mut reading = call.reading();
    let (key, mode) = (reading.idempotency_key(), reading.mode());
    let request = reading.body();
    let request: TokenRequest = reading.end(request).await?;
    let service = call.service();
    json(
        service
            .create_token(&call.caller, request, key, mode)
            .await?,
    )
}

/// Revokes a token.
#[utoipa::path(delete, path = "/v1/tokens/{name}", tag = "tokens",
    params(("name" = String, Path, max_length = 253), ("dryRun" = Option<bool>, Query)),
    responses((status = 200, body = ApplyAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, with the reason")))]
async fn revoke_token(call: Call) -> Handled {
    let mut reading = call.reading();
    let name = reading.part("name");
    let mode = reading.mode();
    let name = reading.end(name).await?;
    json(
        call.service()
            .revoke_token(&call.caller, name, mode)
            .await?,
    )
}
