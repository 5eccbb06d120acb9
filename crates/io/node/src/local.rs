//! Executions as processes of this machine, each under a shim that outlives the server (X3, X4).
//!
//! All that is known about an execution is in its directory and in the kernel, so a server that
//! was killed loses nothing: the next one finds a status (it has ended), a lock that is held (it
//! runs), neither but the marker (its shim died: what is left is killed, and it is lost), or
//! nothing (it was never started). Ours are exactly the processes in the cgroups below
//! `bursar-<ledger>`: no number in a file and no name of a process ever leads to a signal.
//! Deliberately absent: any memory of an execution that was cleaned up; the ledger has it.

mod works;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_booking::execution::{Digest, Exit, Isolation};
use bursar_units::BookingId;
use rustix::event::{Timespec, poll};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::cgroup::{self, Group, Limits, Plan, Tree};
use crate::executor::{Begun, Doing, Error, Executor, Job, Left, Output, Stream, Work};
use crate::place::{self, Lock, Marker, Place, STDERR, STDOUT};
use crate::shim::{self, Ending, Order, Report, Status};
use works::Works;

/// Where and how executions run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory for what is run, what it writes, and how it came out.
    pub directory: PathBuf,
    /// The ledger whose executions these are; a name that nobody else has.
    pub ledger: String,
    /// The program that runs as a shim: it calls [`shim::main`] when its first argument is
    /// [`shim::WORD`].
    pub shim: PathBuf,
    /// Whether to refuse what cannot be kept apart.
    pub require_isolation: bool,
    /// The directory of our own process in `/proc`, which says where the cgroups are.
    pub process: PathBuf,
}

/// The executor of this machine.
#[derive(Debug)]
pub struct Local {
    options: Options,
    trees: Vec<Tree>,
    works: Works,
    /// The shims that this server has started. Each leaves when it is reaped.
    shims: Arc<Mutex<BTreeMap<BookingId, watch::Receiver<()>>>>,
}

/// What there is of an execution.
enum Look {
    /// It has ended.
    Ended(Exit),
    /// A shim lives, and has got so far.
    Alive(Option<Marker>),
    /// It was started and nobody watches it any more. Whoever holds the lock settles it.
    Orphaned(Lock, Group),
    /// It was never started.
    Fresh(Lock),
    /// There is nothing at all.
    Absent,
}

/// How often an execution whose shim is not our own child is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How often while it is being stopped.
const STOP_PAUSE: Duration = Duration::from_millis(20);
/// How long a process may take to die once it is killed.
const KILL_TIME: Duration = Duration::from_secs(5);
/// How long a shim may take to say that its program runs; a slow disk is no reason to give up.
const START_TIME: Duration = Duration::from_secs(60);
/// How often a start is tried against others who hold the lock for a moment.
const START_ATTEMPTS: u32 = 100;

impl Local {
    /// Opens the directory, and finds out what this machine lets us do. A runtime must be there
    /// when executions are started.
    pub fn open(mut options: Options) -> Result<Self, Error> {
        let directory = &mut options.directory;
        *directory = std::path::absolute(&*directory).map_err(failed("find", directory))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&*directory)
            .map_err(failed("make", directory))?;
        Ok(Self {
            works: Works::open(directory)?,
            trees: cgroup::find(&options.process, &options.ledger),
            shims: Arc::default(),
            options,
        })
    }

    fn place(&self, id: &BookingId) -> Place {
        Place::new(self.options.directory.join(place::name(id)))
    }

    /// The cgroups of an execution: those it was given, and those it would get today, because
    /// they may have been made just before its shim died.
    fn group(&self, id: &BookingId, marker: Option<Marker>) -> Group {
        let name = place::name(id);
        match marker {
            Some(Marker::Spawned(spawned)) => spawned.group.only(&self.options.ledger, &name),
            _ => Group::everywhere(&self.trees, &name),
        }
    }

    fn look(&self, id: &BookingId) -> io::Result<Look> {
        let place = self.place(id);
        // The lock first: whatever is read after it was free was written before.
        let lock = match place.lock() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Look::Absent),
            result => result?,
        };
        if let Some(status) = place.status()? {
            return Ok(Look::Ended(status.exit.into()));
        }
        let marker = place.marker()?;
        Ok(match (lock, marker) {
            (None, marker) => Look::Alive(marker),
            (Some(_), Some(Marker::Ended(status))) => Look::Ended(status.exit.into()),
            (Some(lock), None) if !place.has_output() => Look::Fresh(lock),
            (Some(lock), marker) => Look::Orphaned(lock, self.group(id, marker)),
        })
    }

    fn plan(&self, id: &BookingId, job: &Job) -> Plan {
        let limits = Limits {
            cpu_milli: job.cpu_milli,
            memory_bytes: job.memory_bytes,
            pids: job.pids,
        };
        cgroup::plan(&self.trees, &place::name(id), limits)
    }

    async fn begin(&self, id: &BookingId, job: &Job) -> Result<Begun, Error> {
        let plan = self.plan(id, job);
        if self.options.require_isolation && plan.isolation() == Isolation::None {
            return Ok(never("this machine cannot keep it apart from others"));
        }
        let place = self.place(id);
        for _ in 0..START_ATTEMPTS {
            place.make().map_err(failed("make", place.path()))?;
            match self.look(id).map_err(failed("look at", place.path()))? {
                Look::Ended(exit) => return Ok(Begun::Gone(exit)),
                Look::Alive(Some(Marker::Spawned(spawned))) => {
                    return Ok(Begun::Running(spawned.isolation()));
                }
                Look::Alive(_) => sleep(STOP_PAUSE).await,
                Look::Orphaned(lock, group) => {
                    return self.settle(id, lock, &group).await.map(Begun::Gone);
                }
                // The shim takes the lock itself; if another is quicker, it leaves quietly.
                Look::Fresh(lock) => {
                    drop(lock);
                    if let Some(begun) = self.launch(id, job, &plan).await? {
                        return Ok(begun);
                    }
                }
                Look::Absent => {}
            }
        }
        Ok(never("its shim does not start"))
    }

    /// Starts a shim; `None` if it left without a word.
    async fn launch(&self, id: &BookingId, job: &Job, plan: &Plan) -> Result<Option<Begun>, Error> {
        let has_memory = plan.settings.iter().any(cgroup::Setting::is_about_memory);
        let order = Order {
            booking: id.to_string(),
            fence: job.fence,
            directory: self.place(id).path().to_owned(),
            work: self.works.path(&job.work),
            plan: plan.clone(),
            address_bytes: job.memory_bytes.filter(|_| !has_memory),
        };
        let (socket, child) = self
            .spawn(&order)
            .map_err(failed("start", &self.options.shim))?;
        let gone = self.watch(id, child);
        match report(socket).await {
            Some(Report::Running) => Ok(Some(Begun::Running(plan.isolation()))),
            Some(Report::NotStarted(reason)) => {
                wait_for(gone).await;
                Ok(Some(never(&reason)))
            }
            None => {
                wait_for(gone).await;
                Ok(None)
            }
        }
    }

    fn spawn(&self, order: &Order) -> io::Result<(tokio::net::UnixStream, Child)> {
        let (ours, theirs) = UnixStream::pair()?;
        shim::send(&ours, order)?;
        ours.set_nonblocking(true)?;
        let socket = tokio::net::UnixStream::from_std(ours)?;
        let child = Command::new(&self.options.shim)
            .args([shim::WORD, "run", &order.booking])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(false)
            .spawn()?;
        Ok((socket, child))
    }

    /// Reaps a shim when it ends, whether or not anybody waits for its execution.
    fn watch(&self, id: &BookingId, mut child: Child) -> watch::Receiver<()> {
        let (sender, gone) = watch::channel(());
        self.shims().insert(id.clone(), gone.clone());
        let shims = Arc::clone(&self.shims);
        let (id, own) = (id.clone(), gone.clone());
        tokio::spawn(async move {
            let _ = child.wait().await;
            let mut shims = shims.lock().unwrap_or_else(PoisonError::into_inner);
            // A second shim of the same execution may have taken the place.
            if shims.get(&id).is_some_and(|gone| gone.same_channel(&own)) {
                shims.remove(&id);
            }
            drop(sender);
        });
        gone
    }

    fn shims(&self) -> std::sync::MutexGuard<'_, BTreeMap<BookingId, watch::Receiver<()>>> {
        self.shims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something may have changed: our own shim is gone, or some time has passed.
    async fn pause(&self, id: &BookingId, pause: Duration) {
        let shim = self.shims().get(id).cloned();
        match shim {
            Some(gone) => {
                let _ = timeout(pause, wait_for(gone)).await;
            }
            None => sleep(pause).await,
        }
    }

    async fn ended(&self, id: &BookingId) -> Exit {
        loop {
            let shim = self.shims().get(id).cloned();
            if let Some(gone) = shim {
                wait_for(gone).await;
            }
            let found = match self.look(id) {
                Ok(Look::Ended(exit)) => return exit,
                Ok(Look::Orphaned(lock, group)) => self.settle(id, lock, &group).await,
                Ok(Look::Fresh(lock)) => {
                    let group = Group::everywhere(&self.trees, &place::name(id));
                    self.settle(id, lock, &group).await
                }
                Ok(Look::Absent) => return Exit::Lost,
                Ok(Look::Alive(_)) => {
                    sleep(LOOK_PAUSE).await;
                    continue;
                }
                Err(source) => Err(failed("look at", self.place(id).path())(source)),
            };
            match found {
                Ok(exit) => return exit,
                // What cannot be known is asked again: `lost` frees a slot.
                Err(error) => {
                    tracing::warn!(booking = %id, error = &error as &dyn std::error::Error, "execution-not-settled");
                    sleep(KILL_TIME).await;
                }
            }
        }
    }

    /// Ends what a dead shim left, and writes down that nobody knows how it came out.
    async fn settle(&self, id: &BookingId, lock: Lock, group: &Group) -> Result<Exit, Error> {
        let until = Instant::now() + KILL_TIME;
        let path = self.place(id).path().to_owned();
        while !group.end().map_err(failed("end the cgroup of", &path))? {
            if until <= Instant::now() {
                return Err(self.alive(id, group));
            }
            sleep(STOP_PAUSE).await;
        }
        self.conclude(id, Exit::Lost);
        drop(lock);
        Ok(Exit::Lost)
    }

    /// Writes down what became of an execution without a shim. That it cannot be written changes
    /// nothing: whoever looks again comes to the same end.
    fn conclude(&self, id: &BookingId, exit: Exit) {
        let status = Status {
            exit: Ending::from(exit),
            seen: None,
        };
        if let Err(error) = self.place(id).conclude(&status) {
            tracing::warn!(booking = %id, error = &error as &dyn std::error::Error, "status-not-written");
        }
    }

    fn alive(&self, id: &BookingId, group: &Group) -> Error {
        let count = group.members().map_or(0, |members| members.len());
        Error::Alive {
            id: id.clone(),
            count: count.max(1),
        }
    }

    async fn end(&self, id: &BookingId, grace: Duration) -> Result<(), Error> {
        let place = self.place(id);
        let asked = place.make().and_then(|()| place.ask_to_stop(grace));
        let mut signalled = BTreeSet::new();
        let (mut killed, until) = (None, Instant::now() + grace);
        loop {
            let look = self.look(id).map_err(failed("look at", place.path()))?;
            let marker = match look {
                Look::Ended(_) => return Ok(()),
                Look::Orphaned(lock, group) => {
                    return self.settle(id, lock, &group).await.map(|_| ());
                }
                Look::Fresh(_lock) => {
                    asked.map_err(failed("write to", place.path()))?;
                    let status = Status {
                        exit: Ending::NotStarted("stopped before it started".to_owned()),
                        seen: None,
                    };
                    return place
                        .conclude(&status)
                        .map_err(failed("write to", place.path()));
                }
                Look::Absent => return asked.map_err(failed("make", place.path())),
                Look::Alive(marker) => marker,
            };
            let group = self.group(id, marker);
            let now = Instant::now();
            if now < until {
                let spared = |pid: i32| signalled.contains(&pid);
                let new = group.signal(Signal::TERM, spared);
                signalled.extend(new.map_err(failed("end the cgroup of", place.path()))?);
            } else if *killed.get_or_insert(now) + KILL_TIME <= now {
                return Err(self.alive(id, &group));
            } else {
                group
                    .kill()
                    .map_err(failed("end the cgroup of", place.path()))?;
            }
            self.pause(id, STOP_PAUSE).await;
        }
    }

    /// Ends what is left of an execution, without waiting longer than a killed process may take.
    fn end_now(&self, id: &BookingId) -> Result<(), Error> {
        let place = self.place(id);
        let fail = |source| failed("look at", place.path())(source);
        for _ in 0..KILL_TIME.as_millis() / STOP_PAUSE.as_millis() {
            let (group, lock) = match self.look(id).map_err(fail)? {
                Look::Ended(_) => (Group::default(), None),
                Look::Absent => (Group::everywhere(&self.trees, &place::name(id)), None),
                Look::Fresh(lock) => (Group::everywhere(&self.trees, &place::name(id)), Some(lock)),
                Look::Orphaned(lock, group) => (group, Some(lock)),
                Look::Alive(marker) => {
                    place.ask_to_stop(Duration::ZERO).map_err(fail)?;
                    self.group(id, marker).kill().map_err(fail)?;
                    pause();
                    continue;
                }
            };
            if group.end().map_err(fail)? {
                drop(lock);
                return Ok(());
            }
            pause();
        }
        Err(self.alive(id, &Group::everywhere(&self.trees, &place::name(id))))
    }
}

/// The empty directories of the ledger go with its executor; whoever still needs one makes it
/// again.
impl Drop for Local {
    fn drop(&mut self) {
        for tree in &self.trees {
            let _ = fs::remove_dir(&tree.base);
        }
    }
}

impl Executor for Local {
    fn keep(&self, work: &Work) -> Result<Digest, Error> {
        self.works.keep(work)
    }

    fn start<'a>(&'a self, id: &'a BookingId, job: &'a Job) -> Doing<'a, Begun> {
        Box::pin(async move {
            self.begin(id, job).await.unwrap_or_else(|error| {
                tracing::warn!(booking = %id, error = &error as &dyn std::error::Error, "execution-not-started");
                never(&told(&error))
            })
        })
    }

    fn exit<'a>(&'a self, id: &'a BookingId) -> Doing<'a, Exit> {
        Box::pin(self.ended(id))
    }

    fn stop<'a>(&'a self, id: &'a BookingId, grace: Duration) -> Doing<'a, Result<(), Error>> {
        Box::pin(self.end(id, grace))
    }

    fn list(&self) -> Result<Vec<BookingId>, Error> {
        let mut ids = BTreeSet::new();
        add_names(&self.options.directory, &mut ids)?;
        for tree in &self.trees {
            add_names(&tree.base, &mut ids)?;
        }
        Ok(ids.into_iter().collect())
    }

    fn clean(&self, id: &BookingId, left: Left) -> Result<(), Error> {
        self.end_now(id)?;
        let place = self.place(id);
        match left {
            Left::Output => place.clean(),
            Left::Nothing => place.remove(),
        }
        .map_err(failed("remove", place.path()))
    }

    fn forget(&self, is_needed: &dyn Fn(&Digest) -> bool) -> Result<(), Error> {
        self.works.forget(is_needed)
    }

    fn output(&self, id: &BookingId, stream: Stream, from: u64) -> Result<Option<Output>, Error> {
        let place = self.place(id);
        let path = place.file(match stream {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
        });
        match open(&path, from) {
            Ok(output) => Ok(Some(output)),
            // Without a file nothing was written, if there is anything else of it.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(place.path().exists().then(|| Output {
                    bytes: Box::new(io::empty()),
                    size: 0,
                }))
            }
            Err(source) => Err(failed("read", &path)(source)),
        }
    }

    fn isolation(&self) -> Isolation {
        if self.trees.is_empty() {
            Isolation::None
        } else {
            Isolation::Cgroup
        }
    }
}

fn open(path: &Path, from: u64) -> io::Result<Output> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(from))?;
    Ok(Output {
        bytes: Box::new(file.take(size.saturating_sub(from))),
        size,
    })
}

/// What a shim says before it falls silent.
async fn report(mut socket: tokio::net::UnixStream) -> Option<Report> {
    let mut line = Vec::new();
    let mut part = [0; 256];
    while !line.ends_with(b"\n") {
        let read = timeout(START_TIME, socket.read(&mut part)).await;
        match read.ok()?.ok()? {
            0 => break,
            size => line.extend_from_slice(part.get(..size).unwrap_or_default()),
        }
    }
    serde_json::from_slice(&line).ok()
}

/// Resolves when the other end of a channel on which nothing is sent is dropped.
async fn wait_for(mut gone: watch::Receiver<()>) {
    while gone.changed().await.is_ok() {}
}

fn pause() {
    let nanoseconds = i64::from(STOP_PAUSE.subsec_nanos());
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    let _ = poll(&mut [], Some(&pause));
}

fn never(reason: &str) -> Begun {
    Begun::Gone(Exit::NotStarted {
        reason: reason.to_owned(),
    })
}

/// An error with its causes, in one line.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
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
