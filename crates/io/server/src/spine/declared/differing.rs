//! Fields in which two versions of a declared object differ.

use std::collections::BTreeSet;

use bursar_client::api::FieldChange;
use bursar_engine::words;
use serde_json::{Map, Value};

/// Lists the fields that differ, each with its path and both values as text. Things with names are
/// compared by name: `envelopes[h100].concurrency`.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut found = Vec::new();
    compare(String::new(), before, after, &mut found);
    found
}

fn compare(path: String, before: &Value, after: &Value, found: &mut Vec<FieldChange>) {
    if before == after {
        return;
    }
    let (was_named, is_named) = (by_name(before), by_name(after));
    if let (Some(was), Some(is)) = (fields(before), fields(after)) {
        members(&was, &is, |name| join(&path, name), found);
    } else if let (Some(was), Some(is)) = (was_named, is_named) {
        members(&was, &is, |name| format!("{path}[{name}]"), found);
    } else {
        found.push(FieldChange {
            path,
            from: text(before),
            to: text(after),
        });
    }
}

fn members(
    was: &Map<String, Value>,
    is: &Map<String, Value>,
    path: impl Fn(&str) -> String,
    found: &mut Vec<FieldChange>,
) {
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    for name in names {
        let side = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
        compare(path(name), &side(was), &side(is), found);
    }
}

/// The members of an object; an absent one has none.
fn fields(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields.clone()),
        _ => None,
    }
}

/// A list of things with names, without their names; an absent list is empty.
fn by_name(value: &Value) -> Option<Map<String, Value>> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::Null => &[],
        _ => return None,
    };
    let named = items.iter().map(|item| {
        let mut item = fields(item)?;
        let Value::String(name) = item.remove("name")? else {
            return None;
        };
        Some((name, Value::Object(item)))
    });
    named.collect()
}

fn text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(number) => words::number(number),
            None => number.to_string(),
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(text).collect();
            items.join(", ")
        }
        Value::Object(fields) => {
            let parts = fields.iter();
            let parts = parts.filter_map(|(name, value)| Some(format!("{name} {}", text(value)?)));
            parts.collect::<Vec<_>>().join(", ")
        }
        Value::Bool(value) => value.to_string(),
    })
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;

    #[test]
    fn things_are_compared_by_their_names() {
        let before = json!({"owner": "a", "envelopes": [{"name": "h100", "concurrency": 64,
            "lending": {"to": ["x"]}}, {"name": "old", "concurrency": 1}]});
        let after = json!({"owner": "a", "paused": true, "envelopes": [
            {"name": "new", "concurrency": 2000}, {"name": "h100", "concurrency": 48,
            "lending": {"to": ["x", "y"]}}]});
        let texts: Vec<String> = differences(&before, &after)
            .into_iter()
            .map(|field| {
                let side = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                format!("{} {} {}", field.path, side(field.from), side(field.to))
            })
            .collect();
        let expected = [
            "envelopes[h100].concurrency 64 48",
            "envelopes[h100].lending.to x x, y",
            "envelopes[new] - concurrency 2,000",
            "envelopes[old] concurrency 1 -",
            "paused - true",
        ];
        assert_eq!(texts, expected);
    }
}
