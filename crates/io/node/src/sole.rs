//! One server of a ledger on one machine.
//!
//! The cgroups of a ledger carry its id, so a copy that runs beside its original would take the
//! original's programs for its own. A server listens on an abstract socket with the ledger's name,
//! which the kernel takes back when it dies, and a second one sees that. Nothing is ever accepted.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// The right to be the only server of a ledger on this machine, until it is dropped.
#[derive(Debug)]
pub struct Sole {
    /// None where somebody else's process has the name: it cannot touch our cgroups.
    _name: Option<UnixListener>,
}

impl Sole {
    /// Takes the right; the process that has it already where that is one of ours.
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
