//! A node to be cleared, from a file (design 10, "What if, from a file").
//!
//! All mistakes are told at once, with their lines. Floors above ceilings are none: the market
//! itself says what they mean.

use bursar_market::clear::{Market, Pod, Policy, VALUE_MAX, Want};
use bursar_market::need::{HEADROOM_MIN_PERMILLE, PPM};
use bursar_market::params::{FACTOR_PERMILLE, weight};
use serde::Deserialize;

use super::{File, Mistake, Mistakes, text_of};
use crate::shape::{self, Field, Found, Shape, Wrong, join};
use crate::tree::{Kind, Node, read_yaml};

/// How many pods a node may have: more than any has, and what the kernel is bounded by.
const PODS_MAX: usize = 100_000;
/// The most headroom that can be asked for: as much again.
const HEADROOM_MAX_PERMILLE: u64 = 1_000;
/// Words that tell the two ways apart in which a pod says what it wants.
const DEMAND: &str = "demandPpm";
const NEED: &str = "needMilli";

const MILLI: Shape = Shape::Whole {
    min: 0,
    max: VALUE_MAX,
};
const SHAPE: Shape = Shape::Map(&[
    Field::required("capacityMilli", MILLI),
    Field::optional("policy", Shape::Word(&Policy::WORDS)),
    Field::optional(
        "quantumMilli",
        Shape::Whole {
            min: 1,
            max: VALUE_MAX,
        },
    ),
    Field::required("pods", Shape::List(&POD)),
]);
const POD: Shape = Shape::Map(&[
    Field::required("id", Shape::Text(id)),
    Field::required("minMilli", MILLI),
    Field::required("maxMilli", MILLI),
    Field::optional("weight", MILLI),
    Field::optional(DEMAND, Shape::Whole { min: 0, max: PPM }),
    Field::optional(NEED, MILLI),
    Field::optional("currentMilli", MILLI),
    Field::optional("cooling", Shape::Bool),
    Field::optional(
        "headroomPermille",
        Shape::Whole {
            min: 0,
            max: HEADROOM_MAX_PERMILLE,
        },
    ),
]);

/// A file that has the shape.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    capacity_milli: u64,
    policy: Option<Policy>,
    quantum_milli: Option<u64>,
    pods: Vec<WrittenPod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenPod {
    id: String,
    min_milli: u64,
    max_milli: u64,
    weight: Option<u64>,
    demand_ppm: Option<u64>,
    need_milli: Option<u64>,
    current_milli: Option<u64>,
    cooling: Option<bool>,
    headroom_permille: Option<u64>,
}

/// Reads the node of a file, or all mistakes in it.
pub fn read_market(file: &File) -> Result<Market, Mistakes> {
    let failed = |mistakes| Mistakes {
        mistakes,
        documents: 1,
        undone: "cleared",
    };
    let of_file = |message: &str| failed(vec![Mistake::of_file(&file.name, message)]);
    let text = text_of(file).map_err(|message| of_file(&message))?;
    let of_text = |found: Vec<Found>| {
        let lines: Vec<&str> = text.lines().collect();
        let mistakes = found.into_iter();
        failed(
            mistakes
                .map(|found| Mistake::new(&file.name, &lines, None, found))
                .collect(),
        )
    };
    let mut documents = read_yaml(text).map_err(|unreadable| {
        of_text(vec![Found {
            place: unreadable.place,
            path: String::new(),
            wrong: Wrong::new(unreadable.message),
        }])
    })?;
    documents.retain(|node| !matches!(node.kind, Kind::Null));
    match documents.as_slice() {
        [] => Err(of_file("has no node to clear")),
        [node] => read(node).map_err(of_text),
        [_, second, ..] => Err(of_text(vec![Found {
            place: second.place,
            path: String::new(),
            wrong: Wrong::with("a second node begins here", "one is cleared at a time"),
        }])),
    }
}

fn read(node: &Node) -> Result<Market, Vec<Found>> {
    let mut found = Vec::new();
    shape::check(&SHAPE, node, "", &mut found);
    if let Some(Kind::List(pods)) = node.get("pods").map(|pods| &pods.kind) {
        check_pods(pods, &mut found);
    }
    found.sort_by_key(|found| (found.place.line, found.place.column));
    if !found.is_empty() {
        return Err(found);
    }
    // What has the shape can be read.
    serde_json::from_value::<Written>(node.to_value())
        .map(Into::into)
        .map_err(|error| {
            vec![Found {
                place: node.place,
                path: String::new(),
                wrong: Wrong::new(format!("cannot be read: {error}")),
            }]
        })
}

/// What cannot be said of one field alone.
fn check_pods(pods: &[Node], found: &mut Vec<Found>) {
    let mut seen = std::collections::BTreeSet::new();
    for (pod, index) in pods.iter().zip(0..) {
        let path = format!("pods[{index}]");
        if index >= PODS_MAX {
            let wrong = Wrong::new(format!("is one too many, at most {PODS_MAX} are cleared"));
            let place = pod.place;
            found.push(Found { place, path, wrong });
            return;
        }
        if !matches!(pod.kind, Kind::Map(_)) {
            continue;
        }
        let name = pod.get("id");
        let is_twice = name
            .and_then(Node::text)
            .is_some_and(|id| !seen.insert(id.to_owned()));
        found.extend(name.filter(|_| is_twice).map(|name| Found {
            place: name.place,
            path: join(&path, "id"),
            wrong: Wrong::with("names the same pod again", "leave one of them out"),
        }));
        match (pod.given(DEMAND), pod.given(NEED)) {
            (Some(_), Some(need)) => found.push(Found {
                place: need.place,
                path: join(&path, NEED),
                wrong: Wrong::with("is given beside demandPpm", "leave one of them out"),
            }),
            (None, None) => found.push(Found {
                place: name.map_or(pod.place, |name| name.place),
                path,
                wrong: Wrong::new("must say what it wants: demandPpm or needMilli"),
            }),
            _ => {}
        }
    }
}

fn id(text: &str) -> Result<(), Wrong> {
    match text {
        "" => Err(Wrong::new("must not be empty")),
        _ if text.contains(char::is_control) => Err(Wrong::new("must be one line of text")),
        _ => Ok(()),
    }
}

impl From<Written> for Market {
    fn from(written: Written) -> Self {
        Self {
            capacity_milli: written.capacity_milli,
            policy: written.policy.unwrap_or_default(),
            quantum_milli: written.quantum_milli.unwrap_or(1),
            pods: written.pods.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<WrittenPod> for Pod {
    fn from(written: WrittenPod) -> Self {
        Self {
            id: written.id.into(),
            min_milli: written.min_milli,
            max_milli: written.max_milli,
            // A pod counts as much as it requests, unless somebody says otherwise (M7).
            weight: written
                .weight
                .unwrap_or_else(|| weight(written.min_milli, FACTOR_PERMILLE)),
            want: match (written.demand_ppm, written.need_milli) {
                (Some(ppm), _) => Want::Demand(ppm),
                (None, need) => Want::Need(need.unwrap_or(written.min_milli)),
            },
            headroom_permille: written.headroom_permille.unwrap_or(HEADROOM_MIN_PERMILLE),
            current_milli: written.current_milli,
            cooling: written.cooling.unwrap_or(false),
        }
    }
}
