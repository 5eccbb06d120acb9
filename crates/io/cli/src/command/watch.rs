//! Lists with `-w`: the whole list first, then the rows that change.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{ListAnswer, StreamEvents};
use bursar_client::client::{Error, EventStream, StreamItem};

use crate::failure::{Failure, Stop};
use crate::grammar::ListFlags;
use crate::layout::Look;
use crate::list::{self, Filter, Listed, Place};
use crate::session::Session;

/// Changes within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(200);

/// Notifications of changes.
pub(super) struct Changes(EventStream);

impl Changes {
    pub(super) async fn open(client: &Client) -> Result<Self, Stop> {
        Ok(Self(client.events(&StreamEvents::default()).await?))
    }

    /// Waits for a change; changes in quick succession count as one. After an interruption of the
    /// stream the next list shows the missed changes.
    pub(super) async fn changed(&mut self) -> Result<(), Stop> {
        let mut next = async || self.0.next().await;
        recorded(&mut next).await?;
        let more = async {
            loop {
                recorded(&mut next).await?;
            }
        };
        match tokio::time::timeout(TOGETHER, more).await {
            Ok(Err(error)) => Err(Error::into(error)),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// Waits for an event that a list could show; live-only events are skipped.
async fn recorded(next: &mut impl AsyncFnMut() -> Result<StreamItem, Error>) -> Result<(), Error> {
    while let StreamItem::Passing { .. } = next().await? {}
    Ok(())
}

/// Prints a list, and with `-w` its changes until the command is interrupted.
pub(super) async fn list<T: Listed + Clone>(
    session: &mut Session,
    flags: &ListFlags,
    filter: &Filter,
    fetch: impl AsyncFn() -> Result<ListAnswer<T>, Error>,
    client: &Client,
) -> Result<(), Stop> {
    list_of(session, flags, filter, fetch, client, &Place::default()).await
}

/// [`list()`] of a place, which the text of an empty list names.
pub(super) async fn list_of<T: Listed + Clone>(
    session: &mut Session,
    flags: &ListFlags,
    filter: &Filter,
    fetch: impl AsyncFn() -> Result<ListAnswer<T>, Error>,
    client: &Client,
    place: &Place,
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
    // An ended item is shown when it ends; the first list has it only if `state` is filtered.
    let hides_past = filter.value::<T>("state").is_none();
    let present = items.iter().filter(|item| !hides_past || !item.is_past());
    let present: Vec<T> = present.cloned().collect();
    if flags.watch && session.for_programs() {
        list::print_changed(session, &items, &present.iter().collect::<Vec<_>>())?;
    } else {
        list::print(session, &present, place)?;
    }
    let Some(changes) = &mut changes else {
        return Ok(());
    };
    loop {
        changes.changed().await?;
        let known = texts(&items);
        items = filtered(fetch().await?.items, filter, &session.look());
        let updated: Vec<&T> = items
            .iter()
            .filter(|item| known.get(&item.name()) != serde_json::to_string(item).ok().as_ref())
            .collect();
        list::print_changed(session, &items, &updated)?;
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

    use super::recorded;

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
    async fn live_only_events_do_not_refresh_a_list() {
        let mut events = VecDeque::from([resized(), resized(), StreamItem::Reset, resized()]);
        let mut next = async || Ok(events.pop_front().unwrap());
        recorded(&mut next).await.unwrap();
        assert_eq!(events.len(), 1);
    }
}
