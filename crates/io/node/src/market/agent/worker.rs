//! The work of an agent's thread: samples counters, clears the node, publishes views.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bursar_market::bidder::Bidder;
use bursar_market::capacity::allocatable_milli;
use bursar_market::cgroup::{Pressure, Quota};
use bursar_market::ladder::Memory;
use bursar_market::node::{Node, Standing, Supply};
use bursar_market::sense::{Reading, Sample, reading};
use bursar_units::causes::chain;
use tokio::sync::broadcast;

use crate::log;
use crate::market::files::{Files, is_shortage};
use crate::market::hierarchy::Hierarchies;
use crate::market::originals::Originals;
use crate::market::record::{Event, Input, Record};
use crate::market::target::Finder;
use crate::market::view::{HISTORY_MAX, HISTORY_MS};
use crate::market::{
    Acts, Deed, Error, Mode, Observed, Options, Point, PointPod, Resize, Restored, Rules,
    Unmanaged, View, Why, check_declared, lock, machine,
};

use super::RESIZES_MAX;
use super::members::Member;

/// Limit of observed cgroups: each keeps files open.
const OBSERVED_MAX: usize = 256;

/// Events that wait while the record cannot be written; together they fit into a readable line. The
/// oldest are dropped.
const EVENTS_MAX: usize = 50_000;

/// Time between two rounds that look for cgroups and read all limits, unless clearings are rarer.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of clearings between two such rounds.
const CLEARINGS_PER_LOOK_MAX: u64 = 5;

pub(super) struct Worker {
    pub(super) options: Options,
    pub(super) hierarchies: Hierarchies,
    /// K, as of the last time that it could be read.
    allocatable_milli: u64,
    pub(super) node: Node,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) finder: Finder,
    pub(super) unmanaged: Vec<(String, Why)>,
    observed: BTreeMap<PathBuf, Watched>,
    machine: Option<Files>,
    pub(super) originals: Originals,
    record: Record,
    rules: Arc<Rules>,
    pub(super) resizes: broadcast::Sender<Arc<Resize>>,
    pub(super) events: Vec<Event>,
    pub(super) acts: Acts,
    history: VecDeque<Arc<Point>>,
    began: Instant,
    /// Clearings until the next look around.
    clearings_until_look: u64,
    pressures: BTreeMap<String, Pressure>,
    /// The state of the pods before the last clearing, for its record.
    inputs: BTreeMap<String, Input>,
    sensed_us: Option<u64>,
    over_us: u64,
    clearings: u64,
    /// Time of the last clearing, in milliseconds since 1970.
    cleared_ms: Option<u64>,
    pub(super) writes: u64,
    skipped: u64,
    /// Errors of this round, and of the last.
    errors: (Option<String>, Option<String>),
    /// Whether this round has reported that too many files are open.
    is_short: bool,
    _lock: File,
}

struct Watched {
    files: Files,
    quota: Option<Quota>,
    last: Option<Sample>,
    reading: Option<Reading>,
    memory: Memory,
}

impl Worker {
    /// Opens all files, restores unwanted originals, and takes the first sample.
    pub(super) fn open(options: Options) -> Result<Self, Error> {
        check_declared(&options.cgroups)?;
        let lock = lock(&options.directory)?;
        let hierarchies = Hierarchies::find(&options.process).ok_or(Error::NoHierarchy)?;
        let online_milli = machine::online_milli(&options.process).ok_or(Error::NoProcessors)?;
        let mut settings = options.settings;
        if options.mode == Mode::Observe {
            // An observing agent has no conflicts with other writers.
            settings.conflict_us = 0;
        }
        let mut worker = Self {
            allocatable_milli: allocatable_milli(online_milli, options.reserve_milli),
            node: Node::new(settings),
            members: BTreeMap::new(),
            finder: Finder::default(),
            unmanaged: Vec::new(),
            observed: BTreeMap::new(),
            machine: None,
            originals: Originals::open_in(&options.directory, &hierarchies)?,
            record: Record::open(&options.directory)?,
            rules: Arc::new(Rules::of(&options)),
            resizes: broadcast::Sender::new(RESIZES_MAX),
            events: Vec::new(),
            acts: Acts::Told,
            history: VecDeque::new(),
            began: Instant::now(),
            clearings_until_look: 0,
            pressures: BTreeMap::new(),
            inputs: BTreeMap::new(),
            sensed_us: None,
            over_us: 0,
            clearings: 0,
            cleared_ms: None,
            writes: 0,
            skipped: 0,
            errors: (None, None),
            is_short: false,
            _lock: lock,
            hierarchies,
            options,
        };
        worker.node.processors(online_milli);
        worker.begin_round();
        worker.gather();
        worker.watch();
        worker.sense();
        Ok(worker)
    }

    /// Samples all counters.
    pub(super) fn sense(&mut self) {
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
        for watched in self.observed.values_mut() {
            watched.take(watched.files.sample(micros(self.began)));
        }
        if let Some(sensed_us) = self.sensed_us.replace(now_us)
            && self.acts == Acts::Yes
            && self.node.over_milli() > 0
        {
            self.over_us += now_us.saturating_sub(sensed_us);
        }
    }

    pub(super) fn clear(&mut self) {
        self.clearings_until_look = match self.clearings_until_look.checked_sub(1) {
            Some(left) => left,
            None => self.look(),
        };
        self.node.acts(self.acts == Acts::Yes);
        let now_us = micros(self.began);
        let before = self.node.standings();
        let before: BTreeMap<_, _> = before.map(|one| (one.id, one.bidder)).collect();
        self.node.clear(now_us, self.supply());
        self.inputs = inputs(before, self.node.standings());
        let cleared_ms = *self.cleared_ms.insert(wall_ms());
        self.clearings += 1;
        if self.acts == Acts::Yes {
            let (began, decreases) = (self.began, self.node.decreases());
            self.act(&decreases, began);
            let increases = self.node.increases();
            self.act(&increases, began);
        }
        self.keep_record(cleared_ms);
        self.push_history(cleared_ms);
    }

    fn supply(&self) -> Supply {
        Supply {
            allocatable_milli: self.allocatable_milli,
            unmanaged_milli: match self.options.unmanaged {
                Unmanaged::Measured => None,
                Unmanaged::Given(milli) => Some(milli),
            },
        }
    }

    /// Looks for cgroups, reads all limits, and counts the processors; returns the number of clearings
    /// until the next time.
    fn look(&mut self) -> u64 {
        self.begin_round();
        self.gather();
        self.watch();
        self.compare_quotas();
        let pressure = |(id, member): (&String, &Member)| {
            let pressure = member.files.pressure()?;
            Some((id.clone(), pressure))
        };
        self.pressures = self.members.iter().filter_map(pressure).collect();
        // Processors and our cpuset may change.
        if let Some(online_milli) = machine::online_milli(&self.options.process) {
            self.node.processors(online_milli);
            self.allocatable_milli = allocatable_milli(online_milli, self.options.reserve_milli);
        }
        let interval_ms = millis(self.options.interval).max(1);
        let count = millis(LOOK_EVERY) / interval_ms;
        count.clamp(1, CLEARINGS_PER_LOOK_MAX) - 1
    }

    pub(super) fn skipped(&mut self, count: u64) {
        self.skipped = self.skipped.saturating_add(count);
    }

    pub(super) fn restore(&mut self, deed: Deed) -> Result<Restored, Error> {
        // An observing agent restores only what an earlier agent left, and goes on.
        if deed == Deed::Real && self.options.mode == Mode::Act {
            let reason =
                "`bursar node restore` put the limits back; restart the agent to act again";
            self.options.mode = Mode::Observe;
            self.rules = Arc::new(Rules::of(&self.options));
            self.acts = Acts::Cannot(reason.to_owned());
            // Adopted again later, so that the restored limits do not count as foreign changes.
            self.leave();
        }
        self.give_back(|_| true, deed)
    }

    pub(super) fn stop(&mut self) -> Result<Restored, Error> {
        self.options.mode = Mode::Observe;
        self.leave();
        let result = self.give_back(|_| true, Deed::Real);
        // The last line is that of a node without pods.
        self.inputs.clear();
        let now_us = micros(self.began);
        self.node.clear(now_us, self.supply());
        self.keep_record(wall_ms());
        result
    }

    pub(super) fn view(&self) -> View {
        let kind = |(id, member): (&String, &Member)| (id.clone(), member.target.kind);
        View {
            node: self.options.node.clone(),
            at_ms: wall_ms(),
            cleared_ms: self.cleared_ms,
            now_us: micros(self.began),
            settings: self.options.settings,
            acts: self.acts.clone(),
            clearing: self.node.last(),
            standings: self.node.standings().collect(),
            kinds: self.members.iter().map(kind).collect(),
            pressures: self.pressures.clone(),
            observed: self.observed(),
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
            interval_ms: millis(self.options.interval),
            misses: self.node.misses(),
            history: self.history.iter().cloned().collect(),
            rules: Arc::clone(&self.rules),
            originals: self.originals.milli(),
            position: self.record.position(),
        }
    }

    /// Begins a round and drops the errors before the last one.
    fn begin_round(&mut self) {
        self.errors = (None, self.errors.0.take());
        self.is_short = false;
        self.reach_machine();
    }

    /// Opens the counters of the whole machine if unmanaged use is measured and they are not
    /// readable yet.
    fn reach_machine(&mut self) {
        let is_read = |machine: &Files| machine.sample(0).is_some();
        if self.options.unmanaged != Unmanaged::Measured
            || self.machine.as_ref().is_some_and(is_read)
        {
            return;
        }
        match self.hierarchies.machine() {
            Ok(machine) => self.machine = Some(machine),
            Err(error) if is_shortage(&error) => self.report_shortage("the whole machine", error),
            Err(source) => self.report_failure(&Error::Machine {
                path: self.hierarchies.mount().to_owned(),
                source,
            }),
        }
    }

    /// Reports that too many files are open, once in a round.
    pub(super) fn report_shortage(&mut self, name: &str, source: io::Error) {
        if !std::mem::replace(&mut self.is_short, true) {
            self.report_failure(&Error::Shortage {
                name: name.to_owned(),
                source,
            });
        }
    }

    /// Reports an error that concerns no single pod.
    pub(super) fn report_failure(&mut self, error: &Error) {
        let text = chain(error);
        tracing::warn!(error = text, "{}", log::MARKET_FAILED);
        match &mut self.errors.0 {
            Some(all) if all.contains(&text) => {}
            Some(all) => {
                all.push_str("; ");
                all.push_str(&text);
            }
            none => *none = Some(text),
        }
    }

    /// Gives the node the present quotas before anything is written.
    fn compare_quotas(&mut self) {
        let members = self.members.iter();
        let quotas: Vec<_> = members
            .map(|(id, member)| (id.clone(), member.files.limit().quota()))
            .collect();
        let mut is_any_foreign = false;
        for (id, quota) in quotas {
            match quota {
                Ok(quota) => is_any_foreign |= self.is_foreign(&id, quota),
                Err(error) if is_shortage(&error) => self.report_shortage(&id, error),
                Err(_) => self.node.observe(&id, None),
            }
        }
        if is_any_foreign && let Err(error) = self.originals.store() {
            self.report_failure(&error);
        }
    }

    /// Gives the node one present quota; returns whether somebody else wrote it. Such a quota is
    /// the new original, which the caller stores.
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

    fn keep_record(&mut self, at_ms: u64) {
        let Some(clearing) = self.node.last() else {
            return;
        };
        let events = self.events.clone();
        let added = self
            .record
            .add(at_ms, &self.rules, (&clearing, &self.inputs), events);
        match added {
            Ok(()) => self.events.clear(),
            // The next line will hold these events.
            Err(error) => {
                let too_many = self.events.len().saturating_sub(EVENTS_MAX);
                self.events.drain(..too_many);
                self.report_failure(&error);
            }
        }
    }

    fn push_history(&mut self, at_ms: u64) {
        let Some(clearing) = self.node.last() else {
            return;
        };
        let pod = |standing: Standing| {
            let share = clearing.cleared.share(standing.id.as_str());
            let member = self.members.get(&standing.id)?;
            let limit_milli = standing.bidder.limit_milli;
            Some(PointPod {
                pod: Arc::clone(&member.name),
                need_milli: share.map_or(limit_milli, |share| share.need_milli),
                limit_milli,
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

    /// Observes every cgroup at most two levels deep, unless the agent acts.
    pub(super) fn watch(&mut self) {
        if self.acts == Acts::Yes {
            self.observed.clear();
            return;
        }
        let mut found = match self.hierarchies.shallow() {
            Ok(found) => found,
            Err(error) => return self.report_shortage("the cgroups of this machine", error),
        };
        // The parent of our executions uses no CPU itself; they are listed one by one.
        if let Some(executions) = &self.options.executions {
            for ours in self.hierarchies.of_executions(&executions.ledger) {
                found.remove(&ours);
            }
        }
        for member in self.members.values() {
            found.remove(&member.target.group);
        }
        self.observed
            .retain(|group, watched| watched.files.limit().is_there() && found.contains(group));
        for group in found {
            if OBSERVED_MAX <= self.observed.len() {
                break;
            }
            if self.observed.contains_key(&group) {
                continue;
            }
            let files = match self.hierarchies.open(&group) {
                Ok(files) => files,
                Err(error) if is_shortage(&error) => {
                    self.report_shortage(&group.to_string_lossy(), error);
                    break;
                }
                Err(_) => continue,
            };
            let mut watched = Watched {
                files,
                quota: None,
                last: None,
                reading: None,
                memory: Memory::filled(self.options.settings.windows, 0),
            };
            watched.take(watched.files.sample(micros(self.began)));
            self.observed.insert(group, watched);
        }
        for watched in self.observed.values_mut() {
            watched.quota = watched.files.limit().quota().ok();
        }
    }

    /// The observed cgroups that have used CPU.
    fn observed(&self) -> Vec<Observed> {
        let seen = |(group, watched): (&PathBuf, &Watched)| {
            let usage_us = watched.last?.usage_us;
            let throttled = watched.reading.and_then(|reading| reading.throttled);
            (usage_us > 0).then(|| Observed {
                group: group.clone(),
                quota: watched.quota,
                used_milli: watched.reading.map(|reading| reading.used_milli),
                peak_milli: watched.reading.map(|_| watched.memory.peak_max()),
                throttled_permille: throttled.map_or(0, |throttled| throttled.permille()),
            })
        };
        self.observed.iter().filter_map(seen).collect()
    }
}

impl Watched {
    fn take(&mut self, sample: Option<Sample>) {
        let last = std::mem::replace(&mut self.last, sample);
        self.reading = last
            .zip(sample)
            .and_then(|(before, after)| reading(&before, &after));
        if let Some(reading) = self.reading {
            self.memory.take(reading.used_milli);
        }
    }
}

/// The inputs of the pods that took part in a clearing, from their states before it and after it.
fn inputs(
    mut before: BTreeMap<String, Bidder>,
    after: impl Iterator<Item = Standing>,
) -> BTreeMap<String, Input> {
    let input = |standing: Standing| {
        let input = Input {
            before: before.remove(&standing.id)?,
            headroom_permille: standing.bidder.headroom_permille,
            reading: standing.estimate?.reading,
        };
        Some((standing.id, input))
    };
    after.filter_map(input).collect()
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
