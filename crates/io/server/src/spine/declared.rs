//! What is declared: limits and nodes, one or many, read and changed.

mod changing;
mod reading;

use bursar_client::Problem;
use bursar_client::api::ListAnswer;
use bursar_client::object::limit::to_spec;
use bursar_engine::booking::Limit;
use bursar_journal::hash::sha256;
use bursar_units::Amount;

pub use changing::{Asked, Write};

/// How many digits of a hash tell versions apart.
const VERSION_LENGTH: usize = 16;

/// One page of named things in the order of their names.
pub(crate) fn page<T>(
    all: impl Iterator<Item = T>,
    name: impl Fn(&T) -> &str,
    limit: usize,
    after: Option<&str>,
    record: u64,
) -> ListAnswer<T> {
    let mut rest = all.filter(|item| after.is_none_or(|after| after < name(item)));
    let items: Vec<T> = rest.by_ref().take(limit).collect();
    let next_cursor = rest
        .next()
        .and_then(|_| items.last().map(|last| name(last).to_owned()));
    ListAnswer {
        items,
        next_cursor,
        record,
    }
}

/// The version of a limit: another for every content.
fn limit_version(limit: &Limit) -> String {
    version(&serde_json::to_vec(&to_spec(limit)).unwrap_or_default())
}

/// The version of a machine: another for every content.
fn node_version(capacity: &Amount) -> String {
    let Amount {
        slots: _,
        cpu_milli,
        memory_bytes,
        gpus,
    } = capacity;
    version(format!("{cpu_milli} {memory_bytes} {gpus}").as_bytes())
}

fn version(content: &[u8]) -> String {
    sha256(content)
        .to_string()
        .chars()
        .take(VERSION_LENGTH)
        .collect()
}

/// There is no such thing; the nearest is told.
fn no_such(kind: &str, name: &str, suggestion: Option<String>) -> Problem {
    let detail = format!("no {kind} `{name}`");
    Problem {
        suggestion,
        ..Problem::new(bursar_client::Code::NotFound, detail)
    }
}
