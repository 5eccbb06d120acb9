//! The world of a script: a ledger in memory, the real service in front of it, and virtual time.
//!
//! Time stands still while a task can run and jumps to the next deadline when none can, so a
//! script that waits a day takes milliseconds. A crash drops everything but the store and the
//! machines: executions and runs keep running there, as processes do when a server dies.
//!
//! The machine of runs reports before each step of the engine, until nothing moves, so a script has
//! one outcome: at one instant ends come before deadlines and commands.

mod words;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_client::Client;
use bursar_client::client::{Options, Transport};
use bursar_engine::State;
use bursar_engine::cluster::{Exit, Policy, Shown, Stage};
use bursar_engine::token::Role;
use bursar_journal::checkpoint::{Name, SigningKey, VerifierKey};
use bursar_ledger::clock::Clock;
use bursar_ledger::data::{Keys, signs_with};
use bursar_ledger::intake::Submission;
use bursar_ledger::key::{self, Signer};
use bursar_ledger::pipeline::{Ledger, Observe};
use bursar_ledger::store::Store as _;
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::term::{Hand, begin};
use bursar_node::executor::User;
use bursar_node::null::Null;
use bursar_server::metrics::Metrics;
use bursar_server::policy;
use bursar_server::runs::{Attendant, Simulated};
use bursar_server::{
    Caller, CallerSource, OwnUser, Readers, Runner, ServerInfo, Service, Via, router,
};
use bursar_units::causes::chain;
use bursar_units::{Instant, Label, Millis};
use jiff::tz::TimeZone;
use tokio::task::JoinHandle;

use super::script;
use crate::console::{Console, Stream};
use crate::environment::Environment;
use crate::run::{self, Invocation};
use crate::session::{Now, Reach, Terminal, Within};
use crate::suggest::did_you_mean;
use crate::time;

/// Start of a world unless the script sets the clock.
const BEGIN: &str = "2026-11-16T10:00:00Z";
/// Id of every scenario's ledger.
const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";
/// Seed of every scenario's key. It is public, so proofs of a scenario prove nothing.
const SEED: [u8; 32] = [7; 32];
/// User of all executions, so that answers do not depend on the user who runs the scenario.
const EXECUTION_USER: User = User {
    uid: 1000,
    gid: 1000,
};
/// The commands of a scenario.
const OWN: [&str; 10] = [
    "advance", "as", "away", "bursar", "clock", "crash", "echo", "end", "metrics", "overrun",
];
/// Reserved names of commands that do not exist yet.
const LATER: [&str; 2] = ["fail", "heal"];

/// Result of a command in a script.
#[derive(Debug, Default)]
pub(crate) struct StepResult {
    pub(crate) exit: u8,
    /// Output in the order written.
    pub(crate) written: Vec<(Stream, String)>,
    /// Whether a scenario has no such command.
    pub(crate) is_unknown: bool,
}

pub(crate) struct World {
    clock: Arc<VirtualClock>,
    store: MemoryStore,
    machine: Arc<Null>,
    /// The machine of runs.
    runs: Arc<Simulated>,
    policy: Policy,
    running: Option<Running>,
    caller: Caller,
    directory: PathBuf,
    scratch: tempfile::TempDir,
    exit: u8,
    ids: u32,
}

/// A running term of the world's ledger.
struct Running {
    task: JoinHandle<()>,
    runner: JoinHandle<()>,
    service: Arc<Service>,
    keys: Vec<VerifierKey>,
    began: Instant,
}

/// Clock of the paused tokio runtime.
#[derive(Debug)]
struct VirtualClock {
    base: Instant,
    since: tokio::time::Instant,
}

/// Observer that ignores everything: failures in a world show in its answers.
struct Unobserved;

impl StepResult {
    /// The output of both streams.
    pub(crate) fn shown(&self) -> String {
        self.written.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// The output of one stream.
    pub(crate) fn of(&self, stream: Stream) -> String {
        let parts = self.written.iter().filter(|(other, _)| *other == stream);
        parts.map(|(_, text)| text.as_str()).collect()
    }

    fn of_result(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::default(),
            Err(message) => Self::error(&message),
        }
    }

    fn error(message: &str) -> Self {
        Self {
            exit: 2,
            written: vec![(Stream::Words, format!("error: {message}\n"))],
            is_unknown: false,
        }
    }
}

impl World {
    /// A world that reads files from `directory`, with the policy of its server.
    pub(crate) fn new(directory: &Path, policy: Policy) -> std::io::Result<Self> {
        let base = bursar_client::api::instant::parse(BEGIN).unwrap_or_default();
        Ok(Self {
            clock: Arc::new(VirtualClock {
                base,
                since: tokio::time::Instant::now(),
            }),
            store: MemoryStore::new(),
            machine: Arc::default(),
            runs: Arc::default(),
            policy,
            running: None,
            caller: operator(),
            directory: directory.to_owned(),
            scratch: tempfile::tempdir()?,
            exit: 0,
            ids: 0,
        })
    }

    /// Runs one command.
    pub(crate) async fn play(&mut self, command: &str) -> StepResult {
        let words = match script::words(command) {
            Ok(words) => words,
            Err(error) => return self.end(StepResult::error(&error.to_string())),
        };
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        let played = match arguments.as_slice() {
            ["bursar", ..] => self.bursar(words).await,
            ["clock", instant] => self.set_clock(instant).await,
            ["advance", length] => self.advance(length).await,
            ["away", length] => self.away(length).await,
            ["crash"] => self.crash(),
            ["end", run, rest @ ..] => match words::exit(rest) {
                Ok(exit) => self.end_run(run, exit).await,
                Err(message) => StepResult::error(&message),
            },
            ["overrun", run] => self.overrun(run, None).await,
            ["overrun", run, length] => match length.parse() {
                Ok(length) => self.overrun(run, Some(length)).await,
                Err(error) => StepResult::error(&error.to_string()),
            },
            ["metrics"] => self.metrics("").await,
            ["metrics", prefix] => self.metrics(prefix).await,
            ["as", name, rest @ ..] => {
                let caller = caller(name, rest);
                StepResult::of_result(caller.map(|caller| self.caller = caller))
            }
            ["echo", "$?"] => {
                return StepResult {
                    exit: 0,
                    written: vec![(Stream::Data, format!("{}\n", self.exit))],
                    is_unknown: false,
                };
            }
            [word, ..] if LATER.contains(word) => StepResult::error(&format!(
                "`{word}` is a command for nodes, which is not available yet"
            )),
            [word, ..] if OWN.contains(word) => StepResult::error(&format!(
                "`{command}` has wrong arguments; `bursar scenario --help` shows the form of `{word}`"
            )),
            [word, ..] => StepResult {
                is_unknown: true,
                ..StepResult::error(&format!(
                    "a scenario has no command `{word}`{}",
                    did_you_mean(word, OWN)
                ))
            },
            [] => StepResult::error("there is no command"),
        };
        self.end(played)
    }

    fn end(&mut self, played: StepResult) -> StepResult {
        self.exit = played.exit;
        played
    }

    async fn bursar(&mut self, words: Vec<String>) -> StepResult {
        if let Err(message) = self.start() {
            return StepResult::error(&message);
        }
        let Some(running) = &self.running else {
            return StepResult::error("the ledger did not start");
        };
        let callers = CallerSource::Fixed(Arc::new(self.caller.clone()));
        let transport = Transport::within(router(Arc::clone(&running.service), callers));
        let within = Within {
            client: Client::new(transport, Options::usual()),
            store: self.store.clone(),
            keys: running.keys.clone(),
            began: running.began,
            ids: self.ids,
        };
        let service = Arc::clone(&running.service);
        let now: Now = Arc::new(move || service.ledger().now());
        let ended = run::within(Invocation {
            words: words.into_iter().map(Into::into).collect(),
            console: Console::Kept(Vec::new()),
            environment: Environment {
                utf8: true,
                ..Environment::default()
            },
            now,
            zone: TimeZone::UTC,
            directory: self.directory.clone(),
            scratch: Some(self.scratch.path().to_owned()),
            terminal: Terminal::default(),
            reach: Reach::Within(Box::new(within)),
        })
        .await;
        if let Reach::Within(within) = &ended.reach {
            self.ids = within.ids;
        }
        let written = match ended.console {
            Console::Kept(written) => written,
            Console::Process => Vec::new(),
        };
        StepResult {
            exit: ended.exit,
            written,
            is_unknown: false,
        }
    }

    /// Sets the clock: to any time before the ledger has started, later only forward.
    async fn set_clock(&mut self, text: &str) -> StepResult {
        let now = self.clock.wall();
        let then = match time::parse(text, now, &TimeZone::UTC) {
            Ok(then) => then,
            Err(message) => return StepResult::error(&message),
        };
        if self.running.is_none() {
            let base = then;
            self.clock = Arc::new(VirtualClock {
                base,
                since: tokio::time::Instant::now(),
            });
            return StepResult::default();
        }
        if then < now {
            return StepResult::error("the clock cannot be set back once the ledger has started");
        }
        self.pass(then.since(now)).await
    }

    async fn advance(&mut self, length: &str) -> StepResult {
        match length.parse::<Millis>() {
            Ok(length) => self.pass(length).await,
            Err(error) => StepResult::error(&error.to_string()),
        }
    }

    /// Lets time pass, so that every deadline in between is handled.
    async fn pass(&mut self, length: Millis) -> StepResult {
        if let Err(message) = self.start() {
            return StepResult::error(&message);
        }
        tokio::time::sleep(Duration::from_millis(length.ms())).await;
        // Work that is due now is done before the next command.
        tokio::task::yield_now().await;
        self.settle().await;
        StepResult::default()
    }

    /// Resolves when everything that is due now is done.
    async fn settle(&self) {
        if let Some(running) = &self.running {
            // The ledger's task runs this in a step, and then goes on until nothing moves.
            let _ended = running.service.ledger().on_store(|_| ()).await;
        }
    }

    /// Lets time pass without a server; then the next term begins.
    async fn away(&mut self, length: &str) -> StepResult {
        let length = match length.parse::<Millis>() {
            Ok(length) => length,
            Err(error) => return StepResult::error(&error.to_string()),
        };
        if let Err(message) = self.start() {
            return StepResult::error(&message);
        }
        self.stop();
        tokio::time::sleep(Duration::from_millis(length.ms())).await;
        StepResult::of_result(self.start())
    }

    async fn end_run(&mut self, run: &str, exit: Exit) -> StepResult {
        match self.running_run(run) {
            Ok(shown) => self.runs.end(shown.uid, shown.incarnation, exit),
            Err(message) => return StepResult::error(&message),
        }
        self.settle().await;
        StepResult::default()
    }

    async fn overrun(&mut self, run: &str, length: Option<Millis>) -> StepResult {
        match self.running_run(run) {
            Ok(shown) if shown.run.expected_duration.is_none() => {
                return StepResult::error(&format!(
                    "{run} has no `expectedDuration`: it goes on until `end {run}`"
                ));
            }
            Ok(shown) => self.runs.overrun(shown.uid, shown.incarnation, length),
            Err(message) => return StepResult::error(&message),
        }
        self.settle().await;
        StepResult::default()
    }

    /// The run of a reference, if it has processes.
    fn running_run(&mut self, text: &str) -> Result<Shown, String> {
        let name = words::run(text)?;
        self.start()?;
        let running = self.running.as_ref().ok_or("the ledger did not start")?;
        let state = running.service.ledger().view().read();
        let Some(shown) = state.clusters.run_named(&name) else {
            let known: Vec<String> = state
                .clusters
                .runs()
                .map(|shown| words::as_written(text, &shown.run.id()))
                .collect();
            let known = known.iter().map(String::as_str);
            return Err(format!("there is no {text}{}", did_you_mean(text, known)));
        };
        match shown.stage {
            Stage::Waiting => Err(format!("{text} waits and has no processes")),
            Stage::Ended => Err(format!("{text} has ended and has no processes")),
            Stage::Starting | Stage::Running | Stage::Ending => Ok(shown),
        }
    }

    /// The metrics whose names begin with a prefix, without comments, sorted.
    async fn metrics(&mut self, prefix: &str) -> StepResult {
        if let Err(message) = self.start() {
            return StepResult::error(&message);
        }
        let Some(running) = &self.running else {
            return StepResult::error("the ledger did not start");
        };
        let text = match running.service.metrics_text().await {
            Ok(text) => text,
            Err(problem) => return StepResult::error(&problem.detail),
        };
        let is_asked = |line: &&str| !line.starts_with('#') && line.starts_with(prefix);
        let mut lines: Vec<&str> = text.lines().filter(is_asked).collect();
        lines.sort_unstable();
        let text = lines.iter().flat_map(|line| [line, "\n"]).collect();
        StepResult {
            exit: 0,
            written: vec![(Stream::Data, text)],
            is_unknown: false,
        }
    }

    /// Drops everything that was not committed and recovers from the store.
    fn crash(&mut self) -> StepResult {
        self.stop();
        StepResult::of_result(self.start())
    }

    /// Ends the server at once; the machines go on.
    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.task.abort();
            running.runner.abort();
        }
    }

    /// Begins a term from the store, unless one is running.
    fn start(&mut self) -> Result<(), String> {
        if self.running.is_some() {
            return Ok(());
        }
        let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&self.clock);
        let began = clock.wall();
        let path = self.scratch.path().join(key::FILE_NAME);
        let mut signer = None;
        let hand = |ledger: &str, generation: u64| {
            let loaded = load_key(&path, ledger, generation)?;
            let verifiers = loaded.verifiers();
            let shared = Arc::new(Mutex::new(loaded));
            signer = Some(Arc::clone(&shared));
            Ok(Hand {
                verifiers,
                sign: signs_with(shared, Arc::clone(&clock)),
            })
        };
        let store = Box::new(self.store.clone());
        let term = begin(
            store,
            State::default(),
            &clock,
            || LEDGER.to_owned(),
            hand,
            |_, _| (),
        );
        let term = term.map_err(|error| chain(&error))?;
        let (ledger, mut task) = Ledger::inline(term, Arc::clone(&clock), Arc::new(Unobserved));
        let policy = policy::owed(&ledger.view().read(), &self.policy);
        if let Some(policy) = policy {
            ledger.push(Submission::own(policy));
        }
        let mut attendant = Attendant::new(ledger.clone(), Arc::clone(&self.runs));
        let mut report = move || attendant.report();
        // The term's first records are signed before any request, whichever task runs first. Ends
        // while there was no term are reported before it starts anything (L5).
        task.settle(&mut report);
        let store = self.store.clone();
        let readers: Readers = Arc::new(move || store.reader());
        let info = ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: "memory".to_owned(),
            file: None,
            leads_since: began,
            node: None,
        };
        let signer = signer.ok_or("the ledger has no key")?;
        let keys = signer
            .lock()
            .map(|signer| signer.verifiers())
            .unwrap_or_default();
        let shared = Keys::new(signer, ledger.clone());
        let metrics = Metrics::default();
        let machine = Arc::<Null>::clone(&self.machine);
        let runner = Runner::new(ledger.clone(), machine, metrics.runner());
        let service = Service::new(ledger, readers, shared, info, metrics);
        let service =
            Arc::new(service.executing(Arc::<Null>::clone(&self.machine), OwnUser::Everyone));
        let task = tokio::spawn(task.run_with(report));
        let runner = tokio::spawn(runner.run());
        self.running = Some(Running {
            task,
            runner,
            service,
            keys,
            began,
        });
        Ok(())
    }
}

impl Clock for VirtualClock {
    fn wall(&self) -> Instant {
        self.base.after(self.monotonic())
    }

    fn monotonic(&self) -> Millis {
        let elapsed = self.since.elapsed().as_millis();
        Millis::from_ms(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

impl Observe for Unobserved {
    fn poisoned(&self, _: &bursar_ledger::writer::Poison) {}

    fn store_failed(&self, _: &bursar_ledger::store::Error) {}

    fn not_leader(&self) {}

    fn store_away(&self, _: &Result<String, bursar_ledger::store::Error>) {}

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}

    fn invariant_broken(&self, _: &bursar_engine::invariants::Broken) {}
}

/// The key of the ledger: the same in every scenario until the script rotates it.
fn load_key(path: &Path, ledger: &str, generation: u64) -> Result<Signer, key::Error> {
    if !path.exists() {
        let name =
            Name::ledger(ledger, generation).map_err(|source| key::Error::Name { source })?;
        let text = SigningKey::from_seed(name, SEED).to_private_text();
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let written = opened.and_then(|mut file| writeln!(file, "{text}"));
        written.map_err(|source| {
            let path = path.display().to_string();
            key::Error::File(bursar_ledger::store::Error::File {
                operation: "write",
                path,
                source,
            })
        })?;
    }
    Signer::load_for(path, ledger, generation)
}

/// The caller until the script changes it with `as`.
fn operator() -> Caller {
    let name = Label::new("operator").unwrap_or_else(|_| Caller::anonymous().name);
    Caller {
        tenants: BTreeSet::from([name.clone()]),
        owners: Caller::own(&name),
        name,
        via: Via::User(EXECUTION_USER),
        roles: BTreeSet::from([Role::Operate]),
        expires: None,
    }
}

/// The caller of `as NAME ROLE[,ROLE] [owner=…] [tenant=…]`.
fn caller(name: &str, rest: &[&str]) -> Result<Caller, String> {
    let mut roles = BTreeSet::new();
    let mut tenants = BTreeSet::new();
    let mut owners = BTreeSet::new();
    for word in rest {
        if let Some(tenant) = word.strip_prefix("tenant=") {
            labels(tenant, &mut tenants)?;
        } else if let Some(owner) = word.strip_prefix("owner=") {
            labels(owner, &mut owners)?;
        } else {
            for role in word.split(',') {
                let role = Role::from_word(role).ok_or_else(|| {
                    format!("`{role}` is not a role{}", did_you_mean(role, Role::WORDS))
                })?;
                roles.insert(role);
            }
        }
    }
    if roles.is_empty() {
        return Err("`as` needs a role: view, use or operate".to_owned());
    }
    let name = Label::new(name).map_err(|error| error.to_string())?;
    // As on the local socket, the default tenant has the caller's name, and so has the owner.
    if tenants.is_empty() {
        tenants.insert(name.clone());
    }
    if owners.is_empty() {
        owners = Caller::own(&name);
    }
    Ok(Caller {
        name,
        via: Via::User(EXECUTION_USER),
        roles,
        tenants,
        owners,
        expires: None,
    })
}

/// Adds the names of a list with commas.
fn labels(text: &str, to: &mut BTreeSet<Label>) -> Result<(), String> {
    for name in text.split(',') {
        to.insert(Label::new(name).map_err(|error| format!("`{name}`: {error}"))?);
    }
    Ok(())
}
