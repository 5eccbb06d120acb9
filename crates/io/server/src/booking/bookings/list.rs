//! Lists of bookings and executions: live ones by id, then ended ones, newest first.
//!
//! A page is consistent as of its record. No item is missed between pages, because a booking that
//! ends moves to a later part of the list.

use bursar_engine::Reference;

use bursar_client::api::{Booking, BookingStatus, ListAnswer, ListBookings, State as BookingState};
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::booking::{Ended, Standing};
use bursar_ledger::pipeline::Ledger;
use bursar_units::{BookingId, Instant, Label};

use crate::booking::answers::BookingView;
use crate::caller::Caller;
use crate::service::{Answer, Service, last_record};

/// Bookings scanned for one page, so that a rare match does not hold the view for long.
const SCANNED_MAX: usize = 50_000;

pub(crate) trait ListFilter: Send + 'static {
    type Item: Send + 'static;

    fn class(&self) -> Option<&Label>;
    fn tenant(&self) -> Option<&Label>;
    fn id(&self) -> Option<&BookingId>;
    /// Whether bookings that hold or wait can match.
    fn wants_live(&self) -> bool;
    /// Whether ended bookings can match.
    fn wants_ended(&self) -> bool;
    /// Checks a booking whose class, tenant and id match.
    fn wants(&self, state: &State, id: &BookingId, standing: &Standing<'_>) -> bool;
    fn item(&self, view: &BookingView<'_>, id: &BookingId) -> Option<Self::Item>;
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Cursor {
    /// Continue with live bookings above this id.
    Live(Option<BookingId>),
    /// Continue with bookings that ended before this one.
    Ended(Option<(Instant, BookingId)>),
}

impl Service {
    pub(crate) async fn page<F: ListFilter>(
        &self,
        caller: &Caller,
        filter: F,
        limit: usize,
        cursor: Option<Cursor>,
    ) -> Result<Answer<ListAnswer<F::Item>>, Problem> {
        let cursor = cursor.unwrap_or(Cursor::Live(None));
        let page = Page {
            ledger: self.ledger.clone(),
            caller: caller.clone(),
            filter,
            limit,
        };
        tokio::task::spawn_blocking(move || page.read(cursor))
            .await
            .map_err(|_| Problem::new(Code::Internal, "reading a list panicked"))
    }
}

impl ListFilter for ListBookings {
    type Item = Booking;

    fn class(&self) -> Option<&Label> {
        self.class.as_ref().or(self.language.as_ref())
    }

    fn tenant(&self) -> Option<&Label> {
        self.tenant.as_ref()
    }

    fn id(&self) -> Option<&BookingId> {
        self.id.as_ref()
    }

    fn wants_live(&self) -> bool {
        wants_state(self, BookingState::Queued) || wants_state(self, BookingState::Granted)
    }

    fn wants_ended(&self) -> bool {
        wants_state(self, BookingState::Ended)
    }

    fn wants(&self, state: &State, id: &BookingId, standing: &Standing<'_>) -> bool {
        let is_in = wants_state(
            self,
            match standing {
                Standing::Queued { .. } => BookingState::Queued,
                Standing::Granted(_) => BookingState::Granted,
                Standing::Ended(_) => BookingState::Ended,
            },
        );
        let belongs = |execution| {
            let request = state.bookings.request(id);
            let named = request.and_then(|request| request.execution_id);
            named.as_ref().unwrap_or(id) == execution
        };
        is_in && self.execution.as_ref().is_none_or(belongs)
    }

    fn item(&self, view: &BookingView<'_>, id: &BookingId) -> Option<Booking> {
        view.booking(id)
    }
}

fn wants_state(filter: &ListBookings, state: BookingState) -> bool {
    let (words, status) = (filter.state.as_ref(), filter.status);
    let is_chosen = words.is_some_and(|words| words.0.contains(&state));
    let is_all = words.is_none() && status.is_none();
    is_all || is_chosen || status.map(BookingStatus::state) == Some(state)
}

impl Cursor {
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

struct Page<F> {
    ledger: Ledger,
    caller: Caller,
    filter: F,
    limit: usize,
}

/// Matching ids, and the number of bookings that may still be scanned.
struct Scan {
    ids: Vec<BookingId>,
    left: usize,
}

impl<F: ListFilter> Page<F> {
    fn read(&self, cursor: Cursor) -> Answer<ListAnswer<F::Item>> {
        let now = self.ledger.now();
        let state = self.ledger.view().read();
        let mut scan = Scan {
            ids: Vec::new(),
            left: SCANNED_MAX,
        };
        let next = self.find(&state, cursor, &mut scan);
        let record = last_record(&state);
        let item = |id: &BookingId| {
            let view = BookingView {
                state: &state,
                now,
                caller: &self.caller,
                renewed_until: self.ledger.alive_until(&Reference::Booking(id.clone())),
            };
            self.filter.item(&view, id)
        };
        let items = scan.ids.iter().filter_map(item).collect();
        let body = ListAnswer {
            items,
            next_cursor: next.map(|cursor| cursor.text()),
            record,
        };
        Answer::ok(record, body)
    }

    /// Collects ids until the page is full or the scan limit is reached. Returns the next position.
    fn find(&self, state: &State, cursor: Cursor, scan: &mut Scan) -> Option<Cursor> {
        if let Some(id) = self.filter.id() {
            scan.ids
                .extend(self.matches_id(state, id).then(|| id.clone()));
            return None;
        }
        let before = match cursor {
            Cursor::Ended(before) => before,
            Cursor::Live(after) => {
                if let Some(last) = self.find_live(state, after.as_ref(), scan) {
                    return Some(Cursor::Live(Some(last)));
                }
                None
            }
        };
        if self.filter.wants_ended() {
            self.find_ended(state, before, scan)
        } else {
            None
        }
    }

    fn find_live(
        &self,
        state: &State,
        after: Option<&BookingId>,
        scan: &mut Scan,
    ) -> Option<BookingId> {
        if !self.filter.wants_live() {
            return None;
        }
        for id in state.bookings.live_ids(after) {
            if self.matches_id(state, id) {
                scan.ids.push(id.clone());
            }
            scan.left -= 1;
            if scan.ids.len() == self.limit || scan.left == 0 {
                return Some(id.clone());
            }
        }
        None
    }

    fn find_ended(
        &self,
        state: &State,
        before: Option<(Instant, BookingId)>,
        scan: &mut Scan,
    ) -> Option<Cursor> {
        let mut is_past = before.is_none();
        let (at, id) = before.unzip();
        for next in state.bookings.ended() {
            if !is_past {
                let (next_at, at) = (next.ended_at(), at.unwrap_or_default());
                // If the booking of the cursor was forgotten since, its time still ends the skip.
                is_past = next_at < at || (next_at == at && Some(next.id()) == id.as_ref());
                if next_at >= at {
                    continue;
                }
            }
            if self.matches_ended(state, next) {
                scan.ids.push(next.id().clone());
            }
            scan.left = scan.left.saturating_sub(1);
            if scan.ids.len() == self.limit || scan.left == 0 {
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
            && self.filter.wants(state, id, &standing)
    }

    fn matches_ended(&self, state: &State, ended: &Ended) -> bool {
        let labels = state.bookings.ended_labels(ended);
        labels.is_some_and(|(class, tenant)| self.matches_labels(class, tenant))
            && self
                .filter
                .wants(state, ended.id(), &Standing::Ended(ended))
    }

    fn matches_labels(&self, class: &Label, tenant: &Label) -> bool {
        let is = |wanted: Option<&Label>, label| wanted.is_none_or(|is| is == label);
        is(self.filter.class(), class)
            && is(self.filter.tenant(), tenant)
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
