//! Parameters that only the server parses.

use bursar_client::Problem;
use bursar_client::api::query::{Parameter, invalid};

use crate::service::{Cursor, Position};

impl Parameter for Cursor {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let message =
            "is not a cursor of this list; send `nextCursor` of the previous page unchanged";
        Self::parse(text).ok_or_else(|| invalid(name, message))
    }
}

impl Parameter for Position {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let message = "is not `record.index`, as in `48212.1`";
        Self::parse(text).ok_or_else(|| invalid(name, message))
    }
}
