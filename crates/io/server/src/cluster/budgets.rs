//! Budgets and envelopes with their state, and the end of an epoch.

use bursar_client::Problem;
use bursar_client::api::ListAnswer;
use bursar_client::api::cluster::{Budget, Envelope, ListBudgets, RotateRequest};
use bursar_engine::cluster::Command as ClusterCommand;
use bursar_engine::cluster::budget::{self as plane, BudgetId};
use bursar_engine::{Command, State};
use bursar_units::BookingId;

use super::answers::View;
use super::sight;
use crate::caller::Caller;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Service, WriteMode, last_record};
use crate::spine::declared::page;

impl Service {
    pub(crate) fn budgets(
        &self,
        caller: &Caller,
        filter: &ListBudgets,
        limit: usize,
        cursor: Option<&str>,
    ) -> Answer<ListAnswer<Budget>> {
        let state = self.ledger.view().read();
        let record = last_record(&state);
        let view = self.view(&state, caller);
        let wanted = sight::budgets(&state, caller).filter(|budget| is_wanted(filter, budget));
        let all = wanted.map(|budget| (budget.id(), budget));
        let page = page(all, |(id, _)| id.as_str(), limit, cursor, record);
        let items = page.items.into_iter();
        let body = ListAnswer {
            items: items.map(|(_, budget)| view.budget(budget)).collect(),
            next_cursor: page.next_cursor,
            record,
        };
        Answer::ok(record, body)
    }

    pub(crate) fn budget(&self, caller: &Caller, id: &BudgetId) -> Result<Answer<Budget>, Problem> {
        let state = self.ledger.view().read();
        let budget = sight::budget(&state, caller, id)?;
        let body = self.view(&state, caller).budget(budget);
        Ok(Answer::ok(last_record(&state), body))
    }

    pub(crate) fn envelopes(
        &self,
        caller: &Caller,
        filter: &ListBudgets,
        limit: usize,
        cursor: Option<&str>,
    ) -> Answer<ListAnswer<Envelope>> {
        let state = self.ledger.view().read();
        let record = last_record(&state);
        let view = self.view(&state, caller);
        let wanted = sight::budgets(&state, caller).filter(|budget| is_wanted(filter, budget));
        let envelopes = wanted.flat_map(|budget| {
            let envelopes = budget.envelopes.iter();
            envelopes.map(move |envelope| (budget.envelope_id(envelope), budget, envelope))
        });
        let mut all: Vec<_> = envelopes.collect();
        all.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let page = page(
            all.into_iter(),
            |(id, ..)| id.as_str(),
            limit,
            cursor,
            record,
        );
        let items = page.items.into_iter();
        let body = ListAnswer {
            items: items
                .filter_map(|(_, budget, envelope)| view.envelope(budget, envelope))
                .collect(),
            next_cursor: page.next_cursor,
            record,
        };
        Answer::ok(record, body)
    }

    /// Ends the epoch of an envelope now. A repeat with the same key returns the present state.
    pub(crate) async fn rotate(
        &self,
        caller: &Caller,
        id: &BudgetId,
        request: RotateRequest,
        key: Option<BookingId>,
        mode: WriteMode,
    ) -> Result<Answer<Budget>, Problem> {
        caller.require_operate("end epochs of envelopes")?;
        let envelope = id.envelope(&request.envelope);
        let command: Command = ClusterCommand::RotateEnvelope {
            envelope,
            idempotency: key,
            reason: request.reason,
        }
        .into();
        let (outcome, after) = self.carry_out(caller, &command, mode).await?;
        let record = outcome.record;
        self.with_state(after.as_ref(), |state| {
            if let Err(refusal) = &outcome.result {
                return Err(of_refusal(state, record, caller, &command, refusal));
            }
            let budget = sight::budget(state, caller, id)?;
            let view = View {
                state,
                now: outcome.time,
                caller,
            };
            Ok(Answer::ok(record, view.budget(budget)))
        })
    }

    pub(crate) fn view<'a>(&self, state: &'a State, caller: &'a Caller) -> View<'a> {
        View {
            state,
            now: self.ledger.now(),
            caller,
        }
    }
}

fn is_wanted(filter: &ListBudgets, budget: &plane::Budget) -> bool {
    let namespace = filter.namespace.as_ref();
    namespace.is_none_or(|wanted| *wanted == budget.namespace)
        && filter
            .owner
            .as_ref()
            .is_none_or(|wanted| *wanted == budget.owner)
}
