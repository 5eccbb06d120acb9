//! How a booking stands, and how the execution of the same id goes: one list of the fields of both
//! answers, because an execution is a booking and a program under it.

use bursar_units::{BookingId, Instant, Label};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{End, Outcome, Priority, State};
use crate::api::execution::{Course, ExecutionState};
use crate::api::{instant, word};

/// Declares both answers. A row has the answers that a field is in, its kind, its name and its
/// sentence, with a second sentence where that of executions differs. The order of the rows is the
/// order of the members in JSON.
macro_rules! answers {
    (@row $lists:tt $who:ident is($($type:tt)*) $($row:tt)*) => {
        answers!(@put $lists $who {$($type)*} {} $($row)*);
    };
    (@row $lists:tt $who:ident text($($type:tt)*) $($row:tt)*) => {
        answers!(@put $lists $who {$($type)*} {#[schema(value_type = Option<String>)]} $($row)*);
    };
    (@row $lists:tt $who:ident word($type:ident) $($row:tt)*) => {
        answers!(@put $lists $who {$type} {#[schema(value_type = Option<word::$type>)]} $($row)*);
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
        /// A booking as answered.
        ///
        /// Answers to writes carry what the write decided; `GET` and lists carry all that is known. The
        /// fence is told only to callers who may act as the tenant.
        #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct Booking {
            /// The client's name for it.
            #[schema(value_type = String)]
            pub id: BookingId,
            /// Where it is in its life.
            #[schema(value_type = word::State)]
            pub state: State,
            $(
                #[doc = $b_about]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                $($b_with)*
                pub $b: Option<$($b_type)*>,
            )*
        }

        /// An execution as answered.
        ///
        /// Answers to writes carry what the write decided; `GET` and lists carry all that is known. The
        /// fence is told only to callers who may act as the tenant. What is run is told to nobody.
        #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct Execution {
            /// The client's name for it; the booking of its slots has the same.
            #[schema(value_type = String)]
            pub id: BookingId,
            /// How it goes.
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
            /// A booking of which nothing is told but where it is; to be filled in.
            pub const fn new(id: BookingId, state: State) -> Self {
                Self { id, state, $($b: None,)* }
            }
        }

        impl Execution {
            /// An execution of which nothing is told but how it goes; to be filled in.
            pub const fn new(id: BookingId, course: Course) -> Self {
                Self { id, course, $($e: None,)* }
            }
        }

        /// All of an execution that its booking tells.
        impl From<Booking> for Execution {
            fn from(booking: Booking) -> Self {
                // One that has been forgotten since it was decided has ended.
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
    both is(u64) fence "The number that proves it is still yours.",
        "The number that proves that the slots are its own.";
    both text(Label) class "What kind of execution it is.";
    both text(Label) tenant "Whom it counts for.";
    both is(u64) slots "Units of admission.";
    both is(u64) cpu_milli "CPU charged, in millicores; absent where none is.";
    both is(u64) memory_bytes "Memory charged, in bytes; absent where none is.";
    both is(u64) gpus "GPUs charged; absent where none is.";
    both word(Priority) priority "How urgent it is.";
    booking is(u64) ttl_ms "How long a grant lasts without renewal, in milliseconds.";
    booking text(BookingId) execution_id
        "The execution it belongs to, where that is not the booking's own id.";
    both is(u64) cpu_limit_milli "CPU limit for the executor, in millicores.",
        "The most CPU it may use, in millicores, where that is not what is charged.";
    both is(u64) memory_limit_bytes "Memory limit for the executor, in bytes.",
        "The most memory it may use, in bytes, where that is not what is charged.";
    execution is(u32) pids "The most processes and threads it may have at once.";
    execution is(u64) start_timeout_ms
        "How long it may take from the grant until it runs, in milliseconds.";
    execution is(u64) max_time_ms "How long it may run, in milliseconds.";
    execution is(u64) grace_ms
        "How long it has to end by itself once it is asked to, in milliseconds.";
    booking instant queued_at "When it was asked for.";
    execution instant submitted_at "When it was submitted.";
    both instant granted_at "When it was granted.",
        "When it got its slots; the seed's `allocated_at`.";
    booking instant expires_at "When it ends unless the holder renews.";
    both instant wait_until "Until when it waits.";
    both instant ended_at "When it ended.",
        "When its process was gone and its slots were free; the seed's `released_at`.";
    booking is(u64) renewals "How often the ledger has recorded that its holder lives.";
    both is(u64) ahead "How many of its class come before it.";
    both is(u64) estimate_ms "In about how many milliseconds it may be granted.";
    both is(String) rests_on "What the estimate rests on.";
    booking word(End) end "How it ended.";
    booking word(Outcome) outcome "What the holder said of its work.";
    both is(i32) exit_code "The exit code of the work.", "The exit code of its process.";
    both is(String) reason "Why an operator took it back.",
        "Why it could not be started, or why an operator took its slots back.";
    booking is(Box<Course>) execution
        "How it goes, if it is an execution: the booking of the same id tells its slots only.";
    both is(bool) applied "Whether this release or cancel had an effect; a repeat has none.",
        "Whether this write had an effect: the execution is new, began to stop, or left the queue.";
    booking is(bool) held
        "Whether the fence that was asked about is the present one of a granted booking.";
    both is(u64) record "The last ledger record this answer reflects.";
    both is(bool) dry_run "True where nothing was changed.";
}
