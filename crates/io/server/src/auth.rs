//! Authentication: determines the caller from a connection and its headers.
//!
//! A bearer token takes precedence. An invalid one is refused, and never falls back to fewer
//! rights. On the Unix socket the kernel gives the user. On loopback TCP a caller without a token
//! may read, unless that is switched off. Remote callers need a token.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bursar_client::{Code, Problem};
use bursar_engine::State;
use bursar_engine::token::Role;
use bursar_journal::hash::{Hash, sha256};
use bursar_ledger::view::View;
use bursar_node::executor::User;
use bursar_units::{Instant, Label};
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;

use crate::caller::{Caller, Via};
use crate::users::user_name;

/// Prefix of every secret, by which scanners recognise a leaked one.
pub(crate) const SECRET_PREFIX: &str = "bursar_";
/// Longer than any real secret; a longer text is refused without hashing it.
const SECRET_LENGTH_MAX: usize = 128;

/// Access of callers without a token on loopback.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Anonymous {
    /// Reading only.
    #[default]
    Read,
    /// No access.
    None,
}

/// Origin of a connection.
#[derive(Clone, Debug)]
pub enum Peer {
    /// TCP from this machine.
    Loopback,
    /// TCP from another machine.
    Remote,
    /// The Unix socket, with the user at its other end.
    Socket(Arc<Caller>),
}

/// Source of the caller of a request.
#[derive(Clone, Debug)]
pub enum CallerSource {
    /// The same caller for every request, for a router that is called in process.
    Fixed(Arc<Caller>),
    /// The token, or the [`Peer`] in the request's extensions.
    Connection(Anonymous),
}

impl Peer {
    /// Creates the peer of a Unix socket. Root and the user that runs the server are operators;
    /// any other user acts as the tenant of the same name and as the owner `user:NAME`.
    pub fn socket(user: User, own_uid: u32) -> Self {
        let name = user_name(user.uid);
        let role = if user.uid == own_uid || user.uid == 0 {
            Role::Operate
        } else {
            Role::Use
        };
        Self::Socket(Arc::new(Caller {
            tenants: BTreeSet::from([name.clone()]),
            owners: Caller::own(&name),
            name,
            via: Via::User(user),
            roles: BTreeSet::from([role]),
            expires: None,
        }))
    }
}

impl CallerSource {
    pub(crate) fn caller(&self, request: &Parts, view: &View) -> Result<Arc<Caller>, Problem> {
        let anonymous = match self {
            Self::Fixed(caller) => return Ok(Arc::clone(caller)),
            Self::Connection(anonymous) => anonymous,
        };
        if let Some(value) = request.headers.get(AUTHORIZATION) {
            let secret = value.to_str().ok().and_then(bearer).ok_or_else(|| {
                unauthenticated("the Authorization header must be `Bearer TOKEN`")
            })?;
            let hash = sha256(secret.as_bytes());
            let caller = caller_of_token(&view.read(), &hash);
            return caller.map(Arc::new).ok_or_else(unknown_token);
        }
        match (request.extensions.get::<Peer>(), anonymous) {
            (Some(Peer::Socket(caller)), _) => Ok(Arc::clone(caller)),
            (Some(Peer::Loopback), Anonymous::Read) if names_loopback(request) => {
                Ok(Arc::new(Caller::anonymous()))
            }
            _ => Err(unauthenticated("the request carries no token")),
        }
    }
}

/// Checks that a request names a loopback host. In a DNS rebinding attack a web page makes its own
/// host name resolve to loopback; its requests carry that name and need a token. A request must
/// have exactly one Host header, and a target in absolute form must name loopback too.
fn names_loopback(request: &Parts) -> bool {
    let mut hosts = request.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let target = request.uri.authority();
    host.to_str().is_ok_and(is_loopback) && target.is_none_or(|target| is_loopback(target.as_str()))
}

/// Checks that `host` or `host:port` is `localhost` or a loopback address.
fn is_loopback(authority: &str) -> bool {
    let (is_loopback, port) = if let Some(rest) = authority.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        let is_loopback = |address: Ipv6Addr| address.to_canonical().is_loopback();
        (address.parse().is_ok_and(is_loopback), port)
    } else {
        let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        // A fully qualified name may end in a dot.
        let is_localhost = name.strip_suffix('.').unwrap_or(name);
        let is_localhost = is_localhost.eq_ignore_ascii_case("localhost");
        let is_loopback = |address: Ipv4Addr| address.is_loopback();
        (is_localhost || name.parse().is_ok_and(is_loopback), port)
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_loopback && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

pub(crate) fn check_right(caller: &Caller, view: &View, now: Instant) -> Result<(), Problem> {
    if let Via::Token(hash) = &caller.via
        && view.read().spine.tokens.with_hash(hash).is_none()
    {
        return Err(unknown_token());
    }
    match caller.expires {
        Some(expires) if expires <= now => Err(unauthenticated(&format!(
            "token `{}` has expired",
            caller.name
        ))),
        _ => Ok(()),
    }
}

fn unknown_token() -> Problem {
    unauthenticated("the token is unknown: it was revoked, or belongs to another server")
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, secret) = value.split_once(' ')?;
    let secret = secret.trim();
    (scheme.eq_ignore_ascii_case("bearer") && (1..=SECRET_LENGTH_MAX).contains(&secret.len()))
        .then_some(secret)
}

fn caller_of_token(state: &State, hash: &Hash) -> Option<Caller> {
    let token = state.spine.tokens.with_hash(hash)?;
    Some(Caller {
        name: Label::new(token.name.as_str()).ok()?,
        via: Via::Token(*hash),
        roles: token.roles.clone(),
        tenants: token.tenants.clone(),
        owners: token.owners.clone(),
        expires: Some(token.expires),
    })
}

fn unauthenticated(detail: &str) -> Problem {
    Problem {
        changes: vec![
            "send a token as `Authorization: Bearer …`".to_owned(),
            "use the local socket".to_owned(),
        ],
        ..Problem::new(Code::Unauthenticated, detail)
    }
}
