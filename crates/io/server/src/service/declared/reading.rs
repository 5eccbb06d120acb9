//! Limits and nodes as they stand.

use std::collections::BTreeMap;

use bursar_client::api::{Limit, LimitCounter, LimitStatus, ListAnswer, Node};
use bursar_client::object;
use bursar_client::object::limit::to_spec;
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::booking::limit::Declared;
use bursar_engine::booking::position::HeldUp;
use bursar_units::{Amount, ObjectName};

use super::super::nearest::nearest;
use super::super::{Answer, Service, last_record};
use super::{limit_version, no_such, node_version, page};
use crate::caller::Caller;

impl Service {
    /// Limits with how they stand, by name.
    pub async fn limits(
        &self,
        caller: &Caller,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Answer<ListAnswer<Limit>>, Problem> {
        let (ledger, caller) = (self.ledger.clone(), caller.clone());
        let read = move || {
            let state = ledger.view().read();
            let record = last_record(&state);
            let held_up = state.bookings.held_up();
            let all = state
                .bookings
                .limits()
                .map(|declared| shown(&state, &caller, declared, &held_up));
            let name = |limit: &Limit| limit.metadata.name.as_str().to_owned();
            let after = cursor.as_deref();
            let mut rest =
                all.filter(|limit| after.is_none_or(|after| after < name(limit).as_str()));
            let items: Vec<Limit> = rest.by_ref().take(limit).collect();
            let next_cursor = rest.next().and_then(|_| items.last().map(name));
            Answer {
                status: 200,
                record,
                body: ListAnswer {
                    items,
                    next_cursor,
                    record,
                },
            }
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| Problem::new(Code::Internal, "listing limits panicked"))
    }

    /// One limit with how it stands.
    pub async fn limit(
        &self,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<Answer<Limit>, Problem> {
        let (ledger, caller, name) = (self.ledger.clone(), caller.clone(), name.clone());
        let read = move || {
            let state = ledger.view().read();
            let declared = state.bookings.limit(name.as_str()).ok_or_else(|| {
                let names = state
                    .bookings
                    .limits()
                    .map(|declared| declared.name.as_str());
                no_such("limit", name.as_str(), nearest(name.as_str(), names))
            })?;
            let body = shown(&state, &caller, declared, &state.bookings.held_up());
            Ok(Answer {
                status: 200,
                record: last_record(&state),
                body,
            })
        };
        tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Internal, "reading a limit panicked")))
    }

    /// Machines, by name.
    pub fn nodes(&self, limit: usize, cursor: Option<&str>) -> Answer<ListAnswer<Node>> {
        let state = self.ledger.view().read();
        let record = last_record(&state);
        let all = state
            .bookings
            .nodes()
            .map(|(name, capacity)| node(name, capacity));
        let body = page(
            all,
            |node| node.metadata.name.as_str(),
            limit,
            cursor,
            record,
        );
        Answer {
            status: 200,
            record,
            body,
        }
    }

    /// One machine.
    pub fn node(&self, name: &ObjectName) -> Result<Answer<Node>, Problem> {
        let state = self.ledger.view().read();
        let capacity = state.bookings.node(name.as_str()).ok_or_else(|| {
            let names = state.bookings.nodes().map(|(name, _)| name.as_str());
            no_such("node", name.as_str(), nearest(name.as_str(), names))
        })?;
        Ok(Answer {
            status: 200,
            record: last_record(&state),
            body: node(name, capacity),
        })
    }
}

fn node(name: &ObjectName, capacity: &Amount) -> Node {
    let mut node = object::node::object(name, capacity);
    node.metadata.resource_version = Some(node_version(capacity));
    node
}

/// A limit as this caller may see it: counters of tenants it may not see are left out, the sums
/// are not.
fn shown(
    state: &State,
    caller: &Caller,
    declared: &Declared,
    held_up: &BTreeMap<ObjectName, HeldUp>,
) -> Limit {
    let mut shown = Limit::new(declared.name.clone(), to_spec(&declared.limit));
    shown.metadata.resource_version = Some(limit_version(&declared.limit));
    let counters = state.bookings.counters_of(declared);
    let held_up = held_up.get(&declared.name);
    let mut in_use = Amount::default();
    for counter in &counters {
        in_use.add(&counter.used);
    }
    shown.status = Some(LimitStatus {
        bounds: declared.bounds.into(),
        in_use: in_use.into(),
        waiting: held_up.map_or(0, |held_up| held_up.bookings),
        waiting_since: held_up.map(|held_up| held_up.since),
        counters: counters
            .iter()
            .filter(|counter| counter.tenant.is_none_or(|tenant| caller.sees(tenant)))
            .map(|counter| LimitCounter {
                class: counter.class.cloned(),
                tenant: counter.tenant.cloned(),
                in_use: counter.used.into(),
                waiting: counter.waiting,
            })
            .collect(),
    });
    shown
}
