//! A page for each problem code, and the OpenAPI description.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use bursar_client::{Code, Problem};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::respond::{Handled, bytes};
use super::{App, openapi as described};
use crate::service::nearest_name;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(problem_page))
        .routes(routes!(openapi))
}

/// Page that explains a problem code and its remedy.
#[utoipa::path(get, path = "/problems/{code}", tag = "server", params(("code" = String, Path)),
    responses((status = 200, body = String, content_type = "text/html"),
              (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn problem_page(path: Result<Path<String>, PathRejection>) -> Handled {
    let word = path.map(|Path(word)| word).unwrap_or_default();
    let code = Code::from_word(&word).ok_or_else(|| {
        let words = Code::ALL.iter().map(|code| code.word());
        Problem {
            suggestion: nearest_name(&word, words),
            ..Problem::new(Code::NotFound, "no problem has this code")
        }
    })?;
    Ok(bytes("text/html; charset=utf-8", html(code)))
}

/// This OpenAPI description.
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Object)))]
async fn openapi() -> Handled {
    Ok(bytes("application/json", described::description()))
}

/// A page without scripts or styles, which is readable in a terminal too.
fn html(code: Code) -> String {
    let page = code.page();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{code}: {title}</title>\n\
         <h1>{title}</h1>\n<p><code>{code}</code>, HTTP {status}, exit code {exit}</p>\n<p>{text}</p>\n</html>\n",
        code = page.code,
        title = page.title,
        status = page.status,
        exit = page.exit,
        text = code_marks(page.text),
    )
}

/// Marks text between backticks as code and escapes the rest.
fn code_marks(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    escaped
        .split('`')
        .enumerate()
        .map(|(at, part)| {
            if at % 2 == 1 {
                format!("<code>{part}</code>")
            } else {
                part.to_owned()
            }
        })
        .collect()
}
