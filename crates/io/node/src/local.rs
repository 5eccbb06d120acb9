//! Executions as processes of this machine, each under a shim that outlives the server (X3, X4).
//!
//! Everything known about an execution is in its directory and in the kernel, so a server that is
//! killed loses nothing. The next one finds a status (it has ended), a lock that is held (it runs),
//! only the marker (its shim died: its remaining processes are killed, and it is lost), or nothing
//! (it was never started). Our processes are exactly those in the cgroups below `bursar-<ledger>`;
//! no pid from a file and no process name ever leads to a signal.
//! Deliberately absent: any memory of an execution without a directory; the ledger has it.

mod look;
mod presence;
mod shims;
mod start;
mod stop;
mod works;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bursar_booking::execution::Exit;
use bursar_journal::hash::Hash;
use bursar_units::BookingId;

use crate::cgroup::{self, Tree};
use crate::executor::{Begun, Doing, Error, Executor, Job, Left, Life, Output, Stream, Work};
use crate::place::{self, ExecutionDirectory, STDERR, STDOUT};
#[cfg(doc)]
use crate::shim;
use presence::Presence;
use shims::Shims;
use works::Works;

/// Settings of the local executor.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory for works, outputs and exit statuses.
    pub directory: PathBuf,
    /// The unique name of the ledger whose executions these are.
    pub ledger: String,
    /// The program that runs as a shim: it calls [`shim::main`] when its first argument is
    /// [`shim::WORD`].
    pub shim: PathBuf,
    /// Whether to refuse executions that cannot be isolated.
    pub require_isolation: bool,
    /// The directory of our own process in `/proc`, used to find the cgroups.
    pub process: PathBuf,
}

/// The executor of this machine. Clones share it.
#[derive(Clone, Debug)]
pub struct Local(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    trees: Vec<Tree>,
    works: Works,
    shims: Shims,
    presence: Presence,
}

/// Polling interval for an execution whose shim is not our own child.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Polling interval for an execution that is about to start or to end.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// Time that a killed process may take to die.
const KILL_TIME: Duration = Duration::from_secs(5);

impl Local {
    /// Opens the directory and finds the usable cgroups. Starting executions needs a Tokio
    /// runtime.
    pub fn open(mut options: Options) -> Result<Self, Error> {
        let directory = &mut options.directory;
        *directory = std::path::absolute(&*directory).map_err(failed("resolve", directory))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&*directory)
            .map_err(failed("create", directory))?;
        Ok(Self(Arc::new(Shared {
            works: Works::open(directory)?,
            trees: cgroup::find(&options.process, &options.ledger),
            shims: Shims::default(),
            presence: Presence::new().map_err(failed("create a pipe for", &options.directory))?,
            options,
        })))
    }

    /// [`Executor::list`] for a caller that may block.
    pub fn list(&self) -> Result<Vec<BookingId>, Error> {
        self.0.list()
    }

    /// [`Executor::life`] for a caller that may block.
    pub fn life(&self, id: &BookingId) -> Result<Life, Error> {
        self.0.lives(id)
    }

    /// [`Executor::clean`] for a caller that may block.
    pub fn clean(&self, id: &BookingId, left: Left) -> Result<(), Error> {
        self.0.clean(id, left)
    }

    /// Runs a call that blocks on a thread of its own.
    fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Shared) -> Result<T, Error> + Send + 'static,
    ) -> Doing<'_, Result<T, Error>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { tokio::task::spawn_blocking(move || run(&shared)).await? })
    }
}

impl Shared {
    fn list(&self) -> Result<Vec<BookingId>, Error> {
        let mut ids = BTreeSet::new();
        add_names(&self.options.directory, &mut ids)?;
        for tree in &self.trees {
            add_names(&tree.base, &mut ids)?;
        }
        Ok(ids.into_iter().collect())
    }

    fn clean(&self, id: &BookingId, left: Left) -> Result<(), Error> {
        let directory = self.directory(id);
        // Until everything is removed nobody else inspects it, and a late shim starts nothing.
        let Some(_lock) = self.end_now(id)? else {
            return Ok(());
        };
        match left {
            Left::Output => directory.clean(),
            Left::Nothing => directory.remove(),
        }
        .map_err(failed("remove", directory.path()))
    }

    fn directory(&self, id: &BookingId) -> ExecutionDirectory {
        ExecutionDirectory::new(self.options.directory.join(place::name(id)))
    }
}

/// Removes the empty cgroups of the ledger. One that is not empty is removed by the shim of the last
/// execution in it: the shim removes its own group before it checks whether the server is gone, and
/// the server closes its pipe before it removes anything, so one of the two comes last.
impl Drop for Shared {
    fn drop(&mut self) {
        self.presence.end();
        cgroup::leave(self.trees.iter().map(|tree| tree.base.as_path()));
    }
}

impl Executor for Local {
    fn digest(&self, work: &Work) -> Hash {
        self.0.works.digest(work)
    }

    fn keep(&self, work: &Work) -> Result<Hash, Error> {
        self.0.works.keep(work)
    }

    fn start<'a>(&'a self, id: &'a BookingId, job: &'a Job) -> Doing<'a, Begun> {
        Box::pin(self.0.begin(id, job))
    }

    fn exit<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Exit> {
        Box::pin(self.0.ended(id))
    }

    fn stop<'a>(&'a self, id: &'a BookingId, grace: Duration) -> Doing<'a, Result<(), Error>> {
        Box::pin(self.0.end(id, grace))
    }

    fn list(&self) -> Doing<'_, Result<Vec<BookingId>, Error>> {
        self.blocking(Shared::list)
    }

    fn life<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Result<Life, Error>> {
        let id = id.clone();
        self.blocking(move |shared| shared.lives(&id))
    }

    fn clean<'a>(&'a self, id: &'a BookingId, left: Left) -> Doing<'a, Result<(), Error>> {
        let id = id.clone();
        self.blocking(move |shared| shared.clean(&id, left))
    }

    fn forget(&self, needed: BTreeSet<Hash>) -> Doing<'_, Result<(), Error>> {
        self.blocking(move |shared| shared.works.forget(&needed))
    }

    fn output(&self, id: &BookingId, stream: Stream, from: u64) -> Result<Option<Output>, Error> {
        let directory = self.0.directory(id);
        let path = directory.file(match stream {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
        });
        match open(&path, from) {
            Ok(output) => Ok(Some(output)),
            // An execution that wrote nothing has a directory but no file.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let nothing: Output = Box::new(io::empty());
                Ok(directory.path().exists().then_some(nothing))
            }
            Err(source) => Err(failed("read", &path)(source)),
        }
    }
}

fn open(path: &Path, from: u64) -> io::Result<Output> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = file.seek(SeekFrom::Start(from.min(size)))?;
    Ok(Box::new(file.take(size.saturating_sub(from))))
}

fn add_names(directory: &Path, ids: &mut BTreeSet<BookingId>) -> Result<(), Error> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        result => result.map_err(failed("list", directory))?,
    };
    for entry in entries {
        let name = entry.map_err(failed("list", directory))?.file_name();
        ids.extend(name.to_str().and_then(place::id));
    }
    Ok(())
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Path {
        doing,
        path,
        source,
    }
}
