//! Scripts on virtual time (design 50): test, documentation, bug report and what-if in one file.
//!
//! [`script`] reads the file and writes it back, [`world`] plays it against the real engine,
//! service and commands, in process. Nothing of the machine is seen: no clock, no environment,
//! no network; files are read beside the script and written to a place that is thrown away.

pub(crate) mod script;
pub(crate) mod world;
