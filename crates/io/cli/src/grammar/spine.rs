//! The grammar of the spine: the ledger, its proofs, and tokens.
//!
//! `ledger` is for operators of a store, `audit` for holders of a proof or an export.

use std::path::PathBuf;

use bursar_client::api::Role;
use bursar_units::{Label, Millis, ObjectName};
use clap::{Args, Subcommand, ValueEnum};

use super::HELP;
use super::cluster::Scope;
use super::flags::{ListFlags, words};

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerVerb {
    /// Hash, fold and count all records of a store or an export again
    Check(CheckArguments),
    /// Records as sentences, oldest first
    #[command(
        before_help = "example:  bursar ledger tail -w",
        after_help = "Without --from the last 20 records are shown.",
        help_template = HELP
    )]
    Tail {
        /// Only records about this object: run/NS/NAME, budget/NS/NAME, envelope/NS/NAME/ENVELOPE,
        /// lease/ID, booking/ID, limit/NAME, node/NAME, pod/NAME, token/NAME
        #[arg(value_name = "REF")]
        reference: Option<String>,
        /// Print new records as they come
        #[arg(short, long)]
        watch: bool,
        /// First record to show
        #[arg(long, value_name = "N")]
        from: Option<u64>,
    },
    /// Write records to a file, as JSON lines or tiles
    #[command(
        before_help = "example:  bursar ledger export --out ledger.jsonl",
        after_help = "The server signs a checkpoint first. With --store the file ends at the last checkpoint.",
        help_template = HELP
    )]
    Export {
        /// File to write; for tiles a directory
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Format of the export
        #[arg(long, default_value = "jsonl")]
        format: ExportFormat,
        /// First record to write
        #[arg(long, value_name = "N", default_value_t = 0)]
        from: u64,
        /// Last record to write; default: the newest
        #[arg(long, value_name = "N")]
        to: Option<u64>,
        /// Data directory to read instead of asking the server
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
    },
    /// Copy the whole store while it is in use
    #[command(
        before_help = "example:  bursar ledger backup --out monday.backup",
        help_template = HELP
    )]
    Backup {
        /// File to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Data directory to copy instead of asking the server
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
    },
    /// Replace the ledger by a backup, and record that
    #[command(
        before_help = "example:  bursar ledger restore monday.backup --yes",
        after_help = "The server must be stopped. The current ledger is kept beside the new one. Executions keep running.\n\
All tokens end, because one that was revoked after the backup would be valid again.",
        help_template = HELP
    )]
    Restore {
        /// Backup file
        #[arg(value_name = "BACKUP")]
        backup: PathBuf,
        /// Data directory to replace; default: that of `bursar up`
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
        /// Keep the tokens of the backup valid, including those revoked since
        #[arg(long)]
        keep_tokens: bool,
        /// Show what would be restored, change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Delete payloads of old records; every proof stays valid
    #[command(
        before_help = "example:  bursar ledger prune --before -90d --dry-run",
        after_help = "Only records that were exported and are covered by a signed checkpoint are pruned.",
        help_template = HELP
    )]
    Prune {
        /// Prune records from before this time
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        before: String,
        /// Show what would be pruned, change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Print the public key of the ledger, for others to pin
    #[command(before_help = "example:  bursar ledger key > lab.key", help_template = HELP)]
    Key,
    /// Sign with a new key from now on; the old key also signs for 30 days
    #[command(before_help = "example:  bursar ledger rotate-key --yes", help_template = HELP)]
    RotateKey {
        /// Show what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar ledger check --store /var/lib/bursar",
    help_template = HELP
)]
pub(crate) struct CheckArguments {
    /// Data directory, store file or export; default: the data directory of `bursar up`
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
    /// Also decide every command again and compare the results
    #[arg(long)]
    pub(crate) redecide: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One record per line
    Jsonl,
    /// The directories of C2SP `tlog-tiles`
    Tiles,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Fetch the proof of a decision as one file
    #[command(
        before_help = "example:  bursar audit proof booking/job-1",
        help_template = HELP
    )]
    Proof {
        /// Object to prove: a run (NAME or NAMESPACE/NAME), budget/NS/NAME, envelope/NS/NAME/ENVELOPE,
        /// lease/ID, record/N, booking/ID, limit/NAME, node/NAME, pod/NAME or token/NAME
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        scope: Scope,
        /// File to write; default: `NAME.proof` in the current directory
        #[arg(short = 'O', long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check a proof or a whole export, offline
    #[command(
        before_help = "example:  bursar audit verify job-1.proof",
        after_help = "Records that no signature covers are not verified. Exits 4 if the file does not verify, 2 if no key is known.",
        help_template = HELP
    )]
    Verify {
        /// Proof or export
        file: PathBuf,
        /// File with the ledger's public key; default: the pinned key
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Create a token; its secret is printed only once
    #[command(
        before_help = "example:  (umask 077; bursar token create ci --role use --tenant acme > ci.token)",
        before_long_help = "\
examples:
  (umask 077; bursar token create ci --role use --tenant acme > ci.token)          for bookings
  (umask 077; bursar token create ada --role use --owner org:ai:rai > ada.token)   for runs",
        after_help = "A file with a token must have mode 0600: with another one the client refuses it.",
        help_template = HELP
    )]
    Create {
        /// Name of the token and of its caller
        name: ObjectName,
        /// Roles of the token
        #[arg(long = "role", required = true, value_delimiter = ',', value_parser = words(Role::ALL, Role::word))]
        roles: Vec<Role>,
        /// Tenants it may act as; `use` requires a tenant or an owner
        #[arg(long = "tenant", value_delimiter = ',')]
        tenants: Vec<Label>,
        /// Owners it may act as, as in org:ai:rai
        #[arg(long = "owner", value_delimiter = ',')]
        owners: Vec<Label>,
        /// Time until it expires; default: 90d
        #[arg(long, value_name = "DURATION")]
        expires: Option<Millis>,
        /// Show what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// All tokens, without their secrets
    #[command(before_help = "example:  bursar token list", help_template = HELP)]
    List(ListFlags),
    /// Revoke a token at once
    #[command(before_help = "example:  bursar token revoke ci --yes", help_template = HELP)]
    Revoke {
        /// Name of the token
        name: ObjectName,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
        /// Show what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
    },
}
