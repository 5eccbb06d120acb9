//! Plain functions for fuzzers: arbitrary bytes in, no panic out.

use bursar_client::api::body::{read, read_declared, read_values};
use bursar_client::api::{
    Batch, BookingRequest, CancelRequest, ExecutionRequest, PruneRequest, ReleaseRequest,
    RenewRequest, TokenRequest,
};
use bursar_client::object::{Address, ObjectKind};

use crate::service::{Position, StreamFilter};

/// Runs every parser of this crate on the same bytes.
pub fn fuzz_target(bytes: &[u8]) {
    drop(read::<BookingRequest>(bytes));
    drop(read::<ReleaseRequest>(bytes));
    drop(read::<RenewRequest>(bytes));
    drop(read::<CancelRequest>(bytes));
    drop(read::<TokenRequest>(bytes));
    drop(read::<PruneRequest>(bytes));
    drop(read::<Batch>(bytes));
    drop(read::<ExecutionRequest>(bytes));
    for kind in [
        ObjectKind::Budget,
        ObjectKind::Run,
        ObjectKind::Limit,
        ObjectKind::Node,
    ] {
        drop(read_declared(
            bytes,
            Address {
                kind,
                namespace: None,
                name: None,
            },
        ));
    }
    drop(read_values(bytes));
    let text = String::from_utf8_lossy(bytes);
    drop(StreamFilter::parse(Some(&text), None, None));
    let _position = Position::parse(&text);
}
