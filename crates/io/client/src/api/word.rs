//! Schemas of closed sets of words.
//!
//! A set of words is one enum, in the crate that uses it for decisions. Its schema name and
//! description are here. A field has the enum as its type and names the schema in `value_type`.

use bursar_booking as booking;
use bursar_booking::execution;
use bursar_engine::{explain, token};
use bursar_market::clear;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! schemas {
    ($($(#[doc = $about:literal])+ $name:ident = $words:ty;)+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    of_words(concat!($($about),+), &<$words>::WORDS)
                }
            }

            impl ToSchema for $name {}
        )+
    };
}

schemas! {
    /// Priority of a request, most urgent first.
    Priority = booking::Priority;
    /// State of a booking.
    State = super::State;
    /// Kind of end of a booking.
    End = booking::End;
    /// Outcome of the work, as reported by the holder.
    Outcome = booking::Outcome;
    /// Kind of operation.
    Kind = super::booking::batch::OperationKind;
    /// State of an execution.
    ExecutionState = super::ExecutionState;
    /// Outcome of an execution.
    ExecutionOutcome = execution::Verdict;
    /// Isolation of a process from others.
    Isolation = execution::Isolation;
    /// Cause of the stop of an execution.
    StopCause = execution::Cause;
    /// State of a step.
    StepState = explain::StepState;
    /// Cause of a wait. The first that applies gives the headline.
    WaitsFor = explain::WaitsFor;
    /// Role of a caller.
    Role = token::Role;
    /// Unit by which a window repeats, in UTC.
    Renew = bursar_engine::cluster::budget::Renew;
    /// Owners that an envelope pays for without a loan.
    Sharing = bursar_engine::cluster::budget::spec::Sharing;
    /// Fate of overrunning work when the hours of an envelope are used up.
    OnExhaustion = bursar_engine::cluster::budget::spec::OnExhaustion;
    /// State of a run.
    RunState = bursar_engine::cluster::Stage;
    /// Outcome of a run.
    RunOutcome = bursar_engine::cluster::Outcome;
    /// Cause of the end of a run or of a lease.
    CloseReason = bursar_engine::cluster::Reason;
    /// Reason of the wait of a run.
    WaitReason = bursar_engine::cluster::explain::WaitReason;
    /// Right by which an envelope pays.
    Pool = bursar_engine::cluster::budget::Pool;
    /// Funding class of GPU time.
    FundingClass = bursar_engine::cluster::budget::Class;
    /// Relation of the owner of an envelope to the owner of a run.
    Relation = bursar_engine::cluster::budget::cover::Relation;
    /// State of a row of the walk.
    RowState = bursar_engine::cluster::budget::cover::RowState;
    /// Condition of a budget.
    ConditionKind = bursar_engine::cluster::budget::accounts::ConditionKind;
    /// Grouping of used GPU time.
    UsageBy = super::cluster::UsageBy;
    /// Executor of the runs of a node.
    NodeExecutor = super::node::NodeExecutor;
    /// Kind of change of an object.
    ChangeKind = super::ChangeKind;
    /// Mode of a clearing.
    MarketMode = clear::Mode;
    /// Rule that divides scarce CPU.
    MarketPolicy = clear::Policy;
    /// Bound that decided a share.
    MarketBound = clear::BoundBy;
    /// Step of a clearing that decided.
    MarketStep = super::MarketStep;
    /// Mode of the agent: `act` writes limits, `observe` does not.
    MarketActs = super::MarketActs;
    /// Origin of a pod. The way to opt out depends on it.
    MarketKind = super::MarketKind;
}

fn of_words(about: &str, words: &[&str]) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(about.trim()))
        .enum_values(Some(words.iter().copied()))
        .into()
}
