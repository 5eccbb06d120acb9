//! The routes of declared objects, tokens and the ledger.

mod declared;
mod ledger;
mod tokens;

use utoipa_axum::router::OpenApiRouter;

use crate::http::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    declared::routes()
        .merge(tokens::routes())
        .merge(ledger::routes())
}
