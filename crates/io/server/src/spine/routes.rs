//! The routes of declared objects, tokens and the ledger.

mod declared;
mod ledger;
mod tokens;

use crate::http::Route;

pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    let routes = declared::ROUTES.iter().chain(tokens::ROUTES);
    routes.chain(ledger::ROUTES)
}
