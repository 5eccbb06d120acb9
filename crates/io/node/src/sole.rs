//! Ensures that a ledger has one server per machine.
//!
//! The cgroups of a ledger carry its id, so a server of a copy would treat the programs of the
//! original as its own. A server listens on an abstract socket with the ledger's name; the kernel
//! frees the name when the server dies, and a second server finds it in use. It accepts nothing.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// The right to be the only server of a ledger on this machine, until it is dropped.
#[derive(Debug)]
pub struct Sole {
    /// `None` if a process of another user holds the name: it cannot touch our cgroups.
    _name: Option<UnixListener>,
}

impl Sole {
    /// Takes the right, or returns the pid of the server of root or of this user that holds it.
    pub fn take(ledger: &str) -> io::Result<Result<Self, i32>> {
        let address = SocketAddr::from_abstract_name(format!("bursar-ledger-{ledger}"))?;
        match UnixListener::bind_addr(&address) {
            Ok(name) => Ok(Ok(Self { _name: Some(name) })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let holder = socket_peercred(UnixStream::connect_addr(&address)?)?;
                let is_ours = holder.uid.is_root() || holder.uid == geteuid();
                if is_ours {
                    return Ok(Err(holder.pid.as_raw_pid()));
                }
                Ok(Ok(Self { _name: None }))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::Sole;

    #[test]
    fn a_second_server_of_a_ledger_sees_the_first_until_that_is_gone() {
        let ledger = format!("test-{}", std::process::id());
        let first = Sole::take(&ledger).unwrap().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Sole::take(&ledger).unwrap().unwrap_err(), pid);
        assert!(Sole::take(&format!("{ledger}-other")).unwrap().is_ok());
        drop(first);
        assert!(Sole::take(&ledger).unwrap().is_ok());
    }
}
