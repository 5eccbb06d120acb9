//! Input of `bursar market clear`: a node in a file.
//!
//! All mistakes are reported at once, with their lines. A floor above its ceiling is not a mistake:
//! the market defines its meaning.

use bursar_market::clear::{Market, Pod, Policy, VALUE_MAX, Want};
use bursar_market::need::{HEADROOM_MIN_PERMILLE, PPM};
use bursar_market::params::{FACTOR_PERMILLE, weight};
use serde::Deserialize;

use super::{File, Mistake, Mistakes, text_of};
use crate::shape::{self, Field, FieldMistake, Shape, Wrong, join};
use crate::tree::{Kind, Node, read_yaml};

/// Maximum number of pods: more than a node has, and the bound of the kernel rule.
const PODS_MAX: usize = 100_000;
const HEADROOM_MAX_PERMILLE: u64 = 1_000;
/// The two alternative fields for the demand of a pod.
const DEMAND: &str = "demandPpm";
const NEED: &str = "needMilli";

pub(super) const MILLI: Shape = Shape::Whole {
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
    Field::optional(
        "headroomPermille",
        Shape::Whole {
            min: 0,
            max: HEADROOM_MAX_PERMILLE,
        },
    ),
]);

/// Content of a file of the right shape.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarketFile {
    capacity_milli: u64,
    policy: Option<Policy>,
    quantum_milli: Option<u64>,
    pods: Vec<FilePod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilePod {
    id: String,
    min_milli: u64,
    max_milli: u64,
    weight: Option<u64>,
    demand_ppm: Option<u64>,
    need_milli: Option<u64>,
    headroom_permille: Option<u64>,
}

/// Reads the node of a file, or all mistakes in it.
pub fn read_market(file: &File) -> Result<Market, Mistakes> {
    read_document(file, ("clear", "cleared"), read)
}

/// Reads the one document of a file, or all mistakes in it.
pub(super) fn read_document<T>(
    file: &File,
    (verb, undone): (&str, &'static str),
    read: impl Fn(&Node) -> Result<T, Vec<FieldMistake>>,
) -> Result<T, Mistakes> {
    let failed = |mistakes| Mistakes {
        mistakes,
        documents: 1,
        undone,
    };
    let of_file = |message: &str| failed(vec![Mistake::of_file(&file.name, message)]);
    let text = text_of(file).map_err(|message| of_file(&message))?;
    let of_text = |mistakes: Vec<FieldMistake>| {
        let lines: Vec<&str> = text.lines().collect();
        let mistakes = mistakes.into_iter();
        failed(
            mistakes
                .map(|mistake| Mistake::new(&file.name, &lines, None, mistake))
                .collect(),
        )
    };
    let mut documents = read_yaml(text).map_err(|unreadable| {
        let wrong = Wrong::new(unreadable.message);
        of_text(vec![FieldMistake::new(unreadable.position, "", wrong)])
    })?;
    documents.retain(|node| !matches!(node.kind, Kind::Null));
    match documents.as_slice() {
        [] => Err(of_file(&format!("has no node to {verb}"))),
        [node] => read(node).map_err(of_text),
        [_, second, ..] => {
            let remedy = format!("only one node is {undone}");
            let wrong = Wrong::with("a second document begins here", remedy);
            Err(of_text(vec![FieldMistake::new(second.position, "", wrong)]))
        }
    }
}

/// Checks the shape of a document and its pods; then converts it.
pub(super) fn read_shape<T: serde::de::DeserializeOwned>(
    node: &Node,
    shape: &Shape,
    check_pod: impl Fn(&Node, &str, &mut Vec<FieldMistake>),
) -> Result<T, Vec<FieldMistake>> {
    let mut mistakes = Vec::new();
    shape::check(shape, node, "", &mut mistakes);
    if let Some(Kind::List(pods)) = node.get("pods").map(|pods| &pods.kind) {
        check_pods(pods, &mut mistakes, check_pod);
    }
    mistakes.sort_by_key(|mistake| (mistake.position.line, mistake.position.column));
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    // A document of the right shape can be read.
    serde_json::from_value(node.to_value()).map_err(|error| {
        let wrong = Wrong::new(format!("cannot be read: {error}"));
        vec![FieldMistake::new(node.position, "", wrong)]
    })
}

fn read(node: &Node) -> Result<Market, Vec<FieldMistake>> {
    read_shape::<MarketFile>(node, &SHAPE, check_demand).map(Into::into)
}

fn check_pods(
    pods: &[Node],
    mistakes: &mut Vec<FieldMistake>,
    check_pod: impl Fn(&Node, &str, &mut Vec<FieldMistake>),
) {
    let mut seen = std::collections::BTreeSet::new();
    for (pod, index) in pods.iter().zip(0..) {
        let path = format!("pods[{index}]");
        if index >= PODS_MAX {
            let wrong = Wrong::new(format!("is one too many, at most {PODS_MAX} are cleared"));
            mistakes.push(FieldMistake::new(pod.position, path, wrong));
            return;
        }
        if !matches!(pod.kind, Kind::Map(_)) {
            continue;
        }
        let name = pod.get("id");
        let is_twice = name
            .and_then(Node::text)
            .is_some_and(|id| !seen.insert(id.to_owned()));
        mistakes.extend(name.filter(|_| is_twice).map(|name| {
            let wrong = Wrong::with("names the same pod again", "leave one of them out");
            FieldMistake::new(name.position, join(&path, "id"), wrong)
        }));
        check_pod(pod, &path, mistakes);
    }
}

/// A pod has either a demand or a need.
fn check_demand(pod: &Node, path: &str, mistakes: &mut Vec<FieldMistake>) {
    match (pod.given(DEMAND), pod.given(NEED)) {
        (Some(_), Some(need)) => {
            let wrong = Wrong::with("cannot be combined with demandPpm", "leave one of them out");
            mistakes.push(FieldMistake::new(need.position, join(path, NEED), wrong));
        }
        (None, None) => {
            let position = pod.get("id").unwrap_or(pod).position;
            let wrong = Wrong::new("needs demandPpm or needMilli");
            mistakes.push(FieldMistake::new(position, path.to_owned(), wrong));
        }
        _ => {}
    }
}

pub(super) fn id(text: &str) -> Result<(), Wrong> {
    match text {
        "" => Err(Wrong::new("must not be empty")),
        _ if text.contains(char::is_control) => Err(Wrong::new("must be one line of text")),
        _ => Ok(()),
    }
}

impl From<MarketFile> for Market {
    fn from(file: MarketFile) -> Self {
        Self {
            capacity_milli: file.capacity_milli,
            policy: file.policy.unwrap_or_default(),
            quantum_milli: file.quantum_milli.unwrap_or(1),
            pods: file.pods.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<FilePod> for Pod {
    fn from(pod: FilePod) -> Self {
        Self {
            id: pod.id.into(),
            min_milli: pod.min_milli,
            max_milli: pod.max_milli,
            // The default weight follows the request (M7).
            weight: pod
                .weight
                .unwrap_or_else(|| weight(pod.min_milli, FACTOR_PERMILLE)),
            want: match (pod.demand_ppm, pod.need_milli) {
                (Some(ppm), _) => Want::Demand(ppm),
                (None, need) => Want::Need(need.unwrap_or(pod.min_milli)),
            },
            headroom_permille: pod.headroom_permille.unwrap_or(HEADROOM_MIN_PERMILLE),
        }
    }
}
