//! Real processes under the real server, which is killed repeatedly.
//!
//! The server is the `bursar` binary, started with `bursar up`. Clients submit over its socket and
//! repeat requests under the same id until they are answered. At the end everything is counted from
//! the ledger's records and from the kernel. A kill of the server alone must lose nothing: the shims
//! continue, and the next server adopts them.

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
use super::records::{self, LedgerHistory};
use super::residue::Residue;
use super::{Progress, runtime};
use crate::rng::Rng;

/// Number of clients.
const CLIENTS: u64 = 8;
/// Time limit of a start, and of all other waits.
const TIME_MAX: Duration = Duration::from_mins(1);
/// Exit code of a server that finds its lock taken.
const UNAVAILABLE: i32 = 3;
/// Pause between two attempts.
const RETRY_EVERY: Duration = Duration::from_millis(10);
/// Maximum random delay of a kill, in milliseconds.
const KILL_DELAY_MS_MAX: u64 = 60;

pub(super) struct Measurement {
    /// Held slots, executions that did not end exactly once, processes, cgroups and zombies.
    pub(super) leaked: u64,
    pub(super) detail: String,
}

/// Kind of program, which follows from the number of the execution.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Ends immediately with 0.
    Quick,
    /// Runs for 50 ms.
    Short,
    /// Runs for 500 ms, so that it outlives a kill of its server.
    Long,
    /// Writes a line into a file and ends with 3.
    Failing,
}

/// A server process, which is killed on drop.
struct Server {
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    child: Child,
    /// Number of starts that had to be repeated.
    repeated_starts: u64,
    /// Total time of all starts after the first, until the server answered.
    downtime: Duration,
}

/// Submits `count` executions while the server is killed `kills` times.
pub(super) fn measure(
    directory: &Path,
    count: u64,
    kills: u64,
    program: &Path,
) -> anyhow::Result<Measurement> {
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
        // Kills are spread evenly over all submissions.
        let due = count * kill / (kills + 1);
        runtime.block_on(async {
            while acknowledged.load(Ordering::Relaxed) < due
                && !clients.iter().all(tokio::task::JoinHandle::is_finished)
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(KILL_DELAY_MS_MAX))).await;
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
    let away_ms = u64::try_from(server.downtime.as_millis())? / kills.max(1);
    let again = server.repeated_starts;
    server.stop()?;
    let history = read(&data)?;
    check(&history, count, &marks)?;
    let left = residue.cgroups + residue.processes + residue.zombies;
    Ok(Measurement {
        leaked: history.leaked() + u64::try_from(left)?,
        detail: format!(
            "{} held, {} processes, {} cgroups, {} zombies; {} completed, {} failed as they \
             should, {} lost; {} kills -9 of the server, back after {} ms on average, \
             {} starts met the lock of the one before",
            history.held,
            residue.processes,
            residue.cgroups,
            residue.zombies,
            grouped(history.ended(Verdict::Completed)),
            grouped(history.ended(Verdict::Failed)),
            history.ended(Verdict::Lost),
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

    fn arguments(self, mark: &Path) -> Vec<String> {
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
            repeated_starts: 0,
            downtime: Duration::ZERO,
        })
    }

    fn client(&self) -> Client {
        let address = Address::Unix(self.data.join("api.sock"));
        Client::new(Transport::to(address), Options::usual())
    }

    /// Waits until the server answers. A start that finds the lock taken is repeated, as a supervisor
    /// would do: a child process that the killed server had just forked may hold the lock for a moment.
    async fn ready(&mut self, client: &Client) -> anyhow::Result<()> {
        let until = Instant::now() + TIME_MAX;
        while client.health().await.is_err() {
            let ended = self.child.try_wait().context("cannot watch a child")?;
            if until < Instant::now() || ended.is_some_and(|it| it.code() != Some(UNAVAILABLE)) {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!("the server does not start; its output:\n{log}");
            }
            if ended.is_some() {
                self.child = spawn(&self.program, &self.data, &self.log)?;
                self.repeated_starts += 1;
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
        Ok(())
    }

    async fn kill_and_start(&mut self, client: &Client) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server")?;
        let began = Instant::now();
        self.child = spawn(&self.program, &self.data, &self.log)?;
        self.ready(client).await?;
        self.downtime += began.elapsed();
        Ok(())
    }

    /// The id of the ledger, from its file.
    fn ledger(&self) -> anyhow::Result<String> {
        let reader = Box::new(SqliteReader::open(&self.data.join(FILE_NAME))?);
        Ok(recover(reader, State::default(), |_, _| {})?
            .state
            .spine
            .ledger)
    }

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
        // The server may have ended already.
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
        // Keeps the socket of this server out of the user's runtime directory.
        .env("XDG_RUNTIME_DIR", data)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let shown = program.display();
    command
        .spawn()
        .with_context(|| format!("cannot start {shown}"))
}

/// Submits one execution, and repeats it until there is an answer.
async fn submit(client: &Client, number: u64, marks: &Path) -> anyhow::Result<()> {
    let id = id(number)?;
    let mut arguments = Kind::of(number)
        .arguments(&marks.join(id.as_str()))
        .into_iter();
    let request = ExecutionRequest {
        class: Label::new(CLASS)?,
        tenant: Some(Label::new(TENANT)?),
        slots: 1,
        command: arguments.next().context("nothing to run")?,
        args: arguments.collect(),
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
    retry(|| client.submit(&id, &request, Mode::Do))
        .await
        .with_context(|| format!("{id} was not accepted"))
}

/// Waits until one execution has ended.
async fn ended(client: &Client, number: u64) -> anyhow::Result<()> {
    let id = id(number)?;
    let until = Instant::now() + TIME_MAX;
    loop {
        let execution = client.execution_wait(&id, Duration::from_secs(5)).await?;
        if execution.course.state == ExecutionState::Ended {
            return Ok(());
        }
        if until < Instant::now() {
            bail!("{id} is still {:?}", execution.course.state);
        }
    }
}

/// Repeats a request while the server is unavailable; a refusal is an error.
async fn retry<T, F>(request: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = Result<T, Error>>,
{
    let until = Instant::now() + TIME_MAX;
    loop {
        match request().await {
            Ok(_) => return Ok(()),
            Err(error) if until < Instant::now() => return Err(error.into()),
            Err(Error::Problem(problem)) if problem.code.status() < 500 => {
                bail!("refused: {}", problem.detail);
            }
            Err(_) => tokio::time::sleep(RETRY_EVERY).await,
        }
    }
}

/// Processes and cgroups that remain after the kernel had time to remove them.
async fn settled(ledger: &str, server: u32) -> anyhow::Result<Residue> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let residue = Residue::of(ledger, server)?;
        if residue == Residue::default() || until < Instant::now() {
            return Ok(residue);
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

fn read(data: &Path) -> anyhow::Result<LedgerHistory> {
    records::read(&SqliteReader::open(&data.join(FILE_NAME))?)
}

/// Checks that each execution is recorded with the right verdict, and ran once if it leaves a mark.
fn check(history: &LedgerHistory, count: u64, marks: &Path) -> anyhow::Result<()> {
    for number in 0..count {
        let (id, kind) = (id(number)?, Kind::of(number));
        let execution = history
            .executions
            .get(&id)
            .with_context(|| format!("{id} is not recorded"))?;
        if execution.verdict != Some(kind.verdict()) {
            bail!("{id} ({kind:?}) ended as {:?}", execution.verdict);
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
