//! The state as a list of facts, and back: what a snapshot holds and a state hash covers.
//!
//! Two states are equal iff their facts are, in order. Interned numbers and counters are not
//! facts: they follow from the bookings.

use bursar_units::{Amount, BookingId, Instant, Label, ObjectName};

use crate::archive::{Ended, Ending, Terms};
use crate::book::{Bookings, Granted, Queued, wait_deadline};
use crate::execution::{Course, Progress};
use crate::limit::Limit;
use crate::request::{End, Fence, Outcome, Request};
use crate::room::Waiting;

/// One fact of the state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fact {
    /// The numbers that belong to no booking.
    Totals {
        /// The last fence given out.
        fence: Fence,
        /// No fence below this one is given out any more.
        fences_from: Fence,
        /// V of S3.
        virtual_time: u128,
        /// Requests seen.
        sequence: u64,
        /// Heads that became due.
        dues: u64,
        /// The end of the newest forgotten booking.
        forgotten_at: Option<Instant>,
        /// Whether grants are still due.
        unsettled: bool,
    },
    /// A declared limit.
    Limit {
        /// Its name.
        name: ObjectName,
        /// All of it.
        limit: Limit,
    },
    /// A machine.
    Node {
        /// Its name.
        name: ObjectName,
        /// What it has.
        capacity: Amount,
    },
    /// A booking that waits.
    Queued {
        /// The client's name for it.
        id: BookingId,
        /// What was asked.
        request: Request,
        /// Order of arrival.
        sequence: u64,
        /// Since when.
        since: Instant,
        /// Until when.
        until: Instant,
        /// How often it was passed.
        passes: u32,
        /// When it became due, counted in dues.
        due: Option<u64>,
    },
    /// A booking that holds.
    Granted {
        /// The client's name for it.
        id: BookingId,
        /// What was asked.
        request: Request,
        /// Its fence.
        fence: Fence,
        /// When it was asked for.
        queued_at: Instant,
        /// When it was granted.
        granted_at: Instant,
        /// Its deadline; an execution that is being stopped has none.
        until: Option<Instant>,
        /// Recorded renewals.
        renewals: u64,
        /// Where an execution stands.
        progress: Option<Progress>,
    },
    /// A remembered end.
    Ended {
        /// The client's name for it.
        id: BookingId,
        /// What was asked.
        request: Request,
        /// How it ended.
        end: End,
        /// What the holder said.
        outcome: Option<Outcome>,
        /// The exit code of the work.
        exit_code: Option<i32>,
        /// Why an operator took it back, or why it could not be started.
        reason: Option<String>,
        /// The way of an execution.
        course: Option<Box<Course>>,
        /// When it was asked for.
        queued_at: Instant,
        /// When it was granted, and its fence.
        granted: Option<(Instant, Fence)>,
        /// When it ended.
        ended_at: Instant,
    },
    /// What is known of a class beyond its bookings.
    Class {
        /// Its name.
        label: Label,
        /// How long its last bookings were held, oldest first.
        held_ms: Vec<u64>,
    },
    /// What is known of a tenant beyond its bookings.
    Tenant {
        /// Its name.
        label: Label,
        /// Its turn.
        turn: u128,
    },
}

impl Bookings {
    /// All facts, in the order in which [`Bookings::restore`] takes them.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        let totals = Fact::Totals {
            fence: self.fence,
            fences_from: self.fences_from,
            virtual_time: self.virtual_time,
            sequence: self.sequence,
            dues: self.dues,
            forgotten_at: self.forgotten_at,
            unsettled: self.is_unsettled(),
        };
        let limits = self.limits.iter().map(|declared| Fact::Limit {
            name: declared.name.clone(),
            limit: declared.limit.clone(),
        });
        let nodes = self.nodes.iter().map(|(name, capacity)| Fact::Node {
            name: name.clone(),
            capacity: *capacity,
        });
        std::iter::once(totals)
            .chain(limits)
            .chain(nodes)
            .chain(
                self.queued
                    .iter()
                    .filter_map(|(id, queued)| self.queued_fact(id, queued)),
            )
            .chain(
                self.granted
                    .iter()
                    .filter_map(|(id, granted)| self.granted_fact(id, granted)),
            )
            .chain(
                self.archive
                    .iter()
                    .filter_map(|ended| self.ended_fact(ended)),
            )
            .chain(self.class_facts())
            .chain(self.tenant_facts())
    }

    /// An empty state to restore facts into; unlike a new one it has no shipped limit.
    pub fn blank() -> Self {
        Self::default()
    }

    /// Takes one fact in. Facts come in the order of [`Bookings::facts`].
    pub fn restore(&mut self, fact: Fact) {
        match fact {
            Fact::Totals {
                fence,
                fences_from,
                virtual_time,
                sequence,
                dues,
                forgotten_at,
                unsettled,
            } => {
                self.fence = fence;
                self.fences_from = fences_from;
                self.virtual_time = virtual_time;
                self.sequence = sequence;
                self.dues = dues;
                self.forgotten_at = forgotten_at;
                self.unsettled = unsettled.then_some(Instant::default());
            }
            Fact::Limit { name, limit } => self.limits.set(&name, &limit),
            Fact::Node { name, capacity } => {
                self.nodes.insert(name, capacity);
                self.refresh_inventory();
            }
            Fact::Queued {
                id,
                request,
                sequence,
                since,
                until,
                passes,
                due,
            } => {
                let terms = self.take_terms(&request);
                let (lane, amount) = (terms.lane(), terms.amount);
                self.count_waiting(&terms, 1);
                self.room.join(
                    lane,
                    Waiting {
                        sequence,
                        id: id.clone(),
                        amount,
                        since,
                        passes,
                        due,
                    },
                );
                self.deadlines.insert(wait_deadline(&id, until));
                self.queued.insert(
                    id,
                    Queued {
                        terms,
                        sequence,
                        since,
                        until,
                    },
                );
            }
            Fact::Granted {
                id,
                request,
                fence,
                queued_at,
                granted_at,
                until,
                renewals,
                progress,
            } => {
                let terms = self.take_terms(&request);
                self.charge(&terms);
                // The pump ran out of its record while it granted, so the last fence was given,
                // or its holder resumed, when the pump must go on.
                if let Some(until) = until
                    && self.is_unsettled()
                    && fence == self.fence
                {
                    self.unsettled = Some(until.before(terms.first_length()));
                }
                let granted = Granted {
                    terms,
                    fence,
                    queued_at,
                    granted_at,
                    until,
                    renewals,
                    progress: progress.map(Box::new),
                };
                self.deadlines.extend(granted.deadline(&id));
                self.granted.insert(id, granted);
            }
            Fact::Ended {
                id,
                request,
                end,
                outcome,
                exit_code,
                reason,
                course,
                queued_at,
                granted,
                ended_at,
            } => {
                let terms = self.take_terms(&request);
                let ending = Ending {
                    end,
                    outcome,
                    exit_code,
                    reason,
                    course,
                    queued_at,
                    granted,
                    ended_at,
                };
                self.archive.push(Ended::new(id, terms, ending));
            }
            Fact::Class { label, held_ms } => {
                if let Some(class) = self
                    .classes
                    .find(&label)
                    .and_then(|index| self.classes.get_mut(index))
                {
                    class.held_ms = held_ms.into();
                }
            }
            Fact::Tenant { label, turn } => {
                if let Some(tenant) = self
                    .tenants
                    .find(&label)
                    .and_then(|index| self.tenants.get_mut(index))
                {
                    tenant.turn = turn;
                }
            }
        }
    }

    pub(crate) fn take_terms(&mut self, request: &Request) -> Terms {
        Terms {
            class: self.classes.take(&request.class),
            tenant: self.tenants.take(&request.tenant),
            amount: request.amount,
            priority: request.priority,
            ttl: request.ttl,
            wait: request.wait,
            extras: request.extras.clone(),
        }
    }

    fn queued_fact(&self, id: &BookingId, queued: &Queued) -> Option<Fact> {
        let waiting = self.room.get(queued.terms.lane(), queued.sequence)?;
        Some(Fact::Queued {
            id: id.clone(),
            request: self.request_of(queued.terms.clone())?,
            sequence: queued.sequence,
            since: queued.since,
            until: queued.until,
            passes: waiting.passes,
            due: waiting.due,
        })
    }

    fn granted_fact(&self, id: &BookingId, granted: &Granted) -> Option<Fact> {
        Some(Fact::Granted {
            id: id.clone(),
            request: self.request_of(granted.terms.clone())?,
            fence: granted.fence,
            queued_at: granted.queued_at,
            granted_at: granted.granted_at,
            until: granted.until,
            renewals: granted.renewals,
            progress: granted.progress().cloned(),
        })
    }

    fn ended_fact(&self, ended: &Ended) -> Option<Fact> {
        Some(Fact::Ended {
            id: ended.id().clone(),
            request: self.request_of(ended.terms())?,
            end: ended.end(),
            outcome: ended.outcome(),
            exit_code: ended.exit_code(),
            reason: ended.reason().map(str::to_owned),
            course: ended.course().cloned().map(Box::new),
            queued_at: ended.queued_at(),
            granted: ended.granted(),
            ended_at: ended.ended_at(),
        })
    }

    fn class_facts(&self) -> impl Iterator<Item = Fact> {
        let mut classes: Vec<_> = self.classes.iter().collect();
        classes.sort_by_key(|(label, _)| *label);
        classes.into_iter().map(|(label, class)| Fact::Class {
            label: label.clone(),
            held_ms: class.held_ms.iter().copied().collect(),
        })
    }

    fn tenant_facts(&self) -> impl Iterator<Item = Fact> {
        let mut tenants: Vec<_> = self.tenants.iter().collect();
        tenants.sort_by_key(|(label, _)| *label);
        tenants.into_iter().map(|(label, tenant)| Fact::Tenant {
            label: label.clone(),
            turn: tenant.turn,
        })
    }
}
