//! The description of the API, as the routes themselves give it.

use std::sync::OnceLock;

use utoipa::openapi::{Info, License, OpenApi, OpenApiBuilder};

/// What is said before the routes.
pub(super) fn head() -> OpenApi {
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    let mut info = Info::new("Bursar", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Slots that always come back, decided by one engine over one ledger. Bodies have at most \
         1 MiB, batches 1,024 operations, pages 1,000 items, names 253 characters; a server has at \
         most 1,000 streams. Every answer carries `Bursar-Record`, the last ledger record it \
         reflects; every failure is an RFC 9457 problem with a stable `code`."
            .to_owned(),
    );
    info.license = Some(license);
    OpenApiBuilder::new().info(info).build()
}

/// The whole description: pretty JSON with one newline at its end, the bytes in the tree.
pub fn description() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let description = super::routes().to_openapi();
        let mut text = description.to_pretty_json().unwrap_or_default();
        text.push('\n');
        text
    })
}

/// All addresses, with their variable parts in braces.
pub(super) fn paths() -> Vec<String> {
    static PATHS: OnceLock<Vec<String>> = OnceLock::new();
    PATHS.get_or_init(|| super::routes().to_openapi().paths.paths.into_keys().collect()).clone()
}
