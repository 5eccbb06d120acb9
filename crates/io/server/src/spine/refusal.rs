//! Problems of tokens and the ledger: codes, bounds and the nearest name.

use bursar_client::problem::Range;
use bursar_client::{Code, Problem, nearest};
use bursar_engine::State;
use bursar_engine::spine::Refusal;

pub(crate) const fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::NoSuchToken { .. } | Refusal::NoSuchNode { .. } => Code::NotFound,
        Refusal::KeyReused => Code::IdReused,
        Refusal::TokenExists { .. }
        | Refusal::NotAnchored { .. }
        | Refusal::Version { .. }
        | Refusal::AlreadyBegun => Code::Conflict,
    }
}

pub(crate) fn add_facts(problem: &mut Problem, state: &State, refusal: &Refusal) {
    match refusal {
        Refusal::NoSuchToken { name } => {
            let tokens = state.spine.tokens.iter();
            let names = tokens.map(|(token, _)| token.name.as_str());
            problem.suggestion = nearest(name.as_str(), names).map(str::to_owned);
        }
        Refusal::NoSuchNode { name } => {
            let names = state.spine.inventory.iter().map(|node| node.name.as_str());
            problem.suggestion = nearest(name.as_str(), names).map(str::to_owned);
        }
        Refusal::Version { present, .. } => problem.resource_version.clone_from(present),
        Refusal::NotAnchored { below_max } => {
            problem.bounds = Some(Range {
                field: "below".to_owned(),
                min: 0,
                max: *below_max,
                limit: None,
            });
        }
        Refusal::TokenExists { .. } | Refusal::KeyReused | Refusal::AlreadyBegun => {}
    }
}
