//! Where the server is, and who I am (design 80, 1.5).
//!
//! The first setting that is present wins, and `-v` and `doctor` say which and why. The key that
//! signs a server's ledger is pinned on first contact; a changed one is an error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_client::Client;
use bursar_client::client::{Address, BearerToken, Error, Options, Transport};
use bursar_journal::checkpoint::{Checkpoint, KeyError, Name, VerifierKey};
use bursar_units::Instant;
use bursar_units::causes::chain;

use crate::config::{Config, Context};
use crate::environment::Environment;
use crate::failure::{Failure, Stop, exit};
use crate::pins::{Pin, Pins};
use crate::session::{Reach, Session};

/// How often a checkpoint is asked for that a new key has signed, and how long between.
const NOTE_TRIES: usize = 15;
const NOTE_PAUSE: Duration = Duration::from_millis(200);

/// A server that was found, not yet spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) address: Address,
    /// Which setting said so.
    pub(crate) because: String,
    /// The token to send, and from which file.
    pub(crate) token: Option<(BearerToken, String)>,
    /// The key of its ledger, where a context states it.
    pub(crate) log_key: Option<String>,
}

impl Session {
    /// A client of the server, whose ledger's key is the one that is known.
    pub(crate) async fn client(&mut self) -> Result<Client, Stop> {
        if let Reach::Within(within) = &self.reach {
            return Ok(within.client.clone());
        }
        let found = discover(self)?;
        let (client, contact) = self.contact(&found).await?;
        contact?;
        Ok(client)
    }

    /// A client of a server that was found, and whether its key is the one that is known.
    pub(crate) async fn contact(
        &mut self,
        found: &Found,
    ) -> Result<(Client, Result<(), Stop>), Stop> {
        self.verbose(&format!("server {} ({})", found.address, found.because));
        if let Some((_, file)) = &found.token {
            self.verbose(&format!("token of {file}"));
        }
        let options = Options {
            timeout: Duration::from_millis(self.common.timeout.ms()),
            token: found.token.as_ref().map(|(token, _)| token.clone()),
            ..Options::usual()
        };
        let client = Client::new(Transport::to(found.address.clone()), options);
        let began = std::time::Instant::now();
        let status = match client.ledger().await {
            Ok(status) => status,
            // Whoever may not see the ledger cannot know its key either.
            Err(Error::Problem(_)) => return Ok((client, Ok(()))),
            Err(error @ Error::Unreachable { .. })
                if matches!(found.address, Address::Unix(_)) && self.is_default(found) =>
            {
                self.verbose(&chain(&error));
                return Err(nobody(socket_path(&self.environment).as_deref()).into());
            }
            Err(error @ Error::Unreachable { .. }) => {
                let message = format!("{} ({})", chain(&error), found.because);
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
        let contact = pin(&pins, found, &contact).map(|kept| {
            let kept = kept.iter().try_for_each(|pin| pins.put(pin));
            self.warn_unless(kept);
        });
        Ok((client, contact))
    }

    fn is_default(&self, found: &Found) -> bool {
        socket_path(&self.environment).is_some_and(|path| found.address == Address::Unix(path))
    }
}

/// The newest checkpoint, once the key that is said to sign now has signed it. A key that was
/// rotated a moment ago signs its first one within a second.
async fn newest_note(client: &Client, key: &str) -> Option<String> {
    let key = key.parse().ok()?;
    let mut note = None;
    for _ in 0..NOTE_TRIES {
        note = client.checkpoint().await.ok();
        if note
            .as_ref()
            .is_some_and(|note| Checkpoint::open(note, &key).is_ok())
        {
            break;
        }
        tokio::time::sleep(NOTE_PAUSE).await;
    }
    note
}

/// Finds the server that flags, environment and files name.
pub(crate) fn discover(session: &Session) -> Result<Found, Failure> {
    let environment = &session.environment;
    let config = Config::read(environment.config.as_deref())?;
    let token_file = session
        .common
        .token_file
        .clone()
        .or_else(|| environment.token_file.clone());
    let token = token_file
        .map(|path| read_token(&session.path(&path)))
        .transpose()?;
    let plain = |address: &str, because: &str| {
        Ok(Found {
            address: read_address(address, environment)?,
            because: because.to_owned(),
            token: token.clone(),
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
    let named = session
        .common
        .context
        .clone()
        .map(|name| (name, Some("--context")));
    let named = named.or_else(|| Some((environment.context.clone()?, Some("BURSAR_CONTEXT"))));
    let named = named.or_else(|| Some((config.current.clone()?, None)));
    if let Some((name, chosen_by)) = named {
        let context = config.context(&name, environment)?;
        // The file, where it named the context or says what it is: the demo needs none.
        let is_of_file = chosen_by.is_none() || config.context.contains_key(&name);
        let file = environment.config.as_deref().filter(|_| is_of_file);
        let because = [
            Some(format!("context {name}")),
            chosen_by.map(ToOwned::to_owned),
        ]
        .into_iter()
        .chain([file.map(|file| environment.shown(file))])
        .flatten()
        .collect::<Vec<_>>()
        .join(", ");
        return of_context(&context, because, token, environment);
    }
    let socket = socket_path(environment);
    if let Some(path) = socket.as_ref().filter(|path| path.exists()) {
        return Ok(Found {
            address: Address::Unix(path.clone()),
            because: "the socket of a local server".to_owned(),
            token,
            log_key: None,
        });
    }
    Err(nobody(socket.as_deref()))
}

/// Where a local server's socket is looked for.
pub(crate) fn socket_path(environment: &Environment) -> Option<PathBuf> {
    let directory = environment
        .runtime
        .as_ref()
        .or(environment.data_home.as_ref())?;
    Some(directory.join("api.sock"))
}

/// Nobody there (design 80, 2.18).
pub(crate) fn nobody(socket: Option<&Path>) -> Failure {
    let socket = socket.map_or_else(
        || "socket (no place for one)".to_owned(),
        |path| format!("socket {}", path.display()),
    );
    Failure::new(exit::UNAVAILABLE, "no server found")
        .detail(
            "tried",
            format!("--server, BURSAR_SERVER, context (none set), {socket}"),
        )
        .hint("start one here with `bursar up`")
}

fn of_context(
    context: &Context,
    because: String,
    token: Option<(BearerToken, String)>,
    environment: &Environment,
) -> Result<Found, Failure> {
    let own = context
        .token_file
        .as_ref()
        .map(|path| read_token(&environment.expanded(path)));
    Ok(Found {
        address: read_address(&context.server, environment)?,
        because,
        token: match (token, own) {
            (Some(token), _) => Some(token),
            (None, own) => own.transpose()?,
        },
        log_key: context.log_key.clone(),
    })
}

/// A token and the name of its file, which nobody else may read.
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

/// What a server says of its ledger, held against what is known of it.
struct Contact<'a> {
    /// The ledger's id.
    ledger: &'a str,
    /// The key that signs now.
    key: &'a str,
    /// Those that sign beside it, which are believed on first contact only.
    former: &'a [String],
    /// A checkpoint of it, if one was fetched to prove a change of keys.
    note: Option<&'a str>,
    /// When.
    now: Instant,
}

/// What is to be pinned, the newest last: the keys of a ledger on first contact, one that a pinned
/// key vouches for later. A changed one is refused (as ssh does).
fn pin(pins: &Pins, found: &Found, contact: &Contact<'_>) -> Result<Vec<Pin>, Stop> {
    let bad = |error: KeyError| {
        Failure::new(
            exit::UNVERIFIED,
            format!("the server's ledger id or key is not valid: {error}"),
        )
    };
    let key: VerifierKey = contact.key.parse().map_err(bad)?;
    // An id with a line feed would write pins of other ledgers.
    Name::ledger(contact.ledger, 0).map_err(bad)?;
    if let Some(stated) = &found.log_key {
        if stated.trim() != contact.key {
            return Err(changed(
                found,
                "the context states another key (`log-key`)",
                None,
            ));
        }
        return Ok(Vec::new());
    }
    let server = match &found.address {
        Address::Tcp { .. } => Some(found.address.to_string()),
        // Whoever can put a socket there owns the account; the address says nothing more.
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
        return Err(changed(found, &reason, Some(pins)));
    }
    if known.key == key {
        let is_elsewhere = pin.server.is_some() && pin.server != known.server;
        let moved = Pin {
            at: known.at,
            ..pin
        };
        return Ok(Some(moved).filter(|_| is_elsewhere).into_iter().collect());
    }
    // A rotated key is believed while the pinned one still signs beside it.
    let is_vouched_for = contact.note.is_some_and(|note| {
        Checkpoint::open(note, &known.key).is_ok() && Checkpoint::open(note, &key).is_ok()
    });
    if is_vouched_for {
        return Ok(vec![Pin {
            server: pin.server.clone().or(known.server),
            ..pin
        }]);
    }
    Err(changed(
        found,
        "the pinned key does not vouch for the new one",
        Some(pins),
    ))
}

fn changed(found: &Found, reason: &str, pins: Option<&Pins>) -> Stop {
    let message = format!(
        "the key that signs the ledger of {} has changed: {reason}",
        found.address
    );
    let failure = Failure::new(exit::UNVERIFIED, message);
    match pins {
        Some(pins) => failure
            .hint(format!(
                "if that is meant to be so, remove its lines from {}",
                pins.path().display()
            ))
            .into(),
        None => failure
            .hint("ask the operator for the new key, over another way")
            .into(),
    }
}
