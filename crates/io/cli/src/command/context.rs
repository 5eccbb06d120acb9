//! `bursar context`: the servers that commands can use, and the current one.

use std::os::unix::net::UnixStream;

use serde::Serialize;

use crate::config::{self, Config, DEMO};
use crate::failure::{Failure, Stop};
use crate::grammar::{ContextVerb, ListFlags, Noun};
use crate::layout::{Column, Shown};
use crate::list::{self, Filter, Listed};
use crate::session::Session;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<String>,
    current: bool,
}

pub(super) fn run(session: &mut Session, noun: Noun<ContextVerb>) -> Result<(), Stop> {
    match noun.verb.unwrap_or(ContextVerb::List(noun.list)) {
        ContextVerb::List(flags) => list(session, &flags),
        ContextVerb::Use { name } => make_current(session, &name),
    }
}

fn list(session: &mut Session, flags: &ListFlags) -> Result<(), Stop> {
    if flags.watch {
        return Err(Failure::usage("contexts cannot be watched: leave out `-w`").into());
    }
    let filter = Filter::read::<Row>(flags.filter.as_deref())?;
    let config = Config::read(session.environment.config.as_deref())?;
    let mut contexts = config.context.clone();
    if !contexts.contains_key(DEMO) && (is_chosen(session, &config) || is_running(session)) {
        contexts.insert(DEMO.to_owned(), config.context(DEMO, &session.environment)?);
    }
    let rows = contexts.into_iter().map(|(name, context)| Row {
        current: config.current.as_ref() == Some(&name),
        name,
        server: context.server,
        token_file: context.token_file,
    });
    let look = session.look();
    let rows: Vec<Row> = rows.filter(|row| filter.admits(row, &look)).collect();
    list::print(session, &rows, &list::Place::default())
}

/// Whether commands use the demo, running or not.
fn is_chosen(session: &Session, config: &Config) -> bool {
    let named = session.common.context.as_ref();
    let named = named.or(session.environment.context.as_ref());
    let chosen = named.or(config.current.as_ref());
    chosen.is_some_and(|name| name == DEMO) && config::demo_socket(&session.environment).is_some()
}

/// Whether a server listens on the demo's socket; a crash leaves the file behind.
fn is_running(session: &Session) -> bool {
    let socket = config::demo_socket(&session.environment);
    socket.is_some_and(|socket| UnixStream::connect(socket).is_ok())
}

fn make_current(session: &mut Session, name: &str) -> Result<(), Stop> {
    let Some(path) = session.environment.config.clone() else {
        let message = "the path of the client's file is not known: set HOME or BURSAR_CONFIG";
        return Err(Failure::usage(message).into());
    };
    let config = Config::read(Some(&path))?;
    config.context(name, &session.environment)?;
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let beside = path.with_extension("new");
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&beside, config::with_current(&text, name)))
        .and_then(|()| std::fs::rename(&beside, &path));
    written.map_err(|error| Failure::file("write", path.display(), &error))?;
    let shown = session.environment.shown(&path);
    let value = serde_json::json!({"current": name});
    session.show(&value, &format!("context/{name}"), |_| {
        format!("context {name} is current now ({shown})\n")
    })
}

impl Listed for Row {
    const KIND: &'static str = "context";
    const NONE: &'static str = "no contexts";
    const FIRST: &'static str =
        "`[context.lab]` with `server = \"http://…\"` in the client's file makes one";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<Row>] = &[
            Column::of_text("CONTEXT", Shown::Always, |row, _| row.name.clone()),
            Column::of_text("CURRENT", Shown::Always, |row, _| {
                if row.current { "yes" } else { "" }.to_owned()
            }),
            Column::of_text("SERVER", Shown::Always, |row, _| row.server.clone()),
            Column::of_text("TOKEN FILE", Shown::Always, |row, _| {
                row.token_file.clone().unwrap_or_default()
            }),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
