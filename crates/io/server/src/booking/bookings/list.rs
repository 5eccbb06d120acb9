//! Lists of bookings and executions: those that live by id, then those that ended, newest first.
//!
//! A page is consistent as of its record. From page to page nothing is left out: what ends
//! meanwhile moves to the part that is still to come.

use bursar_engine::Reference;
use std::collections::BTreeSet;

use bursar_client::api::{Booking, ListAnswer, State as BookingState};
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::booking::{Ended, Standing};
use bursar_ledger::pipeline::Ledger;
use bursar_units::{BookingId, Instant, Label};

use crate::booking::answers::Look;
use crate::caller::Caller;
use crate::service::{Answer, Service, last_record};

/// Bookings that one page looks at, so that a rare match does not hold the view for long.
const SCANNED_MAX: usize = 50_000;

/// Which bookings are listed; `None` and empty mean all.
#[derive(Clone, Debug, Default)]
pub struct BookingFilter {
    /// Of this class.
    pub class: Option<Label>,
    /// Of this tenant.
    pub tenant: Option<Label>,
    /// In one of these states.
    pub states: BTreeSet<BookingState>,
    /// Of this id.
    pub id: Option<BookingId>,
    /// Belonging to this execution, by name or by being it.
    pub execution: Option<BookingId>,
}

/// What a list is of.
pub(crate) trait Listed: Send + 'static {
    /// What stands in it.
    type Item: Send + 'static;

    /// Of which class.
    fn class(&self) -> Option<&Label>;
    /// Of which tenant.
    fn tenant(&self) -> Option<&Label>;
    /// Of which id.
    fn id(&self) -> Option<&BookingId>;
    /// Whether any that holds or waits may be in it.
    fn wants_live(&self) -> bool;
    /// Whether any that has ended may be in it.
    fn wants_ended(&self) -> bool;
    /// Whether one of that class, tenant and id is in it.
    fn wants(&self, state: &State, id: &BookingId, standing: &Standing<'_>) -> bool;
    /// All that is known of one.
    fn tell(&self, look: &Look<'_>, id: &BookingId) -> Option<Self::Item>;
}

/// Where a list of bookings or executions goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Cursor {
    /// With live bookings above this id.
    Live(Option<BookingId>),
    /// With bookings that ended before this one.
    Ended(Option<(Instant, BookingId)>),
}

impl Service {
    /// One page of the bookings that the caller may see.
    pub async fn bookings(
        &self,
        caller: &Caller,
        filter: BookingFilter,
        limit: usize,
        cursor: Option<Cursor>,
    ) -> Result<Answer<ListAnswer<Booking>>, Problem> {
        self.page(caller, filter, limit, cursor).await
    }

    /// One page of what the caller may see of a list.
    pub(crate) async fn page<L: Listed>(
        &self,
        caller: &Caller,
        listed: L,
        limit: usize,
        cursor: Option<Cursor>,
    ) -> Result<Answer<ListAnswer<L::Item>>, Problem> {
        let cursor = cursor.unwrap_or(Cursor::Live(None));
        let page = Page {
            ledger: self.ledger.clone(),
            caller: caller.clone(),
            listed,
            limit,
        };
        tokio::task::spawn_blocking(move || page.read(cursor))
            .await
            .map_err(|_| Problem::new(Code::Internal, "making a list panicked"))
    }
}

impl Listed for BookingFilter {
    type Item = Booking;

    fn class(&self) -> Option<&Label> {
        self.class.as_ref()
    }

    fn tenant(&self) -> Option<&Label> {
        self.tenant.as_ref()
    }

    fn id(&self) -> Option<&BookingId> {
        self.id.as_ref()
    }

    fn wants_live(&self) -> bool {
        self.wants_state(BookingState::Queued) || self.wants_state(BookingState::Granted)
    }

    fn wants_ended(&self) -> bool {
        self.wants_state(BookingState::Ended)
    }

    fn wants(&self, state: &State, id: &BookingId, standing: &Standing<'_>) -> bool {
        let is_in = self.wants_state(match standing {
            Standing::Queued { .. } => BookingState::Queued,
            Standing::Granted(_) => BookingState::Granted,
            Standing::Ended(_) => BookingState::Ended,
        });
        let belongs = |execution| {
            let request = state.bookings.request(id);
            let named = request.and_then(|request| request.execution_id);
            named.as_ref().unwrap_or(id) == execution
        };
        is_in && self.execution.as_ref().is_none_or(belongs)
    }

    fn tell(&self, look: &Look<'_>, id: &BookingId) -> Option<Booking> {
        look.whole(id)
    }
}

impl BookingFilter {
    fn wants_state(&self, state: BookingState) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }
}

impl Cursor {
    /// Reads what an earlier page gave as `nextCursor`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(id) = text.strip_prefix("live:") {
            return Some(Self::Live(Some(BookingId::new(id).ok()?)));
        }
        match text.strip_prefix("ended:")? {
            "" => Some(Self::Ended(None)),
            rest => {
                let (at_ms, id) = rest.split_once(':')?;
                let at = Instant::from_ms(at_ms.parse().ok()?);
                Some(Self::Ended(Some((at, BookingId::new(id).ok()?))))
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Live(after) => {
                format!("live:{}", after.as_ref().map_or("", BookingId::as_str))
            }
            Self::Ended(None) => "ended:".to_owned(),
            Self::Ended(Some((at, id))) => format!("ended:{}:{id}", at.ms()),
        }
    }
}

struct Page<L> {
    ledger: Ledger,
    caller: Caller,
    listed: L,
    limit: usize,
}

/// What was found, and how many more may be looked at.
struct Found {
    ids: Vec<BookingId>,
    left: usize,
}

impl<L: Listed> Page<L> {
    fn read(&self, cursor: Cursor) -> Answer<ListAnswer<L::Item>> {
        let now = self.ledger.now();
        let state = self.ledger.view().read();
        let mut found = Found {
            ids: Vec::new(),
            left: SCANNED_MAX,
        };
        let next = self.find(&state, cursor, &mut found);
        let record = last_record(&state);
        let tell = |id: &BookingId| {
            let look = Look {
                state: &state,
                now,
                caller: &self.caller,
                renewed_until: self.ledger.alive_until(&Reference::Booking(id.clone())),
            };
            self.listed.tell(&look, id)
        };
        let items = found.ids.iter().filter_map(tell).collect();
        let next_cursor = next.map(|cursor| cursor.text());
        Answer {
            status: 200,
            record,
            body: ListAnswer {
                items,
                next_cursor,
                record,
            },
        }
    }

    /// Collects ids until the page is full or enough was looked at; says where to go on.
    fn find(&self, state: &State, cursor: Cursor, found: &mut Found) -> Option<Cursor> {
        if let Some(id) = self.listed.id() {
            found
                .ids
                .extend(self.matches_id(state, id).then(|| id.clone()));
            return None;
        }
        let before = match cursor {
            Cursor::Ended(before) => before,
            Cursor::Live(after) => {
                if let Some(last) = self.find_live(state, after.as_ref(), found) {
                    return Some(Cursor::Live(Some(last)));
                }
                None
            }
        };
        if self.listed.wants_ended() {
            self.find_ended(state, before, found)
        } else {
            None
        }
    }

    fn find_live(
        &self,
        state: &State,
        after: Option<&BookingId>,
        found: &mut Found,
    ) -> Option<BookingId> {
        if !self.listed.wants_live() {
            return None;
        }
        for id in state.bookings.live_ids(after) {
            if self.matches_id(state, id) {
                found.ids.push(id.clone());
            }
            found.left -= 1;
            if found.ids.len() == self.limit || found.left == 0 {
                return Some(id.clone());
            }
        }
        None
    }

    fn find_ended(
        &self,
        state: &State,
        before: Option<(Instant, BookingId)>,
        found: &mut Found,
    ) -> Option<Cursor> {
        let mut is_past = before.is_none();
        let (at, id) = before.unzip();
        for next in state.bookings.ended() {
            if !is_past {
                let (next_at, at) = (next.ended_at(), at.unwrap_or_default());
                // One that was forgotten meanwhile is passed by its time.
                is_past = next_at < at || (next_at == at && Some(next.id()) == id.as_ref());
                if next_at >= at {
                    continue;
                }
            }
            if self.matches_ended(state, next) {
                found.ids.push(next.id().clone());
            }
            found.left = found.left.saturating_sub(1);
            if found.ids.len() == self.limit || found.left == 0 {
                return Some(Cursor::Ended(Some((next.ended_at(), next.id().clone()))));
            }
        }
        None
    }

    fn matches_id(&self, state: &State, id: &BookingId) -> bool {
        let (Some(standing), Some(request)) =
            (state.bookings.standing(id), state.bookings.request(id))
        else {
            return false;
        };
        self.matches_labels(&request.class, &request.tenant)
            && self.listed.wants(state, id, &standing)
    }

    fn matches_ended(&self, state: &State, ended: &Ended) -> bool {
        let labels = state.bookings.ended_labels(ended);
        labels.is_some_and(|(class, tenant)| self.matches_labels(class, tenant))
            && self
                .listed
                .wants(state, ended.id(), &Standing::Ended(ended))
    }

    fn matches_labels(&self, class: &Label, tenant: &Label) -> bool {
        let is = |wanted: Option<&Label>, label| wanted.is_none_or(|is| is == label);
        is(self.listed.class(), class)
            && is(self.listed.tenant(), tenant)
            && self.caller.sees_tenant(tenant)
    }
}

#[cfg(test)]
mod tests {
    use bursar_units::{BookingId, Instant};

    use super::Cursor;

    #[test]
    fn a_cursor_reads_back_and_garbage_does_not() {
        let id = BookingId::new("a:b").ok();
        for cursor in [
            Cursor::Live(id.clone()),
            Cursor::Ended(None),
            Cursor::Ended(id.map(|id| (Instant::from_ms(7), id))),
        ] {
            assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        }
        for garbage in ["", "live:", "ended:7", "ended:x:y", "ended:7:\u{fffd}", "7"] {
            assert_eq!(Cursor::parse(garbage), None, "{garbage}");
        }
    }
}
