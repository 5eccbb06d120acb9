//! Executions by what has happened to them (X1).
//!
//! ```text
//! starting ── started ──► running        either ── stopping ──► after ten failures stuck
//! ```
//! The slot is free when the process is gone, and not before.

use bursar_booking::Event;
use bursar_booking::execution::{Cause, Exit, Isolation, Order, Verdict};
use bursar_units::{BookingId, Instant, Millis};

use super::{Expected, Holder, Oracle, STEPS_MAX};

const SECOND: Millis = Millis::from_secs(1);
const HOUR: Millis = Millis::from_hours(1);
const MONTH: Millis = Millis::from_hours(30 * 24);
/// How long after an absence one that runs is not stopped for being late.
const TOLD_FIRST: Millis = Millis::from_secs(10);
const STUCK: u32 = 10;

impl Holder {
    /// Which kind of deadline it has.
    pub(super) fn kind(&self) -> u8 {
        u8::from(self.request.order().is_some())
    }

    /// How long it has from a grant or, after an absence, from our return.
    pub(super) fn again(&self) -> Millis {
        match self.request.order() {
            Some(_) if self.way.has_started => TOLD_FIRST,
            Some(order) => order.start_timeout,
            None => self.request.ttl,
        }
    }
}

impl Oracle {
    /// Whether it is an execution that holds.
    pub(super) fn is_execution(&self, id: &BookingId) -> bool {
        let holder = self.holders.get(id);
        holder.is_some_and(|holder| holder.request.order().is_some())
    }

    pub(super) fn is_stopping(&self, id: &BookingId) -> bool {
        let holder = self.holders.get(id);
        holder.is_some_and(|holder| holder.way.stopping.is_some())
    }

    pub(super) fn started(
        &mut self,
        at: Instant,
        id: &BookingId,
        isolation: Isolation,
        events: &mut Expected,
    ) {
        let Some(holder) = self.holders.get_mut(id) else {
            return;
        };
        holder.way.has_started = true;
        let max_time = holder.request.order().map(|order| order.max_time);
        if let (Some(max_time), None) = (max_time, holder.way.stopping) {
            holder.until = Some(at.after(max_time));
        }
        let id = id.clone();
        events.push((at, Event::Started { id, isolation }));
    }

    pub(super) fn stop_failed(
        &mut self,
        at: Instant,
        id: &BookingId,
        attempt: u32,
        events: &mut Expected,
    ) {
        if let Some(holder) = self.holders.get_mut(id) {
            holder.way.stops_failed = attempt;
            let id = id.clone();
            events.push((at, Event::StopFailed { id, attempt }));
        }
    }

    pub(super) fn exited(
        &mut self,
        at: Instant,
        id: &BookingId,
        exit: &Exit,
        events: &mut Expected,
    ) {
        let stopping = self.holders.get(id).and_then(|holder| holder.way.stopping);
        let verdict = match stopping {
            Some(Cause::Cancelled) => Verdict::Cancelled,
            Some(Cause::TimedOut) => Verdict::TimedOut,
            None if matches!(
                exit,
                Exit::Code(0) | Exit::OutOfMemory { code: Some(0), .. }
            ) =>
            {
                Verdict::Completed
            }
            None if *exit == Exit::Lost => Verdict::Lost,
            Some(Cause::NotStarted) | None => Verdict::Failed,
        };
        if !self.leave(at, id) {
            return;
        }
        let (mut exit_code, mut signal, mut reason) = (None, None, None);
        match exit.clone() {
            Exit::Code(code) => exit_code = Some(code),
            Exit::Signal(number) => signal = Some(number),
            Exit::OutOfMemory {
                code,
                signal: number,
            } => (exit_code, signal) = (code, number),
            Exit::Lost => {}
            Exit::NotStarted { reason: why } => reason = Some(why),
        }
        let event = Event::Exited {
            id: id.clone(),
            verdict,
            exit_code,
            signal,
            is_out_of_memory: matches!(exit, Exit::OutOfMemory { .. }),
            reason,
        };
        events.push((at, event));
        self.pump(at, &mut { STEPS_MAX }, events);
    }

    pub(super) fn stop(
        &mut self,
        at: Instant,
        id: &BookingId,
        cause: Cause,
        events: &mut Expected,
    ) {
        if let Some(holder) = self.holders.get_mut(id)
            && holder.way.stopping.is_none()
        {
            holder.way.stopping = Some(cause);
            holder.until = None;
            let id = id.clone();
            events.push((at, Event::Stopping { id, cause }));
        }
    }

    /// It did not start, or runs, for as long as it may.
    pub(super) fn overdue(&mut self, at: Instant, id: &BookingId, events: &mut Expected) {
        let holder = self.holders.get(id);
        let cause = if holder.is_some_and(|holder| holder.way.has_started) {
            Cause::TimedOut
        } else {
            Cause::NotStarted
        };
        self.stop(at, id, cause, events);
    }

    pub(super) fn started_word(&self, id: &BookingId) -> &'static str {
        self.result_word(id, |holder| {
            if holder.way.has_started {
                "repeated"
            } else {
                "noted"
            }
        })
    }

    pub(super) fn exited_word(&self, id: &BookingId) -> &'static str {
        self.result_word(id, |_| "ended")
    }

    pub(super) fn stop_failed_word(&self, id: &BookingId, attempt: u32) -> &'static str {
        self.result_word(id, |Holder { way, .. }| {
            let is_next = way.stops_failed < STUCK && attempt == way.stops_failed + 1;
            if is_next && way.stopping.is_some() {
                "noted"
            } else {
                "repeated"
            }
        })
    }

    /// Why an order is refused whatever is held.
    pub(super) fn refused_by_order(&self, order: &Order) -> Option<&'static str> {
        for (field, time, least, most) in [
            ("startTimeoutMs", order.start_timeout, SECOND, HOUR),
            ("maxTimeMs", order.max_time, SECOND, MONTH),
            ("graceMs", order.grace, Millis::ZERO, HOUR),
        ] {
            if time < least || most < time {
                return Some(field);
            }
        }
        let first = order.retry_of.as_ref()?;
        let is_execution = |request: &bursar_booking::Request| request.order().is_some();
        match self
            .request_of(first)
            .filter(|request| is_execution(request))
        {
            None => Some("retry-of-unknown"),
            Some(_) if self.ended.contains_key(first) => None,
            Some(_) => Some("retry-of-live"),
        }
    }

    fn result_word(
        &self,
        id: &BookingId,
        of_holder: impl FnOnce(&Holder) -> &'static str,
    ) -> &'static str {
        match self.holders.get(id) {
            Some(holder) if holder.request.order().is_some() => of_holder(holder),
            Some(_) => "not-an-execution",
            None if self.ended.contains_key(id) => "already-ended",
            None if self.is_waiting(id) => "is-queued",
            None => "not-found",
        }
    }
}
