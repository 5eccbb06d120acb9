//! Generator of the OpenAPI description.

use std::collections::BTreeMap;

use bursar_client::api::PROBLEM_MEDIA_TYPE;
use utoipa::IntoResponses;
use utoipa::openapi::response::Response;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, Info, License, OpenApi, OpenApiBuilder, Ref, RefOr,
    ResponseBuilder,
};
use utoipa_axum::router::OpenApiRouter;

/// The description, as far as it is generated.
pub(crate) type Describing = OpenApiRouter;

fn head() -> OpenApi {
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

/// Generates the bytes of `openapi.json`: pretty JSON with a final newline. `{*name}`, which matches
/// the rest of a path, is written `{name}`.
pub fn generate() -> String {
    let all = super::routes().fold(Describing::with_openapi(head()), |all, route| {
        (route.described)(all)
    });
    let mut description = all.into_openapi();
    let paths = std::mem::take(&mut description.paths.paths);
    description.paths.paths = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    description.to_pretty_json().unwrap_or_default() + "\n"
}

/// The problems that every authenticated call may be refused with.
pub(crate) struct Refusals;

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
        let refused = ResponseBuilder::new()
            .description("Refused, with the reason")
            .content(PROBLEM_MEDIA_TYPE, problem.build());
        BTreeMap::from([("default".to_owned(), refused.build().into())])
    }
}
