//! Scenarios: scripts on virtual time, used as tests, documentation, bug reports and experiments.
//!
//! [`script`] parses and writes the file; [`world`] runs it in process on the real engine, service
//! and commands. A scenario uses no clock, environment or network of the machine. It reads files
//! beside the script and writes files to a temporary directory.

pub(crate) mod script;
pub(crate) mod world;
