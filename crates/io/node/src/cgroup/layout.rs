//! Parses which cgroup hierarchies a machine has, and our own group in each; no IO.
//!
//! `mountinfo` names the mount point of each hierarchy and the group visible there; `cgroup` names
//! our own group. Other lines are skipped, because they differ between distributions.

use std::path::{Component, Path, PathBuf};

use super::Version;

/// A mounted hierarchy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mount {
    /// Its interface.
    pub version: Version,
    /// The group visible at the mount point.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// The controllers of version 1; empty for version 2.
    pub controllers: Vec<String>,
}

/// Our group in one hierarchy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Membership {
    /// The controllers of version 1; empty for version 2.
    pub controllers: Vec<String>,
    /// The group, from the root of its hierarchy.
    pub path: PathBuf,
}

/// The hierarchies in the text of `/proc/<pid>/mountinfo`, in its order.
pub fn mounts(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

/// The groups in the text of `/proc/<pid>/cgroup`, in its order.
pub fn memberships(text: &str) -> Vec<Membership> {
    text.lines().filter_map(membership).collect()
}

/// The hierarchy of version 2, and our group in it.
pub fn unified<'a>(
    mounts: &'a [Mount],
    memberships: &'a [Membership],
) -> Option<(&'a Mount, &'a Membership)> {
    let mount = mounts.iter().find(|mount| mount.version == Version::V2)?;
    let own = memberships.iter().find(|own| own.controllers.is_empty())?;
    Some((mount, own))
}

/// The hierarchy of version 1 with a controller, and our group in it.
pub fn legacy<'a>(
    mounts: &'a [Mount],
    memberships: &'a [Membership],
    controller: &str,
) -> Option<(&'a Mount, &'a Membership)> {
    let carries = |controllers: &[String]| controllers.iter().any(|word| word == controller);
    let mount = mounts.iter().find(|mount| carries(&mount.controllers))?;
    let own = memberships.iter().find(|own| carries(&own.controllers))?;
    Some((mount, own))
}

/// The directory of our group: the mount point, joined with our path below the visible root. For a
/// path outside of it (a namespace we have left) it is the mount point.
pub fn directory(mount: &Mount, own: &Membership) -> PathBuf {
    let is_plain = |path: &Path| {
        path.components()
            .all(|part| matches!(part, Component::Normal(_)))
    };
    match own.path.strip_prefix(&mount.root) {
        // Joining an empty path would add a slash.
        Ok(rest) if is_plain(rest) && rest != Path::new("") => mount.point.join(rest),
        _ => mount.point.clone(),
    }
}

fn mount(line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, point) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let version = match kind.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options = kind.nth(1)?;
    Some(Mount {
        version,
        root: unescaped(root).into(),
        point: unescaped(point).into(),
        controllers: match version {
            Version::V1 => options.split(',').map(str::to_owned).collect(),
            Version::V2 => Vec::new(),
        },
    })
}

fn membership(line: &str) -> Option<Membership> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let controllers = controllers.split(',').filter(|word| !word.is_empty());
    Some(Membership {
        controllers: controllers.map(str::to_owned).collect(),
        path: path.into(),
    })
}

/// The kernel writes blank, tab, newline and backslash as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let octal = part.get(..3).map(|digits| u8::from_str_radix(digits, 8));
        match (octal, part.get(3..)) {
            (Some(Ok(byte)), Some(rest)) if byte.is_ascii() => {
                plain.push(char::from(byte));
                plain.push_str(rest);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}
