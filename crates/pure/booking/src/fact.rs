//! The state as a list of facts, and back: the content of a snapshot and of a state hash.
//!
//! Two states are equal iff their facts are, in order. Interned numbers and counters are not
//! facts: they follow from the bookings.

use bursar_units::{BookingId, Instant, Label, is_default};
use serde::{Deserialize, Serialize};

use crate::archive::{Ended, Ending, Extras, Terms};
use crate::book::{Bookings, Granted, Queued, wait_deadline};
use crate::execution::{Course, Order, Progress};
use crate::limit::Limit;
use crate::request::{End, Fence, Outcome, Request};
use crate::room::Waiting;

/// First level whose snapshots have the time since which grants are owed.
const UNSETTLED_SINCE_LEVEL: u64 = 2;

/// One fact of the state, in the form of a line of a snapshot (L12).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fact {
    /// Numbers that belong to no booking.
    Totals {
        /// Last fence given out.
        fence: Fence,
        /// First fence of the current generation; no lower one is given out.
        #[serde(default, skip_serializing_if = "is_default")]
        fences_from: Fence,
        /// V of S3.
        #[serde(with = "decimal")]
        virtual_time: u128,
        /// Number of requests so far.
        sequence: u64,
        /// Number of heads that became due so far.
        dues: u64,
        /// End of the newest forgotten booking.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forgotten_at: Option<Instant>,
        /// Whether grants are owed, and since when.
        unsettled: Unsettled,
    },
    /// A declared limit.
    Limit(Limit),
    /// A queued booking.
    Queued {
        /// Request.
        request: Request,
        /// Order of an execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<Order>,
        /// Number of the request in order of arrival.
        sequence: u64,
        /// Time of the request.
        since: Instant,
        /// End of the wait.
        until: Instant,
        /// Number of passes.
        passes: u32,
        /// Number in the order in which heads became due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due: Option<u64>,
        /// The remark on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A granted booking.
    Granted {
        /// Request, with the fence.
        request: Request,
        /// Order of an execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<Order>,
        /// Time of the request.
        queued_at: Instant,
        /// Time of the grant.
        granted_at: Instant,
        /// Deadline; an execution that is being stopped has none.
        #[serde(default, skip_serializing_if = "Option::is_none", rename = "expires")]
        until: Option<Instant>,
        /// Number of recorded renewals.
        renewals: u64,
        /// Progress of an execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        progress: Option<Progress>,
        /// The remark on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A remembered end.
    Ended {
        /// Request, with the fence if it was granted.
        request: Request,
        /// Order of an execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<Order>,
        /// History of an execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        course: Option<Box<Course>>,
        /// Kind of end.
        end: End,
        /// Outcome that the holder reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Exit code of the work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Reason of a forced end or of a failed start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Time of the request.
        queued_at: Instant,
        /// Time of the grant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        granted_at: Option<Instant>,
        /// Time of the end.
        ended_at: Instant,
        /// The remark on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Facts of a class beside its bookings.
    Class {
        /// Name.
        label: Label,
        /// Times for which its last bookings were held, oldest first.
        held_ms: Vec<u64>,
    },
    /// Facts of a tenant beside its bookings.
    Tenant {
        /// Name.
        label: Label,
        /// Turn (S3).
        #[serde(with = "decimal")]
        turn: u128,
    },
}

/// Whether grants are owed. Snapshots before level 2 have no time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Unsettled {
    /// Form before level 2; `false` in every level.
    Is(bool),
    /// Time since which grants are owed.
    Since(Instant),
}

/// 128-bit numbers as decimal strings, which JSON numbers cannot hold.
mod decimal {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Fact {
    /// Whether a snapshot has this fact before the nodes.
    pub fn precedes_nodes(&self) -> bool {
        matches!(self, Self::Totals { .. } | Self::Limit(_))
    }
}

impl Bookings {
    /// All facts, in the order in which [`Bookings::restore`] takes them.
    pub fn facts(&self, level: u64) -> impl Iterator<Item = Fact> {
        let totals = Fact::Totals {
            fence: self.fence,
            fences_from: self.fences_from,
            virtual_time: self.virtual_time,
            sequence: self.sequence,
            dues: self.dues,
            forgotten_at: self.forgotten_at,
            unsettled: match self.unsettled {
                Some(since) if UNSETTLED_SINCE_LEVEL <= level => Unsettled::Since(since),
                unsettled => Unsettled::Is(unsettled.is_some()),
            },
        };
        let limits = self.limits.iter();
        let limits = limits.map(|declared| Fact::Limit(declared.limit.clone()));
        std::iter::once(totals)
            .chain(limits)
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

    /// Empty state to restore facts into; unlike [`Bookings::new`] it has no shipped limit.
    pub fn blank() -> Self {
        Self::default()
    }

    /// Restores one fact. Facts come in the order of [`Bookings::facts`].
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
                self.unsettled = match unsettled {
                    Unsettled::Since(since) => Some(since),
                    Unsettled::Is(is_unsettled) => is_unsettled.then_some(Instant::default()),
                };
            }
            Fact::Limit(limit) => self.limits.set(&limit),
            Fact::Queued {
                request,
                order,
                sequence,
                since,
                until,
                passes,
                due,
                note,
            } => {
                let mut terms = self.take_terms(&request, order.as_ref());
                terms.set_note(note);
                let (id, lane, amount) = (request.id, terms.lane(), terms.amount);
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
                request,
                order,
                queued_at,
                granted_at,
                until,
                renewals,
                progress,
                note,
            } => {
                let mut terms = self.take_terms(&request, order.as_ref());
                terms.set_note(note);
                let (id, fence) = (request.id, request.fence.unwrap_or_default());
                self.charge(&terms);
                // A snapshot before level 2 has no time since which grants are owed: it is the time
                // at which the last fence was given, or its holder resumed.
                if let Some(until) = until
                    && self.unsettled == Some(Instant::default())
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
                request,
                order,
                course,
                end,
                outcome,
                exit_code,
                reason,
                queued_at,
                granted_at,
                ended_at,
                note,
            } => {
                let mut terms = self.take_terms(&request, order.as_ref());
                terms.set_note(note);
                let ending = Ending {
                    end,
                    outcome,
                    exit_code,
                    reason,
                    course,
                    queued_at,
                    granted: granted_at.zip(request.fence),
                    ended_at,
                };
                self.archive.push(Ended::new(request.id, terms, ending));
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

    pub(crate) fn take_terms(&mut self, request: &Request, order: Option<&Order>) -> Terms {
        let extras = Extras {
            execution_id: request.execution_id.clone(),
            cpu_limit_milli: request.cpu_limit_milli,
            memory_limit_bytes: request.memory_limit_bytes,
            order: order.cloned(),
            note: None,
        };
        Terms {
            class: self.classes.take(&request.class),
            tenant: self.tenants.take(&request.tenant),
            amount: request.amount(),
            priority: request.priority,
            ttl: request.ttl,
            wait: request.wait,
            extras: (!is_default(&extras)).then(|| Box::new(extras)),
        }
    }

    fn queued_fact(&self, id: &BookingId, queued: &Queued) -> Option<Fact> {
        let waiting = self.room.get(queued.terms.lane(), queued.sequence)?;
        Some(Fact::Queued {
            request: self.request_of(id, queued.terms.clone())?,
            order: queued.terms.order().cloned(),
            sequence: queued.sequence,
            since: queued.since,
            until: queued.until,
            passes: waiting.passes,
            due: waiting.due,
            note: queued.terms.note().map(str::to_owned),
        })
    }

    fn granted_fact(&self, id: &BookingId, granted: &Granted) -> Option<Fact> {
        Some(Fact::Granted {
            request: Request {
                fence: Some(granted.fence),
                ..self.request_of(id, granted.terms.clone())?
            },
            order: granted.terms.order().cloned(),
            queued_at: granted.queued_at,
            granted_at: granted.granted_at,
            until: granted.until,
            renewals: granted.renewals,
            progress: granted.progress().cloned(),
            note: granted.terms.note().map(str::to_owned),
        })
    }

    fn ended_fact(&self, ended: &Ended) -> Option<Fact> {
        let (granted_at, fence) = ended.granted().unzip();
        Some(Fact::Ended {
            request: Request {
                fence,
                ..self.request_of(ended.id(), ended.terms())?
            },
            order: ended.order().cloned(),
            course: ended.course().cloned().map(Box::new),
            end: ended.end(),
            outcome: ended.outcome(),
            exit_code: ended.exit_code(),
            reason: ended.reason().map(str::to_owned),
            queued_at: ended.queued_at(),
            granted_at,
            ended_at: ended.ended_at(),
            note: ended.note().map(str::to_owned),
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
