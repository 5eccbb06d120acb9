//! How many files this process may have open: a connection is one, and so is each counter of a
//! cgroup that is read every second.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::log;

/// Asks for as many as there may be; the usual limit is for programs that open few. Whoever serves
/// does so first of all. Where that is refused, as many as there are stay.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "{}", log::DESCRIPTORS_NOT_RAISED);
    }
}

/// How many there may be now.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
