//! What each command does. Commands word nothing that the server has words for: they lay out.

mod apply;
mod booking;
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

use bursar_engine::subject::{self, Subject};

use crate::failure::{Failure, Stop};
use crate::grammar::Command;
use crate::session::Session;
use crate::suggest::did_you_mean;

/// The last line of every dry run (design 80, rule 6).
pub(crate) const DRY_RUN: &str = "nothing was changed (dry run)\n";

/// Runs one command to its end.
pub(crate) async fn run(session: &mut Session, command: Command) -> Result<(), Stop> {
    match command {
        Command::Up(arguments) => Box::pin(up::run(session, &arguments)).await,
        Command::Agent(arguments) => Box::pin(market::agent::run(session, &arguments)).await,
        Command::Exec(arguments) => Box::pin(booking::exec::run(session, &arguments)).await,
        Command::Apply(arguments) => apply::run(session, &arguments).await,
        Command::Delete(arguments) => delete::run(session, &arguments).await,
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

/// Reads what records can be about, in the words that the server uses too.
pub(crate) fn read_subject(text: &str) -> Result<Subject, Stop> {
    text.parse().map_err(|error| {
        let suggestion = match &error {
            subject::Error::Kind { kind } => did_you_mean(kind, subject::KINDS),
            _ => String::new(),
        };
        Failure::usage(format!("{error}{suggestion}")).into()
    })
}

/// A thing by kind and name: `booking/job-1`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reference {
    /// `booking`, `limit`, `node` or `pod`.
    pub(crate) kind: &'static str,
    /// Its name.
    pub(crate) name: String,
}

impl Reference {
    /// Reads `KIND/NAME`, where the kind is one of `kinds`; its plural will do.
    pub(crate) fn read(text: &str, kinds: &[&'static str]) -> Result<Self, Stop> {
        let shown = kinds
            .iter()
            .map(|kind| format!("{kind}/NAME"))
            .collect::<Vec<_>>()
            .join(" or ");
        let Some((kind, name)) = text.split_once('/') else {
            return Err(Failure::usage(format!("`{text}` has no kind, write {shown}")).into());
        };
        let singular = kind.strip_suffix('s').unwrap_or(kind);
        let Some(kind) = kinds
            .iter()
            .find(|known| **known == kind || **known == singular)
        else {
            let suggestion = did_you_mean(kind, kinds.iter().copied());
            return Err(Failure::usage(format!("`{text}` is not {shown}{suggestion}")).into());
        };
        if name.is_empty() {
            return Err(Failure::usage(format!("`{text}` has no name")).into());
        }
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}
