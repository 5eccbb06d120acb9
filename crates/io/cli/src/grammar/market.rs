//! Nodes and their CPU.

use std::net::SocketAddr;
use std::path::PathBuf;

use bursar_units::ObjectName;
use clap::{Args, Subcommand};

use super::HELP;
use super::flags::ListFlags;

/// `bursar agent`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar agent --market observe",
    before_long_help = "\
examples:
  bursar agent --market observe                               look, and change nothing
  bursar agent --market act --config /etc/bursar/bursar.toml  share CPU among its cgroups",
    after_help = "\
Stop it with Ctrl-C: every CPU limit that it changed is put back as its user wrote it. After a crash
`bursar node restore --data DIR` does so.",
    help_template = HELP
)]
pub(crate) struct AgentArguments {
    /// Whether to write limits; observe unless told
    #[arg(long, value_name = "MODE", value_parser = ["observe", "act"])]
    pub(crate) market: Option<String>,
    /// The node's name; the host's unless told
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<ObjectName>,
    /// A file of settings (TOML); `[market]` and `[[cgroup]]` are read
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where originals and record are kept
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where /metrics, /healthz and /readyz answer; 127.0.0.1:7173 unless told
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
}

/// `bursar top`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar top --once",
    before_long_help = "\
examples:
  bursar top                live, as long as you look
  bursar top --once         one table
  bursar top a01 -o json    one node, for programs",
    after_help = "\
q or Ctrl-C ends it; arrows, j and k, space and b move where the window is too small. In a pipe it
prints one table, as `--once` does.",
    help_template = HELP
)]
pub(crate) struct TopArguments {
    /// Which node; every one that shares its CPU unless told
    pub(crate) node: Option<ObjectName>,
    /// One table, not a live view
    #[arg(long)]
    pub(crate) once: bool,
}

/// `bursar node …`.
#[derive(Args, Debug)]
#[command(
    before_help = "example:  bursar node list",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    help_template = HELP
)]
pub(crate) struct NodeNoun {
    /// Flags of the list that the noun alone is.
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Option<NodeVerb>,
}

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// All machines, what they have, and how their CPU is shared
    #[command(before_help = "example:  bursar node list", help_template = HELP)]
    List(ListFlags),
    /// One machine, its market, and who is not managed and why
    #[command(before_help = "example:  bursar node show a01", help_template = HELP)]
    Show {
        /// Which node
        name: ObjectName,
    },
    /// Put back the CPU limits that users wrote, and stop acting there
    Restore(RestoreArguments),
}

/// `bursar node restore`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar node restore a01 --dry-run",
    before_long_help = "\
examples:
  bursar node restore a01 --dry-run             what would be put back
  bursar node restore --all                     on every node that has an agent
  bursar node restore --data /var/lib/bursar    here, after a crash: no server is asked",
    after_help = "The agent goes on observing; started anew it acts again if it is told to.",
    help_template = HELP
)]
pub(crate) struct RestoreArguments {
    /// Which nodes
    #[arg(required_unless_present_any = ["all", "data"], value_name = "NAME")]
    pub(crate) names: Vec<ObjectName>,
    /// All that have an agent
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// This machine's, from the data directory of an agent that is no longer there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["names", "all"])]
    pub(crate) data: Option<PathBuf>,
    /// Say what would be put back, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What can be done with a market by itself.
#[derive(Debug, Subcommand)]
pub(crate) enum MarketVerb {
    /// Clear one node from a file, and explain each number
    #[command(
        before_help = "example:  bursar market clear -f market.yaml",
        before_long_help = "\
examples:
  bursar market clear -f market.yaml           who gets what, and why
  bursar market clear -f market.yaml -o json   the same for programs
  bursar market clear -f -                     from stdin

a file:
  capacityMilli: 1000
  policy: proportional            # or weighted-nash, full-capacity
  quantumMilli: 1
  pods:                           # demandPpm, or needMilli instead
  - {id: a, minMilli: 100, maxMilli: 1000, weight: 100, demandPpm: 600000}
  - {id: b, minMilli: 100, maxMilli: 1000, needMilli: 533, currentMilli: 300, cooling: true}",
        after_help = "No server is asked: it is the very function that the agent of a node calls.",
        help_template = HELP
    )]
    Clear {
        /// A file, or - for stdin
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
}
