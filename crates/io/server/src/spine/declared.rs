//! Changes of all declared objects, and reads of limits and nodes.

mod changing;
mod differing;
mod reading;

use bursar_client::api::ListAnswer;

pub(crate) use changing::{ObjectChange, Prepared, WriteOptions, set_run};

/// Takes one page of items that are sorted by name.
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
