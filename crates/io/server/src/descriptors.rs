//! Limit on open file descriptors. Each connection needs one, and so does each cgroup counter that
//! is read every second.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::log;

/// Raises the soft limit to the hard limit, because the usual soft limit is too low for a server.
/// Called before anything is served. On failure the limit stays as it is.
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

pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
