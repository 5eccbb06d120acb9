//! The members of an agent: adopts new cgroups, drops those that are gone or no longer declared, and
//! restores their originals (M10).
//!
//! A group has one agent: an acting agent claims each member, and leaves out those that another agent
//! has claimed. A name has one original: while the original of another group with this name is not
//! restored, the name waits.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bursar_market::cgroup::Quota;

use super::worker::Worker;
use crate::log;
use crate::market::claim::Claim;
use crate::market::files::{Files, LimitFiles, is_shortage};
use crate::market::originals::Kept;
use crate::market::record::Event;
use crate::market::target::{Kind, Target, Targets};
use crate::market::{Acts, Deed, Error, Mode, Restored, Why};

pub(super) struct Member {
    pub(super) target: Target,
    pub(super) files: Files,
    pub(super) name: Arc<str>,
    /// Excludes other agents; only an acting agent has one.
    claim: Option<Claim>,
}

/// Reason why a pod was not adopted.
enum NotAdopted {
    Why(Why),
    /// It is an execution that has ended.
    Ended,
    /// Too many files are open.
    Shortage(io::Error),
}

impl Member {
    pub(super) fn is_claimed(&self) -> bool {
        self.claim.is_some()
    }

    /// Claims the group; `false` if another agent has it.
    fn claim(&mut self) -> io::Result<bool> {
        let limit = self.files.limit();
        if let Err(error) = limit.may_write() {
            if is_about_rights(&error) {
                self.claim = None;
            }
            return Err(error);
        }
        if self.claim.is_none() {
            self.claim = limit.claim()?;
        }
        Ok(self.is_claimed())
    }

    /// Whether an original belongs to this group, not to another one of the same name.
    fn is_of(&self, kept: &Kept) -> bool {
        self.target.group == kept.group && self.files.limit().identity() == kept.identity
    }
}

impl Worker {
    pub(super) fn gather(&mut self) {
        let executions = self.options.executions.as_ref();
        let Targets {
            found,
            mut without,
            short,
        } = self
            .finder
            .search(&self.hierarchies, &self.options.cgroups, executions);
        if let Some((name, error)) = short {
            self.report_shortage(&name, error);
        }
        let node = &mut self.node;
        self.members.retain(|id, member| {
            let group = found.get(id).map(|target| &target.group);
            let stays = group == Some(&member.target.group) && member.files.limit().is_there();
            if !stays {
                node.forget(id);
            }
            stays
        });
        // Before any adoption, so that a renamed group has its own limit back.
        let owed = self.settle(|worker, id, kept| {
            let is_wanted = found.get(id).is_some_and(|one| one.group == kept.group);
            let is_it = |files: LimitFiles| files.identity() == kept.identity;
            is_wanted && worker.hierarchies.limit(&kept.group).is_ok_and(is_it)
        });
        for (id, target) in found {
            match self.adopt(&id, target, &owed) {
                Ok(()) | Err(NotAdopted::Ended) => {}
                Err(NotAdopted::Why(why)) => without.push((id, why)),
                Err(NotAdopted::Shortage(error)) => self.report_shortage(&id, error),
            }
        }
        self.unmanaged = without;
        self.weigh_rights();
        self.settle(|worker, id, kept| {
            let member = worker.members.get(id);
            member.is_some_and(|member| member.is_of(kept))
        });
    }

    /// Restores the originals that are no longer wanted, all of them if the agent only observes;
    /// returns the groups whose original could not be restored.
    fn settle(&mut self, is_wanted: impl Fn(&Self, &str, &Kept) -> bool) -> BTreeSet<PathBuf> {
        let acts = self.options.mode == Mode::Act;
        let kept = self.originals.kept().iter();
        let orphans = kept.filter(|(id, kept)| !acts || !is_wanted(self, id, kept));
        let orphans: BTreeSet<String> = orphans.map(|(id, _)| id.clone()).collect();
        if orphans.is_empty() {
            return BTreeSet::new();
        }
        if let Err(error) = self.give_back(|id| orphans.contains(id), Deed::Real) {
            self.report_failure(&error);
        }
        let kept = self.originals.kept().iter();
        let waiting = kept.filter(|(id, _)| orphans.contains(*id));
        waiting.map(|(_, kept)| kept.group.clone()).collect()
    }

    /// Adopts a pod, or updates its parameters.
    fn adopt(
        &mut self,
        id: &str,
        target: Target,
        owed: &BTreeSet<PathBuf>,
    ) -> Result<(), NotAdopted> {
        if let Some(member) = self.members.get_mut(id) {
            let quota = Quota::NONE;
            self.node.adopt(id, target.params, quota, quota);
            member.target = target;
            return Ok(());
        }
        let files = self.hierarchies.open(&target.group);
        let files = files.map_err(|error| match (target.kind, error.kind()) {
            _ if is_shortage(&error) => NotAdopted::Shortage(error),
            (Kind::Execution, io::ErrorKind::NotFound) => NotAdopted::Ended,
            (Kind::Declared, _) if !self.hierarchies.has(&target.group) => {
                NotAdopted::Why(Why::Missing)
            }
            _ => NotAdopted::Why(Why::Unreadable),
        })?;
        let present = files.limit().quota().map_err(|error| match error.kind() {
            _ if is_shortage(&error) => NotAdopted::Shortage(error),
            io::ErrorKind::NotFound => NotAdopted::Why(Why::NoQuota),
            _ => NotAdopted::Why(Why::Unreadable),
        })?;
        if target.kind == Kind::Execution && present.quota_us.is_none() {
            return Err(NotAdopted::Why(Why::NoQuota));
        }
        let (group, identity) = (&target.group, files.limit().identity());
        let is_owed = owed.contains(group) || self.originals.owes_another(id, group, identity);
        if is_owed && self.options.mode == Mode::Act {
            return Err(NotAdopted::Why(Why::Owed));
        }
        let original = self.originals.original(id, group, identity, present);
        self.node.adopt(id, target.params, original, present);
        let member = Member {
            target,
            files,
            name: id.into(),
            claim: None,
        };
        self.members.insert(id.to_owned(), member);
        Ok(())
    }

    /// In mode `act`: without write access to any limit the agent only observes, with the reason.
    /// Otherwise it leaves out limits without write access, and those that another agent manages.
    fn weigh_rights(&mut self) {
        if self.options.mode == Mode::Observe {
            if !matches!(self.acts, Acts::Cannot(_)) {
                self.acts = Acts::Told;
            }
            return;
        }
        let (mut denied, mut taken, mut short) = (Vec::new(), Vec::new(), None);
        for (id, member) in &mut self.members {
            match member.claim() {
                Ok(false) => taken.push(id.clone()),
                Err(error) if is_about_rights(&error) => denied.push((id.clone(), error)),
                Err(error) if is_shortage(&error) => short = Some((id.clone(), error)),
                // Any other error appears when the file is read, and holds its pod.
                Ok(true) | Err(_) => {}
            }
        }
        for id in taken {
            self.leave_out(id, Why::Taken);
        }
        if let Some((id, error)) = short {
            self.report_shortage(&id, error);
        }
        let is_any_ours = denied.len() < self.members.len();
        self.acts = match denied.first() {
            Some((id, error)) if !is_any_ours => Acts::Cannot(format!(
                "no limit here may be written by this user (`{id}`: {error}): \
                 run it as root, or delegate the cgroups"
            )),
            _ => Acts::Yes,
        };
        if is_any_ours {
            for (id, _) in denied {
                self.leave_out(id, Why::NoRights);
            }
        }
    }

    fn leave_out(&mut self, id: String, why: Why) {
        self.node.forget(&id);
        self.members.remove(&id);
        self.unmanaged.push((id, why));
    }

    /// Drops all members; the next clearing adopts them again.
    pub(super) fn leave(&mut self) {
        for id in self.members.keys() {
            self.node.forget(id);
        }
        self.members.clear();
    }

    /// Restores the originals of the wanted pods, and logs failures.
    pub(super) fn give_back(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        deed: Deed,
    ) -> Result<Restored, Error> {
        let members = self.members.values();
        let claimed = members.filter(|member| member.is_claimed());
        let claimed = claimed.map(|member| member.files.limit().identity());
        let result =
            self.originals
                .give_back(&self.hierarchies, is_wanted, &claimed.collect(), deed)?;
        if deed == Deed::Real {
            for (pod, _, to) in &result.restored {
                self.events.push(Event::Restored {
                    pod: pod.clone(),
                    milli: to.milli_ceil(),
                });
            }
            for (pod, reason) in &result.failed {
                tracing::warn!(pod, reason, "{}", log::MARKET_NOT_RESTORED);
            }
        }
        Ok(result)
    }
}

fn is_about_rights(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}
