//! `bursar up`: runs the whole system on this machine.

mod demo;
#[cfg(test)]
mod deploy;
mod executor;
pub(super) mod machine;
pub(super) mod observe;
mod reports;
pub(super) mod settings;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bursar_client::Client;
use bursar_client::client::{Mode, Options, Transport};
use bursar_engine::market::Mode as MarketSetting;
use bursar_engine::token::Role;
use bursar_engine::words;
use bursar_ledger::clock::MachineClock;
use bursar_ledger::data::{self, Data};
use bursar_ledger::store::sqlite::FILE_NAME;
use bursar_ledger::term;
use bursar_node::executor::User;
use bursar_node::local::Local;
use bursar_node::market;
use bursar_server::descriptors;
use bursar_server::listen::{Listen, Listening, check_address};
use bursar_server::metrics::Metrics;
use bursar_server::policy;
use bursar_server::runs::{Attendant, Simulated};
use bursar_server::service::executions_to_share;
use bursar_server::{Caller, CallerSource, Runner, ServerInfo, Service, Via, router};
use bursar_units::Label;
use bursar_units::causes::chain;
use serde_json::json;

use super::market::sharing::Sharing;
use super::signals::Signals;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::UpArguments;
use crate::layout::details;
use crate::progress::Progress;
use crate::session::Session;
use demo::{Players, Tally};
use executor::MachineExecutor;
use machine::Machine;
use observe::Observer;
use reports::Reports;
use settings::Settings;

/// Name of the socket in the data directory and of the link in the runtime directory.
const SOCKET: &str = "api.sock";
/// The command that messages name.
const COMMAND: &str = "bursar up";
/// Width of the labels; the longest will be `dashboard`.
const LABEL: usize = 9;

pub(super) async fn run(session: &mut Session, arguments: &UpArguments) -> Result<(), Stop> {
    if session.is_virtual() {
        return Err(Failure::usage("a scenario has its own server").into());
    }
    let began = Instant::now();
    observe::log_to_stderr(session);
    descriptors::raise();
    let settings = Settings::read(session, arguments)?;
    if arguments.demo {
        demo::clear(&settings.data)?;
    }
    if !settings.data.join(FILE_NAME).exists() {
        check_new(&settings)?;
    }
    let metrics = Metrics::default();
    let machine = Machine::read();
    let (data, service, executor) = open(session, &settings, &metrics, &machine)?;
    policy::record(&data.ledger, &settings.policy)
        .await
        .map_err(|error| Failure::unavailable(chain(&error)))?;
    // Signals are caught before the first limit is written, so that every end restores it.
    let signals = Signals::that_end()?;
    let (is_shared, options) = market_options(&settings, &machine, &data);
    let sharing = if is_shared {
        Sharing::start(COMMAND, options.clone())?
    } else {
        Sharing::off(COMMAND)
    };
    let service = match sharing.agent() {
        Some(agent) => service.sharing_cpu(Arc::clone(agent)),
        None => service,
    };
    let service = Arc::new(service);
    let reports = Reports::new(&data.ledger, sharing.agent(), options);
    let local = Arc::<Local>::clone(&executor.local);
    let runner = Runner::new(data.ledger.clone(), local, metrics.runner());
    let runner = tokio::spawn(runner.run());
    // Nodes with GPUs come from files, so nothing but a simulation can run their runs.
    let attendant = Attendant::new(data.ledger.clone(), Arc::<Simulated>::default());
    let attendant = tokio::spawn(attendant.run());
    let server = Server {
        settings: &settings,
        machine: &machine,
        sharing: &sharing,
        reports: &reports,
        is_demo: arguments.demo,
        service: &service,
        data: &data,
        executor: &executor,
        began,
    };
    let result = server.serve(session, signals).await;
    sharing.end(session).await;
    reports.settle().await;
    // The processes of executions keep running.
    runner.abort();
    attendant.abort();
    let _aborted = runner.await;
    let _aborted = attendant.await;
    // Threads end in this order: intake, engine, store. The lock is released last.
    let stopped = tokio::task::spawn_blocking(move || data.stop()).await;
    result?;
    stopped.map_err(|error| Failure::unavailable(format!("the ledger did not stop: {error}")))?;
    session.aside("stopped; everything acknowledged is on disk\n");
    Ok(())
}

struct Server<'a> {
    settings: &'a Settings,
    machine: &'a Machine,
    sharing: &'a Sharing,
    reports: &'a Reports,
    is_demo: bool,
    service: &'a Arc<Service>,
    data: &'a Data,
    executor: &'a MachineExecutor,
    began: Instant,
}

/// Checks a first start before a ledger is created, so that a failed start leaves none behind.
/// Later starts skip it: the error that another server uses the ledger comes before a taken port.
fn check_new(settings: &Settings) -> Result<(), Stop> {
    check_address(settings.listen).map_err(|error| Failure::unavailable(chain(&error)))?;
    executor::check(settings)
}

/// Opens the data directory, its executor and its service.
fn open(
    session: &mut Session,
    settings: &Settings,
    metrics: &Metrics,
    machine: &Machine,
) -> Result<(Data, Service, MachineExecutor), Stop> {
    let observer = Arc::new(Observer::new(metrics.clone(), settings.data.clone()));
    let clock = Arc::new(MachineClock::default());
    let mut progress = Progress::new(session, "records");
    let opened = data::open(&settings.data, clock, observer, |done, total| {
        progress.at(done, total);
    });
    drop(progress);
    let data = opened.map_err(|error| cannot_open(session, &settings.data, &error))?;
    for skipped in &data.skipped {
        let text = format!(
            "warning: snapshot {} was skipped: {}\n",
            skipped.path.display(),
            chain(&skipped.reason)
        );
        session.aside(&text);
    }
    let executor = MachineExecutor::open(settings, &data)?;
    let info = ServerInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: "sqlite".to_owned(),
        file: Some(settings.data.join(FILE_NAME)),
        leads_since: session.now(),
        node: Some(machine.name().to_owned()),
    };
    let readers = Arc::new(data.readers());
    let (ledger, metrics) = (data.ledger.clone(), metrics.clone());
    let service = Service::new(ledger, readers, data.keys(), info, metrics)
        .indexed(data.index())
        .executing(Arc::<Local>::clone(&executor.local), settings.own_user);
    Ok((data, service, executor))
}

/// Whether an agent shares the CPU, and its options.
fn market_options(settings: &Settings, machine: &Machine, data: &Data) -> (bool, market::Options) {
    let (is_shared, mode) = match settings.market.mode {
        Some(MarketSetting::Off) => (false, market::Mode::Observe),
        Some(MarketSetting::Act) => (true, market::Mode::Act),
        Some(MarketSetting::Observe) | None => (true, market::Mode::Observe),
    };
    let who = (
        settings.cgroups.as_slice(),
        Some(executions_to_share(&data.ledger)),
    );
    let options = settings
        .market
        .options(mode, machine.name(), &settings.data, who);
    (is_shared, options)
}

impl Server<'_> {
    async fn serve(&self, session: &mut Session, mut signals: Signals) -> Result<(), Stop> {
        let operator = client_as(self.service, "bursar", Role::Operate, "bursar")?;
        let socket = self.settings.data.join(SOCKET);
        let listen = Listen {
            tcp: Some(self.settings.listen),
            socket: Some(socket.clone()),
            anonymous: self.settings.anonymous,
            connections_max: None,
        };
        let listening = Listening::bind(Arc::clone(self.service), &listen)
            .await
            .map_err(|error| Failure::unavailable(chain(&error)))?;
        operator.put_node(&self.machine.node()?, Mode::Do).await?;
        let _reporting = self.reports.begin().await;
        let link = if self.is_demo {
            None
        } else {
            link(session, &socket).await
        };
        let address = listening.address().unwrap_or(self.settings.listen);
        let players = if self.is_demo {
            Some(demo::start(self.service, &operator).await?)
        } else {
            None
        };
        self.announce(session, address, &socket, link.is_some())?;
        listening
            .serve(async {
                match players {
                    Some(players) => self.play(session, players, &mut signals).await,
                    None => {
                        signals.next().await;
                    }
                }
            })
            .await;
        self.say_running(session);
        if let Some(link) = link {
            // Another server may have replaced the link.
            if std::fs::read_link(&link).is_ok_and(|target| target == socket) {
                let _gone = std::fs::remove_file(&link);
            }
        }
        Ok(())
    }

    /// Runs the demo until a signal, then stops its workers; a second signal ends that wait. Prints
    /// the tally at intervals and at the end.
    async fn play(&self, session: &mut Session, players: Players, signals: &mut Signals) {
        let mut ticks = tokio::time::interval(demo::TALLY_EVERY);
        // The first tick is immediate, when there is nothing to count.
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = signals.next() => break,
                _ = ticks.tick() => self.say_tally(session),
            }
        }
        tokio::select! {
            () = players.finish() => {}
            _ = signals.next() => {}
        }
        self.say_tally(session);
    }

    fn say_tally(&self, session: &mut Session) {
        let tally = Tally::count(self.data.ledger.view(), &self.executor.trees);
        session.aside(&format!("{tally}\n"));
    }

    fn say_running(&self, session: &mut Session) {
        let running = self.data.ledger.view().read().bookings.executions().count();
        let (executions, them) = match running {
            0 => return,
            1 => ("1 execution keeps".to_owned(), "it"),
            _ => (format!("{running} executions keep"), "them"),
        };
        session.aside(&format!(
            "note: {executions} running; the next `bursar up` on this data adopts {them}\n"
        ));
    }

    fn announce(
        &self,
        session: &mut Session,
        address: SocketAddr,
        socket: &Path,
        is_linked: bool,
    ) -> Result<(), Stop> {
        let took = self.began.elapsed().as_millis();
        if session.for_programs() {
            return session.print_line(&json!({
                "version": env!("CARGO_PKG_VERSION"),
                "data": self.settings.data.display().to_string(),
                "records": self.data.records,
                "server": format!("http://{address}"),
                "socket": socket.display().to_string(),
                "executor": self.executor.json(),
                "market": self.sharing.json(),
                "readyMs": u64::try_from(took).unwrap_or(u64::MAX),
            }));
        }
        let shown = session.environment.shown(&self.settings.data);
        let records = match self.data.records {
            0 => "new".to_owned(),
            records => words::count(records, "record"),
        };
        let reached = match (self.is_demo, is_linked) {
            (true, _) => "and `--context demo`".to_owned(),
            (false, true) => "and a socket the `bursar` command finds by itself".to_owned(),
            (false, false) => format!("and `--server unix:{}`", socket.display()),
        };
        let lines = [
            ("ledger", format!("{shown} ({records})")),
            ("api", format!("http://{address} {reached}")),
            ("executor", self.executor.words()),
            ("market", self.sharing.words()),
        ];
        let lines = lines.map(|(word, text)| (word.to_owned(), text));
        session.print(&format!(
            "bursar {} on this machine: {}\n{}ready in {}.{}s, stop with Ctrl-C\n",
            env!("CARGO_PKG_VERSION"),
            self.machine,
            details(&lines, LABEL),
            took / 1_000,
            took % 1_000 / 100,
        ))?;
        let next = if self.is_demo {
            demo::words(&shown)
        } else {
            TRY.to_owned()
        };
        session.aside(&next);
        Ok(())
    }
}

/// Examples below the start message.
const TRY: &str = "
try, in another terminal:
  bursar exec --class python -- python3 -c 'print(\"hello\")'    hold a slot, run, give it back
  bursar bookings                                              who holds, who waits
  bursar top                                                   who needs CPU here, and why
  bursar limit set python --class python --slots 2 --dry-run   what a bound would do
  bursar up --demo                                             an example organisation at work
";

/// The user `nobody`.
const NOBODY: User = User {
    uid: 65_534,
    gid: 65_534,
};

/// A client of the service in this process, with the given caller.
fn client_as(service: &Arc<Service>, name: &str, role: Role, tenant: &str) -> Result<Client, Stop> {
    let label = |text: &str| Label::new(text).map_err(|error| Failure::usage(error.to_string()));
    let caller = Caller {
        name: label(name)?,
        // A server that runs as root runs the demo's programs as nobody.
        via: match role {
            Role::Operate => Via::Socket,
            _ => Via::User(NOBODY),
        },
        roles: std::iter::once(role).collect(),
        tenants: std::iter::once(label(tenant)?).collect(),
        owners: std::iter::empty().collect(),
        expires: None,
    };
    let routes = router(Arc::clone(service), CallerSource::Fixed(Arc::new(caller)));
    Ok(Client::new(Transport::within(routes), Options::usual()))
}

/// Links the socket at the default path of clients, unless the link is to another live server.
async fn link(session: &mut Session, socket: &Path) -> Option<PathBuf> {
    let directory = session.environment.runtime.clone()?;
    let link = directory.join(SOCKET);
    if link == socket {
        return Some(link);
    }
    let is_ours = std::fs::read_link(&link).is_ok_and(|target| target == socket);
    if !is_ours && tokio::net::UnixStream::connect(&link).await.is_ok() {
        session.aside(&format!(
            "note: another server is linked at {}\n",
            link.display()
        ));
        return None;
    }
    let made = std::fs::create_dir_all(&directory).and_then(|()| {
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::os::unix::fs::symlink(socket, &link)
    });
    match made {
        Ok(()) => Some(link),
        Err(error) => {
            let link = link.display();
            session.aside(&format!(
                "warning: cannot create the link {link}: {error}\n"
            ));
            None
        }
    }
}

/// Error of a data directory that cannot be opened, with its exit code and a hint.
fn cannot_open(session: &Session, data: &Path, error: &term::Error) -> Stop {
    use bursar_ledger::store::Error as Store;
    let shown = session.environment.shown(data);
    let message = format!("cannot start on {shown}: {}", chain(error));
    let store = match error {
        term::Error::Store(store)
        | term::Error::Recover(bursar_ledger::recover::Error::Read(store)) => Some(store),
        _ => None,
    };
    let failure = match (error, store) {
        (_, Some(Store::InUse { .. })) | (term::Error::NotLeader, _) => Failure::unavailable(
            message,
        )
        .hint("stop the other server first, or name another data directory with `--data DIR`"),
        (term::Error::Recover(bursar_ledger::recover::Error::Fold(fold)), _) if fold.is_newer() => {
            Failure::unavailable(message)
                .hint("install a newer bursar; nothing is wrong with the ledger")
        }
        (_, Some(Store::Damaged { .. } | Store::NotALedger { .. }))
        | (term::Error::Recover(_), _) => Failure::new(exit::UNVERIFIED, message).hint(format!(
            "`bursar ledger check --store {}` shows where",
            data.display()
        )),
        (_, Some(Store::NewerFormat { .. })) => Failure::usage(message),
        _ => Failure::unavailable(message),
    };
    failure.into()
}
