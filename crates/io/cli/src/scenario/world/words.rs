//! Arguments of the commands about runs.

use bursar_engine::cluster::Exit;
use bursar_engine::{Kind, Reference};
use bursar_units::{DEFAULT_NAMESPACE, ScopedName};

/// The run of `run/NAMESPACE/NAME` or `run/NAME`.
pub(super) fn run(text: &str) -> Result<ScopedName, String> {
    match Reference::read(text, &[Kind::Run]) {
        Ok(Reference::Run(name)) => Ok(name),
        Ok(other) => Err(format!("`{other}` is not a run")),
        Err(_) if is_bare(text) => Err(format!(
            "`{text}` is not a reference to a run, write `run/{text}`"
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a text is NAMESPACE/NAME or NAME, without a kind.
fn is_bare(text: &str) -> bool {
    let (first, rest) = text.split_once('/').unwrap_or((text, text));
    Kind::from_word(first).is_none() && !rest.contains('/')
}

/// A reference to a run in the form of another: with the namespace, or without the default one.
pub(super) fn as_written(like: &str, run: &ScopedName) -> String {
    let has_namespace = like.matches('/').count() > 1;
    if !has_namespace && run.namespace() == DEFAULT_NAMESPACE {
        format!("run/{}", run.name())
    } else {
        format!("run/{run}")
    }
}

/// The result of `[ok|failed CODE]`.
pub(super) fn exit(words: &[&str]) -> Result<Exit, String> {
    match words {
        [] | ["ok"] => Ok(Exit::Ok {}),
        ["failed", code] => match code.parse::<i32>() {
            Ok(code @ 1..=255) => Ok(Exit::Failed { code: Some(code) }),
            _ => Err(format!(
                "`{code}` is not the exit code of a failure, which is 1 to 255"
            )),
        },
        _ => Err("a run ends `ok`, or `failed CODE` with its exit code".to_owned()),
    }
}
