//! Schemas of closed sets of words.
//!
//! A set of words is one enum, in the crate that decides with it; its name and its sentence in the
//! description of the API stand here. A field has the enum as its type and names the schema in
//! `value_type`.

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
    /// How urgent a request is, most urgent first.
    Priority = booking::Priority;
    /// Where a booking is in its life.
    State = super::State;
    /// How a booking ended.
    End = booking::End;
    /// What the holder says of its work.
    Outcome = booking::Outcome;
    /// The four operations.
    Kind = super::booking::batch::OperationKind;
    /// How far an execution has come.
    ExecutionState = super::ExecutionState;
    /// How an execution came out.
    ExecutionOutcome = execution::Verdict;
    /// How a process is kept apart from others.
    Isolation = execution::Isolation;
    /// Why an execution is stopped.
    StopCause = execution::Cause;
    /// How far a step is.
    StepState = explain::StepState;
    /// What a caller may do.
    Role = token::Role;
    /// What happened to an object.
    ChangeKind = super::ChangeKind;
    /// What came of a clearing.
    MarketMode = clear::Mode;
    /// By which rule what is scarce is divided.
    MarketPolicy = clear::Policy;
    /// What decided a share.
    MarketBound = clear::BoundBy;
    /// Which rule divided.
    MarketStep = super::MarketStep;
    /// Whether limits are written.
    MarketActs = super::MarketActs;
    /// Where a pod comes from; how it opts out depends on it.
    MarketKind = super::MarketKind;
}

fn of_words(about: &str, words: &[&str]) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(about.trim()))
        .enum_values(Some(words.iter().copied()))
        .into()
}
