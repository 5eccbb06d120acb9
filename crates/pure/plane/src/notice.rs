//! An event as people and programs read it.

use bursar_units::Label;

/// The sentence of an event, with its data for programs. It depends on the record alone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice<D> {
    /// Name of the event in the stream, such as `booking.granted`; `None` keeps it out of the stream.
    pub stream: Option<&'static str>,
    /// The object that it is about, such as `booking/job-1`.
    pub object: String,
    /// The tenant that it belongs to, where the record says it.
    pub tenant: Option<Label>,
    /// The class, where it has one and the record says it.
    pub class: Option<Label>,
    /// One line, in lower case, without a full stop. It never holds a fence.
    pub summary: String,
    /// Data for programs.
    pub data: D,
}

impl<D> Notice<D> {
    /// A notice of no tenant and no class.
    pub fn new(stream: &'static str, object: String, summary: String, data: D) -> Self {
        Self {
            stream: Some(stream),
            object,
            tenant: None,
            class: None,
            summary,
            data,
        }
    }

    /// The same notice with its data in another form.
    pub fn map<E>(self, form: impl FnOnce(D) -> E) -> Notice<E> {
        Notice {
            stream: self.stream,
            object: self.object,
            tenant: self.tenant,
            class: self.class,
            summary: self.summary,
            data: form(self.data),
        }
    }
}
