//! A page for every code of a problem, and the description of the API.

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

/// What a problem means and what to do.
#[utoipa::path(get, path = "/problems/{code}", tag = "server", params(("code" = String, Path)),
    responses((status = 200, body = String, content_type = "text/html"),
              (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn problem_page(path: Result<Path<String>, PathRejection>) -> Handled {
    let word = path.map(|Path(word)| word).unwrap_or_default();
    let code = Code::from_word(&word).ok_or_else(|| {
        let words = Code::ALL.iter().map(|code| code.word());
        Problem {
            suggestion: nearest_name(&word, words),
            ..Problem::new(Code::NotFound, "there is no problem of that code")
        }
    })?;
    Ok(bytes("text/html; charset=utf-8", html(code)))
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Object)))]
async fn openapi() -> Handled {
    Ok(bytes("application/json", described::description()))
}

/// A page that needs nothing but a browser, and is plain enough for a terminal.
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

/// Words between backticks as code; everything else is plain text of our own.
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
