//! `bursar delete`: deletes budgets, limits and nodes.

use bursar_client::Client;
use bursar_client::api::ApplyAnswer;
use bursar_client::client::Mode;
use bursar_engine::{Kind, Reference};

use super::cluster::names;
use super::{apply, read_reference};
use crate::failure::{Failure, Stop};
use crate::grammar::{DeleteArguments, Scope};
use crate::session::Session;

pub(super) async fn run(session: &mut Session, arguments: &DeleteArguments) -> Result<(), Stop> {
    let references = arguments
        .references
        .iter()
        .map(|text| read(session, text, &arguments.scope));
    let references = references.collect::<Result<Vec<_>, _>>()?;
    let client = session.client().await?;
    // The dry run comes first: it is the plan to confirm, and nothing is deleted if one object
    // cannot be deleted.
    let plan = delete_all(&client, &references, Mode::DryRun).await?;
    if arguments.dry_run {
        return apply::print(session, &plan);
    }
    let names = references
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    session.confirm(arguments.yes, &format!("{names} would be deleted\n"))?;
    let done = delete_all(&client, &references, Mode::Do).await?;
    apply::print(session, &done)
}

fn read(session: &Session, text: &str, scope: &Scope) -> Result<Reference, Stop> {
    match names::kind_of(text) {
        Some(Kind::Budget) => names::reference(session, Kind::Budget, text, scope),
        Some(Kind::Run) => {
            let name = names::scoped(session, Kind::Run, text, scope)?;
            Err(Failure::usage("a run is cancelled, never deleted")
                .hint(format!("`bursar run cancel {name}` stops it"))
                .into())
        }
        _ => read_reference(text, &[Kind::Budget, Kind::Limit, Kind::Node]),
    }
}

/// Deletes the objects in order; the answers become one.
async fn delete_all(
    client: &Client,
    references: &[Reference],
    mode: Mode,
) -> Result<ApplyAnswer, Stop> {
    let mut all = ApplyAnswer {
        results: Vec::new(),
        record: 0,
        dry_run: (mode == Mode::DryRun).then_some(true),
    };
    for reference in references {
        let answer = match reference {
            Reference::Budget(name) => client.delete_budget(name, mode).await?,
            Reference::Limit(name) => client.delete_limit(name, mode).await?,
            Reference::Node(name) => client.delete_node(name, mode).await?,
            other => return Err(Failure::usage(format!("{other} cannot be deleted")).into()),
        };
        all.results.extend(answer.results);
        all.record = answer.record;
    }
    Ok(all)
}
