//! What the thread of an agent does: looks, lets the node clear, and tells.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bursar_market::capacity::allocatable_milli;
use bursar_market::cgroup::Quota;
use bursar_market::node::{Node, Supply};
use bursar_market::sense::{Estimator, Shown};
use tokio::sync::broadcast;

use crate::market::files::Files;
use crate::market::hierarchy::Hierarchies;
use crate::market::originals::{Kept, Originals};
use crate::market::record::{Event, Record};
use crate::market::target::{Finder, Kind, Target};
use crate::market::view::{HISTORY_MAX, HISTORY_MS};
use crate::market::{
    Acts, Deed, Error, Mode, Observed, Options, Point, PointPod, Resize, Restored, Rules,
    Unmanaged, View, Why, lock, machine,
};

use super::RESIZES_MAX;

/// How many cgroups are looked at that nobody manages: each keeps files open.
const OBSERVED_MAX: usize = 256;

/// How many events wait for a record that cannot be written: together they fit into a line that can
/// be read back. The oldest are let go.
const EVENTS_MAX: usize = 50_000;

/// Use is known from the second look on.
const LOOKS_UNTIL_USE: u32 = 2;

/// The state of an agent.
pub(super) struct Worker {
    pub(super) options: Options,
    pub(super) hierarchies: Hierarchies,
    /// K, as of the last time that it could be told.
    allocatable_milli: u64,
    pub(super) node: Node,
    pub(super) members: BTreeMap<String, Member>,
    finder: Finder,
    unmanaged: Vec<(String, Why)>,
    observed: BTreeMap<PathBuf, Watched>,
    machine: Option<Files>,
    pub(super) originals: Originals,
    record: Record,
    rules: Arc<Rules>,
    pub(super) resizes: broadcast::Sender<Arc<Resize>>,
    /// What happened since the last line of the record.
    pub(super) events: Vec<Event>,
    acts: Acts,
    history: VecDeque<Arc<Point>>,
    began: Instant,
    /// After so many looks the use of whoever came last is known.
    looks_until_news: u32,
    sensed_us: Option<u64>,
    over_us: u64,
    clearings: u64,
    /// When the last one was, in milliseconds since 1970.
    cleared_ms: Option<u64>,
    pub(super) writes: u64,
    skipped: u64,
    /// What went wrong in this round, and in the last.
    errors: (Option<String>, Option<String>),
    _lock: File,
}

/// A cgroup that is managed.
pub(super) struct Member {
    pub(super) target: Target,
    pub(super) files: Files,
    name: Arc<str>,
}

/// A cgroup that is only looked at.
struct Watched {
    files: Files,
    estimator: Estimator,
    throttled_permille: u64,
}

impl Worker {
    /// Opens everything, puts back what nobody wants any more, and looks for the first time.
    pub(super) fn open(options: Options) -> Result<Self, Error> {
        let mut names: Vec<&str> = options
            .cgroups
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[one, next]| one == next) {
            return Err(Error::Twice((*name).to_owned()));
        }
        let lock = lock(&options.directory)?;
        let hierarchies = Hierarchies::find(&options.process).ok_or(Error::NoHierarchy)?;
        let online_milli = machine::online_milli(&options.process).ok_or(Error::NoProcessors)?;
        let mut settings = options.settings;
        if options.mode == Mode::Observe {
            // Whoever changes a limit that we leave alone is in nobody's way.
            settings.conflict_us = 0;
        }
        let mut worker = Self {
            allocatable_milli: allocatable_milli(online_milli, options.reserve_milli),
            node: Node::new(settings),
            members: BTreeMap::new(),
            finder: Finder::default(),
            unmanaged: Vec::new(),
            observed: BTreeMap::new(),
            machine: hierarchies.machine().ok(),
            originals: Originals::open(&options.directory)?,
            record: Record::open(&options.directory)?,
            rules: Arc::new(Rules::of(&options)),
            resizes: broadcast::Sender::new(RESIZES_MAX),
            events: Vec::new(),
            acts: Acts::Told,
            history: VecDeque::new(),
            began: Instant::now(),
            looks_until_news: 0,
            sensed_us: None,
            over_us: 0,
            clearings: 0,
            cleared_ms: None,
            writes: 0,
            skipped: 0,
            errors: (None, None),
            _lock: lock,
            hierarchies,
            options,
        };
        worker.node.processors(online_milli);
        worker.gather();
        worker.sense();
        Ok(worker)
    }

    /// Takes a sample of everything; whether it tells for the first time what somebody uses.
    pub(super) fn sense(&mut self) -> bool {
        for (id, member) in &self.members {
            let at_us = micros(self.began);
            self.node.observe(id, member.files.sample(at_us));
        }
        let now_us = micros(self.began);
        if self.options.unmanaged == Unmanaged::Measured {
            let usage_us = self.machine.as_ref().and_then(|root| root.sample(now_us));
            let usage_us = usage_us.map(|sample| sample.usage_us);
            self.node.observe_machine(now_us, usage_us);
        }
        let window = self.options.settings.window;
        for watched in self.observed.values_mut() {
            match watched.files.sample(micros(self.began)) {
                Some(sample) => watched.estimator.take(sample, &window),
                None => watched.estimator.miss(),
            }
        }
        if let Some(sensed_us) = self.sensed_us.replace(now_us)
            && self.acts == Acts::Yes
            && self.node.over_milli() > 0
        {
            self.over_us += now_us.saturating_sub(sensed_us);
        }
        let left = self.looks_until_news;
        self.looks_until_news = left.saturating_sub(1);
        left == 1
    }

    /// Clears the node and, where it acts, writes what came of it.
    pub(super) fn clear(&mut self) {
        self.gather();
        self.compare();
        // Processors come and go, and so does what our cpuset allows of them.
        if let Some(online_milli) = machine::online_milli(&self.options.process) {
            self.node.processors(online_milli);
            self.allocatable_milli = allocatable_milli(online_milli, self.options.reserve_milli);
        }
        let now_us = micros(self.began);
        let supply = Supply {
            allocatable_milli: self.allocatable_milli,
            unmanaged_milli: match self.options.unmanaged {
                Unmanaged::Measured => None,
                Unmanaged::Given(milli) => Some(milli),
            },
        };
        self.node.clear(now_us, supply);
        let cleared_ms = *self.cleared_ms.insert(wall_ms());
        self.clearings += 1;
        if self.acts == Acts::Yes {
            let (began, decreases) = (self.began, self.node.decreases());
            self.act(&decreases, began);
            let increases = self.node.increases();
            self.act(&increases, began);
        }
        self.keep_record(cleared_ms);
        self.remember(cleared_ms);
    }

    /// So many looks or clearings came too late to take place.
    pub(super) fn skipped(&mut self, count: u64) {
        self.skipped = self.skipped.saturating_add(count);
    }

    /// Puts every original back and acts no more.
    pub(super) fn restore(&mut self, deed: Deed) -> Result<Restored, Error> {
        if deed == Deed::Real {
            let reason = "the limits were put back by `bursar node restore`; start it again to act";
            self.options.mode = Mode::Observe;
            self.rules = Arc::new(Rules::of(&self.options));
            self.acts = Acts::Cannot(reason.to_owned());
            // What is put back is nobody else's change: they are taken in anew.
            self.leave();
        }
        self.give_back(|_| true, deed)
    }

    /// Puts every original back.
    pub(super) fn stop(&mut self) -> Result<Restored, Error> {
        self.options.mode = Mode::Observe;
        self.leave();
        let told = self.give_back(|_| true, Deed::Real);
        self.keep_record(wall_ms());
        told
    }

    /// What is told of all this.
    pub(super) fn view(&self) -> View {
        let pressure = |(id, member): (&String, &Member)| {
            let pressure = member.files.pressure()?;
            Some((id.clone(), pressure))
        };
        let kind = |(id, member): (&String, &Member)| (id.clone(), member.target.kind);
        View {
            node: self.options.node.clone(),
            at_ms: wall_ms(),
            cleared_ms: self.cleared_ms,
            now_us: micros(self.began),
            settings: self.options.settings,
            acts: self.acts.clone(),
            clearing: self.node.last().cloned(),
            standings: self.node.standings().collect(),
            kinds: self.members.iter().map(kind).collect(),
            pressures: self.members.iter().filter_map(pressure).collect(),
            observed: self.seen(),
            unmanaged: self.unmanaged.clone(),
            over_milli: match self.acts {
                Acts::Yes => self.node.over_milli(),
                _ => 0,
            },
            over_ms: self.over_us / 1_000,
            clearings: self.clearings,
            writes: self.writes,
            skipped: self.skipped,
            error: self.errors.0.clone().or_else(|| self.errors.1.clone()),
            every_ms: (millis(self.options.sense), millis(self.options.clear)),
            history: self.history.iter().cloned().collect(),
            rules: Arc::clone(&self.rules),
            originals: self.originals.milli(),
            position: self.record.position(),
        }
    }

    /// What was told last, with what everyone uses by now: all else is as of the last clearing.
    pub(super) fn with_use(&self, mut view: View) -> View {
        let standings = self.node.standings();
        let used: BTreeMap<String, Option<u64>> = standings
            .map(|standing| (standing.id, standing.used_milli))
            .collect();
        for standing in &mut view.standings {
            let now = used.get(&standing.id).copied().flatten();
            standing.used_milli = now.or(standing.used_milli);
        }
        view.observed = self.seen();
        view
    }

    /// Something went wrong that is not about one pod.
    pub(super) fn failed(&mut self, error: &Error) {
        let text = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        tracing::warn!(error = text, "market.failed");
        self.errors.0 = Some(text);
    }

    /// Finds out whom to manage: takes in those who are new, lets those go who are not wanted any
    /// more or are gone, and puts back what was theirs.
    fn gather(&mut self) {
        self.errors = (None, self.errors.0.take());
        let executions = self.options.executions.as_ref();
        let (targets, mut without) =
            self.finder
                .look(&self.hierarchies, &self.options.cgroups, executions);
        let node = &mut self.node;
        self.members.retain(|id, member| {
            let group = targets.get(id).map(|target| &target.group);
            let stays = group == Some(&member.target.group) && member.files.limit().is_there();
            if !stays {
                node.forget(id);
            }
            stays
        });
        for (id, target) in targets {
            if let Err(why) = self.adopt(&id, target) {
                without.extend(why.map(|why| (id, why)));
            }
        }
        self.unmanaged = without;
        self.weigh_rights();
        // One of the same name that is another group does not count.
        let members = &self.members;
        let is_here = |(id, kept): &(&String, &Kept)| {
            members.get(*id).is_some_and(|member| {
                member.target.group == kept.group
                    && member.files.limit().identity() == kept.identity
            })
        };
        let kept = self.originals.kept().iter();
        // Where nothing is written nothing of ours stays either.
        let acts = self.options.mode == Mode::Act;
        let orphans = kept.filter(|one| !acts || !is_here(one));
        let orphans = orphans.map(|(id, _)| id.clone());
        let orphans: Vec<String> = orphans.collect();
        if !orphans.is_empty() {
            let is_one = |id: &str| orphans.iter().any(|orphan| orphan == id);
            if let Err(error) = self.give_back(is_one, Deed::Real) {
                self.failed(&error);
            }
        }
        self.watch();
    }

    /// Takes a pod in, or its new parameters. Why it is not managed otherwise, unless it is an
    /// execution that has just ended.
    fn adopt(&mut self, id: &str, target: Target) -> Result<(), Option<Why>> {
        if let Some(member) = self.members.get_mut(id) {
            let quota = Quota::NONE;
            self.node.adopt(id, target.params, quota, quota);
            member.target = target;
            return Ok(());
        }
        let files = self.hierarchies.open(&target.group);
        let files = files.map_err(|error| match (target.kind, error.kind()) {
            (Kind::Execution, io::ErrorKind::NotFound) => None,
            (Kind::Declared, _) if !self.hierarchies.has(&target.group) => Some(Why::Missing),
            _ => Some(Why::Unreadable),
        })?;
        let present = files.limit().quota().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Some(Why::NoQuota),
            _ => Some(Why::Unreadable),
        })?;
        if target.kind == Kind::Execution && present.quota_us.is_none() {
            return Err(Some(Why::NoQuota));
        }
        let original =
            self.originals
                .original(id, &target.group, files.limit().identity(), present);
        self.node.adopt(id, target.params, original, present);
        let member = Member {
            target,
            files,
            name: id.into(),
        };
        self.members.insert(id.to_owned(), member);
        self.looks_until_news = LOOKS_UNTIL_USE;
        Ok(())
    }

    /// Where it should act: without rights to any limit it only observes and says why; without
    /// those to some it leaves these out.
    fn weigh_rights(&mut self) {
        if self.options.mode == Mode::Observe {
            if !matches!(self.acts, Acts::Cannot(_)) {
                self.acts = Acts::Told;
            }
            return;
        }
        let mut denied = Vec::new();
        for (id, member) in &self.members {
            // Whatever else is wrong with a file shows when it is read, and holds its pod.
            if let Err(error) = member.files.limit().may_write()
                && is_about_rights(&error)
            {
                denied.push((id.clone(), error));
            }
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
                self.node.forget(&id);
                self.members.remove(&id);
                self.unmanaged.push((id, Why::NoRights));
            }
        }
    }

    /// Tells the node what the kernel says before anything is written.
    fn compare(&mut self) {
        let members = self.members.iter();
        let quotas: Vec<_> = members
            .map(|(id, member)| (id.clone(), member.files.limit().quota()))
            .collect();
        let mut is_any_foreign = false;
        for (id, quota) in quotas {
            match quota {
                Ok(quota) => is_any_foreign |= self.is_foreign(&id, quota),
                Err(_) => self.node.observe(&id, None),
            }
        }
        if is_any_foreign && let Err(error) = self.originals.store() {
            self.failed(&error);
        }
    }

    /// Tells the node what the kernel says of one limit: whether somebody else wrote it. That is
    /// the original from now on, to be stored.
    pub(super) fn is_foreign(&mut self, id: &str, quota: Quota) -> bool {
        let is_foreign = self.node.found(id, quota, micros(self.began));
        if is_foreign {
            self.originals.replace(id, quota);
            self.events.push(Event::Conflict {
                pod: id.to_owned(),
                to_milli: quota.milli_ceil(),
            });
        }
        is_foreign
    }

    /// Lets all members go; they are taken in anew at the next clearing, if there is one.
    fn leave(&mut self) {
        for id in self.members.keys() {
            self.node.forget(id);
        }
        self.members.clear();
    }

    fn give_back(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        deed: Deed,
    ) -> Result<Restored, Error> {
        let told = self
            .originals
            .give_back(&self.hierarchies, is_wanted, deed)?;
        if deed == Deed::Real {
            for (pod, _, to) in &told.restored {
                self.events.push(Event::Restored {
                    pod: pod.clone(),
                    milli: to.milli_ceil(),
                });
            }
            for (pod, reason) in &told.failed {
                tracing::warn!(pod, reason, "market.not-restored");
            }
        }
        Ok(told)
    }

    fn keep_record(&mut self, at_ms: u64) {
        let Some(clearing) = self.node.last() else {
            return;
        };
        let events = self.events.clone();
        match self.record.add(at_ms, &self.rules, clearing, events) {
            Ok(()) => self.events.clear(),
            // The next line tells them.
            Err(error) => {
                let too_many = self.events.len().saturating_sub(EVENTS_MAX);
                self.events.drain(..too_many);
                self.failed(&error);
            }
        }
    }

    /// Keeps what `since` asks for.
    fn remember(&mut self, at_ms: u64) {
        let Some(clearing) = self.node.last() else {
            return;
        };
        let shares = &clearing.cleared.shares;
        let pod = |standing: bursar_market::node::Standing| {
            let share = shares.binary_search_by(|share| (*share.id).cmp(standing.id.as_str()));
            let share = share.ok().and_then(|place| shares.get(place));
            let member = self.members.get(&standing.id)?;
            Some(PointPod {
                pod: Arc::clone(&member.name),
                need_milli: share.map_or(standing.limit_milli, |share| share.need_milli),
                limit_milli: standing.limit_milli,
                used_milli: standing.used_milli,
            })
        };
        let point = Point {
            at_ms,
            label: clearing.label,
            price_ppm: clearing.cleared.price_ppm,
            capacity_milli: clearing.cleared.capacity_milli,
            pods: self.node.standings().filter_map(pod).collect(),
        };
        self.history.push_back(Arc::new(point));
        let oldest_ms = at_ms.saturating_sub(HISTORY_MS);
        let is_past = |point: &Arc<Point>| point.at_ms < oldest_ms;
        while HISTORY_MAX < self.history.len() || self.history.front().is_some_and(is_past) {
            self.history.pop_front();
        }
    }

    /// Looks at every cgroup at most two levels deep, where nothing is written.
    fn watch(&mut self) {
        if self.acts == Acts::Yes {
            self.observed.clear();
            return;
        }
        let mut found = self.hierarchies.shallow();
        // What holds our executions uses nothing itself, and they are told one by one.
        if let Some(executions) = &self.options.executions {
            let ours = self.hierarchies.of_executions(&executions.ledger);
            found.retain(|group| !ours.contains(group));
        }
        let is_member = |group: &Path| {
            let mut members = self.members.values();
            members.any(|member| member.target.group == group)
        };
        self.observed.retain(|group, watched| {
            watched.files.limit().is_there() && found.contains(group) && !is_member(group)
        });
        for group in found {
            if OBSERVED_MAX <= self.observed.len() {
                break;
            }
            if self.observed.contains_key(&group) || is_member(&group) {
                continue;
            }
            let Ok(files) = self.hierarchies.open(&group) else {
                continue;
            };
            let watched = Watched {
                files,
                estimator: Estimator::default(),
                throttled_permille: 0,
            };
            self.observed.insert(group, watched);
            self.looks_until_news = LOOKS_UNTIL_USE;
        }
        for watched in self.observed.values_mut() {
            watched.throttled_permille = watched.estimator.throttled_permille().unwrap_or(0);
            watched.estimator.cleared();
        }
    }

    /// Those that have used CPU.
    fn seen(&self) -> Vec<Observed> {
        let window = &self.options.settings.window;
        let seen = |(group, watched): (&PathBuf, &Watched)| {
            let usage_us = watched.files.sample(0)?.usage_us;
            let shown = watched.estimator.shown(window);
            (usage_us > 0).then(|| Observed {
                group: group.clone(),
                quota: watched.files.limit().quota().ok(),
                used_milli: watched.estimator.used_milli(window),
                peak_milli: match shown {
                    Shown::Nothing => None,
                    Shown::Demand { milli } | Shown::Use { milli } => Some(milli),
                },
                throttled_permille: watched.throttled_permille,
            })
        };
        self.observed.iter().filter_map(seen).collect()
    }
}

fn is_about_rights(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

pub(super) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    millis(since.unwrap_or_default())
}
