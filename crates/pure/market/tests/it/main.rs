//! The market, held to its promises.

mod golden;
