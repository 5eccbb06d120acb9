//! The fold: each event changes the state, and cannot fail. An impossible event changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use bursar_units::Instant;

use super::{Closed, Clusters, Ended, Ending, Held, Live, REMEMBERED, REMEMBERED_MAX};
use crate::shown::End;
use crate::{Event, Pod, Run, Who};

impl Clusters {
    /// Folds an event of that time.
    pub fn apply(&mut self, at: Instant, event: &Event) {
        self.is_begun = true;
        self.accounts.reach(at);
        match event {
            Event::PolicySet(policy) => {
                self.policy = policy.clone();
                self.policy_set = true;
                self.accounts.set_horizon(policy.admission_horizon);
                self.place_walltimes(at);
            }
            Event::BudgetSet(budget) => self.accounts.set_budget(at, budget),
            Event::BudgetDropped { budget } => self.accounts.drop_budget(at, budget),
            Event::EpochClosed { epoch, .. } => self.accounts.close_epoch(at, epoch),
            Event::MeterNear { near, .. } => self.accounts.note_near(at, near),
            Event::RunSubmitted { uid, run } => self.submit(at, uid, run),
            Event::RunEdited { of, edit } => self.edit(at, of, *edit),
            Event::RunFunded { .. } | Event::RunDemoted { .. } => self.pay(at, event),
            Event::LeasesOpened { .. } => self.open(at, event),
            Event::LeasesClosed { .. } => self.close(at, event),
            Event::RunEnding {
                of,
                reason,
                deadline,
                code,
                detail,
                ..
            } => {
                let ending = Ending {
                    reason: *reason,
                    since: at,
                    deadline: *deadline,
                    code: *code,
                    detail: detail.clone(),
                };
                self.alter(of, |held| {
                    held.ending = Some(ending);
                    held.start_by = None;
                });
            }
            Event::RunRunning { of } => self.alter(of, |held| {
                held.running = Some(at);
                held.start_by = None;
            }),
            Event::RunEnded {
                of,
                outcome,
                reason,
                code,
                detail,
                ..
            } => {
                let end = End {
                    at,
                    outcome: *outcome,
                    reason: *reason,
                    code: *code,
                    detail: detail.clone(),
                };
                self.end(of, end);
            }
            Event::PassUnfinished { .. } => self.owed = Some(at),
            Event::PassFinished {} => self.owed = None,
        }
        self.evict(at);
    }

    /// Takes a node that was declared or changed; `None` if it left.
    pub fn take_node(
        &mut self,
        name: &bursar_units::ObjectName,
        node: Option<&bursar_plane::Node>,
    ) {
        self.nodes.set(name, node);
    }

    /// Notes that the record being decided changes nodes, so that runs may start.
    pub fn stir(&mut self) {
        self.open.is_stirred = true;
    }

    /// Our own absence expires nobody (L5): starts and graces have their full length again.
    pub fn resume(&mut self, at: Instant) {
        let timeout = self.policy.start_timeout;
        for live in self.live.values_mut() {
            let Some(held) = &mut live.held else { continue };
            if let Some(start_by) = &mut held.start_by {
                *start_by = at.after(timeout).max(*start_by);
            }
            if let Some(ending) = &mut held.ending
                && ending.reason != crate::Reason::Walltime
            {
                let length = ending.deadline.since(ending.since);
                ending.deadline = at.after(length).max(ending.deadline);
            }
        }
        self.starts = self
            .live
            .iter()
            .filter_map(|(number, live)| Some((live.held.as_ref()?.start_by?, *number)))
            .collect();
        if let Some(owed) = &mut self.owed {
            *owed = at;
        }
    }

    fn submit(&mut self, at: Instant, uid: &bursar_budget::RunUid, run: &Run) {
        if self.numbers.contains_key(uid) || self.ended.contains_key(uid) {
            return;
        }
        let number = self.next;
        self.next += 1;
        let live = Live {
            uid: uid.clone(),
            run: run.clone(),
            submitted: at,
            incarnation: 0,
            held: None,
            unplaced: None,
        };
        self.insert(number, live);
    }

    /// Adds a live run, also of a snapshot.
    pub(crate) fn insert(&mut self, number: u64, live: Live) {
        self.numbers.insert(live.uid.clone(), number);
        Arc::make_mut(&mut self.names).insert(live.run.id(), live.uid.clone());
        if let Some(held) = &live.held {
            for pod in held.pods.values() {
                self.nodes.lease(&pod.node, pod.ordinals(), &live.uid);
            }
            let start = held.start_by.map(|start_by| (start_by, number));
            self.starts.extend(start);
        } else {
            self.queue
                .insert(&live.run.owner, live.run.priority, number);
        }
        let walltime = live.walltime(self.policy.grace_max);
        self.walltimes.extend(walltime.map(|at| (at, number)));
        self.live.insert(number, live);
    }

    fn edit(&mut self, at: Instant, of: &Who, edit: crate::Edit) {
        let grace_max = self.policy.grace_max;
        let Some((number, live)) = self.find_mut(of) else {
            return;
        };
        let (owner, before) = (live.run.owner.clone(), live.run.priority);
        let was = live.walltime(grace_max);
        live.run.priority = edit.priority;
        if let Some(held) = &mut live.held {
            held.edited = at;
        }
        live.run.max_duration = edit.max_duration;
        let (is_waiting, now) = (live.held.is_none(), live.walltime(grace_max));
        let hard_end = live.held.as_ref().map(|held| live.hard_end(held.opened));
        if is_waiting {
            self.queue.remove(&owner, before, number);
            self.queue.insert(&owner, edit.priority, number);
        }
        self.move_walltime(number, was, now);
        if let Some(hard_end) = hard_end {
            self.accounts.set_hard_end(at, &of.uid, hard_end);
        }
    }

    fn pay(&mut self, at: Instant, event: &Event) {
        match event {
            Event::RunFunded {
                of,
                claims,
                cause,
                unfunded,
                ..
            } => {
                let Some((_, live)) = self.find(of) else {
                    return;
                };
                let opened = live.held.as_ref().map_or(at, |held| held.opened);
                let (work, terms) = (live.work(), live.terms(opened));
                self.accounts
                    .fund(at, &work, &terms, *cause, *unfunded, claims);
            }
            Event::RunDemoted {
                of, claims, cause, ..
            } => {
                let Some((_, live)) = self.find(of) else {
                    return;
                };
                let work = live.work();
                self.accounts.demote(at, &work, *cause, claims);
            }
            _ => {}
        }
    }

    fn open(&mut self, at: Instant, event: &Event) {
        let Event::LeasesOpened {
            of,
            record,
            first,
            pods,
            ..
        } = event
        else {
            return;
        };
        let (timeout, grace_max) = (self.policy.start_timeout, self.policy.grace_max);
        let Some((number, live)) = self.find_mut(of).filter(|(_, live)| live.held.is_none()) else {
            return;
        };
        let (owner, priority) = (live.run.owner.clone(), live.run.priority);
        let start_by = at.after(timeout);
        live.held = Some(Held {
            opened: at,
            record: *record,
            first: *first,
            pods: pods.iter().map(|pod| (pod.pod, pod.clone())).collect(),
            closed: BTreeMap::new(),
            start_by: Some(start_by),
            running: None,
            ending: None,
            edited: at,
        });
        let walltime = live.walltime(grace_max);
        self.owed = None;
        self.queue.remove(&owner, priority, number);
        self.starts.insert((start_by, number));
        self.move_walltime(number, None, walltime);
        for pod in pods {
            self.nodes.lease(&pod.node, pod.ordinals(), &of.uid);
        }
    }

    fn close(&mut self, at: Instant, event: &Event) {
        let Event::LeasesClosed {
            of,
            incarnation,
            pods,
            gpus,
            reason,
            ..
        } = event
        else {
            return;
        };
        let Some((_, live)) = self.find_mut(of) else {
            return;
        };
        let work = live.work();
        let Some(held) = live
            .held
            .as_mut()
            .filter(|_| work.incarnation == *incarnation)
        else {
            return;
        };
        let gone: Vec<Pod> = if pods.is_empty() {
            std::mem::take(&mut held.pods).into_values().collect()
        } else {
            pods.iter()
                .filter_map(|pod| held.pods.remove(pod))
                .collect()
        };
        for pod in &gone {
            let closed = Closed {
                pod: pod.clone(),
                at,
                reason: *reason,
            };
            held.closed.insert(pod.pod, closed);
        }
        for pod in &gone {
            self.nodes.free(&pod.node, pod.ordinals());
        }
        self.accounts.close(at, &work, *gpus);
    }

    /// Changes the GPUs of a run, and the deadlines that follow from them.
    fn alter(&mut self, of: &Who, change: impl FnOnce(&mut Held)) {
        let grace_max = self.policy.grace_max;
        let Some((number, live)) = self.find_mut(of) else {
            return;
        };
        let was = live.walltime(grace_max);
        let Some(held) = &mut live.held else { return };
        let start = held.start_by;
        change(held);
        let start_after = held.start_by;
        let now = live.walltime(grace_max);
        if let Some(start_by) = start {
            self.starts.remove(&(start_by, number));
        }
        self.starts
            .extend(start_after.map(|start_by| (start_by, number)));
        self.move_walltime(number, was, now);
    }

    fn end(&mut self, of: &Who, end: End) {
        let Some((number, _)) = self.find(of) else {
            return;
        };
        let Some(live) = self.live.remove(&number) else {
            return;
        };
        self.numbers.remove(&live.uid);
        let walltime = live.walltime(self.policy.grace_max);
        self.move_walltime(number, walltime, None);
        let Live {
            uid,
            run,
            submitted,
            incarnation,
            held,
            ..
        } = live;
        if let Some(start_by) = held.as_ref().and_then(|held| held.start_by) {
            self.starts.remove(&(start_by, number));
        }
        if held.is_none() {
            self.queue.remove(&run.owner, run.priority, number);
        }
        let ended = Ended {
            run,
            submitted,
            incarnation,
            opened: held.as_ref().map(|held| held.opened),
            record: held.as_ref().map_or(0, |held| held.record),
            first: held.as_ref().map_or(0, |held| held.first),
            running: held.as_ref().and_then(|held| held.running),
            pods: held
                .map(|held| held.closed.into_values().collect())
                .unwrap_or_default(),
            end,
        };
        self.remember(uid, ended);
    }

    /// Adds an ended run, also of a snapshot.
    pub(crate) fn remember(&mut self, uid: bursar_budget::RunUid, ended: Ended) {
        let is_newest = |known: &bursar_budget::RunUid| !self.numbers.contains_key(known);
        let name = ended.run.id();
        if self.names.get(&name).is_none_or(is_newest) {
            Arc::make_mut(&mut self.names).insert(name, uid.clone());
        }
        Arc::make_mut(&mut self.ends).push_back(uid.clone());
        Arc::make_mut(&mut self.ended).insert(uid, Arc::new(ended));
    }

    /// Forgets runs that ended long ago, and the oldest above the maximum (L6).
    fn evict(&mut self, now: Instant) {
        while let Some(uid) = self.ends.front() {
            let is_old = self
                .ended
                .get(uid)
                .is_none_or(|ended| ended.end.at.after(REMEMBERED) <= now);
            if !is_old && self.ends.len() <= REMEMBERED_MAX {
                return;
            }
            let Some(uid) = Arc::make_mut(&mut self.ends).pop_front() else {
                return;
            };
            if let Some(ended) = Arc::make_mut(&mut self.ended).remove(&uid) {
                let name = ended.run.id();
                if self.names.get(&name) == Some(&uid) {
                    Arc::make_mut(&mut self.names).remove(&name);
                }
            }
            self.accounts.forget(&uid);
        }
    }

    fn find(&self, of: &Who) -> Option<(u64, &Live)> {
        let number = *self.numbers.get(&of.uid)?;
        Some((number, self.live.get(&number)?))
    }

    fn find_mut(&mut self, of: &Who) -> Option<(u64, &mut Live)> {
        let number = *self.numbers.get(&of.uid)?;
        Some((number, self.live.get_mut(&number)?))
    }

    fn move_walltime(&mut self, number: u64, was: Option<Instant>, now: Option<Instant>) {
        if let Some(was) = was {
            self.walltimes.remove(&(was, number));
        }
        self.walltimes.extend(now.map(|at| (at, number)));
    }

    /// Computes all walltimes anew; a new policy stops nothing earlier.
    fn place_walltimes(&mut self, at: Instant) {
        let grace_max = self.policy.grace_max;
        let held = self.live.values_mut().filter_map(|live| live.held.as_mut());
        held.for_each(|held| held.edited = at);
        let walltimes = self.live.iter();
        let walltimes =
            walltimes.filter_map(|(number, live)| Some((live.walltime(grace_max)?, *number)));
        self.walltimes = walltimes.collect();
    }
}
