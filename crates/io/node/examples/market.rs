//! A single agent, for tests that kill it.
//!
//! `market DIRECTORY RESERVE CLEAR_MS NAME=PATH:MIN:MAX…` acts until it is killed, and prints after
//! each clearing whether it acts and which pods it holds. `market restore DIRECTORY` restores the
//! limits of such an agent, and prints a line at its begin and end.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bursar_market::node::Settings;
use bursar_market::params::Params;
use bursar_node::market::{self, Agent, Declared, Deed, Mode, Options, Place, Unmanaged};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().is_some_and(|word| word == "restore") {
        return restore(&args.next().unwrap_or_default());
    }
    let Some(options) = options() else {
        eprintln!("usage: market DIRECTORY RESERVE CLEAR_MS NAME=PATH:MIN:MAX…");
        return ExitCode::FAILURE;
    };
    match Agent::start(options) {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Ok(agent) => print_views(&agent),
    }
}

fn restore(directory: &str) -> ExitCode {
    println!("restoring");
    match market::restore(directory.as_ref(), "/proc/self".as_ref(), Deed::Real) {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Ok(restored) => {
            println!("{restored:?}");
            ExitCode::SUCCESS
        }
    }
}

/// Prints the state until standard output is closed.
fn print_views(agent: &Agent) -> ExitCode {
    let mut views = agent.views();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let Ok(runtime) = runtime else {
        return ExitCode::FAILURE;
    };
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let held: Vec<_> = view.standings.iter().filter_map(|one| one.held).collect();
        let line = format!(
            "{} {:?} {:?} {held:?} {:?}\n",
            view.writes, view.acts, view.unmanaged, view.error
        );
        if std::io::stdout().write_all(line.as_bytes()).is_err() {
            return ExitCode::SUCCESS;
        }
        if runtime.block_on(views.changed()).is_err() {
            return ExitCode::FAILURE;
        }
    }
}

fn options() -> Option<Options> {
    let mut args = std::env::args().skip(1);
    let directory = PathBuf::from(args.next()?);
    let reserve_milli = args.next()?.parse().ok()?;
    let clear = Duration::from_millis(args.next()?.parse().ok()?);
    let cgroups: Option<Vec<Declared>> = args.map(|text| declared(&text)).collect();
    Some(Options {
        node: "here".to_owned(),
        directory,
        mode: Mode::Act,
        settings: Settings {
            windows: 2,
            writes_per_hour: 1_000_000,
            ..Settings::default()
        },
        interval: clear,
        reserve_milli: Some(reserve_milli),
        unmanaged: Unmanaged::Given(0),
        cgroups: cgroups?,
        executions: None,
        process: "/proc/self".into(),
    })
}

fn declared(text: &str) -> Option<Declared> {
    let (name, rest) = text.split_once('=')?;
    let mut parts = rest.split(':');
    let path = PathBuf::from(parts.next()?);
    let (min_milli, max_milli) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Declared {
        name: name.to_owned(),
        place: Place::Path(path),
        params: Params {
            min_milli,
            max_milli,
            weight: 100,
        },
    })
}
