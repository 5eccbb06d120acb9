//! This machine as a node of the inventory.

use std::collections::BTreeMap;
use std::fmt;

use bursar_client::api::Node;
use bursar_units::ObjectName;
use bursar_units::quantity::format_memory;

use crate::failure::{Failure, Stop};

pub(in crate::command) struct Machine {
    name: String,
    cores: u64,
    memory_bytes: u64,
}

impl Machine {
    pub(in crate::command) fn read() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let system = rustix::system::sysinfo();
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .to_lowercase();
        let is_invalid = |c: char| !matches!(c, 'a'..='z' | '0'..='9' | '.' | '-');
        let name = name.replace(is_invalid, "-");
        let name = name.trim_matches(['-', '.']);
        Self {
            name: if name.is_empty() {
                "localhost".to_owned()
            } else {
                name.to_owned()
            },
            cores: u64::try_from(cores).unwrap_or(1),
            memory_bytes: system.totalram.saturating_mul(u64::from(system.mem_unit)),
        }
    }

    pub(in crate::command) fn name(&self) -> &str {
        &self.name
    }

    /// The machine as `v1/Node`: limits in percent refer to its size.
    pub(super) fn node(&self) -> Result<Node, Stop> {
        let name = ObjectName::new(&self.name).map_err(|error| {
            Failure::unavailable(format!(
                "the host name `{}` cannot be used as a node name: {error}",
                self.name
            ))
        })?;
        let allocatable = BTreeMap::from([
            ("cpu".to_owned(), self.cores.to_string()),
            ("memory".to_owned(), format_memory(self.memory_bytes)),
        ]);
        Ok(Node::new(name, allocatable))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cores == 1 { "" } else { "s" };
        write!(
            f,
            "{} core{plural}, {} GiB",
            self.cores,
            self.memory_bytes >> 30
        )
    }
}
