//! Problems of tokens and the ledger: codes, bounds and the nearest name.

use bursar_client::problem::Range;
use bursar_client::{Code, Problem};
use bursar_engine::{Refusal, State};

use crate::service::nearest::nearest;

/// Which code a refusal has.
pub(crate) const fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::NoSuchToken { .. } => Code::NotFound,
        Refusal::KeyReused => Code::IdReused,
        _ => Code::Conflict,
    }
}

/// Adds what programs want to know beyond the words.
pub(crate) fn add_facts(problem: &mut Problem, state: &State, refusal: &Refusal) {
    match refusal {
        Refusal::NoSuchToken { name } => {
            let names = state.tokens.iter().map(|(token, _)| token.name.as_str());
            problem.suggestion = nearest(name.as_str(), names);
        }
        Refusal::NotAnchored { below_max } => {
            problem.bounds = Some(Range {
                field: "below".to_owned(),
                min: 0,
                max: *below_max,
                limit: None,
            });
        }
        _ => {}
    }
}
