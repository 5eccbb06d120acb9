//! Logs and metrics of a running server, and files with poisoned commands.

use std::path::PathBuf;
use std::time::Duration;

use bursar_engine::invariants::Broken;
use bursar_ledger::pipeline::Observe;
use bursar_ledger::store::Error;
use bursar_ledger::writer::Poison;
use bursar_server::metrics::Metrics;
use bursar_units::causes::chain;
use tracing::Level;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::log;
use crate::session::Session;

/// Directory of commands that caused a panic in `decide` (L2).
const POISON: &str = "poison";

/// Hint if the files of the store are missing and its records were written to another file.
const RESCUED: &str = "all records were written to `path`; stop the server and run `bursar ledger \
                       restore` on it";

/// Hint if only this process still has the records.
const NOT_RESCUED: &str = "the records could not be written yet; do not stop the server: it holds \
                           the last copy, and tries again each second. Make room on the disk, or \
                           make the directory writable";

pub(super) struct Observer {
    metrics: Metrics,
    data: PathBuf,
}

impl Observer {
    pub(super) fn new(metrics: Metrics, data: PathBuf) -> Self {
        Self { metrics, data }
    }

    fn write(&self, poison: &Poison) -> std::io::Result<PathBuf> {
        let directory = self.data.join(POISON);
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{}.txt", poison.time.ms()));
        std::fs::write(&path, format!("{poison:#?}\n"))?;
        Ok(path)
    }
}

impl Observe for Observer {
    fn poisoned(&self, poison: &Poison) {
        self.metrics.poisoned();
        match self.write(poison) {
            Ok(path) => {
                tracing::error!(by = %poison.by, cause = poison.message, path = %path.display(), "{}", log::COMMAND_POISONED);
            }
            Err(error) => {
                tracing::error!(by = %poison.by, cause = poison.message, %error, "{}", log::COMMAND_POISONED);
            }
        }
    }

    fn store_failed(&self, error: &Error) {
        self.metrics.store_failed();
        tracing::error!(error = chain(error), "{}", log::STORE_FAILED);
    }

    fn not_leader(&self) {
        tracing::error!("{}", log::LEADER_LOST);
    }

    fn store_away(&self, rescued: &Result<String, Error>) {
        self.metrics.store_failed();
        match rescued {
            Ok(path) => tracing::error!(path, hint = RESCUED, "{}", log::STORE_AWAY),
            Err(error) => {
                let error = chain(error);
                tracing::error!(error, hint = NOT_RESCUED, "{}", log::STORE_AWAY);
            }
        }
    }

    fn committed(&self, records: usize, took: Duration) {
        self.metrics.committed(records, took);
    }

    fn signed(&self, size: u64) {
        tracing::debug!(size, "{}", log::CHECKPOINT_SIGNED);
    }

    fn invariant_broken(&self, broken: &Broken) {
        self.metrics.invariant_broken();
        tracing::error!(%broken, "{}", log::INVARIANT_BROKEN);
    }
}

/// Logs to stderr: warnings, or with `-v` everything.
pub(in crate::command) fn log_to_stderr(session: &Session) {
    let is_verbose = session.common.verbose;
    let filter = filter_fn(move |metadata| {
        let is_ours = metadata.target().starts_with("bursar");
        *metadata.level()
            <= match (is_verbose, is_ours) {
                (true, true) => Level::DEBUG,
                (true, false) => Level::INFO,
                (false, _) => Level::WARN,
            }
    });
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(session.paints_words())
        // Reporting a failed write to a closed terminal would panic.
        .log_internal_errors(false)
        .with_filter(filter);
    // A subscriber that was set before stays.
    let _set = tracing_subscriber::registry().with(layer).try_init();
}
