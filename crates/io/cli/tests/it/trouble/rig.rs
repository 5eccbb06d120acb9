//! A server for tests of executions that fail: it can be killed, restarted and inspected.
//!
//! The server runs from a link in the house, which identifies its shims. Once it is up, the link is
//! replaced by a script that holds a shim at a gate before it begins. A dropped rig removes
//! everything that the test made, also when the test fails.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{
    BookingRequest, Execution, ExecutionRequest, ExecutionState, ListBookings, ListExecutions,
    Page, ReleaseRequest, State, Words,
};
use bursar_client::client::{Address, Mode, Options, Transport};
use bursar_units::{BookingId, Label};
use rustix::fs::{CWD, FileType, OFlags};
use rustix::process::{Pid, Signal, kill_process};

use crate::exec_running::program;
use crate::house::{House, Server};

/// Isolation of executions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Isolation {
    /// By cgroups; the server runs as root.
    Cgroup,
    /// None; the server runs as nobody.
    None,
}

/// A server, its data and its executions.
pub(crate) struct Rig {
    // Before the house: a file system in it must be unmounted first.
    disk: Option<Mounted>,
    gates: Mutex<Vec<OwnedFd>>,
    pub(crate) house: House,
    pub(crate) data: PathBuf,
    pub(crate) isolation: Isolation,
    server: Mutex<Option<Server>>,
    ledger: Mutex<String>,
}

/// A file system that is mounted until it is dropped.
pub(crate) struct Mounted(PathBuf);

/// The user `nobody`.
const NOBODY: u32 = 65_534;
/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(40);
/// Pause between two looks during a wait.
const PAUSE: Duration = Duration::from_millis(10);
/// Shell code that notes the start of a script. A line is one write, so lines do not mix.
pub(crate) const BEGIN: &str = "echo $BURSAR_BOOKING >> $BEGUN\n";
/// Holds a shim at its gate, if it has one.
const SHIM: &str = r#"#!/bin/sh
gate="${0%/*}/../gates/shim-$3"
if [ -p "$gate" ]; then read -r go < "$gate"; fi
exec "$0.real" "$@"
"#;

impl Rig {
    /// A server whose data is in the house.
    pub(crate) fn new(isolation: Isolation) -> Self {
        Self::on(House::new(), None, isolation)
    }

    /// A server in that house, with a file system of `mebibytes` for its data if given.
    pub(crate) fn on(house: House, mebibytes: Option<u32>, isolation: Isolation) -> Self {
        let disk = house.path("disk");
        let rig = Self {
            disk: mebibytes.map(|size| Mounted::new(&disk, size)),
            gates: Mutex::default(),
            data: disk.join("data"),
            house,
            isolation,
            server: Mutex::default(),
            ledger: Mutex::default(),
        };
        for name in ["bin", "gates"] {
            std::fs::create_dir(rig.house.path(name)).unwrap();
        }
        link(&rig.house.path("bin/bursar.real"));
        let begun = rig.house.path("begun");
        std::fs::write(&begun, "").unwrap();
        std::fs::set_permissions(&begun, std::fs::Permissions::from_mode(0o666)).unwrap();
        rig.start();
        rig
    }

    /// Starts the first or the next server.
    pub(crate) fn start(&self) {
        let bin = self.house.path("bin/bursar");
        let next = self.house.path("bin/next");
        link(&next);
        std::fs::rename(&next, &bin).unwrap();
        let server = House::started(self.command());
        let announcement: serde_json::Value = serde_json::from_str(&server.announcement).unwrap();
        if self.isolation == Isolation::Cgroup {
            assert_eq!(
                announcement["executor"]["isolation"], "cgroup",
                "cgroups are mounted here, but the server cannot create any: run the tests as \
                 root, or give them a cgroup of their own"
            );
        }
        *lock(&self.server) = Some(server);
        let key = std::fs::read_to_string(self.data.join("ledger.key")).unwrap();
        let ledger = key.split('/').nth(1).unwrap();
        ledger.clone_into(&mut lock(&self.ledger));
        std::fs::write(&next, SHIM).unwrap();
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&next, &bin).unwrap();
    }

    pub(crate) fn resize_disk(&self, kibibytes: u64, files: u64) {
        let disk = self.disk.as_ref().unwrap();
        assert!(disk.resize(kibibytes, files), "cannot resize the disk");
    }

    /// Leaves hardly any room for bytes and none for files. The kernel refuses the new size if a
    /// file was created meanwhile; then it is tried again.
    pub(crate) fn shrink_disk(&self) {
        let disk = self.disk.as_ref().unwrap();
        let is_done = (0..100).any(|_| {
            let is = rustix::fs::statvfs(&disk.0).unwrap();
            let used = (is.f_blocks - is.f_bfree) * is.f_frsize / 1024;
            disk.resize(used + 64, is.f_files - is.f_ffree)
        });
        assert!(is_done, "cannot shrink the disk");
    }

    /// The directory of an execution.
    pub(crate) fn place(&self, id: &str) -> PathBuf {
        self.data.join("executions").join(format!("e-{id}"))
    }

    /// The server's command. Its log goes to a file, which never blocks it.
    fn command(&self) -> Command {
        let mut command = program(&self.house, "/bin/sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 2>> log"])
            .arg(self.house.path("bin/bursar"))
            .args(["up", "--listen", "127.0.0.1:0", "-o", "json", "--data"])
            .arg(&self.data);
        if self.isolation == Isolation::None && rustix::process::getuid().is_root() {
            for path in ["", "gates"] {
                chown(self.house.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    pub(crate) fn pid(&self) -> u32 {
        lock(&self.server).as_ref().unwrap().pid()
    }

    /// Ends the server by SIGKILL.
    pub(crate) fn kill(&self) {
        lock(&self.server).take().unwrap().kill();
    }

    pub(crate) fn client(&self) -> Client {
        let address = Address::Unix(self.data.join("api.sock"));
        Client::new(Transport::to(address), Options::usual())
    }

    /// A client without retries.
    pub(crate) fn impatient(&self) -> Client {
        let address = Address::Unix(self.data.join("api.sock"));
        let options = Options {
            attempts_max: 1,
            timeout: Duration::from_secs(2),
            token: None,
        };
        Client::new(Transport::to(address), options)
    }

    /// Submits a shell script under an id.
    pub(crate) async fn submit(
        &self,
        id: &str,
        script: &str,
        fill_in: impl FnOnce(&mut ExecutionRequest),
    ) -> Execution {
        let submitted = self
            .client()
            .submit(&name(id), &self.request(script, fill_in), Mode::Do)
            .await;
        submitted.unwrap_or_else(|error| panic!("{id} is not taken: {error}"))
    }

    pub(crate) fn request(
        &self,
        script: &str,
        fill_in: impl FnOnce(&mut ExecutionRequest),
    ) -> ExecutionRequest {
        let mut request = ExecutionRequest::new(label("python"), "/bin/sh".to_owned());
        request.args = vec!["-c".to_owned(), script.to_owned()];
        let begun = self.house.path("begun").to_str().unwrap().to_owned();
        request.env = BTreeMap::from([
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("BEGUN".to_owned(), begun),
        ]);
        fill_in(&mut request);
        request
    }

    /// Holds the only slot of a class, so that all executions of it wait.
    pub(crate) async fn fill(&self, class: &str) {
        self.limit(class, 1).await;
        let mut request = BookingRequest::new(label(class));
        request.ttl_ms = Some(3_600_000);
        let id = name(&format!("holder-{class}"));
        let client = self.client();
        client.reserve(&id, &request, Mode::Do).await.unwrap();
    }

    /// Releases the slot of [`Self::fill`].
    pub(crate) async fn empty(&self, class: &str) -> Result<(), bursar_client::client::Error> {
        let id = name(&format!("holder-{class}"));
        let request = ReleaseRequest {
            force: true,
            reason: Some("the others shall run".to_owned()),
            ..ReleaseRequest::default()
        };
        self.client()
            .release(&id, &request, Mode::Do)
            .await
            .map(drop)
    }

    pub(crate) async fn limit(&self, class: &str, slots: u64) {
        let limit = serde_json::json!({
            "apiVersion": "bursar.dev/v1alpha1",
            "kind": "Limit",
            "metadata": {"name": class},
            "spec": {"class": class, "slots": slots},
        });
        let limit = serde_json::from_value(limit).unwrap();
        self.client().put_limit(&limit, Mode::Do).await.unwrap();
    }

    pub(crate) async fn look(&self, id: &str) -> Execution {
        self.client().execution(&name(id)).await.unwrap()
    }

    /// Waits until an execution is in a state, by long polling.
    pub(crate) async fn wait_for(&self, id: &str, state: ExecutionState) -> Execution {
        let client = self.client();
        let waited = tokio::time::timeout(PATIENCE, async {
            let mut execution = client.execution(&name(id)).await.unwrap();
            while execution.course.state != state {
                assert_ne!(
                    execution.course.state,
                    ExecutionState::Ended,
                    "{id} has ended: {execution:?}"
                );
                let step = Duration::from_secs(5);
                execution = client.execution_wait(&name(id), step).await.unwrap();
            }
            execution
        });
        match waited.await {
            Ok(execution) => execution,
            Err(late) => panic!("{late}: {id} is not {state:?}: {:?}", self.look(id).await),
        }
    }

    pub(crate) async fn ended(&self, id: &str) -> Execution {
        self.wait_for(id, ExecutionState::Ended).await
    }

    pub(crate) async fn cancel(&self, id: &str) -> Execution {
        let client = self.client();
        client.cancel_execution(&name(id), Mode::Do).await.unwrap()
    }

    /// A named pipe at which its readers wait.
    pub(crate) fn gate(&self, name: &str) -> PathBuf {
        let path = self.house.path("gates").join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    /// Opens a gate for present and later readers, once there is one.
    pub(crate) async fn open(&self, name: &str) {
        let path = self.house.path("gates").join(name);
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        let open = || rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).ok();
        let file = until(&format!("somebody at {name}"), open).await;
        rustix::io::write(&file, "go\n".repeat(32).as_bytes()).unwrap();
        lock(&self.gates).push(file);
    }

    /// The ids of started programs, one entry per start.
    pub(crate) fn begun(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.house.path("begun")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) async fn wait_until_begun(&self, id: &str) {
        let has_begun = || self.begun().iter().any(|line| line == id).then_some(());
        until(&format!("{id} has begun"), has_begun).await;
    }

    /// The shims of this server and of its predecessors: process and execution id.
    pub(crate) fn shims(&self) -> BTreeMap<i32, String> {
        let bin = self.house.path("bin");
        let bin = bin.to_str().unwrap();
        let of = |pid: i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<_> = line
                .split(|byte| *byte == 0)
                .map(String::from_utf8_lossy)
                .collect();
            let at = words.iter().position(|word| word.starts_with(bin))?;
            match &words[at..] {
                [_, shim, run, id, ..] if shim == "shim" && run == "run" => {
                    Some((pid, id.to_string()))
                }
                _ => None,
            }
        };
        numbers().filter_map(of).collect()
    }

    pub(crate) fn shims_of(&self, id: &str) -> Vec<i32> {
        let shims = self.shims().into_iter();
        shims
            .filter(|(_, of)| of == id)
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Ends the shim of an execution by SIGKILL.
    pub(crate) fn kill_shim(&self, id: &str) {
        let shims = self.shims_of(id);
        assert!(!shims.is_empty(), "{id} has no shim");
        for pid in shims {
            // Its present parent reaps it.
            kill(pid);
        }
    }

    /// The directories of this ledger in all cgroup hierarchies.
    pub(crate) fn bases(&self) -> Vec<PathBuf> {
        let name = format!("bursar-{}", lock(&self.ledger));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut open: Vec<PathBuf> = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .filter(|fields| fields[2].starts_with("cgroup"))
            .map(|fields| PathBuf::from(fields[1]))
            .collect();
        let mut found = Vec::new();
        while let Some(directory) = open.pop() {
            for path in directories(&directory) {
                if path.ends_with(&name) {
                    found.push(path);
                } else {
                    open.push(path);
                }
            }
        }
        found
    }

    /// The cgroups of one execution, in every hierarchy.
    pub(crate) fn groups(&self, id: &str) -> Vec<PathBuf> {
        let bases = self.bases().into_iter();
        let groups = bases.map(|base| base.join(format!("e-{id}")));
        groups.filter(|group| group.is_dir()).collect()
    }

    /// The processes in the cgroups of an execution.
    pub(crate) fn members(&self, id: &str) -> BTreeSet<i32> {
        self.groups(id)
            .iter()
            .flat_map(|group| members(group))
            .collect()
    }

    /// Leaves only the files of an execution, as after a power failure.
    pub(crate) async fn switch_off(&self, id: &str) {
        for pid in self.shims_of(id) {
            kill(pid);
        }
        let is_gone = || {
            self.groups(id).iter().for_each(|group| remove(group));
            (self.groups(id).is_empty() && self.shims_of(id).is_empty()).then_some(())
        };
        until(&format!("{id} is gone"), is_gone).await;
    }

    /// Asserts that no slot is held, no booking waits, no process, zombie or cgroup is left, and
    /// that the ledger checks.
    pub(crate) async fn assert_nothing_left(&self) {
        let client = self.client();
        for limit in client.limits().await.unwrap().items {
            let status = limit.status.unwrap();
            assert_eq!(status.in_use.slots, 0, "{} is in use", limit.metadata.name);
            assert_eq!(
                status.waiting, 0,
                "a booking waits under {}",
                limit.metadata.name
            );
        }
        let live = ListBookings {
            state: Some([State::Queued, State::Granted].into()),
            ..ListBookings::default()
        };
        let live = client
            .bookings(&live, &Page::default())
            .await
            .unwrap()
            .items;
        assert!(live.is_empty(), "{live:?}");
        let mut states = BTreeSet::from(ExecutionState::ALL);
        states.remove(&ExecutionState::Ended);
        let live = ListExecutions {
            state: Some(Words(states)),
            ..ListExecutions::default()
        };
        let live = client.all_executions(&live).await.unwrap().items;
        assert!(live.is_empty(), "{live:?}");
        until("no shim is left", || self.shims().is_empty().then_some(())).await;
        let zombies = || zombies(self.pid()).is_empty().then_some(());
        until("no zombie is left", zombies).await;
        let groups: Vec<PathBuf> = self
            .bases()
            .iter()
            .flat_map(|base| directories(base))
            .collect();
        assert_eq!(groups, Vec::<PathBuf>::new(), "cgroups are left");
        let server = lock(&self.server).take().unwrap();
        assert_eq!(server.interrupt(), 0, "{}", self.log());
        assert_eq!(self.bases(), Vec::<PathBuf>::new(), "cgroups are left");
        let name = format!("bursar-{}", lock(&self.ledger));
        let is_ours = |pid: &i32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
            // Process 1 reaps zombies whose parent was killed.
            text.is_ok_and(|text| text.contains(&name))
                && stat(*pid).is_some_and(|(state, _)| state != "Z")
        };
        let left: Vec<i32> = numbers().filter(is_ours).collect();
        assert_eq!(left, Vec::<i32>::new(), "processes are left");
        let data = self.data.to_str().unwrap();
        self.house
            .ok(&["ledger", "check", "--redecide", "--store", data]);
    }

    /// The log of all servers.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.house.path("log")).unwrap_or_default()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(lock(&self.server).take());
        let is_gone = || {
            self.shims().into_keys().for_each(kill);
            self.bases().iter().for_each(|base| remove(base));
            self.shims().is_empty() && self.bases().is_empty()
        };
        for _ in 0..500 {
            if is_gone() {
                return;
            }
            let pause = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            let _waited = rustix::event::poll(&mut [], Some(&pause));
        }
    }
}

impl Mounted {
    /// Mounts a file system in memory.
    pub(crate) fn new(at: &Path, mebibytes: u32) -> Self {
        std::fs::create_dir_all(at).unwrap();
        mount(
            &[
                "-t",
                "tmpfs",
                "-o",
                &format!("size={mebibytes}m"),
                "trouble",
            ],
            at,
        );
        Self(at.to_owned())
    }

    /// Whether the kernel accepts the new size.
    fn resize(&self, kibibytes: u64, files: u64) -> bool {
        let options = format!("remount,size={kibibytes}k,nr_inodes={files}");
        is_mounted(&["-o", &options], &self.0)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(words: &[&str], at: &Path) {
    assert!(is_mounted(words, at), "cannot mount at {}", at.display());
}

fn is_mounted(words: &[&str], at: &Path) -> bool {
    let done = Command::new("mount").args(words).arg(at).status();
    done.unwrap().success()
}

/// The isolation of this machine; without cgroups only the tests that need none run.
pub(crate) fn isolation() -> Isolation {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let has_cgroups = mounts.lines().any(|line| {
        line.split(' ')
            .nth(2)
            .is_some_and(|kind| kind.starts_with("cgroup"))
    });
    if has_cgroups {
        return Isolation::Cgroup;
    }
    eprintln!("this machine has no cgroups: only tests that need none are run");
    Isolation::None
}

/// Looks until there is a value.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

pub(crate) fn name(id: &str) -> BookingId {
    BookingId::new(id).unwrap()
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

/// The processes in a cgroup and below it.
pub(crate) fn members(group: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    pids.extend(directories(group).iter().flat_map(|below| members(below)));
    pids
}

/// Kills the processes of a cgroup and removes its empty directories.
fn remove(group: &Path) {
    members(group).into_iter().for_each(kill);
    for below in directories(group) {
        remove(&below);
    }
    let _thawed = std::fs::write(group.join("freezer.state"), "THAWED");
    let _busy = std::fs::remove_dir(group);
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten();
    let entries = entries.filter_map(Result::ok);
    let is_directory =
        |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries
        .filter(is_directory)
        .map(|entry| entry.path())
        .collect()
}

/// Zombie children of a process.
fn zombies(parent: u32) -> Vec<i32> {
    let is_one = |pid: &i32| stat(*pid).is_some_and(|found| found == ("Z".to_owned(), parent));
    numbers().filter(is_one).collect()
}

/// The state of a process, and its parent.
fn stat(pid: i32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any character.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn numbers() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn kill(pid: i32) {
    // The process may be gone already.
    let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

/// Links the binary at another path.
fn link(path: &Path) {
    let binary = env!("CARGO_BIN_EXE_bursar");
    if std::fs::hard_link(binary, path).is_err() {
        std::fs::copy(binary, path).unwrap();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
