//! Settings of a server: flags, then the file, then defaults.

mod resolver;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use bursar_engine::cluster::Policy;
use bursar_server::{Anonymous, OwnUser};
use serde::Deserialize;

use crate::command::market::settings as market;
use crate::config::{self, DEMO};
use crate::failure::{Failure, Stop};
use crate::grammar::UpArguments;
use crate::session::Session;
use resolver::Resolver;

/// Name of the file.
const FILE_NAME: &str = "bursar.toml";
/// Default ports of a server and of the demo.
const PORT: u16 = 7171;
const DEMO_PORT: u16 = 7172;

pub(super) struct Settings {
    pub(super) data: PathBuf,
    pub(super) listen: SocketAddr,
    /// Rights of callers without a token on loopback.
    pub(super) anonymous: Anonymous,
    /// Whether to refuse a start if executions cannot be isolated by cgroups.
    pub(super) require_isolation: bool,
    /// Callers whose executions may run as the server's user.
    pub(super) own_user: OwnUser,
    /// Policy of the cluster.
    pub(super) policy: Policy,
    pub(super) market: market::Settings,
    /// Cgroups that share the CPU with our executions.
    pub(super) cgroups: Vec<market::Cgroup>,
}

/// The settings file. Every key has a default.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(in crate::command) struct File {
    pub(in crate::command) server: Server,
    auth: Auth,
    pub(super) executor: Executor,
    resolver: Resolver,
    pub(in crate::command) market: market::Settings,
    pub(in crate::command) cgroup: Vec<market::Cgroup>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(in crate::command) struct Server {
    pub(super) listen: Option<SocketAddr>,
    pub(in crate::command) data: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Executor {
    pub(super) require_isolation: bool,
    pub(super) share_user: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Auth {
    anonymous: Option<AnonymousAccess>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnonymousAccess {
    Read,
    None,
}

impl File {
    /// Reads the file, or returns the defaults without one.
    pub(in crate::command) fn read(session: &Session, path: Option<&Path>) -> Result<Self, Stop> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let text = std::fs::read_to_string(session.path(path))
            .map_err(|error| Failure::file("read", path.display(), &error))?;
        let file: Self = config::parse(&text, &path.display().to_string())?;
        market::Cgroup::check(&file.cgroup)?;
        Ok(file)
    }

    /// Reads the file of a directory; without one, the defaults.
    pub(in crate::command) fn beside(session: &Session, directory: &Path) -> Result<Self, Stop> {
        let path = directory.join(FILE_NAME);
        let is_there = session.path(&path).exists();
        Self::read(session, is_there.then_some(path.as_path()))
    }

    /// Policy of the cluster.
    pub(in crate::command) fn policy(self) -> Policy {
        self.resolver.0
    }
}

impl Settings {
    pub(super) fn read(session: &Session, arguments: &UpArguments) -> Result<Self, Stop> {
        let file = File::read(session, arguments.config.as_deref())?;
        let port = if arguments.demo { DEMO_PORT } else { PORT };
        let listen = arguments.listen.or(file.server.listen);
        let named = arguments
            .data
            .as_ref()
            .map(|data| session.path(data))
            .or(file.server.data);
        let data = match named {
            Some(_) if arguments.demo => {
                let message = "the demo has its own data directory: leave out `--data`";
                return Err(Failure::usage(message).into());
            }
            Some(data) => data,
            None => {
                let home = session.environment.data_home.clone();
                let home = home.ok_or_else(|| {
                    Failure::usage("there is no default data directory: name one with `--data DIR`")
                })?;
                if arguments.demo {
                    home.join(DEMO)
                } else {
                    home
                }
            }
        };
        Ok(Self {
            data: std::path::absolute(&data).unwrap_or(data),
            listen: listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, port).into()),
            anonymous: match file.auth.anonymous {
                Some(AnonymousAccess::None) => Anonymous::None,
                Some(AnonymousAccess::Read) | None => Anonymous::Read,
            },
            require_isolation: arguments.require_isolation || file.executor.require_isolation,
            // Callers of the demo run only the programs of the demo.
            own_user: if file.executor.share_user || arguments.demo {
                OwnUser::Everyone
            } else {
                OwnUser::Operators
            },
            policy: file.resolver.0,
            market: file.market.told(arguments.market),
            cgroups: file.cgroup,
        })
    }
}
