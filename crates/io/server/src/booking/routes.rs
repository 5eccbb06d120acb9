//! The routes of bookings and executions.

mod bookings;
mod executions;

use crate::http::Route;

pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    bookings::ROUTES.iter().chain(executions::ROUTES)
}
