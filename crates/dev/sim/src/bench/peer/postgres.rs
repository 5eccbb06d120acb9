//! `PostgreSQL` with its durable defaults and 64 connections on one hot row, driven by `pgbench`.
//!
//! A booking is a row; a limit is a row with a counter. The conditional UPDATE is one statement per
//! transaction, which holds the lock on the hot row for the shortest time.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::{Measurement, Server};
use crate::bench::usage::Usage;

/// A way to book in SQL.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Name in the table.
    pub name: &'static str,
    script: &'static str,
}

/// The usual ways to book in SQL.
pub const WAYS: [Way; 2] = [
    Way {
        name: "PostgreSQL, conditional UPDATE, 64 connections",
        script: "\
\\set id random(1, 4611686018427387904)
WITH taken AS (UPDATE limits SET used = used + 1 WHERE id = 1 AND used < size RETURNING id) \
INSERT INTO bookings (id, limit_id, granted) SELECT :id, id, now() FROM taken;
WITH given AS (UPDATE bookings SET ended = now() WHERE id = :id AND ended IS NULL RETURNING limit_id) \
UPDATE limits SET used = used - 1 FROM given WHERE limits.id = given.limit_id;
",
    },
    Way {
        name: "PostgreSQL, SELECT … FOR UPDATE, 64 connections",
        script: "\
\\set id random(1, 4611686018427387904)
BEGIN;
SELECT used, size FROM limits WHERE id = 1 FOR UPDATE;
UPDATE limits SET used = used + 1 WHERE id = 1;
INSERT INTO bookings (id, limit_id, granted) VALUES (:id, 1, now());
COMMIT;
BEGIN;
SELECT used FROM limits WHERE id = 1 FOR UPDATE;
UPDATE bookings SET ended = now() WHERE id = :id AND ended IS NULL;
UPDATE limits SET used = used - 1 WHERE id = 1;
COMMIT;
",
    },
];

const CONNECTIONS: &str = "64";
const SCHEMA: &str = "
    CREATE TABLE limits (id integer PRIMARY KEY, used bigint NOT NULL, size bigint NOT NULL);
    CREATE TABLE bookings (
        id bigint PRIMARY KEY, limit_id integer NOT NULL,
        granted timestamptz NOT NULL, ended timestamptz
    );
    INSERT INTO limits VALUES (1, 0, 1024);
";
/// Empties the tables between two ways, because the same seed generates the same ids.
const EMPTY: &str = "TRUNCATE bookings; UPDATE limits SET used = 0";
/// Directory with one subdirectory for each version on Debian.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A private cluster.
pub(in crate::bench) struct Postgres {
    programs: PathBuf,
    directory: PathBuf,
    version: String,
    _server: Server,
}

/// Installs `PostgreSQL` if it is missing.
pub(in crate::bench) fn install() -> anyhow::Result<()> {
    super::install("postgresql", || programs().is_some())
}

/// Creates a cluster in an empty directory and starts it.
pub(in crate::bench) fn start(directory: &Path) -> anyhow::Result<Postgres> {
    let programs = programs().context("PostgreSQL is not installed")?;
    let owner = owner()?;
    if let Some((user, group)) = owner {
        chown(directory, Some(user), Some(group))
            .context("cannot change the owner of a directory")?;
    }
    let run = |program: &str| {
        let mut command = Command::new(programs.join(program));
        command.current_dir(directory);
        if let Some((user, group)) = owner {
            command.uid(user).gid(group);
        }
        command
    };
    let data = directory.join("data");
    super::output(
        run("initdb")
            .arg("--pgdata")
            .arg(&data)
            .args(["--username=postgres", "--auth=trust"]),
    )?;
    let mut server = run("postgres");
    server
        .arg("-D")
        .arg(&data)
        .args(["-c", "listen_addresses=", "-c"]);
    server.arg(format!("unix_socket_directories={}", directory.display()));
    let is_ready = || {
        let status = run("pg_isready")
            .args(["--quiet", "--host"])
            .arg(directory)
            .status();
        status.is_ok_and(|status| status.success())
    };
    let server = Server::start("PostgreSQL", server, directory.join("log"), is_ready)?;
    let version = super::output(run("postgres").arg("--version"))?
        .trim()
        .to_owned();
    let directory = directory.to_owned();
    let postgres = Postgres {
        programs,
        directory,
        version,
        _server: server,
    };
    super::output(
        postgres
            .client("psql")
            .args(["--quiet", "--command", SCHEMA]),
    )?;
    Ok(postgres)
}

impl Postgres {
    pub(in crate::bench) fn version(&self) -> &str {
        &self.version
    }

    /// Measures one way.
    pub(in crate::bench) fn measure(
        &self,
        way: Way,
        time: Duration,
    ) -> anyhow::Result<Measurement> {
        let script = self.directory.join("script.sql");
        std::fs::write(&script, way.script).context("cannot write a script")?;
        super::output(self.client("psql").args(["--quiet", "--command", EMPTY]))?;
        let usage = Usage::start();
        let seconds = time.as_secs().max(1).to_string();
        let printed = super::output(
            self.client("pgbench")
                .args([
                    "--no-vacuum",
                    "--protocol=prepared",
                    "--random-seed=7",
                    "--jobs=2",
                ])
                .args(["--client", CONNECTIONS, "--time", &seconds, "--file"])
                .arg(&script),
        )?;
        let used = usage.used();
        let rate = printed.lines().find_map(|line| line.strip_prefix("tps = "));
        let whole = rate.and_then(|rate| rate.split(['.', ' ']).next());
        let pairs_per_second = whole
            .and_then(|whole| whole.parse().ok())
            .with_context(|| format!("pgbench printed no rate: {printed}"))?;
        let bound = if used.is_busy() {
            "CPU"
        } else {
            "one commit at a time under the row's lock"
        };
        Ok(Measurement {
            pairs_per_second,
            near: format!("{bound}; {}", used.words()),
        })
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(["--username=postgres", "--host"])
            .arg(&self.directory);
        command
            .env("PGDATABASE", "postgres")
            .current_dir(&self.directory);
        command
    }
}

/// Directory of programs of the newest complete version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.flatten();
    let whole = versions
        .map(|version| version.path().join("bin"))
        .filter(|programs| {
            ["initdb", "postgres", "pg_isready", "psql", "pgbench"]
                .iter()
                .all(|program| programs.join(program).is_file())
        });
    whole.max()
}

/// User and group of the cluster if we are root, because `PostgreSQL` does not run as root.
fn owner() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let number = |flag: &str| -> anyhow::Result<u32> {
        let printed = super::output(Command::new("id").args([flag, "postgres"]))?;
        let number = printed.trim().parse();
        number.context("`id` printed no number")
    };
    Ok(Some((number("--user")?, number("--group")?)))
}
