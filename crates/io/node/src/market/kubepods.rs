//! Parses the cgroup names of both Kubernetes drivers; no IO.
//!
//! ```text
//! cgroupfs   /kubepods/burstable/pod<uid>/<container>
//! systemd    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid_>.slice/
//!            cri-containerd-<container>.scope
//! ```
//! Pods of the class Guaranteed have no directory level for the class. A kubelet may itself run below
//! other groups (as on nodes in containers), so the layout may begin anywhere in a path.

use std::path::Path;

/// Quality-of-service class of a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Qos {
    /// Requests equal limits.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// No request or limit.
    BestEffort,
}

/// The cgroup of a pod, or of a container in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodGroup {
    /// The pod's class.
    pub qos: Qos,
    /// The pod's UID, with dashes.
    pub uid: String,
    /// The container's id, if it is a container.
    pub container: Option<String>,
}

/// Parses a path; `None` if Kubernetes did not create it.
pub fn pod_group(path: &Path) -> Option<PodGroup> {
    let parts: Option<Vec<&str>> = path.iter().map(|part| part.to_str()).collect();
    let parts = parts?;
    let names = parts.iter().copied().filter(|part| *part != "/");
    let names: Vec<&str> = names.collect();
    let start = names
        .iter()
        .position(|name| matches!(*name, "kubepods" | "kubepods.slice"))?;
    let below = names.get(start + 1..)?;
    match *names.get(start)? {
        "kubepods" => by_path(below),
        _ => by_slice(below),
    }
}

fn by_path(below: &[&str]) -> Option<PodGroup> {
    let (qos, rest) = match below {
        ["burstable", rest @ ..] => (Qos::Burstable, rest),
        ["besteffort", rest @ ..] => (Qos::BestEffort, rest),
        rest => (Qos::Guaranteed, rest),
    };
    let (pod, container) = match rest {
        [pod] => (pod, None),
        [pod, container] => (pod, Some((*container).to_owned())),
        _ => return None,
    };
    let uid = pod.strip_prefix("pod")?;
    Some(PodGroup {
        qos,
        uid: is_uid(uid).then(|| uid.to_owned())?,
        container,
    })
}

fn by_slice(below: &[&str]) -> Option<PodGroup> {
    let (qos, rest) = match below {
        ["kubepods-burstable.slice", rest @ ..] => (Qos::Burstable, rest),
        ["kubepods-besteffort.slice", rest @ ..] => (Qos::BestEffort, rest),
        rest => (Qos::Guaranteed, rest),
    };
    let before = match qos {
        Qos::Burstable => "kubepods-burstable-pod",
        Qos::BestEffort => "kubepods-besteffort-pod",
        Qos::Guaranteed => "kubepods-pod",
    };
    let (pod, scope) = match rest {
        [pod] => (pod, None),
        [pod, scope] => (pod, Some(*scope)),
        _ => return None,
    };
    // systemd reads a dash as another level, so the UID has underscores.
    let uid = pod.strip_prefix(before)?.strip_suffix(".slice")?;
    let uid = uid.replace('_', "-");
    let container = match scope {
        None => None,
        // `cri-containerd-`, `crio-`, `docker-`: the runtime, then the id.
        Some(scope) => {
            let (_runtime, id) = scope.strip_suffix(".scope")?.rsplit_once('-')?;
            Some(id.to_owned())
        }
    };
    Some(PodGroup {
        qos,
        uid: is_uid(&uid).then_some(uid)?,
        container,
    })
}

/// UUIDs, and the plain hashes of pods from files.
fn is_uid(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_plain)
}
