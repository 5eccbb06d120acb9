//! Why, when and who: the engine's explanation, as the caller may see it.

use bursar_client::api::{Explanation, Who};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::explain;
use bursar_units::{BookingId, NameError, ObjectName};

use super::nearest::nearest;
use super::{Answer, Service, last_record, sight};
use crate::booking::{answers, bookings};
use crate::caller::Caller;

/// The kinds that can be explained.
const KINDS: [&str; 2] = ["booking", "limit"];

/// What can be explained.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Explained {
    /// A booking.
    Booking(BookingId),
    /// A limit.
    Limit(ObjectName),
}

impl Explained {
    /// The thing of a kind and a name.
    pub fn new(kind: &str, name: &str) -> Result<Self, Problem> {
        let named =
            |error: NameError| Problem::invalid(vec![FieldError::new("name", error.to_string())]);
        match kind {
            "booking" => BookingId::new(name).map(Self::Booking).map_err(named),
            "limit" => ObjectName::new(name).map(Self::Limit).map_err(named),
            _ => {
                let message = format!("names `{kind}`; the kinds are {}", KINDS.join(", "));
                Err(Problem {
                    suggestion: nearest(kind, KINDS.into_iter()),
                    errors: vec![FieldError::new("kind", message)],
                    ..Problem::new(
                        Code::NotFound,
                        format!("nothing of kind `{kind}` can be explained"),
                    )
                })
            }
        }
    }
}

impl Service {
    /// Explains a thing.
    pub fn explain(
        &self,
        caller: &Caller,
        explained: &Explained,
    ) -> Result<Answer<Explanation>, Problem> {
        let now = self.ledger.now();
        let state = self.ledger.view().read();
        let (told, who) = match explained {
            Explained::Booking(id) => {
                let who = who(&state, id).filter(|who| caller.sees_tenant(&who.tenant));
                let none = || bookings::no_booking(&state, caller, id);
                let who = who.ok_or_else(none)?;
                (
                    explain::booking(&state, now, id).ok_or_else(none)?,
                    vec![who],
                )
            }
            Explained::Limit(name) => {
                let none = || sight::no_limit(&state, caller, name);
                let declared = sight::limit(&state, caller, name).ok_or_else(none)?;
                let told = explain::limit(&state, name, |counter| {
                    sight::sees_counter(&state, caller, &declared.limit, counter)
                });
                (told.ok_or_else(none)?, Vec::new())
            }
        };
        let body = answers::explanation(told, now, caller, who);
        Ok(Answer {
            status: 200,
            record: last_record(&state),
            body,
        })
    }
}

fn who(state: &State, id: &BookingId) -> Option<Who> {
    let request = state.bookings.request(id)?;
    let mut limits: Vec<ObjectName> = state
        .bookings
        .limits_for(&request)
        .into_iter()
        .map(|of| of.name)
        .collect();
    limits.dedup();
    Some(Who {
        tenant: request.tenant,
        slots: request.slots,
        limits,
    })
}
