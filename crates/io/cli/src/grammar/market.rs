//! The grammar of the market: nodes and their CPU.

use std::net::SocketAddr;
use std::path::PathBuf;

use bursar_units::ObjectName;
use clap::{Args, Subcommand};

use super::HELP;
use super::flags::ListFlags;

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar agent --market observe",
    before_long_help = "\
examples:
  bursar agent --market observe                               observe, change nothing
  bursar agent --market act --config /etc/bursar/bursar.toml  share the CPU among cgroups",
    after_help = "\
Stop it with Ctrl-C: it puts every CPU limit that it changed back to the user's value. After a crash,
run `bursar node restore --data DIR`.",
    help_template = HELP
)]
pub(crate) struct AgentArguments {
    /// Observe only, or act and write limits; default: observe
    #[arg(long, value_name = "MODE", value_parser = ["observe", "act"])]
    pub(crate) market: Option<String>,
    /// Name of the node; default: the host name
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<ObjectName>,
    /// Settings file (TOML); `[market]` and `[[cgroup]]` are read
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory for the original limits and the record
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address of /metrics, /healthz and /readyz; default: 127.0.0.1:7173
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar top --once",
    before_long_help = "\
examples:
  bursar top                live view
  bursar top --once         one table
  bursar top a01 -o json    one node, for programs",
    after_help = "\
q or Ctrl-C ends it; arrows, j and k, space and b scroll. In a pipe it prints one table, as `--once`
does.",
    help_template = HELP
)]
pub(crate) struct TopArguments {
    /// Name of the node; default: all that share their CPU
    pub(crate) node: Option<ObjectName>,
    /// Print one table, not a live view
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// All machines, their capacity, and how their CPU is shared
    #[command(before_help = "example:  bursar node list", help_template = HELP)]
    List(ListFlags),
    /// One machine, its market, and the pods that are not managed
    #[command(before_help = "example:  bursar node show a01", help_template = HELP)]
    Show {
        /// Name of the node
        name: ObjectName,
    },
    /// Put back the CPU limits that users wrote, and stop acting on the node
    Restore(RestoreArguments),
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar node restore a01 --dry-run",
    before_long_help = "\
examples:
  bursar node restore a01 --dry-run             show what would be put back
  bursar node restore --all                     on every node that has an agent
  bursar node restore --data /var/lib/bursar    this machine, after a crash; needs no server",
    after_help = "The agent continues to observe. After a restart it acts again if its settings say so.",
    help_template = HELP
)]
pub(crate) struct RestoreArguments {
    /// Names of the nodes
    #[arg(required_unless_present_any = ["all", "data"], value_name = "NAME")]
    pub(crate) names: Vec<ObjectName>,
    /// All nodes that have an agent
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// This machine, from the data directory of an agent that no longer runs
    #[arg(long, value_name = "DIR", conflicts_with_all = ["names", "all"])]
    pub(crate) data: Option<PathBuf>,
    /// Show what would be put back, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MarketVerb {
    /// Clear one node from a file, and explain each number
    #[command(
        before_help = "example:  bursar market clear -f market.yaml",
        before_long_help = "\
examples:
  bursar market clear -f market.yaml           shares, and their reasons
  bursar market clear -f market.yaml -o json   the same for programs
  bursar market clear -f -                     from stdin

a file:
  capacityMilli: 1000
  policy: proportional            # or weighted-nash, full-capacity
  quantumMilli: 1
  pods:                           # demandPpm, or needMilli instead
  - {id: a, minMilli: 100, maxMilli: 1000, weight: 100, demandPpm: 600000}
  - {id: b, minMilli: 100, maxMilli: 1000, needMilli: 533}",
        after_help = "Needs no server: it calls the same function as the agent of a node.",
        help_template = HELP
    )]
    Clear {
        /// File, or - for stdin
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Play a load from a file through the market, on virtual time
    #[command(
        before_help = "example:  bursar market simulate -f simulate.yaml",
        before_long_help = "\
examples:
  bursar market simulate -f simulate.yaml                        every change of a limit
  bursar market simulate -f simulate.yaml -o json                the same for programs
  bursar market simulate -f simulate.yaml --picture market.svg   and a picture

a file:
  capacityMilli: 800
  writesPerHour: 600
  seconds: 30
  work: lost                      # what a limit holds back; or waits
  pods:                           # want: [second, millicores] from then on
  - {id: a, minMilli: 50, maxMilli: 1000, want: [[1, 0], [3, 500], [11, 0]]}
  - {id: b, minMilli: 50, maxMilli: 1000, want: [[1, 20], [13, 600], [21, 20]]}",
        after_help = "\
Needs no server: it plays the agent's estimates, clearings and budget of writes. A pod begins without a
limit, so the first clearing writes every limit.",
        help_template = HELP
    )]
    Simulate {
        /// File, or - for stdin
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Also write a picture of wants, limits and rungs (SVG)
        #[arg(long, value_name = "FILE")]
        picture: Option<PathBuf>,
    },
}
