//! The grammar of the command line: `bursar [NOUN] VERB [NAME] [flags]`.
//!
//! One definition per flag feeds parsing, both helps, the man pages and the completions. A noun
//! alone lists; singular and plural are both accepted, help shows the singular.

mod booking;
mod cluster;
mod flags;
mod market;
mod plain;
mod spine;

use std::path::PathBuf;

use bursar_units::Millis;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use booking::{
    BookingVerb, Bound, CancelArguments, ExecArguments, LimitSet, LimitVerb, LogsArguments,
    ReleaseArguments, ReserveArguments,
};
pub(crate) use cluster::{
    BudgetVerb, LeaseFlags, LeaseVerb, PlanArguments, RunFlags, RunVerb, Scope, ScopedFlags, Until,
    UsageArguments,
};
pub(crate) use flags::ListFlags;
pub(crate) use market::{AgentArguments, MarketVerb, NodeVerb, RestoreArguments, TopArguments};
pub(crate) use plain::{
    ApplyArguments, ContextVerb, DeleteArguments, ExplainArguments, Question, ScenarioArguments,
    UpArguments,
};
pub(crate) use spine::{AuditVerb, CheckArguments, ExportFormat, LedgerVerb, TokenVerb};

/// Layout of the short and the long help: the example comes first.
pub(crate) const HELP: &str = "\
{before-help}{about-with-newline}{usage-heading} {usage}

{all-args}{after-help}
";

/// Layout of `bursar -h`. Its list of commands fills a screen, so the flags of every command are
/// only in the long help of each.
const HELP_OF_ALL: &str = "\
{before-help}{about-with-newline}{usage-heading} {usage}
Commands:
{subcommands}{after-help}
";

#[derive(Debug, Parser)]
#[command(
    name = "bursar",
    version,
    about = "Hands out scarce compute, fairly and with proof; `bursar COMMAND -h` has an example of each",
    before_help = "example:  bursar exec --class python -- python3 job.py",
    before_long_help = "\
examples:
  bursar up                                        run the whole system on this machine
  bursar exec --class python -- python3 job.py     run a program in a slot
  bursar booking reserve python --id job-1         hold a slot
  bursar booking release job-1 --fence 1           give it back
  bursar limit set python --slots 120 --dry-run    show what would change, and for whom",
    after_long_help = "\
every command takes -o, -q, -v, --no-color, --server, --context, --token-file and --timeout:
`bursar exec --help` describes them; -V prints the version

exit codes: 0 done or waiting, 1 refused, 2 wrong use, 3 unavailable, 4 does not verify;
`exec` has its own: `bursar exec -h`",
    disable_help_subcommand = true,
    max_term_width = 100,
    help_template = HELP_OF_ALL,
    subcommand_required = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Common {
    /// Output format of results
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "table",
        hide_short_help = true
    )]
    pub(crate) output: Format,
    /// Results and errors only: no hints, notes or progress
    #[arg(short, long, global = true, hide_short_help = true)]
    pub(crate) quiet: bool,
    /// No colour, even on a terminal
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) no_color: bool,
    /// The server: http://HOST:PORT, or unix:PATH of a socket
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub(crate) server: Option<String>,
    /// A context of the client's configuration file, or `demo`
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) context: Option<String>,
    /// File with the token to send, mode 0600
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Longest wait for an answer
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = positive,
        hide_short_help = true
    )]
    pub(crate) timeout: Millis,
    /// Print requests, timings and the source of each setting on stderr
    #[arg(short, long, global = true, hide_short_help = true)]
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// For people, at most 100 columns wide
    Table,
    /// For people, with every column
    Wide,
    /// For programs
    Json,
    /// For files
    Yaml,
    /// One KIND/NAME per line
    Name,
    /// `budget usage` only, for spreadsheets
    Csv,
}

/// A noun: without a verb it lists.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    help_template = HELP
)]
pub(crate) struct Noun<V: Subcommand, L: Args = ListFlags> {
    #[command(flatten)]
    pub(crate) list: L,
    #[command(subcommand)]
    pub(crate) verb: Option<V>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole system on this machine
    Up(UpArguments),
    /// Share the CPU of this machine, without a server
    Agent(AgentArguments),
    /// Book a slot, run the program here, give the slot back
    Exec(ExecArguments),
    /// Create or change budgets, runs, limits and nodes from files, all or none
    Apply(ApplyArguments),
    /// Remove budgets, limits or nodes
    Delete(DeleteArguments),
    /// Work on GPUs that starts and ends together
    #[command(
        alias = "runs",
        before_help = "example:  bursar run submit -f asr-xl.yaml -n speech",
        before_long_help = "\
examples:
  bursar runs -A
  bursar run submit -f asr-xl.yaml -n speech
  bursar explain asr-xl -n speech"
    )]
    Run(Noun<RunVerb, RunFlags>),
    /// GPUs that runs hold or held: from when to when, and who paid
    #[command(alias = "leases", before_help = "example:  bursar lease list -A")]
    Lease(Noun<LeaseVerb, LeaseFlags>),
    /// Envelopes of GPUs and GPU-hours, and their use
    #[command(
        alias = "budgets",
        before_help = "example:  bursar budget usage --since -7d",
        before_long_help = "\
examples:
  bursar budgets -A
  bursar budget show q4 -n rai
  bursar budget usage --since -7d"
    )]
    Budget(Noun<BudgetVerb, ScopedFlags>),
    /// Held and queued slots
    #[command(
        alias = "bookings",
        before_help = "example:  bursar booking reserve python --id job-1 --wait 5m",
        before_long_help = "\
examples:
  bursar bookings --where class=python,state=queued
  bursar booking reserve python --id job-1 --wait 5m
  bursar booking release job-1 --fence 12"
    )]
    Booking(Noun<BookingVerb>),
    /// Bounds on slots, CPU, memory and GPUs; changes apply at once
    #[command(
        alias = "limits",
        before_help = "example:  bursar limit set python --slots 120 --dry-run"
    )]
    Limit(Noun<LimitVerb>),
    /// Machines, their capacity, and how their CPU is shared
    #[command(alias = "nodes", before_help = "example:  bursar node list")]
    Node(Noun<NodeVerb>),
    /// Live view of CPU need and CPU share per pod
    Top(TopArguments),
    /// The CPU of one node, divided by need and price
    #[command(
        subcommand,
        before_help = "example:  bursar market simulate -f simulate.yaml",
        help_template = HELP,
        disable_help_subcommand = true
    )]
    Market(MarketVerb),
    /// Explain a run, a booking, a limit or a pod: why, when, who and how
    Explain(ExplainArguments),
    /// The record of every decision, for operators of the store
    #[command(
        subcommand,
        before_help = "example:  bursar ledger check",
        help_template = HELP,
        disable_help_subcommand = true
    )]
    Ledger(LedgerVerb),
    /// Proofs, for holders of a proof or an export
    #[command(
        subcommand,
        before_help = "example:  bursar audit proof booking/job-1 && bursar audit verify job-1.proof",
        help_template = HELP,
        disable_help_subcommand = true
    )]
    Audit(AuditVerb),
    /// API tokens: who may do what
    #[command(
        alias = "tokens",
        before_help = "example:  bursar token create ci --role use --tenant acme --expires 30d"
    )]
    Token(Noun<TokenVerb>),
    /// Servers that commands go to
    #[command(alias = "contexts", before_help = "example:  bursar context use lab")]
    Context(Noun<ContextVerb>),
    /// Check that Bursar is set up correctly
    #[command(
        before_help = "example:  bursar doctor",
        after_help = "Exits 1 if a line says FAIL, 3 if no server answers, 2 if the client's settings are not valid.",
        help_template = HELP
    )]
    Doctor,
    /// Run scripts on virtual time: test, documentation, bug report, what-if
    Scenario(ScenarioArguments),
    /// Completions for a shell
    #[command(
        before_help = "example:  bursar completions bash > ~/.local/share/bash-completion/completions/bursar",
        help_template = HELP
    )]
    Completions {
        /// Shell to write completions for
        shell: clap_complete::Shell,
    },
    /// Manual pages
    #[command(before_help = "example:  bursar man ~/.local/share/man/man1", help_template = HELP)]
    Man {
        /// Directory for one file per command; without it `bursar.1` goes to stdout
        directory: Option<PathBuf>,
    },
}

fn positive(text: &str) -> Result<Millis, String> {
    match text.parse() {
        Ok(Millis::ZERO) => Err("must be more than 0".to_owned()),
        Ok(length) => Ok(length),
        Err(error) => Err(format!("{error}")),
    }
}

impl Arguments {
    /// The definition from which help, man pages and completions are generated.
    pub(crate) fn definition() -> clap::Command {
        <Self as clap::CommandFactory>::command()
    }
}
