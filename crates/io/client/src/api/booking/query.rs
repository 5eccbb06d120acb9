//! Query parameters of `/v1/bookings` and `/v1/executions`.

use bursar_units::{BookingId, Label, vocabulary};

use crate::Problem;
use crate::api::query::{Parameter, one_of, query};
use crate::api::{ExecutionOutcome, ExecutionState, LogStream, State, Wait, Words};

query! {
    /// Filter of bookings; absent parameters select all.
    pub struct ListBookings {
        /// Class.
        class "class": Label;
        /// Alias of `class`.
        language "language": Label, AliasOf "class";
        /// Tenant.
        tenant "tenant": Label;
        /// `queued`, `granted`, `ended`, or several separated by commas.
        state "state": Words<State>;
        /// Alias of `state`: `active` means `granted`, `released` means `ended`.
        status "status": BookingStatus;
        /// Id of the booking.
        id "id": BookingId;
        /// Id of an execution: its own booking, and bookings that name it.
        execution "execution": BookingId;
    }
}

query! {
    /// Parameters of a booking.
    pub struct GetBooking {
        /// Compare with the current fence; the result is `held`.
        fence "fence": u64;
        /// Time to wait until a queued booking changes, such as `30s`; at most 5m.
        wait "wait": Wait;
    }
}

query! {
    /// Filter of executions; absent parameters select all.
    pub struct ListExecutions {
        /// Class.
        class "class": Label;
        /// Tenant.
        tenant "tenant": Label;
        /// `queued`, `starting`, `running`, `stopping`, `stuck`, `ended`, or several separated by
        /// commas.
        state "state": Words<ExecutionState>;
        /// `completed`, `failed`, `lost`, `cancelled`, `timed-out`, `wait-over`, or several
        /// separated by commas.
        outcome "outcome": Words<ExecutionOutcome>;
        /// Id of the execution.
        id "id": BookingId;
    }
}

query! {
    /// Parameters of an execution.
    pub struct GetExecution {
        /// Time to wait for another state, such as `30s`; at most 5m.
        wait "wait": Wait;
    }
}

query! {
    /// Parameters of the output of an execution.
    pub struct GetLogs {
        /// `stdout`, the default, or `stderr`.
        stream "stream": LogStream;
        /// Continue until the execution has ended.
        follow "follow": bool;
        /// Number of bytes to skip.
        from "from": u64;
    }
}

vocabulary! {
    /// Words of `status`, an alias of `state`.
    pub enum BookingStatus {
        /// Granted.
        Active = "active",
        /// Ended.
        Released = "released",
    }
}

impl BookingStatus {
    /// The state that it means.
    pub const fn state(self) -> State {
        match self {
            Self::Active => State::Granted,
            Self::Released => State::Ended,
        }
    }
}

impl Parameter for BookingStatus {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        Self::from_word(text).ok_or_else(|| one_of(name, &Self::WORDS))
    }
}
