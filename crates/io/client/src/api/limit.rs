//! Limits as declared objects, in Kubernetes form.
//!
//! A field of a limit is one row: its name and schema, its check, and its conversion from and to
//! the limit of the plane of bookings.

use bursar_booking::limit::WEIGHT_MAX;
use bursar_units::quantity::{format_cpu, format_memory};
use bursar_units::{INTEGER_MAX, Instant, Label, ObjectName};
use serde::{Deserialize, Deserializer, Serialize};

use super::{instant, integer};
use crate::ToSchema;
use crate::object::limit::{bound_text, cpu, duration, hours, memory, scope, scope_text, ttl};
use crate::object::spec::spec;

/// API group and version of Bursar's own kinds.
pub const API_VERSION: &str = "bursar.dev/v1alpha1";

/// A bound on slots, CPU, memory or GPUs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// `bursar.dev/v1alpha1`.
    pub api_version: String,
    /// `Limit`.
    pub kind: String,
    /// Name and version.
    pub metadata: Metadata,
    /// Declared bounds.
    pub spec: LimitSpec,
    /// Present use; written by the server and ignored in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<LimitStatus>,
}

/// Name and version of an object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Name, unique among objects of its kind.
    #[schema(value_type = String, max_length = 253)]
    pub name: ObjectName,
    /// Version, different for every content. With `If-Match` a change applies to this version only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

spec! {
    /// Declared bounds. An absent `class` or `tenant` means all of them together; an absent bound
    /// means unbounded.
    pub struct LimitSpec of bursar_booking::Limit {
        /// A class, or `each` for one counter per class.
        #[schema(max_length = 128)]
        class "class": String = text(scope),
            |limit, class| limit.class = Some(class),
            |limit| limit.class.as_ref().map(scope_text);
        /// A tenant, or `each` for one counter per tenant.
        #[schema(max_length = 128)]
        tenant "tenant": String = text(scope),
            |limit, tenant| limit.tenant = Some(tenant),
            |limit| limit.tenant.as_ref().map(scope_text);
        /// Maximum units of admission; 0 pauses.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        slots "slots": u64 = whole(0, INTEGER_MAX),
            |limit, slots| limit.slots = Some(slots),
            |limit| limit.slots;
        /// Maximum CPU: `500m`, `60`, or `80%` of the inventory.
        #[serde(deserialize_with = "quantity")]
        #[schema(value_type = Option<String>, example = "60")]
        cpu "cpu": String = quantity(cpu),
            |limit, cpu| limit.cpu = Some(cpu),
            |limit| limit.cpu.map(|bound| bound_text(bound, format_cpu));
        /// Maximum memory: `240Gi`, or `80%` of the inventory.
        #[serde(deserialize_with = "quantity")]
        #[schema(value_type = Option<String>, example = "240Gi")]
        memory "memory": String = quantity(memory),
            |limit, memory| limit.memory = Some(memory),
            |limit| limit.memory.map(|bound| bound_text(bound, format_memory));
        /// Maximum number of whole GPUs.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        gpus "gpus": u64 = whole(0, INTEGER_MAX),
            |limit, gpus| limit.gpus = Some(gpus),
            |limit| limit.gpus;
        /// Maximum number of waiting bookings; default 10,000.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        max_queue "maxQueue": u64 = whole(0, INTEGER_MAX),
            |limit, max| limit.queue_max = max,
            |limit| Some(limit.queue_max);
        /// Maximum number of waiting bookings of one tenant; default a tenth of `maxQueue`, rounded
        /// up. Absent in limits older than this field: only `maxQueue` applies.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(maximum = 9_007_199_254_740_991_u64)]
        max_queue_per_tenant "maxQueuePerTenant": u64 = whole(0, INTEGER_MAX),
            |limit, max| limit.tenant_queue_max = Some(max),
            |limit| limit.tenant_queue_max;
        /// Maximum wait that a request may have; default `24h`.
        #[schema(example = "24h")]
        max_wait "maxWait": String = text(duration),
            |limit, max| limit.wait_max = max,
            |limit| Some(hours(limit.wait_max));
        /// Maximum ttl that a request may have; default and maximum `24h`.
        #[schema(example = "24h")]
        max_ttl "maxTTL": String = text(ttl),
            |limit, max| limit.ttl_max = max,
            |limit| Some(hours(limit.ttl_max));
        /// Weight of the tenant in fair queueing, 1 to 1,000; only with `tenant` and without `class`.
        #[serde(deserialize_with = "integer::optional")]
        #[schema(minimum = 1, maximum = 1_000)]
        weight "weight": u64 = whole(1, WEIGHT_MAX),
            |limit, weight| limit.weight = Some(weight),
            |limit| limit.weight;
    }
}

/// Present use of a limit.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitStatus {
    /// Bounds, with percentages computed from the present inventory.
    pub bounds: Bounds,
    /// Held under the limit, all counters together.
    pub in_use: InUse,
    /// Number of waiting bookings.
    pub waiting: u64,
    /// Start of the longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub waiting_since: Option<Instant>,
    /// One counter per class or tenant for `each` (the 100 with the most in use, by name), otherwise
    /// one. `use` tokens see the counters of their own tenants, and the sums above are over these.
    pub counters: Vec<LimitCounter>,
    /// Number of counters that are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub counters_left_out: u64,
}

/// One counter of a limit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitCounter {
    /// Counted class, if the limit has one counter per class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub class: Option<Label>,
    /// Counted tenant, if the limit has one counter per tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<Label>,
    /// Held amounts.
    pub in_use: InUse,
    /// Number of waiting bookings.
    pub waiting: u64,
}

/// Bounds as numbers; absent means unbounded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// Units of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// Millicores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u64>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u64>,
}

/// Held amounts in all four dimensions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InUse {
    /// Units of admission.
    pub slots: u64,
    /// Millicores.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Whole GPUs.
    pub gpus: u64,
}

impl Limit {
    /// Object with this name and spec, as in a file.
    pub fn new(name: ObjectName, spec: LimitSpec) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Limit".to_owned(),
            metadata: Metadata {
                name,
                resource_version: None,
            },
            spec,
            status: None,
        }
    }
}

impl From<bursar_units::Amount> for InUse {
    fn from(amount: bursar_units::Amount) -> Self {
        Self {
            slots: amount.slots,
            cpu_milli: amount.cpu_milli,
            memory_bytes: amount.memory_bytes,
            gpus: amount.gpus,
        }
    }
}

impl From<bursar_units::Bounds> for Bounds {
    fn from(bounds: bursar_units::Bounds) -> Self {
        Self {
            slots: bounds.slots,
            cpu_milli: bounds.cpu_milli,
            memory_bytes: bounds.memory_bytes,
            gpus: bounds.gpus,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Reads a quantity: a text, or a whole number without quotes.
pub(crate) fn quantity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Whole(u64),
    }
    Ok(
        Option::<Either>::deserialize(deserializer)?.map(|either| match either {
            Either::Text(text) => text,
            Either::Whole(whole) => whole.to_string(),
        }),
    )
}
