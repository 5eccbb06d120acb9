//! What a server is started with: flags, then the file, then defaults (design 80, 5.5).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use bursar_server::{Anonymous, OwnUser};
use serde::Deserialize;

use crate::command::market::settings as market;
use crate::config::{self, DEMO};
use crate::failure::{Failure, Stop};
use crate::grammar::UpArguments;
use crate::session::Session;

/// The port of a server, and of the demo beside it.
const PORT: u16 = 7171;
const DEMO_PORT: u16 = 7172;

/// What a server is started with.
pub(super) struct Settings {
    /// The data directory.
    pub(super) data: PathBuf,
    /// Where to listen.
    pub(super) listen: SocketAddr,
    /// What whoever sends no token on loopback may do.
    pub(super) anonymous: Anonymous,
    /// Whether to refuse where executions cannot be kept apart.
    pub(super) require_isolation: bool,
    /// Who may have something run as the server's own user.
    pub(super) own_user: OwnUser,
    /// How this machine's CPU is shared.
    pub(super) market: market::Settings,
    /// Among which cgroups, beside our executions.
    pub(super) cgroups: Vec<market::Cgroup>,
}

/// The file. Every key has a default.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(in crate::command) struct File {
    pub(in crate::command) server: Server,
    auth: Auth,
    pub(super) executor: Executor,
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
    anonymous: Option<Word>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Read,
    None,
}

impl File {
    /// The file of that path, or defaults.
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
                return Err(Failure::usage(
                    "the demo has a directory of its own: leave out `--data`",
                )
                .into());
            }
            Some(data) => data,
            None => {
                let home = session.environment.data_home.clone();
                let home = home.ok_or_else(|| {
                    Failure::usage("there is no place for data: name one with `--data DIR`")
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
                Some(Word::None) => Anonymous::None,
                Some(Word::Read) | None => Anonymous::Read,
            },
            require_isolation: arguments.require_isolation || file.executor.require_isolation,
            // The demo's people are its own, and run nothing but what is in the demo.
            own_user: if file.executor.share_user || arguments.demo {
                OwnUser::Everyone
            } else {
                OwnUser::Operators
            },
            market: file.market.told(arguments.market),
            cgroups: file.cgroup,
        })
    }
}
