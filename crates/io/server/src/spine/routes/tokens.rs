//! `/v1/tokens`.

use bursar_client::api::TokenRequest;
use bursar_schema::route;

use crate::http::Route;
use crate::http::call::Call;
use crate::http::respond::{Handled, json};

pub(crate) const ROUTES: &[Route] = &[list_tokens::ROUTE, create_token::ROUTE, revoke_token::ROUTE];

/// Tokens, without their secrets.
#[route(get, path = "/v1/tokens", tag = "tokens",
    params(Page, MinRecord),
    responses((status = 200, body = ListAnswer<Token>), Refusals))]
async fn list_tokens(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let (page, cursor) = reading.page::<String>();
    reading.end(Some(())).await?;
    json(
        call.service()
            .tokens(&call.caller, page, cursor.as_deref())?,
    )
}

/// Creates a token. Its secret is only in this answer.
#[route(post, path = "/v1/tokens", tag = "tokens",
    params(DryRun, ("Idempotency-Key" = Option<String>, Header)),
    request_body = TokenRequest,
    responses((status = 201, body = TokenCreated), Refusals))]
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
#[route(delete, path = "/v1/tokens/{name}", tag = "tokens",
    params(("name" = String, Path, max_length = 253), DryRun),
    responses((status = 200, body = ApplyAnswer), Refusals))]
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
