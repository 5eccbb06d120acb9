//! The places in files of mistakes that the server reported.

use std::collections::BTreeMap;

use super::{File, Mistake, Mistakes, beside, objects_of, reference_of, text_of};
use crate::problem::FieldError;
use crate::shape::{FieldMistake, Wrong, join};
use crate::tree::{Kind, Node, read_yaml};

/// Finds the places of mistakes in the files that were sent. A file object that names no namespace
/// is in `namespace`. A mistake in an object of no file has the name of its object as place.
pub fn locate(files: &[File], namespace: &str, errors: &[FieldError]) -> Mistakes {
    let mut reported: BTreeMap<&str, Vec<&FieldError>> = BTreeMap::new();
    for error in errors {
        let object = error.object.as_deref().unwrap_or_default();
        reported.entry(object).or_default().push(error);
    }
    let mut mistakes = Vec::new();
    let mut documents: usize = 0;
    for file in files {
        // The files were read before they were sent.
        let text = text_of(file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let trees = read_yaml(text).unwrap_or_default();
        for tree in trees.iter().filter(|node| !matches!(node.kind, Kind::Null)) {
            documents = documents.saturating_add(1);
            for (path, node) in objects_of(tree) {
                let Some(object) = reference_of(node, namespace) else {
                    continue;
                };
                let errors = reported.remove(object.as_str()).unwrap_or_default();
                let mut found: Vec<_> = errors.iter().map(|of| mistake(node, &path, of)).collect();
                found.sort_by_key(|mistake| (mistake.position.line, mistake.position.column));
                let found = found.into_iter();
                mistakes.extend(
                    found.map(|of| Mistake::new(&file.name, &lines, Some(object.clone()), of)),
                );
            }
        }
    }
    let elsewhere = reported.into_values().flatten();
    mistakes.extend(elsewhere.map(Mistake::elsewhere));
    Mistakes {
        mistakes,
        documents,
        undone: "applied",
    }
}

fn mistake(node: &Node, path: &str, error: &FieldError) -> FieldMistake {
    let wrong = Wrong {
        message: error.message.clone(),
        suggestion: error.suggestion.clone(),
    };
    let position = node.at(&error.path).position;
    let mut mistake = FieldMistake::new(position, join(path, &error.path), wrong);
    mistake.beside = beside(node, "", &error.path);
    mistake
}
