//! Leases of runs, open and ended.

use std::collections::BTreeMap;

use bursar_client::api::ListAnswer;
use bursar_client::api::cluster::{GpuLease, LeasePayer, ListLeases};
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::cluster::budget::RunUid;
use bursar_engine::cluster::{Lease, Listed, PaidPod, Pod};
use bursar_units::BookingId;

use super::{ended_since, sight};
use crate::caller::Caller;
use crate::service::{Answer, Service, last_record};
use crate::spine::declared::page;

impl Service {
    pub(crate) async fn leases(
        &self,
        caller: &Caller,
        filter: ListLeases,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Answer<ListAnswer<GpuLease>>, Problem> {
        let (ledger, caller) = (self.ledger.clone(), caller.clone());
        let read = move || {
            let now = ledger.now();
            let state = ledger.view().read();
            let record = last_record(&state);
            let since = ended_since(filter.since, now);
            let wanted = sight::runs(&state, &caller).filter(|listed| {
                is_wanted(&filter, listed) && listed.ended.is_none_or(|ended| since <= ended)
            });
            let leases = wanted.flat_map(|listed| {
                let leases = state.clusters.leases(listed.uid).into_iter();
                leases.map(move |lease| (listed, lease))
            });
            let leases = leases.filter(|(_, lease)| {
                let node = filter.node.as_ref();
                node.is_none_or(|wanted| *wanted == lease.pod.node)
                    && lease.closed.is_none_or(|(ended, _)| since <= ended)
            });
            let leases = leases.map(|(listed, lease)| (key(&listed, &lease), listed, lease));
            let mut all: Vec<(String, Listed<'_>, Lease)> = leases.collect();
            all.sort_by(|(a, ..), (b, ..)| a.cmp(b));
            let after = cursor.as_deref();
            let page = page(all.into_iter(), |(key, ..)| key, limit, after, record);
            let mut paid = BTreeMap::new();
            let items = page.items.into_iter().filter_map(|(_, listed, lease)| {
                let of_run = || state.clusters.paid_by(listed.uid);
                let paid = paid.entry(listed.uid).or_insert_with(of_run);
                show(&state, listed.uid, lease, paid)
            });
            let body = ListAnswer {
                items: items.collect(),
                next_cursor: page.next_cursor,
                record,
            };
            Answer::ok(record, body)
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| Problem::new(Code::Internal, "listing leases panicked"))
    }

    /// The leases of the pod that a lease belongs to.
    pub(crate) fn lease(
        &self,
        caller: &Caller,
        id: &BookingId,
    ) -> Result<Answer<GpuLease>, Problem> {
        let state = self.ledger.view().read();
        let found = read_id(id.as_str()).and_then(|(record, number)| {
            let mut runs =
                sight::runs(&state, caller).filter(|listed| listed.opened_in == Some(record));
            runs.find_map(|listed| {
                let leases = state.clusters.leases(listed.uid).into_iter();
                let lease = { leases }.find(|lease| has(lease, number))?;
                show(
                    &state,
                    listed.uid,
                    lease,
                    &state.clusters.paid_by(listed.uid),
                )
            })
        });
        let none = || Problem::new(Code::NotFound, format!("no lease `{id}`"));
        Ok(Answer::ok(last_record(&state), found.ok_or_else(none)?))
    }
}

/// A lease of a run, with its payers.
fn show(state: &State, uid: &RunUid, lease: Lease, paid: &[PaidPod]) -> Option<GpuLease> {
    let shown = state.clusters.run(uid)?;
    let of_pod = paid.iter().find(|paid| paid.pod == lease.pod.pod);
    let payers = of_pod.into_iter().flat_map(|paid| &paid.payers);
    let payers = payers.map(|payer| LeasePayer {
        envelope: payer.envelope.as_ref().map(ToString::to_string),
        class: payer.class,
    });
    Some(GpuLease {
        lease: lease.id(),
        run: shown.run.id().to_string(),
        uid: shown.uid.to_string(),
        owner: shown.run.owner.clone(),
        flavor: shown.run.flavor.clone(),
        gpus: lease.pod.width(),
        ordinals: ordinals(&lease.pod),
        role: "Active".to_owned(),
        incarnation: shown.incarnation,
        group: lease.pod.group,
        pod: lease.pod.pod,
        paid_by: payers.collect(),
        from: lease.opened,
        to: lease.closed.map(|(at, _)| at),
        ended_by: lease.closed.map(|(_, reason)| reason),
        node: lease.pod.node,
    })
}

/// `0-7`, `0-1,4`.
fn ordinals(pod: &Pod) -> String {
    let ranges = pod.gpus.iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// Record and number of `lease-RECORD.N`.
fn read_id(text: &str) -> Option<(u64, u64)> {
    let (record, number) = text.strip_prefix("lease-")?.split_once('.')?;
    Some((record.parse().ok()?, number.parse().ok()?))
}

fn has(lease: &Lease, number: u64) -> bool {
    let end = lease.first.saturating_add(lease.pod.width());
    (lease.first..end).contains(&number)
}

fn is_wanted(filter: &ListLeases, listed: &Listed<'_>) -> bool {
    let run = listed.run;
    let (namespace, owner) = (filter.namespace.as_ref(), filter.owner.as_ref());
    namespace.is_none_or(|wanted| *wanted == run.namespace)
        && owner.is_none_or(|wanted| *wanted == run.owner)
        && filter
            .run
            .as_ref()
            .is_none_or(|wanted| *wanted == run.id().as_str())
}

/// Position in lists: open ones first, by run, pod and time. A space sorts before every character of
/// names.
fn key(listed: &Listed<'_>, lease: &Lease) -> String {
    let ended = u8::from(lease.closed.is_some());
    let (run, pod, from) = (listed.run.id(), lease.pod.pod, lease.opened.ms());
    format!("{ended} {run} {pod:06} {from:015} {}", lease.id())
}
