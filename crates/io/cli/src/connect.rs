//! Discovery of the server and its token, and the check of its ledger's key.
//!
//! The first setting that is present wins; `-v` and `doctor` show which one. The key that signs a
//! server's ledger is pinned on first contact; a changed key is an error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_client::Client;
use bursar_client::client::{Address, BearerToken, Error, Options, Transport};
use bursar_journal::checkpoint::{Checkpoint, KeyError, Name, VerifierKey};
use bursar_units::Instant;
use bursar_units::causes::chain;

use crate::config::Config;
use crate::environment::Environment;
use crate::failure::{Failure, Stop, exit};
use crate::pins::{Pin, Pins};
use crate::session::{Reach, Session};

/// Attempts to fetch a checkpoint signed by a new key, and the pause between two.
const NOTE_TRIES: usize = 15;
const NOTE_PAUSE: Duration = Duration::from_millis(200);

/// A server that was discovered but not contacted yet.
#[derive(Clone, Debug)]
pub(crate) struct Discovered {
    pub(crate) address: Address,
    /// The setting that names it.
    pub(crate) because: String,
    /// The token and the name of its file.
    pub(crate) token: Option<(BearerToken, String)>,
    /// The namespace of names without one, if the context has one.
    pub(crate) namespace: Option<String>,
    /// The key of its ledger, if the context has one.
    pub(crate) log_key: Option<String>,
}

impl Session {
    /// A client of the discovered server, whose ledger key was checked.
    pub(crate) async fn client(&mut self) -> Result<Client, Stop> {
        if let Reach::Within(within) = &self.reach {
            return Ok(within.client.clone());
        }
        let target = discover(self)?;
        let (client, contact) = self.contact(&target).await?;
        contact?;
        Ok(client)
    }

    /// A client of a server, and the result of the check of its ledger key.
    pub(crate) async fn contact(
        &mut self,
        target: &Discovered,
    ) -> Result<(Client, Result<(), Stop>), Stop> {
        self.verbose(&format!("server {} ({})", target.address, target.because));
        if let Some((_, file)) = &target.token {
            self.verbose(&format!("token from {file}"));
        }
        let options = Options {
            timeout: Duration::from_millis(self.common.timeout.ms()),
            token: target.token.as_ref().map(|(token, _)| token.clone()),
            ..Options::usual()
        };
        let client = Client::new(Transport::to(target.address.clone()), options);
        let began = std::time::Instant::now();
        let status = match client.ledger().await {
            Ok(status) => status,
            // A caller without access to the ledger cannot check its key.
            Err(Error::Problem(_)) => return Ok((client, Ok(()))),
            Err(error @ Error::Unreachable { .. })
                if matches!(target.address, Address::Unix(_)) && self.is_default(target) =>
            {
                self.verbose(&chain(&error));
                return Err(no_server(socket_path(&self.environment).as_deref()).into());
            }
            Err(error @ Error::Unreachable { .. }) => {
                let message = format!("{} ({})", chain(&error), target.because);
                return Err(Failure::new(error.exit_code(), message).into());
            }
            Err(error) => return Err(error.into()),
        };
        self.verbose(&format!(
            "answered in {} ms, record {}",
            began.elapsed().as_millis(),
            status.records.saturating_sub(1)
        ));
        let Some(pins) = Pins::of(&self.environment) else {
            return Ok((client, Ok(())));
        };
        let known = pins.of_ledger(&status.ledger);
        let is_other = known.is_some_and(|known| known.key.to_string() != status.key);
        let note = if is_other {
            newest_note(&client, &status.key).await
        } else {
            None
        };
        let contact = Contact {
            ledger: &status.ledger,
            key: &status.key,
            former: &status.former_keys,
            note: note.as_deref(),
            now: self.now(),
        };
        let contact = pin(&pins, target, &contact).map(|kept| {
            let kept = kept.iter().try_for_each(|pin| pins.put(pin));
            self.warn_unless(kept);
        });
        Ok((client, contact))
    }

    fn is_default(&self, target: &Discovered) -> bool {
        socket_path(&self.environment).is_some_and(|path| target.address == Address::Unix(path))
    }
}

/// The newest checkpoint, preferably one signed by `key`: a key that was just rotated signs its
/// first checkpoint within a second.
async fn newest_note(client: &Client, key: &str) -> Option<String> {
    let key = key.parse().ok()?;
    let mut note = None;
    for _ in 0..NOTE_TRIES {
        note = client.checkpoint().await.ok();
        let is_signed = |note: &String| Checkpoint::open(note, &key).is_ok();
        if note.as_ref().is_some_and(is_signed) {
            break;
        }
        tokio::time::sleep(NOTE_PAUSE).await;
    }
    note
}

/// Discovers the server from flags, environment and files.
pub(crate) fn discover(session: &Session) -> Result<Discovered, Failure> {
    let environment = &session.environment;
    let config = Config::read(environment.config.as_deref())?;
    let token_file = session.common.token_file.as_ref();
    let token_file = token_file.or(environment.token_file.as_ref());
    let token = token_file
        .map(|path| read_token(&session.path(path)))
        .transpose()?;
    let plain = |address: &str, because: &str| {
        Ok(Discovered {
            address: read_address(address, environment)?,
            because: because.to_owned(),
            token: token.clone(),
            namespace: None,
            log_key: None,
        })
    };
    if let Some(server) = &session.common.server {
        return plain(server, "--server");
    }
    if let Some(server) = environment
        .server
        .as_ref()
        .filter(|_| session.common.context.is_none())
    {
        return plain(server, "BURSAR_SERVER");
    }
    let flag = session.common.context.clone();
    let named = flag.map(|name| (name, Some("--context")));
    let named = named.or_else(|| Some((environment.context.clone()?, Some("BURSAR_CONTEXT"))));
    let named = named.or_else(|| Some((config.current.clone()?, None)));
    if let Some((name, chosen_by)) = named {
        let context = config.context(&name, environment)?;
        // The file is named if it chose or defines the context; `demo` needs no definition.
        let is_of_file = chosen_by.is_none() || config.context.contains_key(&name);
        let file = environment.config.as_deref().filter(|_| is_of_file);
        let mut because = vec![format!("context {name}")];
        because.extend(chosen_by.map(ToOwned::to_owned));
        because.extend(file.map(|file| environment.shown(file)));
        let address = read_address(&context.server, environment)?;
        let token = match (token, &context.token_file) {
            (None, Some(path)) => Some(read_token(&environment.expanded(path))?),
            (token, _) => token,
        };
        return Ok(Discovered {
            address,
            because: because.join(", "),
            token,
            namespace: context.namespace,
            log_key: context.log_key,
        });
    }
    let socket = socket_path(environment);
    if let Some(path) = socket.as_ref().filter(|path| path.exists()) {
        return Ok(Discovered {
            address: Address::Unix(path.clone()),
            because: "the socket of a local server".to_owned(),
            token,
            namespace: None,
            log_key: None,
        });
    }
    Err(no_server(socket.as_deref()))
}

/// Default path of a local server's socket.
pub(crate) fn socket_path(environment: &Environment) -> Option<PathBuf> {
    let runtime = environment.runtime.as_ref();
    let directory = runtime.or(environment.data_home.as_ref())?;
    Some(directory.join("api.sock"))
}

fn no_server(socket: Option<&Path>) -> Failure {
    let socket = socket.map_or_else(
        || "socket (no directory for one)".to_owned(),
        |path| format!("socket {}", path.display()),
    );
    Failure::new(exit::UNAVAILABLE, "no server found")
        .detail(
            "tried",
            format!("--server, BURSAR_SERVER, context (none set), {socket}"),
        )
        .hint("start one here with `bursar up`")
}

/// A token and the name of its file.
fn read_token(path: &Path) -> Result<(BearerToken, String), Failure> {
    let token = BearerToken::from_file(path).map_err(|error| Failure::usage(chain(&error)))?;
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    Ok((token, name.unwrap_or_default()))
}

fn read_address(text: &str, environment: &Environment) -> Result<Address, Failure> {
    let address: Address = text
        .parse()
        .map_err(|error| Failure::usage(chain(&error)))?;
    Ok(match address {
        Address::Unix(path) => Address::Unix(environment.expanded(&path.to_string_lossy())),
        tcp @ Address::Tcp { .. } => tcp,
    })
}

/// A server's statement about its ledger, to be checked against the pins.
struct Contact<'a> {
    ledger: &'a str,
    /// The key that signs now.
    key: &'a str,
    /// Former keys that still sign, trusted on first contact only.
    former: &'a [String],
    /// The newest checkpoint, fetched if the key is not the pinned one.
    note: Option<&'a str>,
    now: Instant,
}

/// The pins to store, the newest last: all keys of a ledger on first contact, later a key that a
/// pinned key vouches for. Any other change of keys is an error.
fn pin(pins: &Pins, target: &Discovered, contact: &Contact<'_>) -> Result<Vec<Pin>, Stop> {
    let bad = |error: KeyError| {
        Failure::new(
            exit::UNVERIFIED,
            format!("the server's ledger id or key is not valid: {error}"),
        )
    };
    let key: VerifierKey = contact.key.parse().map_err(bad)?;
    // An id with a line feed could add pins of other ledgers to the file.
    Name::ledger(contact.ledger, 0).map_err(bad)?;
    if let Some(stated) = &target.log_key {
        if stated.trim() != contact.key {
            let reason = "the context has a different key (`log-key`)";
            return Err(changed(target, reason, None));
        }
        return Ok(Vec::new());
    }
    let server = match &target.address {
        Address::Tcp { .. } => Some(target.address.to_string()),
        // Only the owner of the account can create a socket there, so the address proves nothing.
        Address::Unix(_) => None,
    };
    let by_server = server.as_deref().and_then(|server| pins.of_server(server));
    let known = pins.of_ledger(contact.ledger).or(by_server);
    let pin = Pin {
        ledger: contact.ledger.to_owned(),
        key: key.clone(),
        at: contact.now,
        server,
    };
    let Some(known) = known else {
        let former = contact.former.iter().filter_map(|key| key.parse().ok());
        let former = former.map(|key| Pin { key, ..pin.clone() });
        return Ok(former.chain([pin.clone()]).collect());
    };
    if known.ledger != contact.ledger {
        let reason = format!(
            "it was ledger {}, now it is {}",
            known.ledger, contact.ledger
        );
        return Err(changed(target, &reason, Some(pins)));
    }
    if known.key == key {
        let is_elsewhere = pin.server.is_some() && pin.server != known.server;
        let moved = Pin {
            at: known.at,
            ..pin
        };
        return Ok(Some(moved).filter(|_| is_elsewhere).into_iter().collect());
    }
    // A rotated key is trusted while the pinned one still signs the same checkpoints.
    let is_vouched_for = contact.note.is_some_and(|note| {
        Checkpoint::open(note, &known.key).is_ok() && Checkpoint::open(note, &key).is_ok()
    });
    if is_vouched_for {
        return Ok(vec![Pin {
            server: pin.server.clone().or(known.server),
            ..pin
        }]);
    }
    let reason = "the newest checkpoint is not signed by both the pinned key and the new one";
    Err(changed(target, reason, Some(pins)))
}

fn changed(target: &Discovered, reason: &str, pins: Option<&Pins>) -> Stop {
    let message = format!(
        "the key that signs the ledger of {} has changed: {reason}",
        target.address
    );
    let hint = match pins {
        Some(pins) => format!(
            "if the change is intended, remove the lines of this ledger from {}",
            pins.path().display()
        ),
        None => "ask the operator for the new key over another channel".to_owned(),
    };
    Failure::new(exit::UNVERIFIED, message).hint(hint).into()
}
