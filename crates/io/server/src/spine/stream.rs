//! Stream data of nodes, tokens and the ledger.

use bursar_client::api::instant;
use bursar_engine::spine::Data;
use serde_json::{Value, json};

pub(crate) fn facts(data: &Data) -> Value {
    match data {
        Data::Node(capacity) => json!({
            "cpuMilli": capacity.map(|capacity| capacity.cpu_milli),
            "memoryBytes": capacity.map(|capacity| capacity.memory_bytes),
            "gpus": capacity.map(|capacity| capacity.gpus),
        }),
        Data::Token(allowed) => json!({
            "roles": allowed.as_ref().map(|(roles, _)| {
                roles.iter().map(|role| role.word()).collect::<Vec<_>>()
            }),
            "expiresAt": allowed.as_ref().map(|(_, expires)| instant::format(*expires)),
        }),
        Data::Ledger => json!({}),
    }
}
