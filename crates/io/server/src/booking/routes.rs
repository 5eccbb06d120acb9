//! The routes of bookings and executions.

mod bookings;
mod executions;

use utoipa_axum::router::OpenApiRouter;

use crate::http::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    bookings::routes().merge(executions::routes())
}
