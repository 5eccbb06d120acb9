//! `bursar ledger`: check, read, export, back up, restore and prune the ledger; its keys.

mod check;
mod keep;
pub(in crate::command) mod tail;

use bursar_ledger::maintain::Tokens;

use crate::failure::Stop;
use crate::grammar::LedgerVerb;
use crate::session::Session;

pub(super) use check::{elapsed_ms, export as check_export, lines as check_lines};

pub(in crate::command) async fn run(session: &mut Session, verb: LedgerVerb) -> Result<(), Stop> {
    match verb {
        LedgerVerb::Check(arguments) => check::run(session, &arguments),
        LedgerVerb::Tail {
            reference,
            watch,
            from,
        } => tail::run(session, reference.as_deref(), watch, from).await,
        LedgerVerb::Export {
            out,
            format,
            from,
            to,
            store,
        } => {
            let arguments = keep::Export {
                out,
                format,
                from,
                to,
                store,
            };
            keep::export(session, &arguments).await
        }
        LedgerVerb::Backup { out, store } => keep::backup(session, &out, store.as_deref()).await,
        LedgerVerb::Restore {
            backup,
            store,
            keep_tokens,
            dry_run,
            yes,
        } => {
            let tokens = if keep_tokens {
                Tokens::Keep
            } else {
                Tokens::End
            };
            keep::restore(session, &backup, store.as_deref(), tokens, dry_run, yes).await
        }
        LedgerVerb::Prune {
            before,
            dry_run,
            yes,
        } => keep::prune(session, &before, dry_run, yes).await,
        LedgerVerb::Key => keep::show_key(session).await,
        LedgerVerb::RotateKey { dry_run, yes } => keep::rotate_key(session, dry_run, yes).await,
    }
}
