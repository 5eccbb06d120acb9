//! Locations of nodes, and the selectors of envelopes.

use std::fmt;

use bursar_units::Label;
use serde::{Deserialize, Serialize};

/// The fabric domain of a group of pods. Its text `region/cluster/domain` is the key of the domain;
/// labels have no slash.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Place {
    /// Region.
    pub region: Label,
    /// Cluster in the region.
    pub cluster: Label,
    /// Fabric domain in the cluster.
    pub domain: Label,
}

/// A restriction to some places; an absent part matches any.
#[derive(Clone, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// Region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Label>,
    /// Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Label>,
    /// Fabric domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Label>,
}

impl Selector {
    /// Whether the place is one of those selected.
    pub fn matches(&self, place: &Place) -> bool {
        let agrees = |part: &Option<Label>, label: &Label| part.as_ref().is_none_or(|p| p == label);
        agrees(&self.region, &place.region)
            && agrees(&self.cluster, &place.cluster)
            && agrees(&self.domain, &place.domain)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.region, self.cluster, self.domain)
    }
}

/// The parts from the region on, `*` for a part that matches any; `any` for all.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.region, &self.cluster, &self.domain];
        let Some(last) = parts.iter().rposition(|part| part.is_some()) else {
            return f.write_str("any");
        };
        for (number, part) in parts.into_iter().take(last + 1).enumerate() {
            let slash = if number == 0 { "" } else { "/" };
            write!(f, "{slash}{}", part.as_ref().map_or("*", Label::as_str))?;
        }
        Ok(())
    }
}
