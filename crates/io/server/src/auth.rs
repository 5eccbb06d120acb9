//! From a connection and its headers to a caller.
//!
//! A bearer token beats everything else: whoever sends one wants to be known by it, so a dead
//! one is refused and never falls back to less. On the Unix socket the kernel says who is
//! there. Loopback TCP may look without a name unless that was switched off; from beyond
//! loopback nobody comes in without a token.

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

/// What every secret begins with, so that a leaked one is recognised by whoever scans for them.
pub const SECRET_PREFIX: &str = "bursar_";
/// Longer than any secret we make; what is longer is not hashed.
const SECRET_LENGTH_MAX: usize = 128;

/// What whoever sends no token on loopback may do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Anonymous {
    /// Look.
    #[default]
    Read,
    /// Nothing.
    None,
}

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub enum Peer {
    /// TCP from this machine.
    Loopback,
    /// TCP from elsewhere.
    Beyond,
    /// The local socket, and who is at its other end.
    Socket(Arc<Caller>),
}

/// How requests are given a caller.
#[derive(Clone, Debug)]
pub enum CallerSource {
    /// All are this caller's: for a router that is called in process.
    Fixed(Arc<Caller>),
    /// By token and by the [`Peer`] in the request's extensions.
    Connection(Anonymous),
}

impl Peer {
    /// Who is at the other end of the local socket: the user that runs the server and root
    /// operate, everyone else acts as the tenant of its own name.
    pub fn socket(user: User, own_uid: u32) -> Self {
        let name = user_name(user.uid);
        let role = if user.uid == own_uid || user.uid == 0 {
            Role::Operate
        } else {
            Role::Use
        };
        Self::Socket(Arc::new(Caller {
            tenants: BTreeSet::from([name.clone()]),
            name,
            via: Via::User(user),
            roles: BTreeSet::from([role]),
            expires: None,
        }))
    }
}

impl CallerSource {
    /// The caller of a request.
    pub fn caller(&self, request: &Parts, view: &View) -> Result<Arc<Caller>, Problem> {
        let anonymous = match self {
            Self::Fixed(caller) => return Ok(Arc::clone(caller)),
            Self::Connection(anonymous) => anonymous,
        };
        if let Some(value) = request.headers.get(AUTHORIZATION) {
            let secret = value.to_str().ok().and_then(bearer).ok_or_else(|| {
                unauthenticated("the Authorization header is not `Bearer` and a token")
            })?;
            let hash = sha256(secret.as_bytes());
            let found = of_token(&view.read(), &hash);
            return found.map(Arc::new).ok_or_else(unknown_token);
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

/// Whether a request was addressed to this machine by a name that only means this machine. A
/// page in a browser that was made to resolve its own name to loopback has another (DNS
/// rebinding), and gets nothing without a token. A request names exactly one host; a target in
/// absolute form must name loopback too.
fn names_loopback(request: &Parts) -> bool {
    let mut hosts = request.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let target = request.uri.authority();
    host.to_str().is_ok_and(is_loopback) && target.is_none_or(|target| is_loopback(target.as_str()))
}

/// Whether `host` or `host:port` is `localhost` or an address of loopback, and nothing else.
fn is_loopback(authority: &str) -> bool {
    let (is_loopback, port) = if let Some(rest) = authority.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        let is_loopback = |address: Ipv6Addr| address.to_canonical().is_loopback();
        (address.parse().is_ok_and(is_loopback), port)
    } else {
        let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        // A name may end in a dot, which says that it is whole.
        let is_localhost = name.strip_suffix('.').unwrap_or(name);
        let is_localhost = is_localhost.eq_ignore_ascii_case("localhost");
        let is_loopback = |address: Ipv4Addr| address.is_loopback();
        (is_localhost || name.parse().is_ok_and(is_loopback), port)
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_loopback && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Refuses a caller whose right has ended: its token was revoked or has expired.
pub fn check_right(caller: &Caller, view: &View, now: Instant) -> Result<(), Problem> {
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
    unauthenticated("the token is not known here: it was revoked, or made elsewhere")
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, secret) = value.split_once(' ')?;
    let secret = secret.trim();
    (scheme.eq_ignore_ascii_case("bearer") && (1..=SECRET_LENGTH_MAX).contains(&secret.len()))
        .then_some(secret)
}

fn of_token(state: &State, hash: &Hash) -> Option<Caller> {
    let token = state.spine.tokens.with_hash(hash)?;
    Some(Caller {
        name: Label::new(token.name.as_str()).ok()?,
        via: Via::Token(*hash),
        roles: token.roles.clone(),
        tenants: token.tenants.clone(),
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
