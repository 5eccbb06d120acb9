//! Macros that keep the generator of `openapi.json` out of the program.
//!
//! The server serves the committed file. Only tests and `cargo xtask` generate it, with the feature
//! `schema` of `client` and `server`. Without that feature neither `utoipa` nor the code of its
//! macros is compiled, which saves a minute of CPU time in the first build.

use proc_macro::TokenStream;

/// Accepts the attributes of `utoipa::ToSchema` and generates nothing. With the feature `schema`
/// types derive `utoipa::ToSchema` in its place.
#[proc_macro_derive(ToSchema, attributes(schema))]
pub fn no_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Declares the route of a handler: a constant `ROUTE` in a module that is named like the handler.
///
/// The handler has one argument, whose type names its variant of `http::Handler`.
///
/// The arguments are those of `utoipa::path`, with `METHOD, path = "PATH"` first. They name types of
/// `client::api` without an import, because only the feature `schema` uses them.
#[proc_macro_attribute]
pub fn route(arguments: TokenStream, handler: TokenStream) -> TokenStream {
    let words = |stream: &TokenStream| stream.clone().into_iter().map(|token| token.to_string());
    let mut described = words(&arguments);
    let mut declared = words(&handler).skip_while(|word| word != "fn").skip(1);
    let (Some(method), Some(path), Some(name), Some(input)) = (
        described.next().map(|method| method.to_uppercase()),
        described.nth(3),
        declared.next(),
        declared.next(),
    ) else {
        return "compile_error!(\"route needs METHOD, path = PATH, and a function\");"
            .parse()
            .unwrap_or_default();
    };
    let input = input
        .trim_end_matches(')')
        .rsplit(' ')
        .next()
        .unwrap_or_default();
    let about: String = words(&handler).take_while(|word| word != "async").collect();
    let route = format!(
        "mod {name} {{
            pub(super) const ROUTE: crate::http::Route = crate::http::Route {{
                path: {path},
                method: axum::routing::MethodFilter::{method},
                handler: crate::http::Handler::{input}(|input| Box::pin(super::{name}(input))),
                #[cfg(feature = \"schema\")]
                described: |all| all.routes(utoipa_axum::routes!(described::{name})),
            }};

            #[cfg(feature = \"schema\")]
            mod described {{
                #[allow(unused_imports)]
                use {{bursar_client::Problem, bursar_client::api::*, crate::http::Refusals}};

                {about}
                #[utoipa::path({arguments})]
                pub(super) async fn {name}() {{}}
            }}
        }}"
    );
    let route: TokenStream = route.parse().unwrap_or_default();
    [handler, route].into_iter().collect()
}
