//! Converts the engine's values to API types.

mod execution;

use bursar_client::api::{self, Explanation, ObjectRef, RestsOn, When, Who, Why};
use bursar_client::problem::{Holder, LimitUse};
use bursar_engine::State;
use bursar_engine::booking::execution::Order;
use bursar_engine::booking::{self, Ended, Fence, Request, Shown, Standing};
use bursar_engine::explain::{self, HeldBy, Object, held_by, reason_word};
use bursar_engine::words;
use bursar_units::{BookingId, Instant, Millis};

use crate::caller::Caller;

pub(crate) use execution::{execution_of, saga, stage_of};

pub(crate) struct BookingView<'a> {
    pub(crate) state: &'a State,
    pub(crate) now: Instant,
    pub(crate) caller: &'a Caller,
    /// Deadline after renewals that are not recorded yet.
    pub(crate) renewed_until: Option<Instant>,
}

impl BookingView<'_> {
    pub(crate) fn booking(&self, id: &BookingId) -> Option<api::Booking> {
        let request = self.state.bookings.request(id)?;
        let standing = self.state.bookings.standing(id)?;
        let order = self.state.bookings.order(id);
        let is_own = self.caller.may_act_as(&request.tenant);
        let mut booking = core(id, &standing, order, is_own);
        add_request(&mut booking, &request);
        booking.note = self.state.bookings.note(id).map(str::to_owned);
        match standing {
            Standing::Queued { .. } => add_position(&mut booking, self.state, self.now),
            Standing::Granted(granted) => {
                booking.queued_at = Some(granted.queued_at);
                booking.granted_at = Some(granted.granted_at);
                booking.renewals = Some(granted.renewals);
                booking.expires_at = booking.expires_at.max(self.renewed_until);
            }
            Standing::Ended(ended) => {
                booking.queued_at = Some(ended.queued_at());
                booking.granted_at = ended.granted().map(|(at, _)| at);
            }
        }
        Some(booking)
    }
}

pub(crate) fn shown(id: &BookingId, shown: &Shown, caller: &Caller) -> api::Booking {
    let is_own = caller.may_act_as(shown.tenant());
    api::Booking {
        note: shown.note().map(str::to_owned),
        ..core(id, &shown.standing(), shown.order(), is_own)
    }
}

pub(crate) fn granted(
    request: &Request,
    order: Option<&Order>,
    at: Instant,
    fence: Fence,
) -> api::Booking {
    api::Booking {
        fence: Some(fence.0),
        expires_at: order.is_none().then(|| at.after(request.ttl)),
        execution: begins(api::ExecutionState::Starting, order),
        ..api::Booking::new(request.id.clone(), api::State::Granted)
    }
}

/// A request that was queued, without its position in the queue.
pub(crate) fn queued(request: &Request, order: Option<&Order>, at: Instant) -> api::Booking {
    api::Booking {
        queued_at: Some(at),
        wait_until: Some(at.after(request.wait)),
        execution: begins(api::ExecutionState::Queued, order),
        ..api::Booking::new(request.id.clone(), api::State::Queued)
    }
}

/// Adds the position in the queue to a queued booking. The position is an estimate and not part of
/// the decision: counting the bookings ahead is linear in the queue, too slow for `decide`.
pub(crate) fn add_position(booking: &mut api::Booking, state: &State, now: Instant) {
    let Some(position) = state.bookings.position(now, &booking.id) else {
        return;
    };
    booking.ahead = Some(position.ahead);
    booking.estimate_ms = position.estimate.map(|estimate| estimate.ms);
    booking.rests_on = position.estimate.map(|of| rests_on(of.rests_on));
}

fn begins(state: api::ExecutionState, order: Option<&Order>) -> Option<Box<api::Course>> {
    order.map(|order| {
        Box::new(api::Course {
            retry_of: order.retry_of.clone(),
            ..api::Course::new(state)
        })
    })
}

/// State, fence and deadlines of a booking; `is_own` if the caller may see the fence.
fn core(
    id: &BookingId,
    standing: &Standing<'_>,
    order: Option<&Order>,
    is_own: bool,
) -> api::Booking {
    let booking = match standing {
        Standing::Queued { since, until } => api::Booking {
            queued_at: Some(*since),
            wait_until: Some(*until),
            ..api::Booking::new(id.clone(), api::State::Queued)
        },
        Standing::Granted(granted) => api::Booking {
            fence: is_own.then_some(granted.fence.0),
            expires_at: granted.until.filter(|_| granted.progress().is_none()),
            ..api::Booking::new(id.clone(), api::State::Granted)
        },
        Standing::Ended(ended) => api::Booking {
            fence: ended.granted().filter(|_| is_own).map(|(_, fence)| fence.0),
            ..ended_booking(id, ended)
        },
    };
    api::Booking {
        execution: order.map(|order| Box::new(execution::course(standing, order))),
        ..booking
    }
}

fn ended_booking(id: &BookingId, ended: &Ended) -> api::Booking {
    api::Booking {
        ended_at: Some(ended.ended_at()),
        end: Some(ended.end()),
        outcome: ended.outcome(),
        exit_code: ended.exit_code(),
        reason: ended.reason().map(str::to_owned),
        ..api::Booking::new(id.clone(), api::State::Ended)
    }
}

fn add_request(booking: &mut api::Booking, request: &Request) {
    let more_than_none = |amount: u64| (amount > 0).then_some(amount);
    booking.class = Some(request.class.clone());
    booking.tenant = Some(request.tenant.clone());
    booking.slots = Some(request.slots);
    booking.cpu_milli = more_than_none(request.cpu_milli);
    booking.memory_bytes = more_than_none(request.memory_bytes);
    booking.gpus = more_than_none(request.gpus);
    booking.priority = Some(request.priority);
    booking.ttl_ms = booking.execution.is_none().then(|| request.ttl.ms());
    booking.execution_id.clone_from(&request.execution_id);
    booking.cpu_limit_milli = request.cpu_limit_milli;
    booking.memory_limit_bytes = request.memory_limit_bytes;
}

pub(crate) fn request(
    id: BookingId,
    from: api::BookingRequest,
    tenant: bursar_units::Label,
) -> Request {
    Request {
        slots: from.slots,
        cpu_milli: from.cpu_milli.unwrap_or_default(),
        memory_bytes: from.memory_bytes.unwrap_or_default(),
        gpus: from.gpus.unwrap_or_default(),
        priority: from.priority.unwrap_or_default(),
        ttl: from.ttl_ms.map_or(booking::TTL_DEFAULT, Millis::from_ms),
        wait: from.wait_ms.map_or(Millis::ZERO, Millis::from_ms),
        execution_id: from.execution_id,
        cpu_limit_milli: from.cpu_limit_milli,
        memory_limit_bytes: from.memory_limit_bytes,
        ..Request::new(id, from.class, tenant)
    }
}

/// An explanation, reduced to the holders that the caller may see.
pub(crate) fn explanation(
    explained: explain::Explanation,
    now: Instant,
    caller: &Caller,
    who: Vec<Who>,
) -> Explanation {
    let (kind, name) = match &explained.object {
        Object::Booking(id) => ("Booking", id.to_string()),
        Object::Limit(name) => ("Limit", name.to_string()),
    };
    let held = held_by(&explained.why.holders, |tenant| caller.sees_tenant(tenant));
    Explanation {
        object: ObjectRef {
            kind: kind.to_owned(),
            namespace: None,
            name,
        },
        headline: explained.headline,
        state: explained.stage.word().to_owned(),
        note: explained.note,
        waits_for: explained.waits_for,
        reason: explained
            .reason
            .map(|reason| reason_word(reason).to_owned()),
        since: explained.since,
        why: Some(Why {
            ahead: explained.why.ahead,
            limits: explained.why.limits.iter().map(limit_use).collect(),
            holders: holders(&held),
            ..Why::default()
        }),
        when: explained.when.map(|when| When {
            at: when.estimate_ms.map(|ms| now.after(Millis::from_ms(ms))),
            latest: None,
            rests_on: vec![RestsOn {
                object: None,
                basis: when.rests_on,
            }],
        }),
        who,
        changes: explained.changes,
        saga: explained.saga.map(saga),
        record: explained.record,
    }
}

pub(crate) fn limit_use(of: &booking::LimitUse) -> LimitUse {
    LimitUse {
        name: of.name.clone(),
        dimension: of.dimension,
        size: of.size,
        in_use: of.in_use,
        waiting: of.waiting,
    }
}

/// Named holders first, then all others together.
pub(crate) fn holders(held: &HeldBy) -> Vec<Holder> {
    let named = held.named.iter().map(|(tenant, slots)| Holder {
        tenant: Some(tenant.clone()),
        slots: *slots,
        ..Holder::default()
    });
    let others = (held.others > 0).then_some(Holder {
        others: Some(held.others),
        slots: held.others_slots,
        ..Holder::default()
    });
    named.chain(others).collect()
}

fn rests_on(executions: usize) -> String {
    let executions = u64::try_from(executions).unwrap_or(u64::MAX);
    format!("last {} executions", words::number(executions))
}
