//! Conversion between `v1/Node` objects and the nodes of the inventory.
//!
//! `v1/Node` is a kind of Kubernetes with many fields. Some are read; the others are accepted, so that
//! `kubectl get nodes -o yaml | bursar apply -f -` works. A misspelling of a field that is read is a
//! mistake. Of the labels only those of [`LABELS`] are kept.

use std::collections::BTreeMap;

use bursar_engine::cluster::nodes::NODE_GPUS_MAX;
use bursar_engine::inventory::{self, LABELS};
use bursar_units::{Amount, quantity};

use super::{API_VERSION, KIND, Object, limit, name_of};
use crate::api;
use crate::shape::{Field, Shape, Wrong};
use crate::tree::{Kind, Node};
use crate::whole_number;

/// Name of the resource that counts whole GPUs.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// Shape of the part of a node's document that is read.
pub(crate) const SHAPE: Shape = Shape::Foreign(&[
    API_VERSION,
    KIND,
    Field::required(
        "metadata",
        Shape::Foreign(&[
            Field::required(
                "name",
                Shape::Text(|text| limit::object_name(text).map(drop)),
            ),
            Field::optional("labels", LABEL_FIELDS),
        ]),
    ),
    Field::optional(
        "spec",
        Shape::Foreign(&[Field::optional("unschedulable", Shape::Bool)]),
    ),
    Field::required(
        "status",
        Shape::Foreign(&[Field::required(
            "allocatable",
            Shape::Foreign(&[
                Field::optional("cpu", Shape::Quantity(|text| cpu(text).map(drop))),
                Field::optional("memory", Shape::Quantity(|text| whole(text).map(drop))),
                Field::optional(GPU_RESOURCE, Shape::Quantity(|text| gpus(text).map(drop))),
            ]),
        )]),
    ),
]);

const LABEL_FIELDS: Shape = Shape::Foreign(&[
    Field::optional(inventory::REGION, LABEL_VALUE),
    Field::optional(inventory::CLUSTER, LABEL_VALUE),
    Field::optional(inventory::DOMAIN, LABEL_VALUE),
    Field::optional(inventory::FLAVOR, LABEL_VALUE),
]);

/// A label without a value counts as absent.
const LABEL_VALUE: Shape = Shape::Text(|text| match text {
    "" => Ok(()),
    _ => limit::new_label(text).map(drop),
});

/// Resources of a node of the API.
pub fn capacity(node: &api::Node) -> Result<Amount, quantity::Error> {
    let of = |resource: &str| node.status.allocatable.get(resource).map(String::as_str);
    Ok(Amount {
        slots: 0,
        cpu_milli: of("cpu").map_or(Ok(0), quantity::cpu_milli)?,
        memory_bytes: of("memory").map_or(Ok(0), quantity::memory_bytes)?,
        gpus: of(GPU_RESOURCE).map_or(Ok(0), quantity::memory_bytes)?,
    })
}

/// Declared object of a node of the inventory.
pub fn object(node: &inventory::Node) -> api::Node {
    let resources = [
        ("cpu", quantity::format_cpu(node.cpu_milli)),
        ("memory", quantity::format_memory(node.memory_bytes)),
        (GPU_RESOURCE, node.gpus.to_string()),
    ];
    let allocatable: BTreeMap<_, _> = resources
        .into_iter()
        .map(|(resource, text)| (resource.to_owned(), text))
        .collect();
    let mut shown = api::Node::new(node.name.clone(), allocatable);
    shown.metadata.labels.clone_from(&node.labels);
    shown.spec.unschedulable = node.unschedulable;
    shown
}

pub(super) fn read(node: &Node) -> Option<Object> {
    let metadata = node.get("metadata")?;
    let name = limit::object_name(name_of(node)?.text()?).ok()?;
    let allocatable = node.get("status")?.get("allocatable")?;
    let of = |resource: &str, read: fn(&str) -> Result<u64, Wrong>| match allocatable
        .get(resource)
        .map(|node| &node.kind)
    {
        Some(Kind::Text(text) | Kind::Number(text)) => read(text).ok(),
        _ => Some(0),
    };
    let capacity = Amount {
        slots: 0,
        cpu_milli: of("cpu", cpu)?,
        memory_bytes: of("memory", whole)?,
        gpus: of(GPU_RESOURCE, gpus)?,
    };
    let mut read = inventory::Node::new(name, &capacity);
    let labels = metadata.get("labels");
    read.labels = LABELS
        .into_iter()
        .filter_map(|key| Some((key, labels?.get(key)?.text()?)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let cordon = node.get("spec").and_then(|spec| spec.get("unschedulable"));
    read.unschedulable = matches!(cordon.map(|node| &node.kind), Some(Kind::Bool(true)));
    Some(Object::Node(read))
}

fn cpu(text: &str) -> Result<u64, Wrong> {
    quantity::cpu_milli(text).map_err(|error| limit::quantity_error(&error))
}

/// GPUs are whole, and a node has at most as many as runs can lease.
fn gpus(text: &str) -> Result<u64, Wrong> {
    let max = u64::from(NODE_GPUS_MAX);
    let gpus = text.parse().ok().filter(|gpus| *gpus <= max);
    gpus.ok_or_else(|| Wrong::new(whole_number(0, max)))
}

fn whole(text: &str) -> Result<u64, Wrong> {
    quantity::memory_bytes(text).map_err(|error| limit::quantity_error(&error))
}
