//! `bursar agent`: the market of one node without a server, for a `DaemonSet`.
//!
//! It also serves `/metrics`, `/healthz` and `/readyz`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bursar_engine::market::Mode as MarketSetting;
use bursar_node::market::{Agent, Mode};
use bursar_server::descriptors;
use serde_json::json;
use tokio::net::TcpListener;

use super::sharing::Sharing;
use crate::command::signals::Signals;
use crate::command::up::machine::Machine;
use crate::command::up::observe::log_to_stderr;
use crate::command::up::settings::File;
use crate::failure::{Failure, Stop};
use crate::grammar::AgentArguments;
use crate::layout::details;
use crate::session::Session;

const COMMAND: &str = "bursar agent";
/// Default port, different from those of a server and of a demo.
const PORT: u16 = 7173;
/// Width of the word before each line.
const WORD: usize = 7;

pub(in crate::command) async fn run(
    session: &mut Session,
    arguments: &AgentArguments,
) -> Result<(), Stop> {
    if session.is_virtual() {
        return Err(Failure::usage("a scenario has no machine to share").into());
    }
    let began = Instant::now();
    log_to_stderr(session);
    descriptors::raise();
    let file = File::read(session, arguments.config.as_deref())?;
    let mode = mode(arguments, file.market.mode)?;
    let data = data(session, arguments, &file)?;
    let node = match &arguments.node {
        Some(name) => name.to_string(),
        None => Machine::read().name().to_owned(),
    };
    let mut signals = Signals::that_end()?;
    let listen = arguments.listen;
    let listen = listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, PORT).into());
    let listener = bind(listen).await?;
    let address = listener.local_addr().unwrap_or(listen);
    let pods = (file.cgroup.as_slice(), None);
    let options = file.market.options(mode, &node, &data, pods);
    let sharing = Sharing::start(COMMAND, options)?;
    let Some(agent) = sharing.agent().map(Arc::clone) else {
        return Err(Failure::unavailable(format!("the market is {}", sharing.words())).into());
    };
    let announced = announce(session, &sharing, (&node, address, began));
    if announced.is_ok() {
        serve_until_signal(listener, agent, &mut signals).await;
    }
    // Also after a failure: limits must be put back.
    sharing.end(session).await;
    announced?;
    session.aside("stopped\n");
    Ok(())
}

async fn serve_until_signal(listener: TcpListener, agent: Arc<Agent>, signals: &mut Signals) {
    tokio::select! {
        () = bursar_server::agent::serve(listener, agent) => {}
        _ = signals.next() => {}
    }
}

fn mode(arguments: &AgentArguments, written: Option<MarketSetting>) -> Result<Mode, Stop> {
    match (arguments.market.as_deref(), written) {
        (Some("act"), _) | (None, Some(MarketSetting::Act)) => Ok(Mode::Act),
        (None, Some(MarketSetting::Off)) => {
            let message = "the market is off in the settings";
            let hint = "`bursar agent --market observe` observes anyway";
            Err(Failure::usage(message).hint(hint).into())
        }
        _ => Ok(Mode::Observe),
    }
}

fn data(session: &Session, arguments: &AgentArguments, file: &File) -> Result<PathBuf, Stop> {
    let named = arguments.data.as_ref().map(|data| session.path(data));
    let data = named
        .or_else(|| file.server.data.clone())
        .or_else(|| session.environment.data_home.clone())
        .ok_or_else(|| Failure::usage("there is no data directory; name one with `--data DIR`"))?;
    Ok(std::path::absolute(&data).unwrap_or(data))
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Stop> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::unavailable(format!("cannot listen on {address}: {error}"))
            .hint("choose another address with `--listen ADDRESS`")
            .into()
    })
}

fn announce(
    session: &mut Session,
    sharing: &Sharing,
    (node, address, began): (&str, SocketAddr, Instant),
) -> Result<(), Stop> {
    let took = began.elapsed().as_millis();
    if session.for_programs() {
        return session.print_line(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "node": node,
            "server": format!("http://{address}"),
            "market": sharing.json(),
            "readyMs": u64::try_from(took).unwrap_or(u64::MAX),
        }));
    }
    let lines = [
        ("market", sharing.words()),
        ("metrics", format!("http://{address}/metrics")),
    ];
    let lines = lines.map(|(word, text)| (word.to_owned(), text));
    session.print(&format!(
        "bursar {} agent of {node}\n{}ready in {}.{}s, stop with Ctrl-C\n",
        env!("CARGO_PKG_VERSION"),
        details(&lines, WORD),
        took / 1_000,
        took % 1_000 / 100,
    ))
}
