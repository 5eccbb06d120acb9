//! Why, when and who: the engine's explanation, as the caller may see it.

use bursar_client::api::{Explanation, Who};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::booking::Scope;
use bursar_engine::explain;
use bursar_units::{BookingId, ObjectName};

use super::nearest::nearest;
use super::{Answer, Service, answers, bookings, last_record};
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
                let who = who(&state, &id).filter(|who| caller.sees(&who.tenant));
                let none = || bookings::no_booking(&state, caller, &id);
                let who = who.ok_or_else(none)?;
                (
                    explain::booking(&state, now, &id).ok_or_else(none)?,
                    vec![who],
                )
            }
            "limit" => {
                let name = ObjectName::new(name).map_err(named)?;
                (explained_limit(&state, caller, &name)?, Vec::new())
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

/// Of a limit with a counter for each tenant the fullest is told by name, which only those who
/// see all may read.
fn explained_limit(
    state: &State,
    caller: &Caller,
    name: &ObjectName,
) -> Result<explain::Explanation, Problem> {
    let declared = state.bookings.limit(name.as_str());
    if declared.is_some_and(|declared| declared.limit.tenant == Some(Scope::Each)) {
        caller.require_view("have a limit of each tenant explained")?;
    }
    explain::limit(state, name).ok_or_else(|| {
        let names = state
            .bookings
            .limits()
            .map(|declared| declared.name.as_str());
        let suggestion = nearest(name.as_str(), names);
        Problem {
            suggestion,
            ..Problem::new(Code::NotFound, format!("no limit `{name}`"))
        }
    })
}
