//! A host for tests: a directory and a ledger of its own, and a check that nothing is left of them.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bursar_booking::execution::Exit;
use bursar_node::cgroup;
use bursar_node::executor::{Begun, Executor, Job, Left, Stream, Work};
use bursar_node::local::{Local, Options};
use bursar_units::BookingId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

/// Time after which a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(50);

/// A machine with one ledger.
pub(crate) struct Host {
    scratch: TempDir,
    pub(crate) options: Options,
    local: Option<Local>,
}

impl Host {
    /// A host with isolation.
    pub(crate) fn new() -> Self {
        let host = Self::with(|_, _| {});
        assert!(
            host.keeps_apart(),
            "these tests need cgroups that can be written: run them as root, or delegate some"
        );
        host
    }

    /// Whether executions get their own cgroups here.
    pub(crate) fn keeps_apart(&self) -> bool {
        !cgroup::find(&self.options.process, &self.options.ledger).is_empty()
    }

    /// A host with changed options; `change` may create files in the given directory.
    pub(crate) fn with(change: impl FnOnce(&mut Options, &Path)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let scratch = tempfile::tempdir().unwrap();
        let mut options = Options {
            directory: scratch.path().join("executions"),
            ledger: format!("test-{}-{count}", std::process::id()),
            shim: beside("shim"),
            require_isolation: false,
            process: PathBuf::from("/proc/self"),
        };
        change(&mut options, scratch.path());
        let local = Some(Local::open(options.clone()).unwrap());
        Self {
            scratch,
            options,
            local,
        }
    }

    pub(crate) fn local(&self) -> &Local {
        self.local.as_ref().unwrap()
    }

    /// A new server, as after kill -9 of the old one.
    pub(crate) fn restart(&mut self) {
        self.local = None;
        self.local = Some(Local::open(self.options.clone()).unwrap());
    }

    /// Starts a shell command without limits.
    pub(crate) async fn start(&self, id: &BookingId, script: &str) -> Begun {
        let job = self.job(&shell(script));
        soon(self.local().start(id, &job)).await
    }

    pub(crate) async fn exit(&self, id: &BookingId) -> Exit {
        soon(self.local().exit(id)).await
    }

    pub(crate) async fn stop(&self, id: &BookingId, grace: Duration) {
        soon(self.local().stop(id, grace)).await.unwrap();
    }

    /// Runs a work to its end.
    pub(crate) async fn run(&self, name: &str, job: &Job) -> Exit {
        let id = id(name);
        match soon(self.local().start(&id, job)).await {
            Begun::Running(_) => self.exit(&id).await,
            Begun::Gone(exit) => exit,
        }
    }

    pub(crate) fn job(&self, work: &Work) -> Job {
        Job {
            work: self.local().keep(work).unwrap(),
            fence: 7,
            note: String::new(),
            cpu_milli: None,
            memory_bytes: None,
            pids: None,
        }
    }

    pub(crate) fn shell(&self, script: &str) -> Job {
        self.job(&shell(script))
    }

    pub(crate) fn output(&self, id: &BookingId, stream: Stream) -> String {
        let output = self.local().output(id, stream, 0).unwrap();
        let mut text = Vec::new();
        output.unwrap().read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// The directory of an execution.
    pub(crate) fn directory(&self, id: &BookingId) -> PathBuf {
        self.options.directory.join(format!("e-{id}"))
    }

    /// A value of `status.json` by its path.
    pub(crate) fn seen(&self, id: &BookingId, pointer: &str) -> serde_json::Value {
        let json = fs::read(self.directory(id).join("status.json")).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&json).unwrap();
        status.pointer(&format!("/seen{pointer}")).unwrap().clone()
    }

    /// The possible cgroups of an execution.
    pub(crate) fn groups(&self, id: &BookingId) -> Vec<PathBuf> {
        let trees = cgroup::find(&self.options.process, &self.options.ledger);
        let bases = trees.iter().map(|tree| &tree.base);
        bases.map(|base| base.join(format!("e-{id}"))).collect()
    }

    /// A named pipe at which a program and a test wait for each other.
    pub(crate) fn pipe(&self, name: &str) -> Meeting {
        let path = self.scratch.path().join(name);
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        Meeting(path)
    }
}

/// A named pipe.
#[derive(Clone)]
pub(crate) struct Meeting(PathBuf);

impl Meeting {
    pub(crate) fn path(&self) -> std::path::Display<'_> {
        self.0.display()
    }

    /// Waits for the next writer and returns its text.
    pub(crate) async fn hear(&self) -> String {
        let path = self.0.clone();
        let text = tokio::task::spawn_blocking(move || fs::read_to_string(path));
        soon(text).await.unwrap().unwrap()
    }

    /// Lets a reader continue.
    pub(crate) async fn tell(&self, text: &'static str) {
        let path = self.0.clone();
        let told = tokio::task::spawn_blocking(move || fs::write(path, text));
        soon(told).await.unwrap().unwrap();
    }
}

pub(crate) fn shell(script: &str) -> Work {
    let path = ("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    Work {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: BTreeMap::from([path]),
        directory: None,
        user: None,
        allow_privilege_escalation: false,
    }
}

/// `NoNewPrivs` of the kernel: by default, and if the request allows escalation.
pub(crate) async fn new_privileges(host: &Host) -> [String; 2] {
    let mut told = [String::new(), String::new()];
    for (told, allow_privilege_escalation) in told.iter_mut().zip([false, true]) {
        let name = format!("privileges-{allow_privilege_escalation}");
        let work = Work {
            allow_privilege_escalation,
            ..shell("grep '^NoNewPrivs:' /proc/self/status")
        };
        assert_eq!(host.run(&name, &host.job(&work)).await, Exit::Code(0));
        *told = host.output(&id(&name), Stream::Stdout);
    }
    told
}

pub(crate) fn id(name: &str) -> BookingId {
    BookingId::new(name).unwrap()
}

/// Awaits a future that must resolve.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

/// Whether a process exists, including a zombie.
pub(crate) fn is_there(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

/// Our children that are shims of executions with this id prefix.
pub(crate) fn shims(prefix: &str) -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let children = threads.filter_map(|thread| {
        // A thread may end while the list is read.
        fs::read_to_string(thread.ok()?.path().join("children")).ok()
    });
    let children: Vec<String> = children.collect();
    let pids = children.iter().flat_map(|text| text.split_whitespace());
    let is_shim = |pid: &&str| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_ours = format!("\0shim\0run\0{prefix}");
        line.contains(&is_ours)
    };
    pids.filter(is_shim)
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

pub(crate) fn kill_shim(id: &BookingId) {
    let shims = shims(&format!("{id}\0"));
    assert_eq!(shims.len(), 1, "shims of {id}");
    for shim in shims {
        let pidfd = pidfd_open(shim, PidfdFlags::empty()).unwrap();
        kill_process(shim, Signal::KILL).unwrap();
        // It holds the lock until it is dead.
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
    }
}

/// An example that cargo has built beside this test. Cargo does so only if no test is named, so an
/// example that is older than its sources is refused.
pub(crate) fn beside(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap();
    let path = path.join("examples").join(example);
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    // Cargo writes a list of its sources beside it.
    let sources = fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let sources = sources.split_once(": ").map_or("", |(_, sources)| sources);
    let is_fresh = changed(&path).is_ok_and(|built| {
        let mut sources = sources.split_whitespace().map(Path::new);
        sources.all(|source| changed(source).is_ok_and(|changed| changed <= built))
    });
    assert!(
        is_fresh,
        "run `cargo build -p bursar-node --examples` first: {}",
        path.display()
    );
    path
}

/// After cleaning, no directory and no cgroup is left.
impl Drop for Host {
    fn drop(&mut self) {
        let local = self.local.take().unwrap();
        for id in local.list().unwrap_or_default() {
            let cleaned = local.clean(&id, Left::Nothing);
            assert!(std::thread::panicking() || cleaned.is_ok(), "{cleaned:?}");
        }
        if std::thread::panicking() {
            return;
        }
        assert_eq!(local.list().unwrap(), []);
        drop(local);
        for group in self.groups(&id("a")) {
            let base = group.parent().unwrap();
            assert!(!base.exists(), "left: {}", base.display());
        }
    }
}
