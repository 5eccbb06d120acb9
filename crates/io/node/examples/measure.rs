//! Measures on this machine the time of an execution of `/bin/true` beside a plain fork and exec, with
//! and without limits, and the private memory of each shim.
//!
//! `cargo run -p bursar-node --example measure [SHIM]`; the default shim is the example `shim`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar_node::executor::{Begun, Executor, Job, Left, Work};
use bursar_node::local::{Local, Options};
use bursar_units::BookingId;

const RUNS: u32 = 200;
const AT_ONCE: u32 = 8;
const SHIMS: u32 = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let beside = std::env::current_exe()?.with_file_name("shim");
    let local = Arc::new(Local::open(Options {
        directory: directory.path().join("executions"),
        ledger: format!("measure-{}", std::process::id()),
        shim: std::env::args_os().nth(1).map_or(beside, PathBuf::from),
        require_isolation: true,
        process: PathBuf::from("/proc/self"),
    })?);
    let plain = plain()?;
    println!("fork and exec, one after another: {plain:?} each");
    let bare = job(&local, "/bin/true", &[])?;
    let limited = Job {
        cpu_milli: Some(1_000),
        memory_bytes: Some(64 << 20),
        pids: Some(16),
        ..bare.clone()
    };
    for (words, job) in [("without limits", bare), ("with three limits", limited)] {
        for at_once in [1, AT_ONCE] {
            let each = executions(&local, &job, at_once).await?;
            let percent = each.as_nanos() * 100 / plain.as_nanos();
            println!("execution {words}, {at_once} at once: {each:?} each, {percent} % of plain");
        }
    }
    memory(&local).await
}

fn plain() -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    for _ in 0..RUNS {
        let mut command = Command::new("/bin/true");
        command.env_clear().stdin(Stdio::null()).status()?;
    }
    Ok(begin.elapsed() / RUNS)
}

fn job(local: &Local, command: &str, args: &[&str]) -> Result<Job, Box<dyn Error>> {
    let work = local.keep(&Work {
        command: command.to_owned(),
        args: args.iter().map(|&word| word.to_owned()).collect(),
        env: BTreeMap::new(),
        directory: None,
        user: None,
        allow_privilege_escalation: false,
    })?;
    Ok(Job {
        work,
        fence: 1,
        note: String::new(),
        cpu_milli: None,
        memory_bytes: None,
        pids: None,
    })
}

async fn executions(
    local: &Arc<Local>,
    job: &Job,
    at_once: u32,
) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for lane in 0..at_once {
        let (local, job) = (Arc::clone(local), job.clone());
        tasks.push(tokio::spawn(async move {
            for run in 0..RUNS / at_once {
                let Ok(id) = BookingId::new(&format!("{lane}-{run}")) else {
                    continue;
                };
                local.start(&id, &job).await;
                local.exit(&id).await;
                if let Err(error) = local.clean(&id, Left::Nothing) {
                    println!("{error}");
                }
            }
        }));
    }
    for task in tasks {
        task.await?;
    }
    Ok(begin.elapsed() / RUNS)
}

async fn memory(local: &Local) -> Result<(), Box<dyn Error>> {
    let job = job(local, "/bin/sleep", &["1000"])?;
    let mut ids = Vec::new();
    for number in 0..SHIMS {
        let id = BookingId::new(&format!("sleep-{number}"))?;
        if let Begun::Gone(exit) = local.start(&id, &job).await {
            println!("{exit:?}");
        }
        ids.push(id);
    }
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let children = fs::read_to_string(entry?.path().join("children"))?;
        lines.extend(children.split_whitespace().filter_map(memory_of));
    }
    for id in ids {
        local.stop(&id, Duration::ZERO).await?;
        local.clean(&id, Left::Nothing)?;
    }
    println!("{}", lines.join("\n"));
    Ok(())
}

fn memory_of(pid: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib = |word: &str| -> u64 {
        let lines = text.lines().filter(|line| line.starts_with(word));
        lines
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum()
    };
    let private = kib("Private_Clean:") + kib("Private_Dirty:");
    let resident = kib("Rss:");
    Some(format!(
        "shim {pid}: {private} KiB private, {resident} KiB resident"
    ))
}
