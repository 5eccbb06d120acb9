//! Cgroups that a test freezes, or that contain a process of the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::rig::{BEGIN, Isolation, Rig};

/// The directory where cgroups can be frozen before an execution starts in them.
pub(super) struct Freezer {
    pub(super) base: PathBuf,
}

impl Freezer {
    /// Finds it by an execution that waits until the end of the test, so that the directories stay.
    pub(super) async fn find(rig: &Rig) -> Self {
        let gate = rig.gate("probe");
        let script = format!("{BEGIN}read -r go < {}", gate.display());
        rig.submit("probe", &script, |request| {
            request.cpu_limit_milli = Some(1_000);
            request.memory_limit_bytes = Some(64 << 20);
            request.pids = Some(16);
        })
        .await;
        rig.wait_until_begun("probe").await;
        let base = match rig.isolation {
            Isolation::None => PathBuf::new(),
            Isolation::Cgroup => {
                let bases = rig.bases();
                let freezes = |base: &PathBuf| switch(&base.join("e-probe")).is_some();
                let base = bases.iter().find(|base| freezes(base)).cloned();
                base.unwrap_or_else(|| panic!("no freezer in {bases:?}"))
            }
        };
        Self { base }
    }

    pub(super) fn freeze(&self, id: &str) -> PathBuf {
        let group = self.base.join(format!("e-{id}"));
        std::fs::create_dir(&group).unwrap();
        let (file, on, _) = switch(&group).unwrap();
        std::fs::write(file, on).unwrap();
        group
    }

    pub(super) fn thaw(&self, id: &str) {
        let (file, _, off) = switch(&self.base.join(format!("e-{id}"))).unwrap();
        std::fs::write(file, off).unwrap();
    }
}

/// A process of the test, killed when dropped.
pub(super) struct Stranger(Child);

impl Stranger {
    pub(super) fn in_group(group: &Path) -> Self {
        let child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let stranger = Self(child);
        std::fs::write(group.join("cgroup.procs"), stranger.0.id().to_string()).unwrap();
        stranger
    }

    pub(super) fn is_gone(&mut self) -> Option<()> {
        self.0.try_wait().unwrap().map(drop)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// The file that freezes a cgroup, with its values for on and off.
fn switch(group: &Path) -> Option<(PathBuf, &'static str, &'static str)> {
    let files = [
        ("cgroup.freeze", "1", "0"),
        ("freezer.state", "FROZEN", "THAWED"),
    ];
    let found = files
        .into_iter()
        .map(|(file, on, off)| (group.join(file), on, off));
    found.into_iter().find(|(file, ..)| file.exists())
}
