//! Commands without a noun.

use std::net::SocketAddr;
use std::path::PathBuf;

use bursar_engine::market::Mode;
use clap::{Args, Subcommand, ValueEnum};

use super::HELP;
use super::cluster::Scope;
use super::flags::{ListFlags, words};

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar up",
    before_long_help = "\
examples:
  bursar up                             on this machine, with the default settings
  bursar up --demo                      an example organisation that books in real time
  bursar up --config /etc/bursar.toml   in production",
    after_help = "\
Stop it with Ctrl-C. Acknowledged changes are always on disk. Executions keep running: the next
server on the same data adopts them.",
    help_template = HELP
)]
pub(crate) struct UpArguments {
    /// Run a small example organisation, in a directory of its own
    #[arg(long)]
    pub(crate) demo: bool,
    /// Settings file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data directory of the ledger
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address to listen on; default: 127.0.0.1:7171
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// CPU market of this machine: off, observe or act; default: observe
    #[arg(long, value_name = "MODE", value_parser = words(Mode::ALL, Mode::word), hide_possible_values = true)]
    pub(crate) market: Option<Mode>,
    /// Refuse to start if cgroups cannot isolate executions
    #[arg(long)]
    pub(crate) require_isolation: bool,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar apply -f limits.yaml --dry-run",
    after_help = "All documents or none are applied.",
    help_template = HELP
)]
pub(crate) struct ApplyArguments {
    /// File, directory of *.yaml, or - for stdin; repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Show what would change and for whom, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar delete limit/python node/a01 --yes",
    after_help = "Records stay: bookings made under a limit, and used hours, remain in the ledger. A run is\ncancelled, never deleted.",
    help_template = HELP
)]
pub(crate) struct DeleteArguments {
    /// Objects to remove: budget/[NAMESPACE/]NAME, limit/NAME or node/NAME
    #[arg(required = true, value_name = "REF")]
    pub(crate) references: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Show what would be removed, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar explain asr-xl -n speech",
    before_long_help = "\
examples:
  bursar explain asr-xl -n speech     why a run waits, and who pays for it
  bursar explain speech/asr-xl who    one question only
  bursar explain booking/job-1        why it waits, when it may be granted, what would help
  bursar explain booking/job-1 when   one question only
  bursar explain limit/python         its use and its holders
  bursar explain pod/web              the CPU it may use, with the arithmetic
  bursar explain pod/job-1 why        the same for an execution, one question only
  bursar explain pod/web --at -5m     at an earlier time: the agent keeps a record for a day",
    help_template = HELP
)]
pub(crate) struct ExplainArguments {
    /// Object to explain: a run (NAME or NAMESPACE/NAME), booking/ID, limit/NAME or pod/NAME
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Answer only this question
    pub(crate) question: Option<Question>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Explain a pod at an earlier time: -5m, 14:30, or an RFC 3339 time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Question {
    /// The reasons
    Why,
    /// Time of the next change; for bookings and pods
    When,
    /// Envelopes that pay for a run; tenant and limits that count a booking
    Who,
    /// The calculation; for pods
    How,
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Why => "why",
            Self::When => "when",
            Self::Who => "who",
            Self::How => "how",
        })
    }
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar scenario --check docs/bookings.md",
    before_long_help = "\
examples:
  bursar scenario what-if.scenario           print what a terminal would show
  bursar scenario --check docs/bookings.md   compare with the expected lines, exit 1 if they differ
  bursar scenario --update docs/bookings.md  rewrite the expected lines",
    after_help = "A line that starts with `$ ` is a command, the lines after it its expected output.",
    after_long_help = "\
A line that starts with `$ ` is a command, the lines after it its expected output; in Markdown the
fenced `console` blocks are the script and share one world. Commands:

  bursar …                                  any command, against the scenario's own server
  clock INSTANT                             time runs to there; the first one is the start
  advance DURATION                          time runs that long
  away DURATION                             the server is gone that long, runs go on
  crash                                     the server loses uncommitted data and restarts
  end run/REF [ok|failed CODE]              the processes of a run exit now
  overrun run/REF [DURATION]                a run goes on after its expected end
  as NAME ROLE[,ROLE] [owner=…] [tenant=…]  the caller from here on
  metrics [PREFIX]                          the lines of /metrics whose names begin so
  echo $?                                   exit code of the command before

REF is NAMESPACE/NAME, or NAME in the namespace `default`. Runs are simulated: one ends after its
`expectedDuration`, or at the deadline when it is stopped. A `bursar.toml` beside the script is read
as `bursar up --config` reads it.",
    help_template = HELP
)]
pub(crate) struct ScenarioArguments {
    /// Scripts, or Markdown files with `console` blocks
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Compare with the expected lines and print the difference
    #[arg(long, conflicts_with = "update")]
    pub(crate) check: bool,
    /// Rewrite the expected lines
    #[arg(long)]
    pub(crate) update: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextVerb {
    /// All contexts of the client's configuration file
    #[command(before_help = "example:  bursar context list", help_template = HELP)]
    List(ListFlags),
    /// Set the current context
    #[command(before_help = "example:  bursar context use lab", help_template = HELP)]
    Use {
        /// Name of the context
        name: String,
    },
}
