//! Why, when and who: the engine's explanation, as the caller may see it.

use bursar_client::api::{Explanation, Who};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::explain;
use bursar_units::{BookingId, ObjectName};

use super::nearest::nearest;
use super::{Answer, Service, answers, bookings, last_record, sight};
use crate::caller::Caller;

/// The kinds that can be explained.
const KINDS: [&str; 2] = ["booking", "limit"];

impl Service {
    /// Explains a thing by its kind and name.
    pub fn explain(
        &self,
        caller: &Caller,
        kind: &str,
        name: &str,
    ) -> Result<Answer<Explanation>, Problem> {
        let now = self.ledger.now();
        let state = self.ledger.view().read();
        let named = |error: bursar_units::NameError| {
            Problem::invalid(vec![FieldError::new("name", error.to_string())])
        };
        let (told, who) = match kind {
            "booking" => {
                let id = BookingId::new(name).map_err(named)?;
                let who = who(&state, &id).filter(|who| caller.sees_tenant(&who.tenant));
                let none = || bookings::no_booking(&state, caller, &id);
                let who = who.ok_or_else(none)?;
                (
                    explain::booking(&state, now, &id).ok_or_else(none)?,
                    vec![who],
                )
            }
            "limit" => {
                let name = ObjectName::new(name).map_err(named)?;
                let none = || sight::no_limit(&state, caller, &name);
                let declared = sight::limit(&state, caller, &name).ok_or_else(none)?;
                let told = explain::limit(&state, &name, |counter| {
                    sight::sees_counter(&state, caller, &declared.limit, counter)
                });
                (told.ok_or_else(none)?, Vec::new())
            }
            _ => {
                let problem = Problem::new(
                    Code::NotFound,
                    format!("nothing of kind `{kind}` can be explained"),
                );
                let suggestion = nearest(kind, KINDS.into_iter());
                return Err(Problem {
                    suggestion,
                    ..problem
                });
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
        slots: request.amount.slots,
        limits,
    })
}
