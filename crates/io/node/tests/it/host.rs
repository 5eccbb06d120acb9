//! A host for tests: a directory, a ledger of its own, and what is left of it afterwards.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bursar_booking::execution::{Exit, Isolation};
use bursar_node::executor::{Begun, Executor, Job, Left, Stream, Work};
use bursar_node::local::{Local, Options};
use bursar_units::BookingId;
use tempfile::TempDir;

/// So long may anything take before a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine with one ledger.
pub(crate) struct Host {
    directory: TempDir,
    pub(crate) ledger: String,
    local: Option<Local>,
}

impl Host {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut host = Self {
            directory: tempfile::tempdir().unwrap(),
            ledger: format!("test-{}-{count}", std::process::id()),
            local: None,
        };
        host.restart();
        assert_eq!(
            host.local().isolation(),
            Isolation::Cgroup,
            "these tests need cgroups that can be written: run them as root, or delegate some"
        );
        host
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            directory: self.directory.path().join("executions"),
            ledger: self.ledger.clone(),
            shim: shim(),
            require_isolation: false,
            process: PathBuf::from("/proc/self"),
        }
    }

    pub(crate) fn local(&self) -> &Local {
        self.local.as_ref().unwrap()
    }

    /// What a server does that was killed and comes back: it forgets everything.
    pub(crate) fn restart(&mut self) {
        self.local = None;
        self.local = Some(Local::open(self.options()).unwrap());
    }

    /// Starts a command of the shell without limits.
    pub(crate) async fn start(&self, id: &BookingId, script: &str) -> Begun {
        self.start_work(id, &shell(script)).await
    }

    pub(crate) async fn start_work(&self, id: &BookingId, work: &Work) -> Begun {
        let job = self.job(work);
        soon(self.local().start(id, &job)).await
    }

    /// Runs a command of the shell to its end.
    pub(crate) async fn run(&self, name: &str, script: &str) -> Exit {
        let id = id(name);
        match self.start(&id, script).await {
            Begun::Running(_) => soon(self.local().exit(&id)).await,
            Begun::Gone(exit) => exit,
        }
    }

    pub(crate) fn job(&self, work: &Work) -> Job {
        Job {
            work: self.local().keep(work).unwrap(),
            fence: 7,
            cpu_milli: None,
            memory_bytes: None,
            pids: None,
        }
    }

    pub(crate) fn output(&self, id: &BookingId, stream: Stream) -> String {
        let output = self.local().output(id, stream, 0).unwrap();
        let mut text = Vec::new();
        output.unwrap().bytes.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().join("executions")
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
    }
}

pub(crate) fn id(name: &str) -> BookingId {
    BookingId::new(name).unwrap()
}

/// Awaits something that must come.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

/// The shim that cargo has built beside this test.
fn shim() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let shim = test.parent().and_then(Path::parent).unwrap();
    let shim = shim.join("examples/shim");
    assert!(
        shim.exists(),
        "build the examples first: {}",
        shim.display()
    );
    shim
}

/// Nothing is left when the last of a host is cleaned.
impl Drop for Host {
    fn drop(&mut self) {
        if let Some(local) = &self.local {
            for id in local.list().unwrap() {
                local.clean(&id, Left::Nothing).unwrap();
            }
        }
    }
}
