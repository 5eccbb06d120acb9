//! Limits and nodes with their state.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bursar_client::api::{Limit, LimitCounter, LimitStatus, ListAnswer, Node, NodeExecutor};

use bursar_client::object;
use bursar_client::{Code, Problem, nearest};
use bursar_engine::booking::book::CounterView;
use bursar_engine::booking::limit::Declared;
use bursar_engine::booking::position::HeldUp;
use bursar_engine::{Reference, State};
use bursar_units::{Amount, ObjectName};

use super::page;
use crate::caller::Caller;
use crate::service::sight::{self, sees_counter};
use crate::service::{Answer, Service, last_record};

/// Counters shown per limit: a limit for each class or tenant may have as many as there are
/// bookings.
const COUNTERS_MAX: usize = 100;

impl Service {
    pub(crate) async fn limits(
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
            let all = sight::limits(&state, &caller)
                .map(|declared| shown(&state, &caller, declared, &held_up));
            let after = cursor.as_deref();
            let body = page(all, |of| of.metadata.name.as_str(), limit, after, record);
            Answer::ok(record, body)
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| Problem::new(Code::Internal, "listing limits panicked"))
    }

    pub(crate) async fn limit(
        &self,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<Answer<Limit>, Problem> {
        let (ledger, caller, name) = (self.ledger.clone(), caller.clone(), name.clone());
        let read = move || {
            let state = ledger.view().read();
            let declared = sight::limit(&state, &caller, &name)
                .ok_or_else(|| sight::no_limit(&state, &caller, &name))?;
            let body = shown(&state, &caller, declared, &state.bookings.held_up());
            Ok(Answer::ok(last_record(&state), body))
        };
        tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Internal, "reading a limit panicked")))
    }

    pub(crate) fn nodes(&self, limit: usize, cursor: Option<&str>) -> Answer<ListAnswer<Node>> {
        let state = self.ledger.view().read();
        let record = last_record(&state);
        let all = state
            .spine
            .inventory
            .iter()
            .map(|of| self.shown_node(&state, of));
        let body = page(all, |of| of.metadata.name.as_str(), limit, cursor, record);
        Answer::ok(record, body)
    }

    pub(crate) fn node(&self, name: &ObjectName) -> Result<Answer<Node>, Problem> {
        let state = self.ledger.view().read();
        let inventory = &state.spine.inventory;
        let found = inventory.get(name.as_str()).ok_or_else(|| {
            let names = inventory.iter().map(|node| node.name.as_str());
            Problem {
                suggestion: nearest(name.as_str(), names).map(str::to_owned),
                ..Problem::new(Code::NotFound, format!("no node `{name}`"))
            }
        })?;
        Ok(Answer::ok(
            last_record(&state),
            self.shown_node(&state, found),
        ))
    }

    /// A node with its executor and missing labels. Nodes other than this machine are simulated.
    fn shown_node(&self, state: &State, of: &bursar_engine::Node) -> Node {
        let mut node = object::node::object(of);
        node.metadata.resource_version = state.version(&Reference::Node(of.name.clone()));
        // Runs on GPUs are simulated everywhere.
        let is_own = of.gpus == 0 && self.info.node.as_deref() == Some(of.name.as_str());
        node.status.executor = Some(if is_own {
            NodeExecutor::Local
        } else {
            NodeExecutor::Simulated
        });
        node.status.missing_labels = of.missing_labels().map(ToOwned::to_owned).collect();
        node
    }
}

/// A limit with the counters that the caller may see, and their sums.
fn shown(
    state: &State,
    caller: &Caller,
    declared: &Declared,
    held_up: &BTreeMap<ObjectName, HeldUp>,
) -> Limit {
    let mut shown = object::limit::object(&declared.limit);
    shown.metadata.resource_version = state.version(&Reference::Limit(declared.limit.name.clone()));
    let mut counters = state.bookings.counters_of(declared);
    let all = counters.len();
    counters.retain(|counter| sees_counter(state, caller, &declared.limit, counter));
    let mut in_use = Amount::default();
    for counter in &counters {
        in_use.add(&counter.used);
    }
    let (waiting, waiting_since) = if counters.len() == all {
        let held_up = held_up.get(&declared.limit.name);
        let waiting = held_up.map_or(0, |held_up| held_up.bookings);
        (waiting, held_up.map(|held_up| held_up.since))
    } else {
        (counters.iter().map(|counter| counter.waiting).sum(), None)
    };
    let counters_left_out = keep_largest(&mut counters);
    shown.status = Some(LimitStatus {
        bounds: declared.bounds.into(),
        in_use: in_use.into(),
        waiting,
        waiting_since,
        counters: counters
            .iter()
            .map(|counter| LimitCounter {
                class: counter.class.cloned(),
                tenant: counter.tenant.cloned(),
                in_use: counter.used.into(),
                waiting: counter.waiting,
            })
            .collect(),
        counters_left_out,
    });
    shown
}

/// Keeps the largest counters, sorted by name. Returns the number of those removed.
fn keep_largest(counters: &mut Vec<CounterView<'_>>) -> u64 {
    let left_out = counters.len().saturating_sub(COUNTERS_MAX);
    if left_out > 0 {
        // A stable sort: of equal counters the first by name are kept.
        counters.sort_by_key(|counter| Reverse((counter.used.slots, counter.waiting)));
        counters.truncate(COUNTERS_MAX);
        counters.sort_by_key(|counter| (counter.class, counter.tenant));
    }
    u64::try_from(left_out).unwrap_or(u64::MAX)
}
