//! Owners of the objects of a state, for [`Caller::sees`].

use bursar_client::{Code, Problem, nearest};
use bursar_engine::booking::book::CounterView;
use bursar_engine::booking::limit::Declared;
use bursar_engine::booking::{Event as BookingEvent, Limit, Scope, Standing};
use bursar_engine::codec::Record;
use bursar_engine::{Command, Event, State, dated, spine};
use bursar_units::{BookingId, Instant, Label, ObjectName};

use crate::caller::{Caller, Owner};
use crate::cluster;

/// Returns a limit, if the caller may see it.
pub(crate) fn limit<'a>(
    state: &'a State,
    caller: &Caller,
    name: &ObjectName,
) -> Option<&'a Declared> {
    let declared = state.bookings.limit(name.as_str())?;
    sees_limit(caller, &declared.limit).then_some(declared)
}

pub(crate) fn limits<'a>(state: &'a State, caller: &Caller) -> impl Iterator<Item = &'a Declared> {
    let limits = state.bookings.limits();
    limits.filter(|declared| sees_limit(caller, &declared.limit))
}

/// Problem of a limit that does not exist or that the caller may not see. Suggests the nearest name
/// that the caller may see.
pub(crate) fn no_limit(state: &State, caller: &Caller, name: &ObjectName) -> Problem {
    let names = limits(state, caller).map(|declared| declared.limit.name.as_str());
    Problem {
        suggestion: nearest(name.as_str(), names).map(str::to_owned),
        ..Problem::new(Code::NotFound, format!("no limit `{name}`"))
    }
}

/// Checks whether a caller sees a counter of a visible limit. A class that the limit names is
/// shared. Other class names are invented by tenants: a caller sees those in which its own tenants
/// hold or wait.
pub(crate) fn sees_counter(
    state: &State,
    caller: &Caller,
    limit: &Limit,
    counter: &CounterView<'_>,
) -> bool {
    let is_used = |class: &Label| {
        let mut own = caller.tenants.iter();
        own.any(|tenant| state.bookings.is_used_by(class, tenant))
    };
    match (counter.tenant, counter.class) {
        _ if caller.sees_all() => true,
        (Some(tenant), _) => caller.sees_tenant(tenant),
        (None, Some(class)) if limit.class == Some(Scope::Each) => is_used(class),
        (None, _) => caller.sees(Owner::Shared),
    }
}

/// Checks whether a caller sees an event. Events of a booking belong to its tenant, those of a run or
/// a budget to its owner, all others to the server.
pub(crate) fn sees_event(state: &State, caller: &Caller, at: Instant, event: &Event) -> bool {
    if let Event::Cluster(event) = event {
        let owner = cluster::sight::event_owner(state, event);
        return caller.sees(owner.as_ref().map_or(Owner::Server, Owner::Funded));
    }
    let tenant = event_tenant(state, at, event);
    caller.sees(tenant.as_ref().map_or(Owner::Server, Owner::Tenant))
}

/// The tenant of the booking of an event, as far as the state knows it. A record before level 2 does
/// not say it.
pub(crate) fn event_tenant(state: &State, at: Instant, event: &Event) -> Option<Label> {
    tenant_at(state, at, booking_of(event)?)
}

/// Checks whether a caller may read a record as it is stored, with its fences. An operator may. A
/// tenant may if the record names its own bookings and nothing else.
pub(crate) fn may_read_bytes(state: &State, caller: &Caller, record: &Record) -> bool {
    let is_own = |at: Instant, id: &BookingId| {
        tenant_at(state, at, id).is_some_and(|tenant| caller.may_act_as(&tenant))
    };
    let is_own_command = match &record.command {
        Command::Spine(spine::Command::Tick { renewed, .. }) => {
            renewed.iter().all(|(id, _)| is_own(record.time, id))
        }
        command => {
            let id = command.booking_id();
            id.is_some_and(|id| is_own(record.time, id))
        }
    };
    let is_own_event = |(at, event): (Instant, &Event)| match event {
        Event::Booking(BookingEvent::Unsettled { .. }) => true,
        event => booking_of(event).is_some_and(|id| is_own(at, id)),
    };
    caller.may_operate() || is_own_command && dated(record.time, &record.events).all(is_own_event)
}

/// The tenant of a booking at a time; `None` if the id now belongs to a later booking, which may be
/// another tenant's.
fn tenant_at(state: &State, at: Instant, id: &BookingId) -> Option<Label> {
    let since = match state.bookings.standing(id)? {
        Standing::Queued { since, .. } => since,
        Standing::Granted(granted) => granted.queued_at,
        Standing::Ended(ended) => ended.queued_at(),
    };
    let request = state.bookings.request(id).filter(|_| since <= at)?;
    Some(request.tenant)
}

fn booking_of(event: &Event) -> Option<&BookingId> {
    match event {
        Event::Booking(event) => event.booking(),
        _ => None,
    }
}

/// A limit for each tenant is shared, because it applies to every tenant. Its counters are not.
fn sees_limit(caller: &Caller, limit: &Limit) -> bool {
    caller.sees(match &limit.tenant {
        Some(Scope::Named(tenant)) => Owner::Tenant(tenant),
        Some(Scope::Each) | None => Owner::Shared,
    })
}

#[cfg(test)]
mod tests {
    use bursar_engine::booking::decide::Change;
    use bursar_engine::booking::{Limit, Scope};
    use bursar_engine::codec::Record;
    use bursar_engine::token::Role;
    use bursar_engine::{Events, State, spine};
    use bursar_units::{BookingId, Instant, Label, ObjectName};

    use super::may_read_bytes;
    use crate::caller::Caller;

    /// The command counts too: these records have no events.
    #[test]
    fn a_tenant_may_not_read_a_record_whose_command_names_others() {
        let label = |text| Label::new(text).unwrap_or_else(|_| Caller::anonymous().name);
        let zeta = Some(Scope::Named(label("zeta")));
        let changes = ObjectName::new("zeta")
            .map(|name| Change::SetLimit(Limit::unbounded(name, None, zeta)));
        let renewed = BookingId::new("theirs").map(|id| (id, Instant::from_ms(1)));
        let commands = [
            spine::Command::change(changes),
            spine::Command::tick(renewed.into_iter().collect()),
        ];
        for command in commands {
            let record = Record {
                seq: 1,
                time: Instant::from_ms(1),
                by: label("ada"),
                command: command.into(),
                events: Events::new(),
            };
            let reads = |role| {
                let caller = Caller {
                    roles: [role].into(),
                    tenants: [label("acme")].into(),
                    ..Caller::anonymous()
                };
                may_read_bytes(&State::default(), &caller, &record)
            };
            assert!(!reads(Role::Use) && !reads(Role::View), "{record:?}");
            assert!(reads(Role::Operate), "{record:?}");
        }
    }
}
