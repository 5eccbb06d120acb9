//! Answers about bookings and executions. Both are declared from one list of fields, because an
//! execution is a booking with a program under it.

use bursar_units::{BookingId, Instant, Label};
use serde::{Deserialize, Serialize};

use super::{End, Outcome, Priority, State};
use crate::ToSchema;
use crate::api::execution::{Course, ExecutionState};
use crate::api::instant;

/// Declares both answers. A row has the answers that contain the field, its type, its name and its
/// description, with a second description if that of executions differs. The order of the rows is
/// the order of the members in JSON.
macro_rules! answers {
    (@row $lists:tt $who:ident is($($type:tt)*) $($row:tt)*) => {
        answers!(@put $lists $who {$($type)*} {} $($row)*);
    };
    (@row $lists:tt $who:ident text($($type:tt)*) $($row:tt)*) => {
        answers!(@put $lists $who {$($type)*} {#[schema(value_type = Option<String>)]} $($row)*);
    };
    (@row $lists:tt $who:ident word($type:ident) $($row:tt)*) => {
        answers!(@put $lists $who {$type} {#[schema(value_type = Option<crate::api::word::$type>)]} $($row)*);
    };
    (@row $lists:tt $who:ident instant $($row:tt)*) => {
        answers!(@put $lists $who {Instant} {
            #[serde(with = "instant::optional")]
            #[schema(value_type = Option<String>, format = DateTime)]
        } $($row)*);
    };
    (@put {[$($b:tt)*] $e:tt $both:tt} booking $type:tt $with:tt $name:ident $about:tt; $($rows:tt)*) => {
        answers!(@next {[$($b)* {$name $type $with $about}] $e $both} $($rows)*);
    };
    (@put {$b:tt [$($e:tt)*] $both:tt} execution $type:tt $with:tt $name:ident $about:tt; $($rows:tt)*) => {
        answers!(@next {$b [$($e)* {$name $type $with $about}] $both} $($rows)*);
    };
    (@put $lists:tt both $type:tt $with:tt $name:ident $about:tt; $($rows:tt)*) => {
        answers!(@put $lists both $type $with $name $about, $about; $($rows)*);
    };
    (@put {[$($b:tt)*] [$($e:tt)*] [$($both:tt)*]} both $type:tt $with:tt $name:ident $about:tt, $run:tt; $($rows:tt)*) => {
        answers!(@next {
            [$($b)* {$name $type $with $about}]
            [$($e)* {$name $type $with $run}]
            [$($both)* $name]
        } $($rows)*);
    };
    (@next $lists:tt $who:ident $($rows:tt)+) => {
        answers!(@row $lists $who $($rows)+);
    };
    (@next {
        [$({$b:ident {$($b_type:tt)*} {$($b_with:tt)*} $b_about:tt})*]
        [$({$e:ident {$($e_type:tt)*} {$($e_with:tt)*} $e_about:tt})*]
        [$($both:ident)*]
    }) => {
        /// A booking.
        ///
        /// Answers to writes have the fields that the write decided; `GET` and lists have all fields.
        /// The fence is shown only to callers who may act as the tenant.
        #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct Booking {
            /// Id, chosen by the client.
            #[schema(value_type = String)]
            pub id: BookingId,
            /// State.
            #[schema(value_type = crate::api::word::State)]
            pub state: State,
            $(
                #[doc = $b_about]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                $($b_with)*
                pub $b: Option<$($b_type)*>,
            )*
        }

        /// An execution.
        ///
        /// Answers to writes have the fields that the write decided; `GET` and lists have all fields.
        /// The fence is shown only to callers who may act as the tenant. The command, its arguments
        /// and its environment are shown to nobody.
        #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct Execution {
            /// Id, chosen by the client; the booking of its slots has the same id.
            #[schema(value_type = String)]
            pub id: BookingId,
            /// Progress.
            #[serde(flatten)]
            pub course: Course,
            $(
                #[doc = $e_about]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                $($e_with)*
                pub $e: Option<$($e_type)*>,
            )*
        }

        impl Booking {
            /// A booking with all optional fields absent.
            pub const fn new(id: BookingId, state: State) -> Self {
                Self { id, state, $($b: None,)* }
            }
        }

        impl Execution {
            /// An execution with all optional fields absent.
            pub const fn new(id: BookingId, course: Course) -> Self {
                Self { id, course, $($e: None,)* }
            }
        }

        /// Takes all fields that the booking has.
        impl From<Booking> for Execution {
            fn from(booking: Booking) -> Self {
                // An execution that was forgotten after the decision has ended.
                let course = booking
                    .execution
                    .map_or(Course::new(ExecutionState::Ended), |course| *course);
                Self {
                    submitted_at: booking.queued_at,
                    $($both: booking.$both,)*
                    ..Self::new(booking.id, course)
                }
            }
        }
    };
    ($($rows:tt)+) => {
        answers!(@next {[] [] []} $($rows)+);
    };
}

answers! {
    both is(u64) fence "Number that proves that the caller still holds the booking.",
        "Number that proves that the execution still holds its slots.";
    both text(Label) class "Kind of execution.";
    both text(Label) tenant "Tenant that it counts for.";
    both is(u64) slots "Units of admission.";
    both is(u64) cpu_milli "CPU charged, in millicores; absent if none.";
    both is(u64) memory_bytes "Memory charged, in bytes; absent if none.";
    both is(u64) gpus "GPUs charged; absent if none.";
    both word(Priority) priority "Priority in the queue.";
    booking is(u64) ttl_ms "Duration of a grant without renewal, in milliseconds.";
    booking text(BookingId) execution_id
        "Execution that the booking belongs to, if it is not the booking's own id.";
    both is(u64) cpu_limit_milli "CPU limit for the executor, in millicores.",
        "CPU limit, in millicores, if it is not the CPU charged.";
    both is(u64) memory_limit_bytes "Memory limit for the executor, in bytes.",
        "Memory limit, in bytes, if it is not the memory charged.";
    execution is(u32) pids "Maximum number of processes and threads.";
    execution is(u64) start_timeout_ms
        "Maximum time from the grant until the program runs, in milliseconds.";
    execution is(u64) max_time_ms "Maximum run time, in milliseconds.";
    execution is(u64) grace_ms
        "Time between the request to stop and the kill, in milliseconds.";
    booking instant queued_at "Time of the request.";
    execution instant submitted_at "Time of the request.";
    both instant granted_at "Time of the grant.",
        "Time of the grant of its slots.";
    booking instant expires_at "Time at which the grant expires without renewal.";
    both instant wait_until "End of the wait.";
    both instant ended_at "Time of the end.",
        "Time of the end: its processes were gone and its slots were free.";
    booking is(u64) renewals "Number of renewals in the ledger.";
    both is(u64) ahead "Number of requests of its class that come before it.";
    both is(u64) estimate_ms "Estimated time until the grant, in milliseconds.";
    both is(String) rests_on "Basis of the estimate.";
    booking word(End) end "Kind of end.";
    booking word(Outcome) outcome "Outcome of the work, as reported by the holder.";
    both is(i32) exit_code "Exit code of the work.", "Exit code of its process.";
    both is(String) reason "Reason of a forced release.",
        "Reason of a failed start, or of a forced release.";
    both is(String) note "Remark of its tenant or of an operator.";
    booking is(Box<Course>) execution
        "Progress of the execution of the same id, if there is one.";
    both is(bool) applied "True if this release, cancel or note had an effect; a repeat has none.",
        "True if this write had an effect: the execution is new, began to stop, or left the queue.";
    booking is(bool) held
        "True if the fence in the query is the present one of a granted booking.";
    both is(u64) record "Last ledger record that this answer reflects.";
    both is(bool) dry_run "True for a dry run: nothing was changed.";
}
