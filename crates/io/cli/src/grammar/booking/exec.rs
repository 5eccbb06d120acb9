//! `bursar exec`.

use std::ffi::OsString;

use bursar_client::api::Priority;
use bursar_units::{BookingId, Label, Millis};
use clap::Args;

use super::super::HELP;
use super::super::flags::{cpu, memory, words};

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar exec --class python -- python3 job.py",
    before_long_help = "\
examples:
  bursar exec --class python -- python3 job.py            wait for a slot, run, give it back
  bursar exec --class python --wait 0 -- python3 job.py   refuse rather than wait
  bursar exec --class build --max-time 10m -- make -j8    stop it after ten minutes
  bursar exec --class python --detach -- python3 job.py   the server runs it in the background
  bursar exec --cpu 500m --cpu-limit 2 --detach -- make   half a CPU guaranteed, two if free",
    after_help = "Exit code: the program's; 124 `--max-time` passed, 125 Bursar refused, failed or fenced it,
126 it cannot be run, 127 it was not found, 128+n signal n.",
    after_long_help = "\
The program is a child of this command, in your terminal, directory and environment; it finds its
booking in BURSAR_BOOKING and its fence in BURSAR_FENCE. Signals are passed on to it. If the slot is
lost, or `--max-time` passes, the program gets SIGTERM, and SIGKILL 10s later.

With `--detach` the server runs it, for an hour unless `--max-time` says otherwise. A server on this
machine gets the directory, and from the environment PATH, HOME, SHELL, TMPDIR, the user, the time
zone and the language; add variables with `-- env NAME=VALUE PROGRAM`.

Exit code: the program's; 124 `--max-time` passed, 125 Bursar refused, failed or fenced it, 126 it
cannot be run, 127 it was not found, 128+n signal n.",
    help_template = HELP
)]
pub(crate) struct ExecArguments {
    /// Class of execution
    #[arg(long, default_value = "default")]
    pub(crate) class: Label,
    /// Tenant to count it for; required if you may act as several
    #[arg(long)]
    pub(crate) tenant: Option<Label>,
    /// Longest wait for a slot; default: until granted, 0 refuses
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<Millis>,
    /// Longest time that the program may run
    #[arg(long, value_name = "DURATION")]
    pub(crate) max_time: Option<Millis>,
    /// Number of slots
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) slots: u64,
    /// CPU to charge: 500m, 2
    #[arg(long, value_name = "QUANTITY", value_parser = cpu)]
    pub(crate) cpu: Option<u64>,
    /// With `--detach`: CPU it may use while nobody else needs it: 2
    #[arg(long, value_name = "QUANTITY", value_parser = cpu)]
    pub(crate) cpu_limit: Option<u64>,
    /// Memory to charge: 256Mi, 2Gi
    #[arg(long, value_name = "QUANTITY", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// Priority: urgent, high, normal, low or batch
    #[arg(long, default_value = "normal", value_parser = words(Priority::ALL, Priority::word), hide_possible_values = true)]
    pub(crate) priority: Priority,
    /// With `--detach`: let programs such as sudo gain privileges
    #[arg(long, hide_short_help = true)]
    pub(crate) allow_privilege_escalation: bool,
    /// Run it on the server; prints its id, `booking logs` shows the output
    #[arg(long)]
    pub(crate) detach: bool,
    /// Id of the booking; default: a new one. An id runs once
    #[arg(long)]
    pub(crate) id: Option<BookingId>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
