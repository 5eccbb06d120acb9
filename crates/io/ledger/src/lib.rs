//! The durable side of the spine: stores, the writer with group commit, and the committed view.

pub mod store;
