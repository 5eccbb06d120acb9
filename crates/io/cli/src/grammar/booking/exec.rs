//! `bursar exec`.

use std::ffi::OsString;

use bursar_client::api::Priority;
use bursar_units::{BookingId, Label, Millis};
use clap::Args;

use super::super::HELP;
use super::super::flags::{cpu, memory};
use super::priority;

/// `bursar exec`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar exec --class python -- python3 job.py",
    before_long_help = "\
examples:
  bursar exec --class python -- python3 job.py            wait for a slot, run, give it back
  bursar exec --class python --wait 0 -- python3 job.py   refuse rather than wait
  bursar exec --class build --max-time 10m -- make -j8    stop it after ten minutes
  bursar exec --class python --detach -- python3 job.py   the server runs it, and you go
  bursar exec --cpu 500m --cpu-limit 2 --detach -- make   half a CPU is its own, two if free",
    after_help = "Exit code: the program's; 124 `--max-time` passed, 125 Bursar refused, failed or fenced it,
126 it cannot be run, 127 it was not found, 128+n signal n.",
    after_long_help = "\
The program is a child of this command, in your terminal, directory and environment; it finds its
booking in BURSAR_BOOKING and its fence in BURSAR_FENCE. Signals pass on. If the slot is lost, or
`--max-time` passes, the program gets SIGTERM, and SIGKILL 10s later.

With `--detach` the server runs it, for an hour unless `--max-time` says otherwise. A server on this
machine is told the directory, and of the environment PATH, HOME, TMPDIR and who, where and in which
language you are; add to it with `-- env NAME=VALUE PROGRAM`.

Exit code: the program's; 124 `--max-time` passed, 125 Bursar refused, failed or fenced it, 126 it
cannot be run, 127 it was not found, 128+n signal n.",
    help_template = HELP
)]
pub(crate) struct ExecArguments {
    /// What kind of execution it is
    #[arg(long, default_value = "default")]
    pub(crate) class: Label,
    /// Whom it counts for; needed if you may act as several
    #[arg(long)]
    pub(crate) tenant: Option<Label>,
    /// How long to wait; until granted unless told, 0 refuses at once
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<Millis>,
    /// How long the program may run
    #[arg(long, value_name = "DURATION")]
    pub(crate) max_time: Option<Millis>,
    /// How many slots
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) slots: u64,
    /// CPU to charge: 500m, 2
    #[arg(long, value_name = "QUANTITY", value_parser = cpu)]
    pub(crate) cpu: Option<u64>,
    /// With `--detach`: may use up to this when nobody else needs it: 2
    #[arg(long, value_name = "QUANTITY", value_parser = cpu)]
    pub(crate) cpu_limit: Option<u64>,
    /// Memory to charge: 256Mi, 2Gi
    #[arg(long, value_name = "QUANTITY", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// How urgent: urgent, high, normal, low or batch
    #[arg(long, default_value = "normal", value_parser = priority(), hide_possible_values = true)]
    pub(crate) priority: Priority,
    /// With `--detach`: programs such as sudo may give it more privileges
    #[arg(long, hide_short_help = true)]
    pub(crate) allow_privilege_escalation: bool,
    /// The server runs it; prints its id, `booking logs` shows its output
    #[arg(long)]
    pub(crate) detach: bool,
    /// The booking's name; a new one unless told. One name runs once
    #[arg(long)]
    pub(crate) id: Option<BookingId>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
