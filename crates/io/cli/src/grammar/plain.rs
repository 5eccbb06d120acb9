//! Commands without a noun.

use std::net::SocketAddr;
use std::path::PathBuf;

use bursar_engine::market::Mode;
use clap::{Args, Subcommand, ValueEnum};

use super::HELP;
use super::flags::{ListFlags, words};

/// `bursar up`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar up",
    before_long_help = "\
examples:
  bursar up                             on this machine, with everything by default
  bursar up --demo                      an example organisation that books in real time
  bursar up --config /etc/bursar.toml   in production",
    after_help = "\
Stop it with Ctrl-C; what was acknowledged is on disk at every moment, and executions go on: the
next one on the same data adopts them.",
    help_template = HELP
)]
pub(crate) struct UpArguments {
    /// A small organisation at work, in a directory of its own
    #[arg(long)]
    pub(crate) demo: bool,
    /// A file of settings (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the ledger is kept
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where to listen; 127.0.0.1:7171 unless told
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Whether this machine's CPU is shared; observe unless told
    #[arg(long, value_name = "MODE", value_parser = words(Mode::ALL, Mode::word), hide_possible_values = true)]
    pub(crate) market: Option<Mode>,
    /// Refuse to start where executions cannot be kept apart by cgroups
    #[arg(long)]
    pub(crate) require_isolation: bool,
}

/// `bursar apply`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar apply -f limits.yaml --dry-run",
    after_help = "All documents or none are applied.",
    help_template = HELP
)]
pub(crate) struct ApplyArguments {
    /// A file, a directory of *.yaml, or - for stdin; repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Say what would change and for whom, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `bursar delete`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar delete limit/python node/a01 --yes",
    after_help = "Facts stay: what was booked under a limit remains in the ledger.",
    help_template = HELP
)]
pub(crate) struct DeleteArguments {
    /// What to remove: limit/NAME or node/NAME
    #[arg(required = true, value_name = "REF")]
    pub(crate) references: Vec<String>,
    /// Say what would be removed, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// `bursar explain`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar explain booking/job-1",
    before_long_help = "\
examples:
  bursar explain booking/job-1        why it waits, when it may be granted, what would help
  bursar explain booking/job-1 when   one question only
  bursar explain limit/python         how full it is, and who holds it
  bursar explain pod/web              what CPU it may use, with the arithmetic
  bursar explain pod/job-1 why        the same of an execution, one question only
  bursar explain pod/web --at -5m     as it was then: the agent keeps a record for a day",
    help_template = HELP
)]
pub(crate) struct ExplainArguments {
    /// What: booking/ID, limit/NAME or pod/NAME
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// One question only
    pub(crate) question: Option<Question>,
    /// A pod as it was then: -5m, 14:30, or an instant
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<String>,
}

/// One question of an explanation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Question {
    /// Why it is so
    Why,
    /// When it changes; of a booking or a pod
    When,
    /// Who counts; of a booking
    Who,
    /// How it was calculated; of a pod
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

/// `bursar scenario`.
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
fenced `console` blocks are the script and share one world. Commands: `bursar …`, `clock INSTANT`,
`advance DURATION`, `crash`, `as NAME ROLE[,ROLE] [tenant=…]`, `echo $?`.",
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

/// `bursar context …`.
#[derive(Args, Debug)]
#[command(
    before_help = "example:  bursar context use lab",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    help_template = HELP
)]
pub(crate) struct ContextNoun {
    /// Flags of the list that the noun alone is.
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Option<ContextVerb>,
}

/// What can be done with contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextVerb {
    /// All contexts of the client's file
    #[command(before_help = "example:  bursar context list", help_template = HELP)]
    List(ListFlags),
    /// Make one the current
    #[command(before_help = "example:  bursar context use lab", help_template = HELP)]
    Use {
        /// Which context
        name: String,
    },
}
