//! Leases of runs, open and ended.

use bursar_client::api::ListAnswer;
use bursar_client::api::cluster::{GpuLease, LeasePayer, ListLeases};
use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::cluster::{Lease, Pod, Shown};
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
            let wanted = sight::runs(&state, &caller).filter(|shown| is_wanted(&filter, shown));
            let leases = wanted.flat_map(|shown| of_run(&state, &shown));
            let leases = leases.filter(|lease| {
                let node = filter.node.as_ref();
                node.is_none_or(|wanted| *wanted == lease.node)
                    && lease.to.is_none_or(|ended| since <= ended)
            });
            let mut all: Vec<(String, GpuLease)> =
                leases.map(|lease| (key(&lease), lease)).collect();
            all.sort_by(|(a, _), (b, _)| a.cmp(b));
            let after = cursor.as_deref();
            let page = page(all.into_iter(), |(key, _)| key, limit, after, record);
            let body = ListAnswer {
                items: page.items.into_iter().map(|(_, lease)| lease).collect(),
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
        let number = read_id(id.as_str());
        let mut runs = sight::runs(&state, caller);
        let found = number.and_then(|number| {
            runs.find_map(|shown| {
                let leases = state.clusters.leases(&shown.uid);
                let index = leases.iter().position(|lease| has(lease, number))?;
                of_run(&state, &shown).into_iter().nth(index)
            })
        });
        let none = || Problem::new(Code::NotFound, format!("no lease `{id}`"));
        Ok(Answer::ok(last_record(&state), found.ok_or_else(none)?))
    }
}

/// The leases of a run by pod, with their payers.
fn of_run(state: &State, shown: &Shown) -> Vec<GpuLease> {
    let paid = state.clusters.paid_by(&shown.uid);
    let payers = |pod: u64| {
        let pod = paid.iter().find(|paid| paid.pod == pod);
        let payers = pod.into_iter().flat_map(|paid| &paid.payers);
        payers
            .map(|payer| LeasePayer {
                envelope: payer.envelope.as_ref().map(ToString::to_string),
                class: payer.class,
            })
            .collect()
    };
    let leases = state.clusters.leases(&shown.uid).into_iter();
    leases
        .map(|lease| GpuLease {
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
            paid_by: payers(lease.pod.pod),
            from: lease.opened,
            to: lease.closed.map(|(at, _)| at),
            ended_by: lease.closed.map(|(_, reason)| reason),
            node: lease.pod.node,
        })
        .collect()
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

fn has(lease: &Lease, (record, number): (u64, u64)) -> bool {
    let end = lease.first.saturating_add(lease.pod.width());
    lease.record == record && (lease.first..end).contains(&number)
}

fn is_wanted(filter: &ListLeases, shown: &Shown) -> bool {
    let run = &shown.run;
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
fn key(lease: &GpuLease) -> String {
    let ended = u8::from(lease.to.is_some());
    let (run, pod, from) = (&lease.run, lease.pod, lease.from.ms());
    format!("{ended} {run} {pod:06} {from:015} {}", lease.lease)
}
