//! Input of `bursar market simulate`: a node and its load in a file.
//!
//! All mistakes are reported at once, with their lines.

use bursar_market::clear::{Policy, VALUE_MAX};
use bursar_market::node::Settings;
use bursar_market::params::{FACTOR_PERMILLE, Params, weight};
use bursar_market::simulate::{Work, World};
use serde::Deserialize;

use super::market::{MILLI, id, read_document, read_shape};
use super::{File, Mistakes};
use crate::shape::{Field, FieldMistake, Shape, Wrong, join};
use crate::tree::{Kind, Node};

/// Maximum length of a simulation: a week.
const SECONDS_MAX: u64 = 604_800;
/// Maximum of pods × seconds, which bounds the time that a simulation takes.
const POD_SECONDS_MAX: u64 = 100_000_000;
const WRITES_PER_HOUR_MAX: u64 = 1_000_000;
const WANT: &str = "want";
/// The words for what happens to work that a limit holds back.
const WORK: [&str; 2] = ["lost", "waits"];

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
    Field::optional(
        "writesPerHour",
        Shape::Whole {
            min: 0,
            max: WRITES_PER_HOUR_MAX,
        },
    ),
    Field::optional("work", Shape::Word(&WORK)),
    Field::required(
        "seconds",
        Shape::Whole {
            min: 1,
            max: SECONDS_MAX,
        },
    ),
    Field::required("pods", Shape::List(&POD)),
]);
const POD: Shape = Shape::Map(&[
    Field::required("id", Shape::Text(id)),
    Field::required("minMilli", MILLI),
    Field::required("maxMilli", MILLI),
    Field::optional("weight", MILLI),
    Field::required(WANT, Shape::List(&STEP)),
]);
const STEP: Shape = Shape::List(&MILLI);

/// A node with its load.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Simulation {
    /// The node; its pods are by id.
    pub world: World,
    /// For each pod: what it wants, in millicores, from a second on.
    pub wants: Vec<Vec<(u64, u64)>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SimulationFile {
    capacity_milli: u64,
    policy: Option<Policy>,
    quantum_milli: Option<u64>,
    writes_per_hour: Option<u64>,
    work: Option<String>,
    seconds: u64,
    pods: Vec<FilePod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilePod {
    id: String,
    min_milli: u64,
    max_milli: u64,
    weight: Option<u64>,
    want: Vec<(u64, u64)>,
}

/// Reads the node and the load of a file, or all mistakes in it.
pub fn read_simulation(file: &File) -> Result<Simulation, Mistakes> {
    read_document(file, ("simulate", "simulated"), |node| {
        let file: SimulationFile = read_shape(node, &SHAPE, check_want)?;
        let pods = u64::try_from(file.pods.len()).unwrap_or(u64::MAX);
        if POD_SECONDS_MAX < pods.saturating_mul(file.seconds) {
            let position = node.get("seconds").unwrap_or(node).position;
            let wrong = Wrong::new(format!(
                "is too long for {pods} pods: pods × seconds must be at most {POD_SECONDS_MAX}"
            ));
            return Err(vec![FieldMistake::new(position, "seconds", wrong)]);
        }
        Ok(file.into())
    })
}

/// Each step of a load is `[second, millicores]`, and the seconds rise from 1 on.
fn check_want(pod: &Node, path: &str, mistakes: &mut Vec<FieldMistake>) {
    let Some(Kind::List(steps)) = pod.get(WANT).map(|want| &want.kind) else {
        return;
    };
    let mut last = 0;
    for (step, index) in steps.iter().zip(0..) {
        let Kind::List(pair) = &step.kind else {
            continue;
        };
        let mut mistake = |wrong| {
            let path = join(path, &format!("{WANT}[{index}]"));
            mistakes.push(FieldMistake::new(step.position, path, wrong));
        };
        let [second, _] = pair.as_slice() else {
            mistake(Wrong::new("must be [second, millicores]"));
            continue;
        };
        let Some(second) = second.to_value().as_u64() else {
            continue;
        };
        if second <= last {
            mistake(Wrong::new(format!("must begin after second {last}")));
        }
        last = second.max(last);
    }
}

impl Simulation {
    /// What the pod at a place wants in a second.
    pub fn want_milli(&self, second: u64, pod: usize) -> u64 {
        let steps = self.wants.get(pod).map(Vec::as_slice).unwrap_or_default();
        let past = steps.partition_point(|(from, _)| *from <= second);
        let step = past.checked_sub(1).and_then(|at| steps.get(at));
        step.map_or(0, |(_, milli)| *milli)
    }
}

impl From<SimulationFile> for Simulation {
    fn from(file: SimulationFile) -> Self {
        let default = Settings::default();
        let mut pods = file.pods;
        pods.sort_by(|a, b| a.id.cmp(&b.id));
        let params = |pod: &FilePod| Params {
            min_milli: pod.min_milli,
            max_milli: pod.max_milli,
            // The default weight follows the request (M7).
            weight: pod
                .weight
                .unwrap_or_else(|| weight(pod.min_milli, FACTOR_PERMILLE)),
        };
        Self {
            world: World {
                capacity_milli: file.capacity_milli,
                settings: Settings {
                    policy: file.policy.unwrap_or_default(),
                    quantum_milli: file.quantum_milli.unwrap_or(default.quantum_milli),
                    writes_per_hour: file.writes_per_hour.unwrap_or(default.writes_per_hour),
                    ..default
                },
                work: match file.work.as_deref() {
                    Some("waits") => Work::Waits,
                    _ => Work::Lost,
                },
                seconds: file.seconds,
                pods: pods
                    .iter()
                    .map(|pod| (pod.id.as_str().into(), params(pod)))
                    .collect(),
            },
            wants: pods.into_iter().map(|pod| pod.want).collect(),
        }
    }
}
