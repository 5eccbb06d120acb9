//! Real processes under the real server, which is killed again and again.
//!
//! The server is the program that users have, started as they start it. Clients submit over its
//! socket and repeat under the same id until they have an answer. In the end everything is counted
//! from the ledger's records and from the kernel. Killing the server alone must lose nothing:
//! shims go on, and the next server adopts them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_booking::execution::Verdict;
use bursar_client::Client;
use bursar_client::api::{ExecutionRequest, ExecutionState};
use bursar_client::client::{Address, Error, Mode, Options, Transport};
use bursar_engine::State;
use bursar_ledger::recover::recover;
use bursar_ledger::store::sqlite::{FILE_NAME, SqliteReader};
use bursar_units::{BookingId, Label};
use rustix::process::{Pid, Signal, kill_process};

use super::super::table::grouped;
use super::super::world::{CLASS, TENANT};
use super::records::{self, Said};
use super::residue::Residue;
use super::{Progress, runtime};
use crate::rng::Rng;

/// Clients at a time.
const CLIENTS: u64 = 8;
/// How long a server may take to answer after its start, and everything else to end.
const TIME_MAX: Duration = Duration::from_mins(1);
/// The exit code of a server that cannot have what it needs.
const UNAVAILABLE: i32 = 3;
/// How often a server that starts is asked.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// The longest a server lives on after its next death was decided.
const SPARED_MS_MAX: u64 = 60;

/// What was seen.
pub(super) struct Seen {
    /// Slots held, executions that did not end exactly once, processes, cgroups and zombies.
    pub(super) leaked: u64,
    pub(super) detail: String,
}

/// What is run; which one follows from the number of the execution.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Ends at once with 0.
    Quick,
    /// Takes a moment.
    Short,
    /// Outlives the kill of its server.
    Long,
    /// Writes a line into a file, and ends with 3.
    Failing,
}

/// A server, which is killed when this is dropped.
struct Server {
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    child: Child,
    /// Starts that had to be repeated.
    again: u64,
    /// How long all starts after the first took, until the server answered.
    away: Duration,
}

/// Submits that many executions while the server is killed so many times.
pub(super) fn measure(
    directory: &Path,
    count: u64,
    kills: u64,
    program: &Path,
) -> anyhow::Result<Seen> {
    let (data, marks) = (directory.join("data"), directory.join("marks"));
    std::fs::create_dir(&marks).context("cannot create a directory for marks")?;
    let runtime = runtime("clients")?;
    let mut server = Server::start(program, &data, &directory.join("log"))?;
    let client = server.client();
    runtime.block_on(server.ready(&client))?;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|own| {
            let (client, marks) = (client.clone(), marks.clone());
            let acknowledged = Arc::clone(&acknowledged);
            runtime.spawn(async move {
                for number in (0..count)
                    .skip(usize::try_from(own)?)
                    .step_by(usize::try_from(CLIENTS)?)
                {
                    submit(&client, number, &marks).await?;
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    let mut rng = Rng::new(super::SEED);
    let mut progress = Progress::new("kills of the server", kills);
    for kill in 1..=kills {
        // Evenly over the whole, with as much left to submit after the last.
        let due = count * kill / (kills + 1);
        runtime.block_on(async {
            while acknowledged.load(Ordering::Relaxed) < due
                && !clients.iter().all(tokio::task::JoinHandle::is_finished)
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(SPARED_MS_MAX))).await;
            server.kill_and_start(&client).await
        })?;
        progress.at(kill);
    }
    runtime.block_on(async {
        for task in clients {
            task.await.context("a client panicked")??;
        }
        for number in 0..count {
            ended(&client, number).await?;
        }
        anyhow::Ok(())
    })?;
    let ledger = server.ledger()?;
    let residue = runtime.block_on(settled(&ledger, server.child.id()))?;
    let away_ms = u64::try_from(server.away.as_millis())? / kills.max(1);
    let again = server.again;
    server.stop()?;
    let said = read(&data)?;
    check(&said, count, &marks)?;
    let left = residue.cgroups + residue.processes + residue.zombies;
    Ok(Seen {
        leaked: said.leaked() + u64::try_from(left)?,
        detail: format!(
            "{} held, {} processes, {} cgroups, {} zombies; {} completed, {} failed as they \
             should, {} lost; {} kills -9 of the server, back after {} ms on average, \
             {} starts met the lock of the one before",
            said.held,
            residue.processes,
            residue.cgroups,
            residue.zombies,
            grouped(said.ended(Verdict::Completed)),
            grouped(said.ended(Verdict::Failed)),
            said.ended(Verdict::Lost),
            kills,
            away_ms,
            again,
        ),
    })
}

impl Kind {
    const fn of(number: u64) -> Self {
        match number % 10 {
            0..4 => Self::Quick,
            4..7 => Self::Short,
            7 => Self::Long,
            _ => Self::Failing,
        }
    }

    const fn verdict(self) -> Verdict {
        match self {
            Self::Quick | Self::Short | Self::Long => Verdict::Completed,
            Self::Failing => Verdict::Failed,
        }
    }

    fn words(self, mark: &Path) -> Vec<String> {
        let script = format!("echo ran >> '{}'; exit 3", mark.display());
        let words: &[&str] = match self {
            Self::Quick => &["/bin/true"],
            Self::Short => &["/bin/sleep", "0.05"],
            Self::Long => &["/bin/sleep", "0.5"],
            Self::Failing => &["/bin/sh", "-c", &script],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}

impl Server {
    fn start(program: &Path, data: &Path, log: &Path) -> anyhow::Result<Self> {
        let child = spawn(program, data, log)?;
        Ok(Self {
            program: program.to_owned(),
            data: data.to_owned(),
            log: log.to_owned(),
            child,
            again: 0,
            away: Duration::ZERO,
        })
    }

    fn client(&self) -> Client {
        let address = Address::Unix(self.data.join("api.sock"));
        Client::new(Transport::to(address), Options::usual())
    }

    /// Waits until it answers. A start that says that somebody else is there is tried again, as
    /// whoever supervises it would: a child that the killed server had just begun may hold its lock
    /// for a moment longer.
    async fn ready(&mut self, client: &Client) -> anyhow::Result<()> {
        let until = Instant::now() + TIME_MAX;
        while client.health().await.is_err() {
            let ended = self.child.try_wait().context("cannot watch a child")?;
            if until < Instant::now() || ended.is_some_and(|it| it.code() != Some(UNAVAILABLE)) {
                let words = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!("the server does not start; it says:\n{words}");
            }
            if ended.is_some() {
                self.child = spawn(&self.program, &self.data, &self.log)?;
                self.again += 1;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    async fn kill_and_start(&mut self, client: &Client) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server")?;
        let began = Instant::now();
        self.child = spawn(&self.program, &self.data, &self.log)?;
        self.ready(client).await?;
        self.away += began.elapsed();
        Ok(())
    }

    /// The ledger's own id, from its file.
    fn ledger(&self) -> anyhow::Result<String> {
        let reader = Box::new(SqliteReader::open(&self.data.join(FILE_NAME))?);
        Ok(recover(reader, State::default(), |_, _| {})?
            .state
            .spine
            .ledger)
    }

    /// Ends it in order.
    fn stop(mut self) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("cannot end the server")?;
        let status = self.child.wait().context("cannot wait for the server")?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already needs no signal.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn spawn(program: &Path, data: &Path, log: &Path) -> anyhow::Result<Child> {
    let log = File::options().append(true).create(true).open(log)?;
    let mut command = Command::new(program);
    command
        .args(["up", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        // No link to it where the user's own server is looked for.
        .env("XDG_RUNTIME_DIR", data)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let shown = program.display();
    command
        .spawn()
        .with_context(|| format!("cannot start {shown}"))
}

/// Submits one until there is an answer.
async fn submit(client: &Client, number: u64, marks: &Path) -> anyhow::Result<()> {
    let id = id(number)?;
    let mut words = Kind::of(number).words(&marks.join(id.as_str())).into_iter();
    let request = ExecutionRequest {
        class: Label::new(CLASS)?,
        tenant: Some(Label::new(TENANT)?),
        slots: 1,
        command: words.next().context("nothing to run")?,
        args: words.collect(),
        env: BTreeMap::new(),
        directory: None,
        allow_privilege_escalation: false,
        cpu_milli: None,
        memory_bytes: None,
        gpus: None,
        cpu_limit_milli: None,
        memory_limit_bytes: None,
        pids: None,
        priority: None,
        wait_ms: Some(600_000),
        start_timeout_ms: None,
        max_time_ms: None,
        grace_ms: None,
        retry_of: None,
    };
    let ask = || client.submit(&id, &request, Mode::Do);
    persist(ask)
        .await
        .with_context(|| format!("{id} was not taken"))
}

/// Waits until one has ended.
async fn ended(client: &Client, number: u64) -> anyhow::Result<()> {
    let id = id(number)?;
    let until = Instant::now() + TIME_MAX;
    loop {
        let found = client.execution_wait(&id, Duration::from_secs(5)).await?;
        if found.course.state == ExecutionState::Ended {
            return Ok(());
        }
        if until < Instant::now() {
            bail!("{id} is still {:?}", found.course.state);
        }
    }
}

/// Asks again while the server is away; whatever it says itself is an answer.
async fn persist<T, F>(ask: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = Result<T, Error>>,
{
    let until = Instant::now() + TIME_MAX;
    loop {
        match ask().await {
            Ok(_) => return Ok(()),
            Err(error) if until < Instant::now() => return Err(error.into()),
            Err(Error::Problem(problem)) if problem.code.status() < 500 => {
                bail!("refused: {}", problem.detail);
            }
            Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}

/// What the kernel has when it has had time to forget the last.
async fn settled(ledger: &str, server: u32) -> anyhow::Result<Residue> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let residue = Residue::of(ledger, server)?;
        if residue == Residue::default() || until < Instant::now() {
            return Ok(residue);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

fn read(data: &Path) -> anyhow::Result<Said> {
    records::read(&SqliteReader::open(&data.join(FILE_NAME))?)
}

/// Each is on record once, came out as it had to, and ran once where that can be seen.
fn check(said: &Said, count: u64, marks: &Path) -> anyhow::Result<()> {
    for number in 0..count {
        let (id, kind) = (id(number)?, Kind::of(number));
        let told = said
            .executions
            .get(&id)
            .with_context(|| format!("{id} is not on record"))?;
        if told.verdict != Some(kind.verdict()) {
            bail!("{id} ({kind:?}) came out as {:?}", told.verdict);
        }
        if kind == Kind::Failing {
            let marked = std::fs::read_to_string(marks.join(id.as_str())).unwrap_or_default();
            if marked != "ran\n" {
                bail!("{id} ran {} times", marked.lines().count());
            }
        }
    }
    Ok(())
}

fn id(number: u64) -> anyhow::Result<BookingId> {
    Ok(BookingId::new(&format!("real-{number}"))?)
}
