//! The API of the spine (declared objects, tokens and the ledger itself): routes, requests and
//! answers, problem codes, stream data and metrics.

pub(crate) mod declared;
pub(crate) mod ledgers;
pub(crate) mod metrics;
pub(crate) mod refusal;
pub(crate) mod routes;
pub(crate) mod stream;
pub(crate) mod tokens;
