//! The page to sign in, the sign-in with a bearer token, and the sign-out.

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
use crate::stored_session;

/// The path of the page to sign in.
pub(crate) const SIGN_IN: &str = "/console/sign-in";
/// The page to which a sign-in leads by default.
pub(crate) const HOME: &str = "/console/tools";

/// Redirects `/console` to the home page.
pub(crate) async fn home(_: Arc<Console>, _: PageRequest) -> PageResult {
    Ok(see_other(HOME))
}

/// Shows the form to sign in, or handles the submitted form.
pub(crate) async fn page(console: Arc<Console>, page_request: PageRequest) -> PageResult {
    if !page_request.is_post() {
        let next = page_request.query()?;
        return Ok(form(&console, StatusCode::OK, own(next.get("next")), None));
    }
    let fields = page_request.form()?;
    let next = own(fields.get("next"));
    let peer = page_request.parts.extensions.get::<SocketAddr>().copied();
    let token = SessionToken::new(bare(fields.get("token").unwrap_or_default()), peer);
    let refused = match token.verify(&console.admission.auth).await {
        Ok(caller) => {
            let secure = console.is_secure();
            match session::begin(
                &console.store.key,
                &token,
                &caller,
                secure,
                &console.ambient,
            ) {
                Some(cookie) => {
                    let mut response = see_other(next.unwrap_or(HOME));
                    response.headers_mut().append(header::SET_COOKIE, cookie);
                    // If a browser has both kinds of session, the stored one takes precedence, so it is ended.
                    if console.sign_in.is_some() {
                        console
                            .end_stored_session(&page_request.parts.headers, SIGN_IN)
                            .await;
                        let ended = stored_session::end(secure);
                        let headers = response.headers_mut();
                        ended.map(|ended| headers.append(header::SET_COOKIE, ended));
                    }
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
    Ok(refusal_page(&console, next, &refused))
}

/// Renders the page to sign in with the reason why the sign-in failed.
pub(crate) fn refusal_page(console: &Console, next: Option<&str>, why: &str) -> Response {
    metrics::counter!(wardgate_telemetry::names::REFUSED_REQUESTS, "reason" => "sign_in_refused")
        .increment(1);
    form(console, StatusCode::UNAUTHORIZED, next, Some(why))
}

/// Ends the session in this browser, and at the provider if it was created there. A token that a person entered remains
/// valid until it expires.
pub(crate) async fn sign_out(console: Arc<Console>, page_request: PageRequest) -> PageResult {
    let left = console
        .end_stored_session(&page_request.parts.headers, SIGN_IN)
        .await;
    let mut response = left.unwrap_or_else(|| see_other(SIGN_IN));
    for cookie in console.ended_cookies() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Returns `next` if it is a page of the console, so that a link cannot redirect to another site.
pub(crate) fn own(next: Option<&str>) -> Option<&str> {
    next.filter(|path| path.starts_with("/console/") || path.starts_with("/console?"))
        .filter(|path| {
            path.bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        })
        .filter(|path| path.len() <= 2_000)
}

/// Extracts the token from the pasted text, because people also paste `NAME=token` and `Bearer token`.
fn bare(pasted: &str) -> &str {
    let pasted = pasted.trim();
    pasted.rsplit(['=', ' ']).next().unwrap_or(pasted)
}

fn form(
    console: &Console,
    status: StatusCode,
    next: Option<&str>,
    refused: Option<&str>,
) -> Response {
    let provider = console.sign_in.as_ref().map(|provider| &*provider.host);
    layout::plain(status, None, "Sign in", &content(provider, next, refused))
}

/// Renders the page to sign in. `provider` is the host of the identity provider, if there is one.
fn content(provider: Option<&str>, next: Option<&str>, refused: Option<&str>) -> Markup {
    html! {
        div.narrow {
            h1 { "Sign in" }
            @if let Some(refused) = refused {
                p.notice.bad role="alert" #refused { "Sign-in failed: " (refused) "." }
            }
            @if let Some(provider) = provider {
                form method="post" action="/console/sign-in/provider" {
                    @if let Some(next) = next { input type="hidden" name="next" value=(next); }
                    button autofocus { "Sign in with " (provider) }
                }
                h2 { "Or with a token" }
            }
            form method="post" action="/console/sign-in" {
                label for="token" { "Bearer token" }
                input #token type="password" name="token" required autofocus[provider.is_none()] autocomplete="off" spellcheck="false"
                    aria-describedby="about-token" aria-invalid=[refused.map(|_| "true")];
                p.quiet #about-token {
                    "The token that your programs use for MCP. It is stored in an encrypted cookie of this browser until it expires. All \
                     your actions here are authorized and recorded under your name."
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
