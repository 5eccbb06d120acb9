//! The API of bookings and executions: routes, requests and answers, problem codes, stream data and
//! metrics.

pub(crate) mod answers;
pub(crate) mod bookings;
pub(crate) mod executions;
pub(crate) mod metrics;
pub(crate) mod refusal;
pub(crate) mod routes;
