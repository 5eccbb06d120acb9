//! Lists that go on: the whole list first, then the rows that change.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::ListAnswer;
use bursar_client::client::{Error, EventStream, Query, StreamItem};

use crate::failure::{Failure, Stop};
use crate::grammar::ListFlags;
use crate::layout::Look;
use crate::list::{self, Filter, Listed};
use crate::session::Session;

/// Changes that come so close together are looked at once.
const TOGETHER: Duration = Duration::from_millis(200);

/// Word that something has changed.
pub(super) struct Changes(EventStream);

impl Changes {
    /// Listens from now on.
    pub(super) async fn open(client: &Client) -> Result<Self, Stop> {
        Ok(Self(client.events(Query::new()).await?))
    }

    /// Resolves after something has changed; many changes at once are one. Interruptions are
    /// ridden out: whatever was missed shows in the list that follows.
    pub(super) async fn changed(&mut self) -> Result<(), Stop> {
        let mut next = async || self.0.next().await;
        news(&mut next).await?;
        let more = async {
            loop {
                news(&mut next).await?;
            }
        };
        match tokio::time::timeout(TOGETHER, more).await {
            Ok(Err(error)) => Err(Error::into(error)),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// Waits for what a list may show. What is told in passing is on no record, and in none.
async fn news(next: &mut impl AsyncFnMut() -> Result<StreamItem, Error>) -> Result<(), Error> {
    while let StreamItem::Passing { .. } = next().await? {}
    Ok(())
}

/// Prints a list once, or for ever.
pub(super) async fn list<T: Listed + Clone>(
    session: &mut Session,
    flags: &ListFlags,
    filter: &Filter,
    fetch: impl AsyncFn() -> Result<ListAnswer<T>, Error>,
    client: &Client,
) -> Result<(), Stop> {
    if flags.watch && session.is_virtual() {
        return Err(Failure::usage("a scenario has no end to watch for: leave out `-w`").into());
    }
    let mut changes = if flags.watch {
        Some(Changes::open(client).await?)
    } else {
        None
    };
    let mut items = filtered(fetch().await?.items, filter, &session.look());
    // What is over shows when it becomes so, and before that only to whoever asked for it.
    let hides_past = filter.value::<T>("state").is_none();
    let present = items.iter().filter(|item| !hides_past || !item.is_past());
    let present: Vec<T> = present.cloned().collect();
    if flags.watch && session.for_programs() {
        list::print_changed(session, &items, &present.iter().collect::<Vec<_>>())?;
    } else {
        list::print(session, &present)?;
    }
    let Some(changes) = &mut changes else {
        return Ok(());
    };
    loop {
        changes.changed().await?;
        let known = texts(&items);
        items = filtered(fetch().await?.items, filter, &session.look());
        let news: Vec<&T> = items
            .iter()
            .filter(|item| known.get(&item.name()) != serde_json::to_string(item).ok().as_ref())
            .collect();
        list::print_changed(session, &items, &news)?;
    }
}

fn filtered<T: Listed>(mut items: Vec<T>, filter: &Filter, look: &Look) -> Vec<T> {
    items.retain(|item| filter.admits(item, look));
    items
}

fn texts<T: Listed>(items: &[T]) -> BTreeMap<String, String> {
    items
        .iter()
        .filter_map(|item| Some((item.name(), serde_json::to_string(item).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::VecDeque;

    use bursar_client::api::StreamEvent;
    use bursar_client::client::StreamItem;
    use bursar_units::Instant;

    use super::news;

    fn resized() -> StreamItem {
        StreamItem::Passing {
            name: "pod.resized".to_owned(),
            event: StreamEvent {
                at: Instant::from_ms(0),
                object: "pod/web".to_owned(),
                summary: "web may use 580m of CPU".to_owned(),
                data: serde_json::Value::Null,
            },
        }
    }

    #[tokio::test]
    async fn what_is_told_in_passing_is_no_reason_to_look_again() {
        let mut told = VecDeque::from([resized(), resized(), StreamItem::Reset, resized()]);
        let mut next = async || Ok(told.pop_front().unwrap());
        news(&mut next).await.unwrap();
        assert_eq!(told.len(), 1);
    }
}
