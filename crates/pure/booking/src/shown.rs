//! A booking as it stands right after a command about it: what the answer to that command shows.
//!
//! The reply carries it, so that nobody has to look at a later state to answer.

use bursar_units::{BookingId, Label};

use crate::archive::Ended;
use crate::book::{Granted, Queued};
use crate::execution::Order;
use crate::{Bookings, Standing};

/// A booking that a reply shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    tenant: Label,
    kept: Kept,
}

/// A booking as the state keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Kept {
    Queued(Queued),
    Granted(Granted),
    Ended(Ended),
}

impl Shown {
    /// The tenant that it counts for.
    pub fn tenant(&self) -> &Label {
        &self.tenant
    }

    /// How it stands.
    pub fn standing(&self) -> Standing<'_> {
        match &self.kept {
            Kept::Queued(queued) => queued.standing(),
            Kept::Granted(granted) => Standing::Granted(granted),
            Kept::Ended(ended) => Standing::Ended(ended),
        }
    }

    /// What is run under it; `None` for a plain booking.
    pub fn order(&self) -> Option<&Order> {
        match &self.kept {
            Kept::Queued(queued) => queued.terms.order(),
            Kept::Granted(granted) => granted.terms.order(),
            Kept::Ended(ended) => ended.order(),
        }
    }
}

impl Bookings {
    /// A booking as it stands now; `None` for an id that is not known.
    pub(crate) fn shown(&self, id: &BookingId) -> Option<Box<Shown>> {
        // Most replies that show a booking are about one that has ended.
        let (tenant, kept) = if let Some(ended) = self.archive.get(id) {
            (ended.tenant, Kept::Ended(ended.clone()))
        } else if let Some(granted) = self.granted.get(id) {
            (granted.terms.tenant, Kept::Granted(granted.clone()))
        } else {
            let queued = self.queued.get(id)?;
            (queued.terms.tenant, Kept::Queued(queued.clone()))
        };
        let tenant = self.tenants.label(tenant)?.clone();
        Some(Box::new(Shown { tenant, kept }))
    }
}
