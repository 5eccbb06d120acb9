//! The OpenAPI description, generated from the routes.

use std::sync::OnceLock;

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, Info, License, OpenApi, OpenApiBuilder};

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
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = ComponentsBuilder::new()
        .security_scheme("token", SecurityScheme::Http(bearer))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .build()
}

/// The description as pretty JSON with a final newline: the bytes of `openapi.json` in the
/// repository.
pub fn description() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = whole().to_pretty_json().unwrap_or_default();
        text.push('\n');
        text
    })
}

/// All paths, with their variable parts in braces.
pub(super) fn paths() -> &'static [String] {
    static PATHS: OnceLock<Vec<String>> = OnceLock::new();
    PATHS.get_or_init(|| whole().paths.paths.into_keys().collect())
}

/// Builds the description. `{*name}`, which matches the rest of a path, is written `{name}`.
fn whole() -> OpenApi {
    let mut description = super::routes().to_openapi();
    let paths = std::mem::take(&mut description.paths.paths);
    description.paths.paths = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    description
}
