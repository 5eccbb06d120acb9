//! Plain functions for fuzzers: arbitrary bytes in, no panic out.

use bursar_client::api::body::{read, read_declared};
use bursar_client::api::{
    ApplyRequest, Batch, BookingRequest, CancelRequest, ExecutionRequest, PruneRequest,
    ReleaseRequest, RenewRequest, TokenRequest,
};

use crate::service::{Position, StreamFilter};

/// Every parser of this crate, on the same bytes.
pub fn fuzz_target(bytes: &[u8]) {
    drop(read::<BookingRequest>(bytes));
    drop(read::<ReleaseRequest>(bytes));
    drop(read::<RenewRequest>(bytes));
    drop(read::<CancelRequest>(bytes));
    drop(read::<TokenRequest>(bytes));
    drop(read::<PruneRequest>(bytes));
    drop(read::<Batch>(bytes));
    drop(read::<ExecutionRequest>(bytes));
    drop(read_declared(bytes));
    if let Ok(request) = read::<ApplyRequest>(bytes) {
        drop(bursar_client::object::read_values(&request.objects));
    }
    let text = String::from_utf8_lossy(bytes);
    drop(StreamFilter::parse(Some(&text), None));
    let _position = Position::parse(&text);
    let _route = crate::metrics::route_of(&text);
}
