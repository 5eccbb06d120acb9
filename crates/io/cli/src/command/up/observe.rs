//! What a running server says of itself to whoever keeps it: logs, counters, and poisoned
//! commands in a file each.

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

/// Where commands are kept whose deciding panicked (L2).
const POISON: &str = "poison";

/// What to do where the files of the store are gone and its records are in another.
const RESCUED: &str = "all records were written to `path`; stop the server and run `bursar ledger \
                       restore` on it";

/// What to do where they are nowhere else.
const NOT_RESCUED: &str = "the records could not be written yet; do not stop the server: it holds \
                           the last copy, and tries again each second. Make room on the disk, or \
                           make the directory writable";

/// Looks on.
pub(super) struct Observer {
    metrics: Metrics,
    data: PathBuf,
}

impl Observer {
    pub(super) fn new(metrics: Metrics, data: PathBuf) -> Self {
        Self { metrics, data }
    }

    fn keep(&self, poison: &Poison) -> std::io::Result<PathBuf> {
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
        match self.keep(poison) {
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

/// Logs to stderr: warnings, or with `-v` everything; in colour only where a person looks.
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
        // A terminal that went away takes no complaint either, and saying so would panic.
        .log_internal_errors(false)
        .with_filter(filter);
    // Somebody may have set one before; then that one it is.
    let _set = tracing_subscriber::registry().with(layer).try_init();
}
