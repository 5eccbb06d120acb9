//! `bursar lease`: who held which GPUs, from when to when, and who paid.

use bursar_client::api::Since;
use bursar_client::api::cluster::{GpuLease, ListLeases};
use bursar_client::api::query::Parameter as _;
use bursar_units::{BookingId, ObjectName};

use super::names;
use crate::command::watch;
use crate::failure::{Failure, Stop};
use crate::grammar::{LeaseFlags, LeaseVerb, Noun};
use crate::layout::{Column, Look, Meaning, REPORT_WORD, details};
use crate::list::{Filter, Listed as _};
use crate::session::Session;

pub(in crate::command) async fn run(
    session: &mut Session,
    noun: Noun<LeaseVerb, LeaseFlags>,
) -> Result<(), Stop> {
    match noun.verb.unwrap_or(LeaseVerb::List(noun.list)) {
        LeaseVerb::List(flags) => list(session, &flags).await,
        LeaseVerb::Show { id } => show(session, &id).await,
    }
}

async fn list(session: &mut Session, flags: &LeaseFlags) -> Result<(), Stop> {
    let filter = Filter::read::<GpuLease>(flags.scoped.list.filter.as_deref())?;
    let (namespace, place) = names::listed(session, &flags.scoped)?;
    let value = |key| filter.value::<GpuLease>(key);
    let node = match value("node") {
        Some(text) => Some(ObjectName::read("node", text)?),
        None => None,
    };
    let wanted = ListLeases {
        namespace,
        owner: names::label("owner", value("owner"))?,
        run: value("run").map(str::to_owned),
        node,
        since: time(session, flags.since.as_deref())?,
    };
    let client = session.client().await?;
    let fetch = async || {
        let answer = client.leases(&wanted).await?;
        let everywhere = ListLeases {
            namespace: None,
            ..wanted.clone()
        };
        let all = client.leases(&everywhere);
        names::note_elsewhere(&place, answer.items.is_empty(), "lease", all).await;
        Ok(answer)
    };
    watch::list_of(session, &flags.scoped.list, &filter, fetch, &client, &place).await
}

/// A time of a flag.
pub(super) fn time(session: &Session, text: Option<&str>) -> Result<Option<Since>, Stop> {
    let read = |text| crate::time::parse(text, session.now(), &session.zone);
    let time = text.map(read).transpose();
    Ok(time.map_err(Failure::usage)?.map(Since::At))
}

async fn show(session: &mut Session, text_of: &str) -> Result<(), Stop> {
    let bare = text_of.strip_prefix("lease");
    let bare = bare.map(|rest| rest.strip_prefix('s').unwrap_or(rest));
    let bare = bare.and_then(|rest| rest.strip_prefix('/'));
    let id = &BookingId::read("the identity of a lease", bare.unwrap_or(text_of))?;
    let client = session.client().await?;
    let lease = client.lease(id).await?;
    session.show(&lease, &format!("lease/{id}"), |look| {
        text(id, &lease, look)
    })
}

fn text(id: &BookingId, lease: &GpuLease, look: &Look) -> String {
    let subject = look.paint(Meaning::Subject, &format!("lease {id}"));
    let applies = |column: &&Column<GpuLease>| !(column.cell)(lease, look).is_empty();
    let lines = GpuLease::columns().iter().filter(applies);
    let lines = lines.map(|column| (column.head.to_lowercase(), (column.cell)(lease, look)));
    let lines: Vec<(String, String)> = lines.collect();
    let state = if lease.to.is_some() { "ended" } else { "open" };
    format!("{subject} {state}\n{}", details(&lines, REPORT_WORD))
}
