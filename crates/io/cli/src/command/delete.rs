//! `bursar delete`: removes limits and nodes. Facts stay.

use bursar_client::Client;
use bursar_client::api::ApplyAnswer;
use bursar_client::client::Mode;
use bursar_engine::{Kind, Reference};

use super::{apply, read_reference};
use crate::failure::{Failure, Stop};
use crate::grammar::DeleteArguments;
use crate::session::Session;

pub(super) async fn run(session: &mut Session, arguments: &DeleteArguments) -> Result<(), Stop> {
    let references = arguments
        .references
        .iter()
        .map(|text| read_reference(text, &[Kind::Limit, Kind::Node]));
    let references = references.collect::<Result<Vec<_>, _>>()?;
    let client = session.client().await?;
    // The dry run first: it is the plan that a person is asked about, and one thing that cannot
    // be removed stops all.
    let mut plan = ApplyAnswer {
        results: Vec::new(),
        record: 0,
        dry_run: Some(true),
    };
    for reference in &references {
        let planned = delete(&client, reference, Mode::DryRun).await?;
        plan.results.extend(planned.results);
        plan.record = planned.record;
    }
    if arguments.dry_run {
        return apply::print(session, &plan);
    }
    let names = references
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    session.confirm(arguments.yes, &format!("{names} would be deleted\n"))?;
    let mut done = ApplyAnswer {
        results: Vec::new(),
        record: 0,
        dry_run: None,
    };
    for reference in &references {
        let deleted = delete(&client, reference, Mode::Do).await?;
        done.results.extend(deleted.results);
        done.record = deleted.record;
    }
    apply::print(session, &done)
}

async fn delete(client: &Client, reference: &Reference, mode: Mode) -> Result<ApplyAnswer, Stop> {
    match reference {
        Reference::Limit(name) => Ok(client.delete_limit(name, mode).await?),
        Reference::Node(name) => Ok(client.delete_node(name, mode).await?),
        other => Err(Failure::usage(format!("{other} cannot be deleted")).into()),
    }
}
