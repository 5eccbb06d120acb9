//! Redis with one Lua script for reserve and release, and as many outstanding operations as ours.
//!
//! The script keeps the same data as ours: a bounded counter, one fence for all, and each id for a
//! day. Snapshots and log rewriting are off, because they would only slow it down.

use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{Measurement, Server};
use crate::bench::chains::OUTSTANDING;
use crate::bench::table::per_second;
use crate::bench::usage::Usage;
use crate::bench::world::Ids;

/// A durability setting.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Name in the table.
    pub name: &'static str,
    /// Name of its data directory.
    pub directory: &'static str,
    /// Whether an answered write is on disk.
    pub is_durable: bool,
    sync: &'static str,
}

/// All durability settings.
pub const WAYS: [Way; 2] = [
    Way {
        name: "Redis, Lua, fsync always, 64 × 16 outstanding",
        directory: "redis-always",
        is_durable: true,
        sync: "always",
    },
    Way {
        name: "Redis, Lua, no fsync, 64 × 16 outstanding",
        directory: "redis-no",
        is_durable: false,
        sync: "no",
    },
];

const CONNECTIONS: usize = 64;
const PIPELINED: usize = OUTSTANDING / CONNECTIONS;
const PROGRAM: &str = "redis-server";
const SCRIPT: &str = "
local known = redis.call('GET', KEYS[3])
if ARGV[1] == 'reserve' then
  if known then return tonumber(known) end
  local used = tonumber(redis.call('GET', KEYS[1]) or '0')
  if used >= tonumber(ARGV[2]) then return 0 end
  redis.call('INCR', KEYS[1])
  local fence = redis.call('INCR', KEYS[2])
  redis.call('SET', KEYS[3], fence, 'PX', 86400000)
  return fence
end
if known ~= ARGV[2] then return 0 end
redis.call('DECR', KEYS[1])
redis.call('SET', KEYS[3], 'ended', 'PX', 86400000)
return 1
";

/// A private server.
pub(in crate::bench) struct Redis {
    socket: PathBuf,
    version: String,
    _server: Server,
}

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    request: Vec<u8>,
}

/// Installs Redis if it is missing.
pub(in crate::bench) fn install() -> anyhow::Result<()> {
    super::install(PROGRAM, || super::find(PROGRAM).is_some())
}

/// Starts Redis in an empty directory.
pub(in crate::bench) fn start(directory: &Path, way: Way) -> anyhow::Result<Redis> {
    let program = super::find(PROGRAM).context("Redis is not installed")?;
    let printed = super::output(Command::new(&program).arg("--version"))?;
    let version = printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    let version = format!("Redis {}", version.unwrap_or("of an unknown version"));
    let socket = directory.join("socket");
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .args(["--port", "0", "--unixsocket"])
        .arg(&socket);
    command.args(["--save", "", "--auto-aof-rewrite-percentage", "0"]);
    command.args(["--appendonly", "yes", "--appendfsync", way.sync]);
    let is_ready = || BlockingStream::connect(&socket).is_ok();
    let server = Server::start("Redis", command, directory.join("log"), is_ready)?;
    Ok(Redis {
        socket,
        version,
        _server: server,
    })
}

impl Redis {
    pub(in crate::bench) fn version(&self) -> &str {
        &self.version
    }

    /// Measures pairs; the warm-up is not counted.
    pub(in crate::bench) fn measure(
        &self,
        warm_up: Duration,
        time: Duration,
    ) -> anyhow::Result<Measurement> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        runtime.block_on(async {
            let ids = Ids::new(6);
            let sha = Connection::open(&self.socket).await?.load().await?;
            self.run(&ids, &sha, warm_up).await?;
            let usage = Usage::start();
            let pairs = self.run(&ids, &sha, time).await?;
            let used = usage.used();
            let bound = if used.is_busy() {
                "CPU"
            } else {
                "its one thread, and the disk"
            };
            Ok(Measurement {
                pairs_per_second: per_second(pairs, used.took),
                near: format!("{bound}; {}", used.words()),
            })
        })
    }

    /// Runs all connections on this thread.
    async fn run(&self, ids: &Ids, sha: &str, time: Duration) -> anyhow::Result<u64> {
        let end = Instant::now() + time;
        let all = (0..CONNECTIONS).map(|_| async {
            let mut connection = Connection::open(&self.socket).await?;
            let mut pairs = 0;
            while Instant::now() < end {
                pairs += connection.pairs(ids, sha).await?;
            }
            anyhow::Ok(pairs)
        });
        let pairs = futures_util::future::try_join_all(all).await?;
        Ok(pairs.into_iter().sum())
    }
}

impl Connection {
    async fn open(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket)
            .await
            .context("cannot connect to Redis")?;
        Ok(Self {
            stream,
            received: Vec::new(),
            request: Vec::new(),
        })
    }

    /// Loads the script and returns its hash.
    async fn load(&mut self) -> anyhow::Result<String> {
        self.command(&["SCRIPT", "LOAD", SCRIPT]);
        self.stream.write_all(&self.request).await?;
        // `$40`, then forty digits.
        let lines = self.lines(2).await?;
        lines
            .into_iter()
            .nth(1)
            .context("Redis did not load the script")
    }

    /// Sends a group of reserves, then the releases.
    async fn pairs(&mut self, ids: &Ids, sha: &str) -> anyhow::Result<u64> {
        let keys: Vec<String> = (0..PIPELINED).map(|_| ids.text(0)).collect();
        self.request.clear();
        for key in &keys {
            self.command(&[
                "EVALSHA", sha, "3", "limit", "fence", key, "reserve", "1024",
            ]);
        }
        self.stream.write_all(&self.request).await?;
        let fences = self.lines(PIPELINED).await?;
        self.request.clear();
        for (key, fence) in keys.iter().zip(&fences) {
            let fence = fence.strip_prefix(':').unwrap_or_default();
            self.command(&["EVALSHA", sha, "3", "limit", "fence", key, "release", fence]);
        }
        self.stream.write_all(&self.request).await?;
        let done = self.lines(PIPELINED).await?;
        if done.iter().any(|line| line != ":1") {
            bail!(
                "Redis refused: {:?}",
                fences.iter().zip(&done).find(|(_, done)| *done != ":1")
            );
        }
        Ok(u64::try_from(done.len())?)
    }

    fn command(&mut self, words: &[&str]) {
        self.request
            .extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.request
                .extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }

    /// Reads `count` lines of answers.
    async fn lines(&mut self, count: usize) -> anyhow::Result<Vec<String>> {
        while self.received.split(|byte| *byte == b'\n').count() <= count {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                bail!("Redis closed the connection");
            }
        }
        let text = String::from_utf8_lossy(&self.received);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        self.received.clear();
        if lines.len() != count {
            bail!(
                "Redis answered {} lines, {count} were expected",
                lines.len()
            );
        }
        Ok(lines)
    }
}
