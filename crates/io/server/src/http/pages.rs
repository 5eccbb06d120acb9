//! A page for each problem code, and the OpenAPI description.

#![expect(clippy::unused_async, reason = "all handlers have one form")]

use bursar_client::{Code, Problem, nearest};
use bursar_schema::route;

use super::call::Open;
use super::respond::{Handled, bytes};
use super::{DESCRIPTION, Route};

pub(super) const ROUTES: &[Route] = &[problem_page::ROUTE, openapi::ROUTE];

/// Page that explains a problem code and its remedy.
#[route(get, path = "/problems/{code}", tag = "server", params(("code" = String, Path)),
    responses((status = 200, body = String, content_type = "text/html"),
              (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn problem_page(open: Open) -> Handled {
    let word = open.part();
    let code = Code::from_word(word).ok_or_else(|| {
        let words = Code::ALL.iter().map(|code| code.word());
        Problem {
            suggestion: nearest(word, words).map(str::to_owned),
            ..Problem::new(Code::NotFound, "no problem has this code")
        }
    })?;
    Ok(bytes("text/html; charset=utf-8", html(code)))
}

/// This OpenAPI description.
#[route(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Object)))]
async fn openapi(_: Open) -> Handled {
    Ok(bytes("application/json", DESCRIPTION))
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
