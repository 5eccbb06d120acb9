//! The fold: events change the state.

use bursar_units::{BookingId, Instant, Millis};

use super::{Bookings, Granted, Queued, wait_deadline};
use crate::archive::{Ended, Ending, Terms};
use crate::execution::{
    self, ADOPTION, Adoption, Course, Order, Progress, STOPS_UNTIL_STUCK, Stage, Verdict,
};
use crate::names::NameIndex;
use crate::request::{End, Fence, Outcome, Request, Submission};
use crate::room::{Lane, Waiting, turn_step_floor};
use crate::{ESTIMATE_RESTS_ON_MAX, Event, REMEMBERED, REMEMBERED_MAX};

/// End of a booking, and of its execution if it has one.
struct EndDetails {
    end: End,
    outcome: Option<Outcome>,
    exit_code: Option<i32>,
    reason: Option<String>,
    verdict: Verdict,
    signal: Option<i32>,
    is_out_of_memory: bool,
}

impl Bookings {
    /// Applies an event. Cannot fail: an event that does not fit the state changes nothing.
    pub fn apply(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Reserved(request) => self.reserve(at, request, None),
            Event::Submitted(Submission { booking, order }) => {
                self.reserve(at, booking, Some(order));
            }
            Event::Granted { id, fence, .. } => self.grant_queued(at, id, *fence),
            Event::Renewed { id, expires, .. } => self.renew(id, *expires),
            Event::Ended {
                id,
                end,
                outcome,
                exit_code,
                reason,
                ..
            } => self.end(
                at,
                id,
                EndDetails {
                    end: *end,
                    outcome: *outcome,
                    exit_code: *exit_code,
                    reason: reason.clone(),
                    verdict: match end {
                        End::Cancelled => Verdict::Cancelled,
                        // A queued execution never ran.
                        End::Forced if self.queued.contains_key(id) => Verdict::Cancelled,
                        End::WaitOver => Verdict::WaitOver,
                        // The result of the process is not known.
                        End::Released | End::Expired | End::Forced => Verdict::Lost,
                    },
                    signal: None,
                    is_out_of_memory: false,
                },
            ),
            Event::Started { id, isolation, .. } => {
                self.progress(id, |order, progress| {
                    progress.started = Some((at, *isolation));
                    if progress.stage != Stage::Starting {
                        return None;
                    }
                    progress.stage = Stage::Running;
                    execution::until(order, Stage::Running, at)
                });
            }
            Event::Adopted(adoption) => self.adopt(at, adoption),
            Event::Stopping { id, cause, .. } => {
                self.progress(id, |_, progress| {
                    progress.stopping = Some((at, *cause));
                    progress.stage = Stage::Stopping(0);
                    None
                });
            }
            Event::StopFailed { id, attempt, .. } => {
                self.progress(id, |_, progress| {
                    progress.stage = match *attempt {
                        STOPS_UNTIL_STUCK.. => Stage::Stuck,
                        failed => Stage::Stopping(failed),
                    };
                    None
                });
            }
            Event::Exited {
                id,
                verdict,
                exit_code,
                signal,
                is_out_of_memory,
                reason,
                ..
            } => self.end(
                at,
                id,
                EndDetails {
                    end: End::Released,
                    outcome: verdict.outcome(),
                    exit_code: *exit_code,
                    reason: reason.clone(),
                    verdict: *verdict,
                    signal: *signal,
                    is_out_of_memory: *is_out_of_memory,
                },
            ),
            Event::Noted { id, text, .. } => self.set_note(id, text),
            Event::LimitSet(limit) => {
                self.limits.set(limit);
                self.refresh_applied();
            }
            Event::LimitDropped { name } => {
                self.limits.drop(name);
                self.refresh_applied();
            }
            Event::Unsettled { more, .. } => self.unsettled = more.then_some(at),
        }
    }

    fn reserve(&mut self, at: Instant, request: &Request, order: Option<&Order>) {
        let id = &request.id;
        if self.standing(id).is_some() {
            return;
        }
        let terms = self.take_terms(request, order);
        let lane = terms.lane();
        // Creates the pair first, so that its limits are looked up once.
        self.pair_mut(&terms);
        self.sequence += 1;
        self.enter(terms.tenant);
        let waiting = Waiting {
            sequence: self.sequence,
            id: id.clone(),
            amount: terms.amount,
            since: at,
            passes: 0,
            due: None,
        };
        if let Some(fence) = request.fence {
            self.admit(at, lane, &waiting);
            self.hold(at, id, terms, fence, at);
        } else {
            self.count_waiting(&terms, 1);
            self.room.join(lane, waiting);
            let until = at.after(request.wait);
            self.deadlines.insert(wait_deadline(id, until));
            let queued = Queued {
                terms,
                sequence: self.sequence,
                since: at,
                until,
            };
            self.queued.insert(id.clone(), queued);
        }
    }

    fn grant_queued(&mut self, at: Instant, id: &BookingId, fence: Fence) {
        let Some((id, queued)) = self.queued.remove_entry(id) else {
            return;
        };
        let lane = queued.terms.lane();
        self.deadlines.remove(&wait_deadline(&id, queued.until));
        if let Some(waiting) = self.room.leave(lane, queued.sequence) {
            self.admit(at, lane, &waiting);
        }
        self.count_waiting(&queued.terms, -1);
        self.hold(at, &id, queued.terms, fence, queued.since);
    }

    /// Charges a running execution above limits and ahead of the queue. It takes no turn and passes
    /// nobody: it was granted in records that were lost. One that was starting is charged already.
    fn adopt(&mut self, at: Instant, adoption: &Adoption) {
        let request = &adoption.booking;
        let Some(fence) = request.fence else {
            return;
        };
        let id = &request.id;
        if let Some(queued) = self.queued.remove(id) {
            self.deadlines.remove(&wait_deadline(id, queued.until));
            self.room.leave(queued.terms.lane(), queued.sequence);
            self.count_waiting(&queued.terms, -1);
            self.hold(at, id, queued.terms, fence, queued.since);
        } else if self.standing(id).is_none() {
            let terms = self.take_terms(request, adoption.order.as_ref());
            self.hold(at, id, terms, fence, at);
        } else if self.wanted(id) != Some(execution::Wanted::Start) {
            return;
        }
        self.progress(id, |order, progress| {
            progress.stage = Stage::Running;
            progress.started = Some((at, adoption.isolation));
            progress.is_adopted = true;
            execution::until(order, Stage::Running, at)
        });
    }

    fn hold(&mut self, at: Instant, id: &BookingId, terms: Terms, fence: Fence, since: Instant) {
        self.charge(&terms);
        self.fence = self.fence.max(fence);
        let progress = terms.order().map(|_| Box::new(Progress::BEGINNING));
        let granted = Granted {
            until: Some(at.after(terms.first_length())),
            terms,
            fence,
            queued_at: since,
            granted_at: at,
            renewals: 0,
            progress,
        };
        self.deadlines.extend(granted.deadline(id));
        self.granted.insert(id.clone(), granted);
    }

    /// Changes the progress of an execution and its deadline.
    fn progress(
        &mut self,
        id: &BookingId,
        change: impl FnOnce(&Order, &mut Progress) -> Option<Instant>,
    ) {
        let Some(granted) = self.granted.get_mut(id) else {
            return;
        };
        let before = granted.deadline(id);
        let Granted {
            terms,
            until,
            progress,
            ..
        } = granted;
        if let Some((order, progress)) = terms.order().zip(progress.as_deref_mut()) {
            *until = change(order, progress);
        }
        if let Some(before) = before {
            self.deadlines.remove(&before);
        }
        self.deadlines.extend(granted.deadline(id));
    }

    fn set_note(&mut self, id: &BookingId, text: &str) {
        let terms = match (self.granted.get_mut(id), self.queued.get_mut(id)) {
            (Some(granted), _) => &mut granted.terms,
            (None, Some(queued)) => &mut queued.terms,
            (None, None) => return self.archive.set_note(id, text),
        };
        terms.set_note(Some(text.to_owned()));
    }

    fn renew(&mut self, id: &BookingId, expires: Instant) {
        let Some(granted) = self.granted.get_mut(id) else {
            return;
        };
        if let Some(before) = granted.deadline(id) {
            self.deadlines.remove(&before);
        }
        granted.until = granted.until.max(Some(expires));
        granted.renewals += 1;
        self.deadlines.extend(granted.deadline(id));
    }

    fn end(&mut self, at: Instant, id: &BookingId, details: EndDetails) {
        let mut progress = None;
        let (id, terms, queued_at, granted) =
            if let Some((id, granted)) = self.granted.remove_entry(id) {
                if let Some(deadline) = granted.deadline(&id) {
                    self.deadlines.remove(&deadline);
                }
                self.discharge(&granted.terms);
                self.note_held(granted.terms.class, at.since(granted.granted_at));
                progress = granted.progress;
                let held = Some((granted.granted_at, granted.fence));
                (id, granted.terms, granted.queued_at, held)
            } else if let Some((id, queued)) = self.queued.remove_entry(id) {
                self.deadlines.remove(&wait_deadline(&id, queued.until));
                self.count_waiting(&queued.terms, -1);
                self.drop_idle_pair(&queued.terms);
                self.room.leave(queued.terms.lane(), queued.sequence);
                (id, queued.terms, queued.since, None)
            } else {
                return;
            };
        let progress = progress.as_deref();
        let course = terms.order().map(|_| {
            Box::new(Course {
                verdict: details.verdict,
                started: progress.and_then(|progress| progress.started),
                stopping: progress.and_then(|progress| progress.stopping),
                signal: details.signal,
                is_out_of_memory: details.is_out_of_memory,
                is_adopted: progress.is_some_and(|progress| progress.is_adopted),
            })
        });
        let ending = Ending {
            end: details.end,
            outcome: details.outcome,
            exit_code: details.exit_code,
            reason: details.reason,
            course,
            queued_at,
            granted,
            ended_at: at,
        };
        self.archive.push(Ended::new(id, terms, ending));
        self.forget(at, REMEMBERED_MAX);
    }

    /// Forgets ends older than a day, and the oldest above `count_max` (L6).
    fn forget(&mut self, at: Instant, count_max: usize) {
        while let Some(oldest) = self.archive.front() {
            let is_old = oldest.ended_at().after(REMEMBERED) <= at;
            if !is_old && self.archive.len() <= count_max {
                return;
            }
            if let Some(ended) = self.archive.pop() {
                self.forgotten_at = self.forgotten_at.max(Some(ended.ended_at()));
                self.classes.give(ended.class);
                self.tenants.give(ended.tenant);
            }
        }
    }

    /// Ends an absence of the server: no deadline may fall into it (L5).
    pub fn resume(&mut self, at: Instant) {
        let Self {
            granted,
            queued,
            deadlines,
            unsettled,
            ..
        } = self;
        // Grants that are owed happen in the new term.
        *unsettled = unsettled.map(|since| since.max(at));
        deadlines.clear();
        for (id, holder) in granted {
            let stage = holder.progress().map(|progress| progress.stage);
            let at_least = match stage {
                None | Some(Stage::Starting) => at.after(holder.terms.first_length()),
                // The process ran on. Results that came in during the absence go before a timeout.
                Some(_) => at.after(ADOPTION),
            };
            holder.until = holder.until.map(|until| until.max(at_least));
            deadlines.extend(holder.deadline(id));
        }
        for (id, waiting) in queued {
            waiting.until = waiting.until.max(at);
            deadlines.insert(wait_deadline(id, waiting.until));
        }
    }

    /// Moves the turn of a tenant without waiting bookings up to the virtual time (S3).
    fn enter(&mut self, tenant: NameIndex) {
        let virtual_time = self.virtual_time;
        if let Some(entry) = self.tenants.get_mut(tenant)
            && entry.counter.waiting == 0
        {
            entry.turn = entry.turn.max(virtual_time);
        }
    }

    /// Counts the turn and the passes of a grant. The booking has left the room before.
    fn admit(&mut self, at: Instant, lane: Lane, waiting: &Waiting) {
        if !self.room.is_empty() {
            for passed in self.passed_by(at, lane, waiting) {
                if self.room.pass(passed, self.dues) {
                    self.dues += 1;
                }
            }
        }
        let weight = self.applied_of(lane.class, lane.tenant).weight();
        if let Some(tenant) = self.tenants.get_mut(lane.tenant) {
            self.virtual_time = self.virtual_time.max(tenant.turn);
            tenant.turn = tenant
                .turn
                .saturating_add(turn_step_floor(&waiting.amount, weight));
        }
    }

    fn note_held(&mut self, class: NameIndex, held: Millis) {
        if let Some(class) = self.classes.get_mut(class) {
            class.held_ms.push_back(held.ms());
            if class.held_ms.len() > ESTIMATE_RESTS_ON_MAX {
                class.held_ms.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_units::{BookingId, Instant, Label};

    use crate::{Bookings, End, Event, Fence, Request};

    /// Method: the bound is a parameter, so 3,000 ends stand for a million.
    #[test]
    fn the_oldest_ends_above_the_bound_are_forgotten() {
        let mut bookings = Bookings::new();
        let id = |number: u64| BookingId::new(&number.to_string()).unwrap();
        let label = |text| Label::new(text).unwrap();
        for number in 1..=3_000 {
            let now = Instant::from_ms(number);
            let request = Request {
                fence: Some(Fence(number)),
                ..Request::new(id(number), label("python"), label("a"))
            };
            bookings.apply(now, &Event::Reserved(request));
            let ended = Event::Ended {
                id: id(number),
                end: End::Released,
                outcome: None,
                exit_code: None,
                reason: None,
                of: None,
                t: None,
            };
            bookings.apply(now, &ended);
        }
        assert_eq!(bookings.counts(), (0, 0, 3_000));
        bookings.forget(Instant::from_ms(3_000), 1_100);
        assert_eq!(bookings.counts(), (0, 0, 1_100));
        assert_eq!(bookings.forgotten_at, Some(Instant::from_ms(1_900)));
        let known = |number| bookings.standing(&id(number)).is_some();
        assert!(!known(1) && !known(1_900) && known(1_901) && known(2_048) && known(3_000));
        crate::invariants::check(&bookings).unwrap();
    }
}
