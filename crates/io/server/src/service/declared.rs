//! What is declared: limits and nodes, one or many, read and changed.

mod changing;
mod reading;

use bursar_client::Problem;
use bursar_client::api::ListAnswer;
use bursar_client::object::limit::{Bound as ApiBound, LimitValues, Scope as ApiScope};
use bursar_engine::booking::{Bound, Limit, Scope};
use bursar_journal::hash::sha256;
use bursar_units::Amount;

pub use changing::{Asked, Write};

/// How many digits of a hash tell versions apart.
const VERSION_LENGTH: usize = 16;

/// One page of named things in the order of their names.
pub(super) fn page<T>(
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
    version(&serde_json::to_vec(&values(limit).to_spec()).unwrap_or_default())
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

/// A limit in the values that files have.
fn values(limit: &Limit) -> LimitValues {
    let scope = |scope: &Option<Scope>| {
        scope.as_ref().map(|scope| match scope {
            Scope::Each => ApiScope::Each,
            Scope::Named(label) => ApiScope::Named(label.clone()),
        })
    };
    let bound = |bound: Option<Bound>| {
        bound.map(|bound| match bound {
            Bound::Exactly(size) => ApiBound::Exactly(size),
            Bound::Percent(percent) => ApiBound::Percent(percent),
        })
    };
    LimitValues {
        class: scope(&limit.class),
        tenant: scope(&limit.tenant),
        slots: limit.slots,
        cpu: bound(limit.cpu),
        memory: bound(limit.memory),
        gpus: limit.gpus,
        queue_max: limit.queue_max,
        wait_max: limit.wait_max,
        ttl_max: limit.ttl_max,
        weight: limit.weight,
    }
}

/// A limit of the values that files have.
fn limit(values: LimitValues) -> Limit {
    let scope = |scope: Option<ApiScope>| {
        scope.map(|scope| match scope {
            ApiScope::Each => Scope::Each,
            ApiScope::Named(label) => Scope::Named(label),
        })
    };
    let bound = |bound: Option<ApiBound>| {
        bound.map(|bound| match bound {
            ApiBound::Exactly(size) => Bound::Exactly(size),
            ApiBound::Percent(percent) => Bound::Percent(percent),
        })
    };
    Limit {
        class: scope(values.class),
        tenant: scope(values.tenant),
        slots: values.slots,
        cpu: bound(values.cpu),
        memory: bound(values.memory),
        gpus: values.gpus,
        queue_max: values.queue_max,
        wait_max: values.wait_max,
        ttl_max: values.ttl_max,
        weight: values.weight,
    }
}

/// There is no such thing; the nearest is told.
fn no_such(kind: &str, name: &str, suggestion: Option<String>) -> Problem {
    let detail = format!("no {kind} `{name}`");
    Problem {
        suggestion,
        ..Problem::new(bursar_client::Code::NotFound, detail)
    }
}
