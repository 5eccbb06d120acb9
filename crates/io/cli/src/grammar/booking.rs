//! The plane of bookings: bookings, executions and limits.

mod exec;

use bursar_client::api::{LogStream, Outcome, Priority};
use bursar_units::{BookingId, Label, Millis, ObjectName};
use clap::{Args, Subcommand};

use super::HELP;
use super::flags::{ListFlags, cpu, memory, words};

pub(crate) use exec::ExecArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum BookingVerb {
    /// Request slots: granted, queued or refused; prints the fence
    Reserve(ReserveArguments),
    /// Extend a held booking
    #[command(before_help = "example:  bursar booking renew job-1 --fence 12", help_template = HELP)]
    Renew {
        /// Booking id
        id: BookingId,
        /// Fence that was granted with the booking
        #[arg(long, value_name = "N")]
        fence: u64,
        /// New time to live; default: that of the booking
        #[arg(long, value_name = "DURATION")]
        ttl: Option<Millis>,
        /// Show what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Give slots back
    Release(ReleaseArguments),
    /// Leave the queue, or stop an execution
    Cancel(CancelArguments),
    /// Record a remark, in clear; it replaces the one before it
    #[command(before_help = "example:  bursar booking note job-1 'waits for the data team'", help_template = HELP)]
    Note {
        /// Booking id
        id: BookingId,
        /// Remark, at most 200 characters
        text: String,
        /// Show what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Output of a detached execution
    Logs(LogsArguments),
    /// Holders and queue
    #[command(before_help = "example:  bursar booking list --where tenant=acme", help_template = HELP)]
    List(ListFlags),
    /// One booking
    #[command(before_help = "example:  bursar booking show job-1", help_template = HELP)]
    Show {
        /// Booking id
        id: BookingId,
        /// Also show whether this fence is the current one
        #[arg(long, value_name = "N")]
        fence: Option<u64>,
        /// Print it whenever it changes, until it ends
        #[arg(short, long)]
        watch: bool,
    },
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar booking reserve python --id job-1 --wait 5m",
    after_help = "Repeating a request with the same id is safe: an id is granted at most once.",
    help_template = HELP
)]
pub(crate) struct ReserveArguments {
    /// Class of execution
    pub(crate) class: Label,
    /// Id of the booking; default: a new one
    #[arg(long)]
    pub(crate) id: Option<BookingId>,
    /// Tenant to count it for; required if you may act as several
    #[arg(long)]
    pub(crate) tenant: Option<Label>,
    /// Number of slots
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
    /// Time that a grant lasts without renewal; default: 60s
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<Millis>,
    /// Longest time in the queue; 0 refuses instead of queueing
    #[arg(long, value_name = "DURATION", default_value = "0")]
    pub(crate) wait: Millis,
    /// Priority: urgent, high, normal, low or batch
    #[arg(long, default_value = "normal", value_parser = words(Priority::ALL, Priority::word), hide_possible_values = true)]
    pub(crate) priority: Priority,
    /// Wait until it is granted or its wait is over
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Show what would happen, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar booking release job-1 --fence 12 --outcome ok",
    help_template = HELP
)]
pub(crate) struct ReleaseArguments {
    /// Booking id
    pub(crate) id: BookingId,
    /// Fence that was granted with the booking
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "force",
        conflicts_with = "force"
    )]
    pub(crate) fence: Option<u64>,
    /// Outcome of the work
    #[arg(long, value_parser = words(Outcome::ALL, Outcome::word), conflicts_with = "force")]
    pub(crate) outcome: Option<Outcome>,
    /// Exit code of the work
    #[arg(
        long,
        value_name = "CODE",
        allow_hyphen_values = true,
        conflicts_with = "force"
    )]
    pub(crate) exit_code: Option<i32>,
    /// Release without the fence; operators only
    #[arg(long, requires = "reason")]
    pub(crate) force: bool,
    /// Reason of the forced release, for the record
    #[arg(long, value_name = "TEXT", requires = "force")]
    pub(crate) reason: Option<String>,
    /// Show what would happen, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Clone, Debug)]
#[command(before_help = "example:  bursar booking cancel job-1", help_template = HELP)]
pub(crate) struct CancelArguments {
    /// Booking id
    pub(crate) id: BookingId,
    /// Show what would happen, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar booking logs job-1 -f",
    after_help = "Its stdout goes to stdout and its stderr to stderr; with `--stream` the one stream goes to stdout.\n\
                  Files and pipes get the bytes as they are; a terminal gets control characters and invisible\n\
                  characters escaped (`\\u{1b}`), except line feed and tab.",
    help_template = HELP
)]
pub(crate) struct LogsArguments {
    /// Id of the execution
    pub(crate) id: BookingId,
    /// Continue until the execution has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this stream: stdout or stderr
    #[arg(long, value_parser = words(LogStream::ALL, LogStream::word), hide_possible_values = true)]
    pub(crate) stream: Option<LogStream>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitVerb {
    /// All limits and their use
    #[command(before_help = "example:  bursar limit list --where class=python", help_template = HELP)]
    List(ListFlags),
    /// One limit, its counters and its holders
    #[command(before_help = "example:  bursar limit show python", help_template = HELP)]
    Show {
        /// Name of the limit
        name: ObjectName,
    },
    /// Change or create a limit
    Set(LimitSet),
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar limit set python --slots 120 --dry-run",
    before_long_help = "\
examples:
  bursar limit set python --slots 120 --dry-run
  bursar limit set python --class python --slots 100 --cpu 80%
  bursar limit set zeta --tenant zeta --weight 300",
    after_help = "Fields without a flag stay as they are. Lowering a limit stops nothing that holds a slot.",
    help_template = HELP
)]
pub(crate) struct LimitSet {
    /// Name of the limit
    pub(crate) name: ObjectName,
    /// Class, or `each`: one counter per class
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Tenant, or `each`: one counter per tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Maximum number of slots; 0 pauses, `none` removes the bound
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<Bound>,
    /// Maximum CPU: 60, 500m, 80%, or `none`
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) cpu: Option<String>,
    /// Maximum memory: 240Gi, 80%, or `none`
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) memory: Option<String>,
    /// Maximum number of whole GPUs, or `none`
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<Bound>,
    /// Maximum number of queued bookings
    #[arg(long, value_name = "N")]
    pub(crate) max_queue: Option<u64>,
    /// Maximum number of queued bookings per tenant; default: a tenth of the queue
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) max_queue_per_tenant: Option<u64>,
    /// Longest wait that a booking may request
    #[arg(long, value_name = "DURATION")]
    pub(crate) max_wait: Option<Millis>,
    /// Longest ttl that a booking may request
    #[arg(long, value_name = "DURATION")]
    pub(crate) max_ttl: Option<Millis>,
    /// Weight of a tenant's turn, 1 to 1000; for limits with only `--tenant`
    #[arg(long, value_name = "N")]
    pub(crate) weight: Option<u64>,
    /// Show what would change and for whom, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Bound to set; `None` removes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound(pub(crate) Option<u64>);

impl std::str::FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self(None)),
            (_, Ok(bound)) => Ok(Self(Some(bound))),
            _ => Err("must be a whole number from 0, or `none`".to_owned()),
        }
    }
}
