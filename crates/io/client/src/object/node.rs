//! Conversion between `v1/Node` objects and the resources of a node.

use std::collections::BTreeMap;

use bursar_units::{Amount, ObjectName, quantity};

use super::{API_VERSION, KIND, Object, limit, name_of};
use crate::api;
use crate::shape::{Field, Shape, Wrong};
use crate::tree::{Kind, Node};

/// Name of the resource that counts whole GPUs.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// Shape of the part of a node's document that is read.
pub(crate) const SHAPE: Shape = Shape::Open(&[
    API_VERSION,
    KIND,
    Field::required(
        "metadata",
        Shape::Open(&[Field::required(
            "name",
            Shape::Text(|text| limit::object_name(text).map(drop)),
        )]),
    ),
    Field::optional(
        "status",
        Shape::Open(&[Field::optional(
            "allocatable",
            Shape::Open(&[
                Field::optional("cpu", Shape::Quantity(|text| cpu(text).map(drop))),
                Field::optional("memory", Shape::Quantity(|text| whole(text).map(drop))),
                Field::optional(GPU_RESOURCE, Shape::Quantity(|text| whole(text).map(drop))),
            ]),
        )]),
    ),
]);

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

/// Declared object of a node with these resources.
pub fn object(name: &ObjectName, capacity: &Amount) -> api::Node {
    let resources = [
        ("cpu", quantity::format_cpu(capacity.cpu_milli)),
        ("memory", quantity::format_memory(capacity.memory_bytes)),
        (GPU_RESOURCE, capacity.gpus.to_string()),
    ];
    let allocatable: BTreeMap<_, _> = resources
        .into_iter()
        .map(|(resource, text)| (resource.to_owned(), text))
        .collect();
    api::Node::new(name.clone(), allocatable)
}

pub(super) fn read(node: &Node) -> Option<Object> {
    let name = limit::object_name(name_of(node)?.text()?).ok()?;
    let allocatable = node
        .get("status")
        .and_then(|status| status.get("allocatable"));
    let of = |resource: &str, read: fn(&str) -> Result<u64, Wrong>| match allocatable
        .and_then(|node| node.get(resource))
        .map(|node| &node.kind)
    {
        Some(Kind::Text(text) | Kind::Number(text)) => read(text).ok(),
        _ => Some(0),
    };
    let capacity = Amount {
        slots: 0,
        cpu_milli: of("cpu", cpu)?,
        memory_bytes: of("memory", whole)?,
        gpus: of(GPU_RESOURCE, whole)?,
    };
    Some(Object::Node { name, capacity })
}

fn cpu(text: &str) -> Result<u64, Wrong> {
    quantity::cpu_milli(text).map_err(|error| limit::quantity_error(&error))
}

fn whole(text: &str) -> Result<u64, Wrong> {
    quantity::memory_bytes(text).map_err(|error| limit::quantity_error(&error))
}
