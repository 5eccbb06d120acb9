//! Bodies: JSON into types. What cannot be read is malformed; what can be read but is wrong is
//! invalid, with all of its mistakes.
//!
//! Reading is one pass in the usual case. Only where that fails the body is read again as a
//! tree, and its mistakes are found by leaving out one wrong field after the other.

use bursar_client::api::{Batch, Operation};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use crate::service::nearest_name;

/// Mistakes that are told of one body.
const MISTAKES_MAX: usize = 64;

/// Reads a body.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| explain::<T>(bytes, &error))
}

fn explain<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Problem {
    if bytes.is_empty() {
        return Problem::new(
            Code::Malformed,
            "the body is empty, a JSON object was expected",
        );
    }
    let tree: Value = match (error.classify(), serde_json::from_slice(bytes)) {
        (Category::Data, Ok(tree)) => tree,
        (_, Err(error)) => return malformed(&error),
        (_, Ok(_)) => return malformed(error),
    };
    let mistakes = mistakes::<T>(tree, "");
    if mistakes.is_empty() {
        // What a tree cannot hold, such as a field that is given twice.
        return Problem::invalid(vec![FieldError::new("", without_place(&error.to_string()))]);
    }
    Problem::invalid(mistakes)
}

/// All mistakes of a tree that should be a `T`, below `path`.
pub(super) fn mistakes<T: DeserializeOwned>(tree: Value, path: &str) -> Vec<FieldError> {
    let mut found = Vec::new();
    let Value::Object(mut fields) = tree else {
        let error = serde_json::from_value::<T>(tree).err();
        return error
            .map(|error| FieldError::new(path, error.to_string()))
            .into_iter()
            .collect();
    };
    while found.len() < MISTAKES_MAX {
        let Err(error) = serde_json::from_value::<T>(Value::Object(fields.clone())) else {
            break;
        };
        let message = error.to_string();
        if let Some(field) = culprit::<T>(&fields, &message) {
            fields.remove(&field);
            found.push(mistake(path, &field, &message));
            continue;
        }
        let missing = quoted(&message)
            .next()
            .filter(|_| message.starts_with("missing field"));
        match missing.map(|field| join(path, field)) {
            // It was there and wrong, and was left out for that.
            Some(field) if found.iter().any(|told: &FieldError| told.path == field) => {}
            Some(field) => found.push(FieldError::new(field, "is missing")),
            None => found.push(FieldError::new(path, message)),
        }
        break;
    }
    found
}

/// The field without which the same thing would not be said.
fn culprit<T: DeserializeOwned>(
    fields: &serde_json::Map<String, Value>,
    message: &str,
) -> Option<String> {
    if message.starts_with("missing field") {
        return None;
    }
    let unknown = quoted(message)
        .next()
        .filter(|_| message.starts_with("unknown field"));
    if let Some(field) = unknown {
        return fields.contains_key(field).then(|| field.to_owned());
    }
    let without = |field: &String| {
        let mut others = fields.clone();
        others.remove(field);
        serde_json::from_value::<T>(Value::Object(others))
            .err()
            .map(|error| error.to_string())
    };
    fields
        .keys()
        .find(|field| without(field).as_deref() != Some(message))
        .cloned()
}

fn mistake(path: &str, field: &str, message: &str) -> FieldError {
    let path = join(path, field);
    if !message.starts_with("unknown field") {
        return FieldError::new(path, message);
    }
    let near = nearest_name(field, quoted(message).skip(1));
    FieldError {
        suggestion: near.map(|near| format!("did you mean `{near}`?")),
        ..FieldError::new(path, "is not a field")
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

/// The words between backticks.
fn quoted(message: &str) -> impl Iterator<Item = &str> {
    message.split('`').skip(1).step_by(2)
}

fn malformed(error: &serde_json::Error) -> Problem {
    let at = format!("line {} column {}", error.line(), error.column());
    let what = without_place(&error.to_string()).to_owned();
    Problem::new(
        Code::Malformed,
        format!("the body is not JSON at {at}: {what}"),
    )
}

fn without_place(message: &str) -> &str {
    message
        .rsplit_once(" at line ")
        .map_or(message, |(message, _)| message)
}

/// Reads a batch: mistakes are told for each operation, by its place.
pub(super) fn read_batch(bytes: &[u8]) -> Result<Batch, Problem> {
    let error = match serde_json::from_slice::<Batch>(bytes) {
        Ok(batch) => return Ok(batch),
        Err(error) => error,
    };
    let Ok(Value::Object(tree)) = serde_json::from_slice(bytes) else {
        return Err(explain::<Batch>(bytes, &error));
    };
    let Some(Value::Array(operations)) = tree.get("operations") else {
        return Err(explain::<Batch>(bytes, &error));
    };
    let all: Vec<FieldError> = operations
        .iter()
        .enumerate()
        .flat_map(|(at, operation)| {
            mistakes::<Operation>(operation.clone(), &format!("operations[{at}]"))
        })
        .take(MISTAKES_MAX)
        .collect();
    Err(if all.is_empty() {
        explain::<Batch>(bytes, &error)
    } else {
        Problem::invalid(all)
    })
}
