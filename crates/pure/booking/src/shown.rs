//! A booking right after a command, as the answer to that command shows it.
//!
//! The reply carries it, so that the answer does not depend on a later state.

use bursar_units::{BookingId, Label};

use crate::archive::Ended;
use crate::book::{Granted, Queued};
use crate::execution::Order;
use crate::names::NameIndex;
use crate::{Bookings, Standing};

/// A booking in a reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    tenant: Label,
    kept: Kept,
}

/// A booking as stored in the state.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Kept {
    Queued(Queued),
    Granted(Granted),
    Ended(Ended),
}

impl Shown {
    /// Tenant that it counts for.
    pub fn tenant(&self) -> &Label {
        &self.tenant
    }

    /// State of the booking.
    pub fn standing(&self) -> Standing<'_> {
        match &self.kept {
            Kept::Queued(queued) => queued.standing(),
            Kept::Granted(granted) => Standing::Granted(granted),
            Kept::Ended(ended) => Standing::Ended(ended),
        }
    }

    /// The remark on it.
    pub fn note(&self) -> Option<&str> {
        match &self.kept {
            Kept::Queued(queued) => queued.terms.note(),
            Kept::Granted(granted) => granted.terms.note(),
            Kept::Ended(ended) => ended.note(),
        }
    }

    /// Order of an execution; `None` for a plain booking.
    pub fn order(&self) -> Option<&Order> {
        match &self.kept {
            Kept::Queued(queued) => queued.terms.order(),
            Kept::Granted(granted) => granted.terms.order(),
            Kept::Ended(ended) => ended.order(),
        }
    }
}

impl Bookings {
    /// The booking as it is now; `None` for an unknown id.
    pub(crate) fn shown(&self, id: &BookingId) -> Option<Box<Shown>> {
        // Most replies that show a booking are about one that has ended.
        let mut kept = if let Some(ended) = self.archive.get(id) {
            Kept::Ended(ended.clone())
        } else if let Some(granted) = self.granted.get(id) {
            Kept::Granted(granted.clone())
        } else {
            Kept::Queued(self.queued.get(id)?.clone())
        };
        let (class, tenant) = match &mut kept {
            Kept::Queued(Queued { terms, .. }) | Kept::Granted(Granted { terms, .. }) => {
                (&mut terms.class, &mut terms.tenant)
            }
            Kept::Ended(ended) => (&mut ended.class, &mut ended.tenant),
        };
        let label = self.tenants.label(*tenant)?.clone();
        // Numbers of names differ between copies of the state; replies must not.
        (*class, *tenant) = (NameIndex::NONE, NameIndex::NONE);
        Some(Box::new(Shown {
            tenant: label,
            kept,
        }))
    }
}
