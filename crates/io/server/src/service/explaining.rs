//! Explanations by the engine, reduced to the parts that the caller may see.

use bursar_client::api::{Explanation, Who};
use bursar_client::{Code, Problem};
use bursar_engine::booking::Request;
use bursar_engine::explain;
use bursar_engine::{Kind, Reference, State};
use bursar_units::ObjectName;

use super::{Answer, Service, last_record, sight};
use crate::booking::{answers, bookings};
use crate::caller::Caller;

pub(crate) const EXPLAINED: &[Kind] = &[Kind::Booking, Kind::Limit];

impl Service {
    pub(crate) fn explain(
        &self,
        caller: &Caller,
        explained: &Reference,
    ) -> Result<Answer<Explanation>, Problem> {
        let now = self.ledger.now();
        let state = self.ledger.view().read();
        let (explanation, who) = match explained {
            Reference::Booking(id) => {
                let none = || bookings::no_booking(&state, caller, id);
                let request = state.bookings.request(id);
                let request = request.filter(|request| caller.sees_tenant(&request.tenant));
                let who = counted(&state, request.ok_or_else(none)?);
                (
                    explain::booking(&state, now, id).ok_or_else(none)?,
                    vec![who],
                )
            }
            Reference::Limit(name) => {
                let none = || sight::no_limit(&state, caller, name);
                let declared = sight::limit(&state, caller, name).ok_or_else(none)?;
                let explanation = explain::limit(&state, name, |counter| {
                    sight::sees_counter(&state, caller, &declared.limit, counter)
                });
                (explanation.ok_or_else(none)?, Vec::new())
            }
            other => {
                let detail = format!("{other} cannot be explained; only bookings and limits can");
                return Err(Problem::new(Code::NotFound, detail));
            }
        };
        let body = answers::explanation(explanation, now, caller, who);
        Ok(Answer::ok(last_record(&state), body))
    }
}

fn counted(state: &State, request: Request) -> Who {
    let limits = state.bookings.limits_for(&request).into_iter();
    let mut limits: Vec<ObjectName> = limits.map(|of| of.name).collect();
    limits.dedup();
    Who::Counted {
        tenant: request.tenant,
        slots: request.slots,
        limits,
    }
}
