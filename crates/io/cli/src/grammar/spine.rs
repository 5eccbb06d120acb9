//! The spine: the ledger, its proofs, and tokens.
//!
//! `ledger` is for operators of a store, `audit` for holders of a proof or an export.

use std::path::PathBuf;

use bursar_client::api::Role;
use bursar_units::{Label, Millis, ObjectName};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::HELP;
use super::flags::{ListFlags, words};

/// What can be done with the ledger.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerVerb {
    /// Re-hash, re-fold and re-add everything in a store or an export
    Check(CheckArguments),
    /// Records as sentences, oldest first
    #[command(
        before_help = "example:  bursar ledger tail -w",
        after_help = "Without --from the last 20 records are shown.",
        help_template = HELP
    )]
    Tail {
        /// Only records about this: booking/ID, limit/NAME, node/NAME, pod/NAME, token/NAME
        #[arg(value_name = "REF")]
        reference: Option<String>,
        /// Go on with new records as they come
        #[arg(short, long)]
        watch: bool,
        /// The first record to show
        #[arg(long, value_name = "N")]
        from: Option<u64>,
    },
    /// Records as JSON lines, or tiles, to a file
    #[command(
        before_help = "example:  bursar ledger export --out ledger.jsonl",
        after_help = "The server signs a checkpoint first. With --store the file ends at the last one there is.",
        help_template = HELP
    )]
    Export {
        /// The file to write; for tiles a directory
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// How records are laid out
        #[arg(long, default_value = "jsonl")]
        format: ExportFormat,
        /// The first record to write
        #[arg(long, value_name = "N", default_value_t = 0)]
        from: u64,
        /// The last record to write; the newest unless told
        #[arg(long, value_name = "N")]
        to: Option<u64>,
        /// The data directory; the default one unless told
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
    },
    /// A whole copy of the store, taken while it is used
    #[command(
        before_help = "example:  bursar ledger backup --out monday.backup",
        help_template = HELP
    )]
    Backup {
        /// The file to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// The data directory; the default one unless told
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
    },
    /// Start again from a backup, and say so on record
    #[command(
        before_help = "example:  bursar ledger restore monday.backup --yes",
        after_help = "The server must be stopped. The present ledger is kept beside the new one. Executions run on.\n\
All tokens end: one that was revoked after the backup would be good again.",
        help_template = HELP
    )]
    Restore {
        /// The backup
        #[arg(value_name = "BACKUP")]
        backup: PathBuf,
        /// The data directory; the default one unless told
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
        /// Let the tokens of the backup be good again, also those revoked since
        #[arg(long)]
        keep_tokens: bool,
        /// Say what would be restored, change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Forget payloads but keep every proof
    #[command(
        before_help = "example:  bursar ledger prune --before -90d --dry-run",
        after_help = "Only what was exported and is covered by a signed checkpoint is forgotten.",
        help_template = HELP
    )]
    Prune {
        /// Forget what was recorded before this time
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        before: String,
        /// Say what would be forgotten, change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// The key that signs, for others to pin
    #[command(before_help = "example:  bursar ledger key > lab.key", help_template = HELP)]
    Key,
    /// Sign with a new key from now on; both sign for 30 days
    #[command(before_help = "example:  bursar ledger rotate-key --yes", help_template = HELP)]
    RotateKey {
        /// Say what would happen, change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// `bursar ledger check`.
#[derive(Args, Clone, Debug)]
#[command(
    before_help = "example:  bursar ledger check --store /var/lib/bursar",
    help_template = HELP
)]
pub(crate) struct CheckArguments {
    /// A data directory, a store file or an export; the default directory unless told
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
    /// Also decide every command again and compare
    #[arg(long)]
    pub(crate) redecide: bool,
}

/// How an export is laid out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One record a line
    Jsonl,
    /// The directories of C2SP `tlog-tiles`
    Tiles,
}

/// What can be done with proofs.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Fetch the proof of a decision as one file
    #[command(
        before_help = "example:  bursar audit proof booking/job-1",
        help_template = HELP
    )]
    Proof {
        /// Of what: record/N, booking/ID, limit/NAME, node/NAME, pod/NAME or token/NAME
        #[arg(value_name = "REF")]
        reference: String,
        /// The file to write; `NAME.proof` here unless told
        #[arg(short = 'O', long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check a proof or a whole export, offline
    #[command(
        before_help = "example:  bursar audit verify job-1.proof",
        after_help = "What no signature covers is not verified. Exits 4 if it does not verify, 2 if there is no key to verify with.",
        help_template = HELP
    )]
    Verify {
        /// The proof or export
        file: PathBuf,
        /// A file with the ledger's public key; the pinned one unless told
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

/// `bursar token …`.
#[derive(Args, Debug)]
#[command(
    before_help = "example:  bursar token create ci --role use --tenant acme --expires 30d",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    help_template = HELP
)]
pub(crate) struct TokenNoun {
    /// Flags of the list that the noun alone is.
    #[command(flatten)]
    pub(crate) list: ListFlags,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Option<TokenVerb>,
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make one; its secret is shown this once
    #[command(
        before_help = "example:  bursar token create ci --role use --tenant acme > ci.token",
        help_template = HELP
    )]
    Create {
        /// Its name, which is also the caller's
        name: ObjectName,
        /// What it lets its bearer do
        #[arg(long = "role", required = true, value_delimiter = ',', value_parser = role())]
        roles: Vec<Role>,
        /// As whom; needed by `use`
        #[arg(long = "tenant", value_delimiter = ',')]
        tenants: Vec<Label>,
        /// How long it is good; 90d unless told
        #[arg(long, value_name = "DURATION")]
        expires: Option<Millis>,
    },
    /// All tokens, without their secrets
    #[command(before_help = "example:  bursar token list", help_template = HELP)]
    List(ListFlags),
    /// Make one useless, at once
    #[command(before_help = "example:  bursar token revoke ci --yes", help_template = HELP)]
    Revoke {
        /// Which token
        name: ObjectName,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

fn role() -> impl TypedValueParser<Value = Role> {
    words(Role::ALL, Role::word)
}
