//! Addresses of servers.

use std::path::PathBuf;

use http::Uri;
use thiserror::Error;

/// Address of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// `http://host:port`.
    Tcp {
        /// Host name or IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// `unix:/path/to/api.sock`.
    Unix(PathBuf),
}

/// Port of an address without one.
const PORT_DEFAULT: u16 = 7171;

/// Error of a text that is not an address.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum AddressError {
    /// The text is not an address.
    #[error(
        "`{0}` is not a server; write it as in http://127.0.0.1:7171 or unix:/run/bursar/api.sock"
    )]
    Form(String),
    /// The address uses TLS.
    #[error(
        "`{0}` uses TLS, which this version does not support; use http on a trusted network, or the socket"
    )]
    Tls(String),
}

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form(crate::shape::shown(text));
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err(form())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let uri: Uri = text.parse().map_err(|_| form())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(AddressError::Tls(crate::shape::shown(text))),
            _ => return Err(form()),
        }
        let has_path = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        let authority = uri.authority().filter(|_| !has_path).ok_or_else(form)?;
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host) {
            Some("") => PORT_DEFAULT,
            Some(rest) => rest
                .strip_prefix(':')
                .and_then(|port| port.parse().ok())
                .ok_or_else(form)?,
            // User information before the host. Callers are identified by tokens.
            None => return Err(form()),
        };
        match host.trim_matches(['[', ']']) {
            "" => Err(form()),
            host => Ok(Self::Tcp {
                host: host.to_owned(),
                port,
            }),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
