//! Whom an agent manages: takes in those who are new, lets those go who are gone or not wanted any
//! more, and puts back what was theirs (M10).
//!
//! One group has one agent: where limits are written each member is claimed, and one that another
//! agent has is left to it. One name has one original: while that of another group could not be put
//! back its name waits.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bursar_market::cgroup::Quota;

use super::worker::{LOOKS_UNTIL_USE, Worker};
use crate::log;
use crate::market::claim::Claim;
use crate::market::files::{Files, LimitFiles, is_shortage};
use crate::market::originals::Kept;
use crate::market::record::Event;
use crate::market::target::{Kind, Target, Targets};
use crate::market::{Acts, Deed, Error, Mode, Restored, Why};

/// A cgroup that is managed.
pub(super) struct Member {
    pub(super) target: Target,
    pub(super) files: Files,
    pub(super) name: Arc<str>,
    /// Keeps other agents away, where limits are written.
    claim: Option<Claim>,
}

/// Why a pod was not taken in.
enum Not {
    Why(Why),
    /// It is an execution that has just ended.
    Ended,
    /// Too many files are open: nothing can be said of it.
    Short(io::Error),
}

impl Member {
    /// Whether its limit is ours to write.
    pub(super) fn is_claimed(&self) -> bool {
        self.claim.is_some()
    }

    /// Makes its limit ours to write; `false` where it is another agent's.
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

    /// Whether an original is that of this very group.
    fn is_of(&self, kept: &Kept) -> bool {
        self.target.group == kept.group && self.files.limit().identity() == kept.identity
    }
}

impl Worker {
    /// Finds out whom to manage.
    pub(super) fn gather(&mut self) {
        let executions = self.options.executions.as_ref();
        let Targets {
            found,
            mut without,
            short,
        } = self
            .finder
            .look(&self.hierarchies, &self.options.cgroups, executions);
        if let Some((name, error)) = short {
            self.short(&name, error);
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
        // Before anyone is taken in: whoever is there by another name has its own limit then.
        let owed = self.settle(|worker, id, kept| {
            let is_wanted = found.get(id).is_some_and(|one| one.group == kept.group);
            let is_it = |files: LimitFiles| files.identity() == kept.identity;
            is_wanted && worker.hierarchies.limit(&kept.group).is_ok_and(is_it)
        });
        for (id, target) in found {
            match self.adopt(&id, target, &owed) {
                Ok(()) | Err(Not::Ended) => {}
                Err(Not::Why(why)) => without.push((id, why)),
                Err(Not::Short(error)) => self.short(&id, error),
            }
        }
        self.unmanaged = without;
        self.weigh_rights();
        self.settle(|worker, id, kept| {
            let member = worker.members.get(id);
            member.is_some_and(|member| member.is_of(kept))
        });
    }

    /// Puts back what nobody is to have any more, and where nothing is written everything; the
    /// groups that still wait for it.
    fn settle(&mut self, is_wanted: impl Fn(&Self, &str, &Kept) -> bool) -> BTreeSet<PathBuf> {
        let acts = self.options.mode == Mode::Act;
        let kept = self.originals.kept().iter();
        let orphans = kept.filter(|(id, kept)| !acts || !is_wanted(self, id, kept));
        let orphans: BTreeSet<String> = orphans.map(|(id, _)| id.clone()).collect();
        if orphans.is_empty() {
            return BTreeSet::new();
        }
        if let Err(error) = self.give_back(|id| orphans.contains(id), Deed::Real) {
            self.failed(&error);
        }
        let kept = self.originals.kept().iter();
        let waiting = kept.filter(|(id, _)| orphans.contains(*id));
        waiting.map(|(_, kept)| kept.group.clone()).collect()
    }

    /// Takes a pod in, or its new parameters.
    fn adopt(&mut self, id: &str, target: Target, owed: &BTreeSet<PathBuf>) -> Result<(), Not> {
        if let Some(member) = self.members.get_mut(id) {
            let quota = Quota::NONE;
            self.node.adopt(id, target.params, quota, quota);
            member.target = target;
            return Ok(());
        }
        let files = self.hierarchies.open(&target.group);
        let files = files.map_err(|error| match (target.kind, error.kind()) {
            _ if is_shortage(&error) => Not::Short(error),
            (Kind::Execution, io::ErrorKind::NotFound) => Not::Ended,
            (Kind::Declared, _) if !self.hierarchies.has(&target.group) => Not::Why(Why::Missing),
            _ => Not::Why(Why::Unreadable),
        })?;
        let present = files.limit().quota().map_err(|error| match error.kind() {
            _ if is_shortage(&error) => Not::Short(error),
            io::ErrorKind::NotFound => Not::Why(Why::NoQuota),
            _ => Not::Why(Why::Unreadable),
        })?;
        if target.kind == Kind::Execution && present.quota_us.is_none() {
            return Err(Not::Why(Why::NoQuota));
        }
        let (group, identity) = (&target.group, files.limit().identity());
        let is_owed = owed.contains(group) || self.originals.owes_another(id, group, identity);
        if is_owed && self.options.mode == Mode::Act {
            return Err(Not::Why(Why::Owed));
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
        self.looks_until_news = LOOKS_UNTIL_USE;
        Ok(())
    }

    /// Where it should act: without rights to any limit it only observes and says why; without
    /// those to some it leaves these out, and those that another agent manages.
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
                // Whatever else is wrong with a file shows when it is read, and holds its pod.
                Ok(true) | Err(_) => {}
            }
        }
        for id in taken {
            self.leave_out(id, Why::Taken);
        }
        if let Some((id, error)) = short {
            self.short(&id, error);
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

    /// Lets all members go; they are taken in anew at the next clearing, if there is one.
    pub(super) fn leave(&mut self) {
        for id in self.members.keys() {
            self.node.forget(id);
        }
        self.members.clear();
    }

    /// Puts back what is kept of every pod that is wanted, and tells.
    pub(super) fn give_back(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        deed: Deed,
    ) -> Result<Restored, Error> {
        let members = self.members.values();
        let claimed = members.filter(|member| member.is_claimed());
        let claimed = claimed.map(|member| member.files.limit().identity());
        let told =
            self.originals
                .give_back(&self.hierarchies, is_wanted, &claimed.collect(), deed)?;
        if deed == Deed::Real {
            for (pod, _, to) in &told.restored {
                self.events.push(Event::Restored {
                    pod: pod.clone(),
                    milli: to.milli_ceil(),
                });
            }
            for (pod, reason) in &told.failed {
                tracing::warn!(pod, reason, "{}", log::MARKET_NOT_RESTORED);
            }
        }
        Ok(told)
    }
}

fn is_about_rights(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}
