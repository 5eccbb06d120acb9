//! Prints the OpenAPI description: the bytes of `openapi.json` in the repository.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(bursar_server::http::generate().as_bytes())
}
