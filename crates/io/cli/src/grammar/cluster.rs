//! The plane of the cluster: runs, leases and budgets.

use std::path::PathBuf;

use bursar_client::api::cluster::UsageBy;
use bursar_units::{Label, Millis, ObjectName};
use clap::{Args, Subcommand, ValueEnum};

use super::HELP;
use super::flags::{ListFlags, words};

/// The namespace of one object.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Namespace; default: that of the context, or `default`
    #[arg(short, long, value_name = "NS")]
    pub(crate) namespace: Option<ObjectName>,
}

/// Flags of a list of objects with namespaces.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScopedFlags {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Objects of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) list: ListFlags,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) scoped: ScopedFlags,
    /// Also runs that ended more than 24 hours ago
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LeaseFlags {
    #[command(flatten)]
    pub(crate) scoped: ScopedFlags,
    /// Also leases that ended since this time; default: in the last 24 hours
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) since: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunVerb {
    /// Submit runs: they start, wait, or are refused
    Submit(SubmitArguments),
    /// Show what `run submit` would do
    Plan(PlanArguments),
    /// List runs: state, GPUs, payers
    #[command(before_help = "example:  bursar run list -A --where state=waiting", help_template = HELP)]
    List(RunFlags),
    /// One run with its history
    #[command(before_help = "example:  bursar run show asr-xl -n speech", help_template = HELP)]
    Show {
        /// Run: NAME or NAMESPACE/NAME
        name: String,
        #[command(flatten)]
        scope: Scope,
    },
    /// Print each change until it ends; exits 0 if it ended well, 1 if not
    #[command(before_help = "example:  bursar run watch asr-xl -n speech --until started", help_template = HELP)]
    Watch {
        /// Run: NAME or NAMESPACE/NAME
        name: String,
        #[command(flatten)]
        scope: Scope,
        /// Event to wait for, however long it takes: --timeout is for each answer of the server
        #[arg(long, value_name = "EVENT", default_value = "ended")]
        until: Until,
    },
    /// Cancel a run: a waiting one ends at once, a running one is stopped
    #[command(before_help = "example:  bursar run cancel asr-xl -n speech", help_template = HELP)]
    Cancel {
        /// Run: NAME or NAMESPACE/NAME
        name: String,
        #[command(flatten)]
        scope: Scope,
        /// Show what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Event that ends a watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Until {
    /// Its GPUs are leased
    Started,
    /// It has ended
    Ended,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar run submit -f asr-xl.yaml -n speech",
    before_long_help = "\
examples:
  bursar run submit -f asr-xl.yaml -n speech
  bursar run submit --name test --gpus 8 --flavor h100 --duration 2h -n speech",
    after_help = "A live run of that name with the same content is left alone. After its end the name makes a new run.",
    help_template = HELP
)]
pub(crate) struct SubmitArguments {
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    /// Show what would happen, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar run plan -f asr-xl.yaml -n speech",
    after_help = "The same as `bursar run submit --dry-run`.",
    help_template = HELP
)]
pub(crate) struct PlanArguments {
    /// File with one run, or - for stdin; repeatable
    #[arg(short, long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Number of GPUs
    #[arg(long, value_name = "N", conflicts_with = "files", requires = "flavor")]
    pub(crate) gpus: Option<u64>,
    /// Flavor of the GPUs
    #[arg(long, conflicts_with = "files")]
    pub(crate) flavor: Option<Label>,
    /// Name of the run; default: a new one
    #[arg(long, conflicts_with = "files")]
    pub(crate) name: Option<ObjectName>,
    /// GPUs of a pod, which sits on one node; default: all, at most 8
    #[arg(long, value_name = "N", conflicts_with = "files")]
    pub(crate) pod_gpus: Option<u64>,
    /// GPUs of a group, which sits in one domain; default: all
    #[arg(long, value_name = "N", conflicts_with = "files")]
    pub(crate) group_gpus: Option<u64>,
    /// Expected length, which is paid for in advance; never a limit
    #[arg(long, value_name = "DURATION", conflicts_with = "files")]
    pub(crate) duration: Option<Millis>,
    /// Owner that pays first; default: the only one of the token, or user:NAME on this machine
    #[arg(long, conflicts_with = "files")]
    pub(crate) owner: Option<Label>,
    /// Refuse a run that cannot start now
    #[arg(long)]
    pub(crate) now: bool,
    /// Program to run; not yet
    #[arg(last = true, hide = true)]
    pub(crate) program: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeaseVerb {
    /// Open leases, and those that ended in the last 24 hours
    #[command(before_help = "example:  bursar lease list -A --where run=vision/abl-17", help_template = HELP)]
    List(LeaseFlags),
    /// The leases of one pod of a run
    #[command(before_help = "example:  bursar lease show lease-12.0", help_template = HELP)]
    Show {
        /// Identity of a lease: ID or lease/ID
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetVerb {
    /// Envelopes: GPUs now, GPU-hours, and how long they last
    #[command(before_help = "example:  bursar budget list -A", help_template = HELP)]
    List(ScopedFlags),
    /// One budget: envelopes, caps, lending, family and conditions
    #[command(before_help = "example:  bursar budget show q4 -n rai", help_template = HELP)]
    Show {
        /// Budget: NAME or NAMESPACE/NAME
        name: String,
        #[command(flatten)]
        scope: Scope,
    },
    /// GPU-hours that were used in a period, by funding class
    Usage(UsageArguments),
    /// Close the epoch of an envelope now; the next one starts at 0
    #[command(before_help = "example:  bursar budget rotate q4 -n rai --envelope h100 --dry-run", help_template = HELP)]
    Rotate {
        /// Budget: NAME or NAMESPACE/NAME
        name: String,
        #[command(flatten)]
        scope: Scope,
        /// Name of the envelope
        #[arg(long, value_name = "NAME")]
        envelope: ObjectName,
        /// Reason; it is recorded in clear
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Show what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar budget usage --since -7d --by owner",
    before_long_help = "\
examples:
  bursar budget usage --since -7d
  bursar budget usage --by run -o csv > runs.csv
  bursar budget usage q4 -n rai --by envelope",
    after_help = "Whole UTC days are counted: those of --since and --until, and the days between.",
    help_template = HELP
)]
pub(crate) struct UsageArguments {
    /// Only the owner of this budget: NAME or NAMESPACE/NAME
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// First day: a date, a time, or -7d; default: the first record
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) since: Option<String>,
    /// Last day; default: now
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) until: Option<String>,
    /// Rows: owner, run, day or envelope
    #[arg(long, value_name = "KEY", default_value = "owner", value_parser = words(UsageBy::ALL, UsageBy::word), hide_possible_values = true)]
    pub(crate) by: UsageBy,
}
