//! Signing in with a bearer token, and out.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::response::Response;
use http::{StatusCode, header};
use maud::{Markup, html};

use crate::Console;
use crate::http::PageResult;
use crate::layout;
use crate::page_request::PageRequest;
use crate::problem::Problem;
use crate::problem_page::see_other;
use crate::session::{self, MAX_TOKEN, SessionToken};

/// Where a person begins.
const HOME: &str = "/console/tools";

/// Where `/console` leads.
pub(crate) async fn home(_: Arc<Console>, _: PageRequest) -> PageResult {
    Ok(see_other(HOME))
}

/// The form, and what becomes of it.
pub(crate) async fn page(console: Arc<Console>, page_request: PageRequest) -> PageResult {
    if !page_request.is_post() {
        let next = page_request.query()?;
        return Ok(form(StatusCode::OK, own(next.get("next")), None));
    }
    let fields = page_request.form()?;
    let next = own(fields.get("next"));
    let peer = page_request.parts.extensions.get::<SocketAddr>().copied();
    let token = SessionToken::new(bare(fields.get("token").unwrap_or_default()), peer);
    let refused = match token.verify(&console.admission.auth).await {
        Ok(caller) => {
            let secure = console.is_secure();
            match session::begin(&console.key, &token, &caller, secure, &console.ambient) {
                Some(cookie) => {
                    let mut response = see_other(next.unwrap_or(HOME));
                    response.headers_mut().insert(header::SET_COOKIE, cookie);
                    return Ok(response);
                }
                None => format!(
                    "the token is longer than {MAX_TOKEN} bytes, more than a browser's cookie holds"
                ),
            }
        }
        Err(refusal) if refusal.status().is_server_error() => {
            return Err(Problem::Token(refusal));
        }
        Err(refusal) => refusal.description(),
    };
    metrics::counter!(wardgate_telemetry::names::REFUSED_REQUESTS, "reason" => "sign_in_refused")
        .increment(1);
    Ok(form(StatusCode::UNAUTHORIZED, next, Some(&refused)))
}

/// Ends the session in this browser. The token itself lives as long as its issuer gave it.
pub(crate) async fn sign_out(console: Arc<Console>, _: PageRequest) -> PageResult {
    let mut response = see_other("/console/sign-in");
    if let Some(cookie) = session::end(console.is_secure()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// A page of ours to go on to; of anything else nothing.
fn own(next: Option<&str>) -> Option<&str> {
    next.filter(|path| path.starts_with("/console/") || path.starts_with("/console?"))
        .filter(|path| {
            path.bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        })
        .filter(|path| path.len() <= 2_000)
}

/// The token of what was pasted: people copy `NAME=token` and `Bearer token` whole.
fn bare(pasted: &str) -> &str {
    let pasted = pasted.trim();
    pasted.rsplit(['=', ' ']).next().unwrap_or(pasted)
}

fn form(status: StatusCode, next: Option<&str>, refused: Option<&str>) -> Response {
    layout::plain(status, None, "Sign in", &content(next, refused))
}

fn content(next: Option<&str>, refused: Option<&str>) -> Markup {
    html! {
        div.narrow {
            h1 { "Sign in" }
            @if let Some(refused) = refused {
                p.notice.bad role="alert" #refused { "Not signed in: " (refused) "." }
            }
            form method="post" action="/console/sign-in" {
                label for="token" { "Bearer token" }
                input #token type="password" name="token" required autofocus autocomplete="off" spellcheck="false"
                    aria-describedby="about-token" aria-invalid=[refused.map(|_| "true")];
                p.quiet #about-token {
                    "The token your programs use for MCP. It stays in a sealed cookie of this browser until it ends, \
                     and whatever you do here is decided and put on record as yours."
                }
                @if let Some(next) = next { input type="hidden" name="next" value=(next); }
                button { "Sign in" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_in_leads_to_pages_of_ours_alone() {
        for ours in [
            "/console/tools",
            "/console/record?subject=a%20b",
            "/console/record/7",
        ] {
            assert_eq!(own(Some(ours)), Some(ours));
        }
        for other in [
            "https://evil.example/console/",
            "//evil.example/console/",
            "/console\\@evil.example",
            "/consolex",
            "/mcp",
            "/console/\r\nset-cookie:a=b",
            "javascript:alert(1)",
        ] {
            assert_eq!(own(Some(other)), None, "{other}");
        }
    }

    #[test]
    fn a_token_is_found_in_what_people_paste() {
        for pasted in [
            "a.b-c._d",
            " a.b-c._d\n",
            "DOCTOR=a.b-c._d",
            "Bearer a.b-c._d",
            "export NURSE=a.b-c._d",
        ] {
            assert_eq!(bare(pasted), "a.b-c._d");
        }
    }
}
