//! The commands. Sentences come from the server; commands only lay them out.

mod apply;
mod booking;
mod cluster;
mod context;
mod delete;
mod doctor;
mod explain;
mod generate;
mod market;
pub(crate) mod scenario;
mod signals;
mod spine;
mod up;
mod watch;

use bursar_engine::{Kind, Reference, reference};

use crate::failure::{Failure, Stop};
use crate::grammar::Command;
use crate::session::Session;
use crate::suggest::did_you_mean;

/// The last line of every dry run.
pub(crate) const DRY_RUN: &str = "nothing was changed (dry run)\n";

pub(crate) async fn run(session: &mut Session, command: Command) -> Result<(), Stop> {
    match command {
        Command::Up(arguments) => Box::pin(up::run(session, &arguments)).await,
        Command::Agent(arguments) => Box::pin(market::agent::run(session, &arguments)).await,
        Command::Exec(arguments) => Box::pin(booking::exec::run(session, &arguments)).await,
        Command::Apply(arguments) => apply::run(session, &arguments).await,
        Command::Delete(arguments) => delete::run(session, &arguments).await,
        Command::Run(noun) => Box::pin(cluster::run(session, noun)).await,
        Command::Lease(noun) => Box::pin(cluster::lease::run(session, noun)).await,
        Command::Budget(noun) => Box::pin(cluster::budget::run(session, noun)).await,
        Command::Booking(noun) => Box::pin(booking::run(session, noun)).await,
        Command::Limit(noun) => Box::pin(booking::limit::run(session, noun)).await,
        Command::Node(noun) => Box::pin(spine::node::run(session, noun)).await,
        Command::Top(arguments) => Box::pin(market::top::run(session, &arguments)).await,
        Command::Market(verb) => market::run(session, &verb),
        Command::Explain(arguments) => explain::run(session, &arguments).await,
        Command::Ledger(verb) => Box::pin(spine::ledger::run(session, verb)).await,
        Command::Audit(verb) => spine::audit::run(session, verb).await,
        Command::Token(noun) => Box::pin(spine::token::run(session, noun)).await,
        Command::Context(noun) => context::run(session, noun),
        Command::Doctor => doctor::run(session).await,
        Command::Scenario(_) => {
            Err(Failure::usage("a scenario cannot run inside a scenario").into())
        }
        Command::Completions { shell } => generate::completions(session, shell),
        Command::Man { directory } => generate::man(session, directory.as_deref()),
    }
}

/// Reads `KIND/NAME` of one of `kinds`; the plural of a kind is accepted too.
pub(crate) fn read_reference(text: &str, kinds: &'static [Kind]) -> Result<Reference, Stop> {
    let plural = text.split_once('/').and_then(|(kind, name)| {
        let singular = kind.strip_suffix('s')?;
        Kind::from_word(singular).map(|kind| format!("{kind}/{name}"))
    });
    Reference::read(plural.as_deref().unwrap_or(text), kinds).map_err(|error| {
        let suggestion = match &error {
            reference::Error::Kind { kind, kinds } => {
                did_you_mean(kind, kinds.iter().map(|kind| kind.word()))
            }
            _ => String::new(),
        };
        Failure::usage(format!("{error}{suggestion}")).into()
    })
}
