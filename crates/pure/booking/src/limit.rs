//! Limits: four kinds, at most one of each applies to a request (S1).

use std::collections::BTreeMap;
use std::sync::Arc;

use bursar_units::{Amount, Bounds, Dimension, Label, Millis, ObjectName, Total, whole};
use serde::{Deserialize, Serialize};

/// Name of the shipped limit on each class, which can be changed but not deleted.
pub const DEFAULT_NAME: &str = "default";
/// Name of the shipped limit on each tenant, which can be changed but not deleted.
pub const TENANTS_NAME: &str = "tenants";
/// Slots per tenant in the shipped limit. It keeps tenants from avoiding limits of classes with new
/// classes.
pub const TENANTS_SLOTS: u64 = 1_000;
/// Slots per class in the shipped limit.
pub const DEFAULT_SLOTS: u64 = 100;
/// Weight of a tenant whose limit names none.
pub const WEIGHT_DEFAULT: u64 = 100;
/// Largest weight.
pub const WEIGHT_MAX: u64 = 1_000;
/// Most waiting bookings of a limit that names no bound.
pub const QUEUE_DEFAULT: u64 = 10_000;
/// Longest wait of a limit that names no bound.
pub const WAIT_DEFAULT: Millis = Millis::from_hours(24);

/// Values of a field that a limit applies to.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// One counter per value.
    Each,
    /// This value only.
    Named(Label),
}

/// A bound in one dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    /// Absolute value.
    Exactly(#[serde(with = "whole")] u64),
    /// Percentage of the inventory, rounded down.
    Percent(#[serde(with = "whole")] u64),
}

/// A limit as declared.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// Name.
    pub name: ObjectName,
    /// Classes; `None` is all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Scope>,
    /// Tenants; `None` is all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Scope>,
    /// Most slots.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub slots: Option<u64>,
    /// Most CPU: millicores, or a share of the inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Bound>,
    /// Most memory: bytes, or a share of the inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bound>,
    /// Most whole GPUs.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub gpus: Option<u64>,
    /// Most waiting bookings.
    #[serde(rename = "maxQueue", with = "whole")]
    pub queue_max: u64,
    /// Most waiting bookings of one tenant; `None` in limits from before level 1, without such a
    /// bound.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "maxQueuePerTenant",
        with = "whole::optional"
    )]
    pub tenant_queue_max: Option<u64>,
    /// Longest wait of a request.
    #[serde(rename = "maxWaitMs")]
    pub wait_max: Millis,
    /// Longest ttl of a request.
    #[serde(rename = "maxTtlMs")]
    pub ttl_max: Millis,
    /// Weight in fair queueing (S3); only in limits of tenants.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "whole::optional"
    )]
    pub weight: Option<u64>,
}

/// Kind of a limit, in the order in which refusals list them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Kind {
    /// All requests together.
    Everything,
    /// The requests of one tenant.
    Tenant,
    /// The requests of one class.
    Class,
    /// The requests of one tenant in one class.
    ClassTenant,
}

/// A limit with its bounds on the current inventory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Declared {
    /// Limit as declared.
    pub limit: Limit,
    /// Bounds, with percentages as absolute values.
    pub bounds: Bounds,
}

/// Limits that apply to one class and tenant: at most one of each kind, in kind order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied([Option<Arc<Declared>>; 4]);

/// One counter of a limit against its bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitUse {
    /// Name of the limit.
    pub name: ObjectName,
    /// Dimension.
    pub dimension: Dimension,
    /// Bound; zero means paused.
    pub size: u64,
    /// Amount held.
    pub in_use: u64,
    /// Number of bookings that wait under this counter.
    pub waiting: u64,
}

type Scopes = (Option<Scope>, Option<Scope>);

/// All limits, by name and by scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    declared: BTreeMap<ObjectName, Arc<Declared>>,
    /// One limit for each scope between records. Within a record two may share a scope for a
    /// moment, so the inner map keeps both.
    by_scope: BTreeMap<Scopes, BTreeMap<ObjectName, Arc<Declared>>>,
    inventory: Total,
}

impl Limit {
    /// A limit without bounds.
    pub fn unbounded(name: ObjectName, class: Option<Scope>, tenant: Option<Scope>) -> Self {
        Self {
            name,
            class,
            tenant,
            slots: None,
            cpu: None,
            memory: None,
            gpus: None,
            queue_max: QUEUE_DEFAULT,
            tenant_queue_max: None,
            wait_max: WAIT_DEFAULT,
            ttl_max: crate::TTL_MAX,
            weight: None,
        }
    }

    /// Default share of a queue that one tenant may fill: a tenth.
    pub fn tenant_queue_default_ceil(queue_max: u64) -> u64 {
        queue_max.div_ceil(10)
    }

    /// Shipped limit on each tenant.
    pub fn shipped_for_tenants() -> Self {
        Self {
            slots: Some(TENANTS_SLOTS),
            weight: Some(WEIGHT_DEFAULT),
            tenant_queue_max: Some(Self::tenant_queue_default_ceil(QUEUE_DEFAULT)),
            ..Self::unbounded(ObjectName::known(TENANTS_NAME), None, Some(Scope::Each))
        }
    }

    /// Shipped limit on each class.
    pub fn shipped() -> Self {
        Self {
            slots: Some(DEFAULT_SLOTS),
            ..Self::unbounded(ObjectName::known(DEFAULT_NAME), Some(Scope::Each), None)
        }
    }

    /// Kind of the limit.
    pub fn kind(&self) -> Kind {
        match (&self.class, &self.tenant) {
            (None, None) => Kind::Everything,
            (None, Some(_)) => Kind::Tenant,
            (Some(_), None) => Kind::Class,
            (Some(_), Some(_)) => Kind::ClassTenant,
        }
    }

    /// Bounds on a given inventory; a percentage rounds down and saturates.
    pub fn bounds_on(&self, inventory: &Total) -> Bounds {
        let absolute = |bound: Option<Bound>, dimension| {
            bound.map(|bound| match bound {
                Bound::Exactly(value) => value,
                Bound::Percent(percent) => {
                    let whole = inventory.of(dimension);
                    let share_floor = whole.saturating_mul(u128::from(percent)) / 100;
                    u64::try_from(share_floor).unwrap_or(u64::MAX)
                }
            })
        };
        Bounds {
            slots: self.slots,
            cpu_milli: absolute(self.cpu, Dimension::Cpu),
            memory_bytes: absolute(self.memory, Dimension::Memory),
            gpus: self.gpus,
        }
    }
}

impl Declared {
    /// Use of a counter of the limit, in every dimension that the limit bounds.
    pub fn uses(&self, used: &Amount, waiting: u64) -> impl Iterator<Item = LimitUse> {
        Dimension::ALL.into_iter().filter_map(move |dimension| {
            Some(LimitUse {
                name: self.limit.name.clone(),
                dimension,
                size: self.bounds.of(dimension)?,
                in_use: used.of(dimension),
                waiting,
            })
        })
    }
}

impl Applied {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Declared> {
        self.0.iter().flatten().map(AsRef::as_ref)
    }

    /// Weight of the tenant.
    pub(crate) fn weight(&self) -> u64 {
        let [_, tenant, _, _] = &self.0;
        tenant
            .as_ref()
            .and_then(|declared| declared.limit.weight)
            .unwrap_or(WEIGHT_DEFAULT)
    }
}

impl Limits {
    pub(crate) fn set(&mut self, limit: &Limit) {
        let name = &limit.name;
        self.drop(name);
        let declared = Arc::new(Declared {
            limit: limit.clone(),
            bounds: limit.bounds_on(&self.inventory),
        });
        let scopes = (limit.class.clone(), limit.tenant.clone());
        self.by_scope
            .entry(scopes)
            .or_default()
            .insert(name.clone(), Arc::clone(&declared));
        self.declared.insert(name.clone(), declared);
    }

    pub(crate) fn drop(&mut self, name: &ObjectName) {
        let Some(declared) = self.declared.remove(name) else {
            return;
        };
        let scopes = (declared.limit.class.clone(), declared.limit.tenant.clone());
        if let Some(same) = self.by_scope.get_mut(&scopes) {
            same.remove(name);
            if same.is_empty() {
                self.by_scope.remove(&scopes);
            }
        }
    }

    pub(crate) fn set_inventory(&mut self, inventory: Total) {
        self.inventory = inventory;
        let all: Vec<_> = self.declared.values().cloned().collect();
        for declared in all {
            self.set(&declared.limit);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Declared> {
        self.declared.values().map(AsRef::as_ref)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Declared> {
        self.declared.get(name).map(AsRef::as_ref)
    }

    /// Declares without indexing scopes, to check several changes before any is made.
    pub(crate) fn declare(&mut self, limit: &Limit) {
        let declared = Declared {
            limit: limit.clone(),
            bounds: Bounds::default(),
        };
        self.declared.insert(limit.name.clone(), Arc::new(declared));
    }

    /// Reverts [`Self::declare`].
    pub(crate) fn undeclare(&mut self, name: &ObjectName) {
        self.declared.remove(name);
    }

    /// Two declared limits with the same class and tenant.
    pub(crate) fn same_scopes(&self) -> Option<(ObjectName, ObjectName)> {
        let mut seen = BTreeMap::new();
        self.declared.values().find_map(|declared| {
            let scopes = (&declared.limit.class, &declared.limit.tenant);
            let other = seen.insert(scopes, &declared.limit.name)?;
            Some((declared.limit.name.clone(), other.clone()))
        })
    }

    /// Limits that apply to a class and tenant.
    ///
    /// A limit that names a value beats the `each` limit of its kind; for class × tenant the
    /// order is both named, class named, tenant named, both each.
    pub(crate) fn applied(&self, class: &Label, tenant: &Label) -> Applied {
        let (c, t) = (
            || Some(Scope::Named(class.clone())),
            || Some(Scope::Named(tenant.clone())),
        );
        let each = || Some(Scope::Each);
        let first = |scopes: &[Scopes]| {
            scopes
                .iter()
                .find_map(|scope| self.by_scope.get(scope)?.values().next())
                .cloned()
        };
        Applied([
            first(&[(None, None)]),
            first(&[(None, t()), (None, each())]),
            first(&[(c(), None), (each(), None)]),
            first(&[(c(), t()), (c(), each()), (each(), t()), (each(), each())]),
        ])
    }
}
