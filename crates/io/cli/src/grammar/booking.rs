//! The plane of bookings: bookings, executions and limits.

mod exec;

use bursar_client::api::{LogStream, Outcome, Priority};
use bursar_units::{BookingId, Label, Millis, ObjectName};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};

use super::HELP;
use super::flags::{ListFlags, cpu, memory, words};

pub(crate) use exec::ExecArguments;

/// `bursar booking …`.
#[derive(Args, Debug)]
#[command(
    before_help = "example:  bursar booking reserve python --id job-1 --wait 5m",
    before_long_help = "\
examples:
  bursar bookings --where class=python,state=queued
  bursar booking reserve python --id job-1 --wait 5m
  bursar booking release job-1 --fence 12",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    help_template = HELP
)]
pub(crate) struct BookingNoun {
    /// Flags of the list that the noun alone is.
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Option<BookingVerb>,
}

/// What can be done with bookings.
#[derive(Debug, Subcommand)]
pub(crate) enum BookingVerb {
    /// Ask for slots: granted, queued or refused; prints the fence
    Reserve(ReserveArguments),
    /// Keep holding
    #[command(before_help = "example:  bursar booking renew job-1 --fence 12", help_template = HELP)]
    Renew {
        /// Which booking
        id: BookingId,
        /// The number that proves it is still yours
        #[arg(long, value_name = "N")]
        fence: u64,
        /// For how long; the booking's own unless told
        #[arg(long, value_name = "DURATION")]
        ttl: Option<Millis>,
        /// Say what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Give slots back
    Release(ReleaseArguments),
    /// Give up waiting, or have an execution stopped
    Cancel(CancelArguments),
    /// What a detached execution wrote
    Logs(LogsArguments),
    /// Holders and queue
    #[command(before_help = "example:  bursar booking list --where tenant=acme", help_template = HELP)]
    List(ListFlags),
    /// One booking
    #[command(before_help = "example:  bursar booking show job-1", help_template = HELP)]
    Show {
        /// Which booking
        id: BookingId,
        /// Is this fence the present one?
        #[arg(long, value_name = "N")]
        fence: Option<u64>,
        /// Print it again whenever it changes, until it ends
        #[arg(short, long)]
        watch: bool,
    },
}

/// `bursar booking reserve`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar booking reserve python --id job-1 --wait 5m",
    after_help = "Repeating it with the same id is safe: an id is granted at most once.",
    help_template = HELP
)]
pub(crate) struct ReserveArguments {
    /// What kind of execution it is for
    pub(crate) class: Label,
    /// The booking's name; a new one unless told
    #[arg(long)]
    pub(crate) id: Option<BookingId>,
    /// Whom it counts for; needed if you may act as several
    #[arg(long)]
    pub(crate) tenant: Option<Label>,
    /// How many slots
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) slots: u64,
    /// CPU to charge: 500m, 2
    #[arg(long, value_name = "QUANTITY", value_parser = cpu)]
    pub(crate) cpu: Option<u64>,
    /// Memory to charge: 256Mi, 2Gi
    #[arg(long, value_name = "QUANTITY", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// Whole GPUs to charge
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<u64>,
    /// How long a grant lasts without renewal; 60s unless told
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<Millis>,
    /// How long to stay in the queue; 0 refuses at once
    #[arg(long, value_name = "DURATION", default_value = "0")]
    pub(crate) wait: Millis,
    /// How urgent: urgent, high, normal, low or batch
    #[arg(long, default_value = "normal", value_parser = priority(), hide_possible_values = true)]
    pub(crate) priority: Priority,
    /// Stay until it is granted or its wait is over
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `bursar booking release`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar booking release job-1 --fence 12 --outcome ok",
    help_template = HELP
)]
pub(crate) struct ReleaseArguments {
    /// Which booking
    pub(crate) id: BookingId,
    /// The number that proves it is still yours
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "force",
        conflicts_with = "force"
    )]
    pub(crate) fence: Option<u64>,
    /// How the work went
    #[arg(long, value_parser = outcome(), conflicts_with = "force")]
    pub(crate) outcome: Option<Outcome>,
    /// The exit code of the work
    #[arg(
        long,
        value_name = "CODE",
        allow_hyphen_values = true,
        conflicts_with = "force"
    )]
    pub(crate) exit_code: Option<i32>,
    /// Take it back without the fence; operators only
    #[arg(long, requires = "reason")]
    pub(crate) force: bool,
    /// Why it is taken back; goes on record
    #[arg(long, value_name = "TEXT", requires = "force")]
    pub(crate) reason: Option<String>,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `bursar booking cancel`.
#[derive(Args, Clone, Debug)]
#[command(before_help = "example:  bursar booking cancel job-1", help_template = HELP)]
pub(crate) struct CancelArguments {
    /// Which booking
    pub(crate) id: BookingId,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `bursar booking logs`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar booking logs job-1 -f",
    after_help = "Its output goes to stdout and its errors to stderr; with `--stream` the one goes to stdout.\n\
                  Files and pipes get the bytes as they are; a terminal gets control characters and invisible\n\
                  characters escaped (`\\u{1b}`), but for line feed and tab.",
    help_template = HELP
)]
pub(crate) struct LogsArguments {
    /// Which execution
    pub(crate) id: BookingId,
    /// Go on until it has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// One of them only: stdout or stderr
    #[arg(long, value_parser = stream(), hide_possible_values = true)]
    pub(crate) stream: Option<LogStream>,
}

/// `bursar limit …`.
#[derive(Args, Debug)]
#[command(
    before_help = "example:  bursar limit set python --slots 120 --dry-run",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    help_template = HELP
)]
pub(crate) struct LimitNoun {
    /// Flags of the list that the noun alone is.
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Option<LimitVerb>,
}

/// What can be done with limits.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitVerb {
    /// All limits and how full they are
    #[command(before_help = "example:  bursar limit list --where class=python", help_template = HELP)]
    List(ListFlags),
    /// One limit, its counters and its holders
    #[command(before_help = "example:  bursar limit show python", help_template = HELP)]
    Show {
        /// Which limit
        name: ObjectName,
    },
    /// Change a limit while everything runs, or make one
    Set(LimitSet),
}

/// `bursar limit set`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar limit set python --slots 120 --dry-run",
    before_long_help = "\
examples:
  bursar limit set python --slots 120 --dry-run
  bursar limit set python --class python --slots 100 --cpu 80%
  bursar limit set zeta --tenant zeta --weight 300",
    after_help = "What is not named stays as it is. Nobody is ever stopped by a limit that falls.",
    help_template = HELP
)]
pub(crate) struct LimitSet {
    /// Which limit
    pub(crate) name: ObjectName,
    /// A class, or `each`: one counter per class
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// A tenant, or `each`: one counter per tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Most slots; 0 pauses, `none` lifts the bound
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<Most>,
    /// Most CPU: 60, 500m, 80%, or `none`
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) cpu: Option<String>,
    /// Most memory: 240Gi, 80%, or `none`
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) memory: Option<String>,
    /// Most whole GPUs, or `none`
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<Most>,
    /// How many may wait
    #[arg(long, value_name = "N")]
    pub(crate) max_queue: Option<u64>,
    /// How many of one tenant may wait; a tenth of the queue unless told
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) max_queue_per_tenant: Option<u64>,
    /// How long one may ask to wait
    #[arg(long, value_name = "DURATION")]
    pub(crate) max_wait: Option<Millis>,
    /// The longest ttl one may ask for
    #[arg(long, value_name = "DURATION")]
    pub(crate) max_ttl: Option<Millis>,
    /// The share of a tenant's turn, 1 to 1000; where only a tenant is named
    #[arg(long, value_name = "N")]
    pub(crate) weight: Option<u64>,
    /// Say what would change and for whom, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A bound to be set, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most(pub(crate) Option<u64>);

impl std::str::FromStr for Most {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self(None)),
            (_, Ok(most)) => Ok(Self(Some(most))),
            _ => Err("must be a whole number from 0, or `none`".to_owned()),
        }
    }
}

fn priority() -> impl TypedValueParser<Value = Priority> {
    words(Priority::ALL, Priority::word)
}

fn outcome() -> impl TypedValueParser<Value = Outcome> {
    words(Outcome::ALL, Outcome::word)
}

fn stream() -> impl TypedValueParser<Value = LogStream> {
    words(LogStream::ALL, LogStream::word)
}
