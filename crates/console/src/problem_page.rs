//! The error pages.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use maud::{Markup, html};
use wardgate_domain::CallId;

use crate::fields::query;
use crate::layout;
use crate::output::cut;
use crate::page_request::Viewer;
use crate::problem::Problem;
use crate::record_access::RecordAccess;
use crate::results::KEPT;

/// Renders the error page for `problem`, or redirects to the sign-in.
pub(crate) fn render(problem: &Problem, viewer: Option<&Viewer>) -> Response {
    if let Problem::SignedOut(Some(back)) = problem {
        let to = format!("/console/sign-in?{}", query([("next", back.as_str())]));
        return see_other(&to);
    }
    let (title, words) = words(problem, viewer);
    let content =
        html! { h1 { (title) } (words) p { a href="/console" { "Back to the console" } } };
    let mut response = layout::plain(problem.status(), viewer, title, &content);
    if let Problem::Method(methods) = problem {
        let methods: Vec<_> = methods.iter().map(Method::as_str).collect();
        if let Ok(methods) = HeaderValue::try_from(methods.join(", ")) {
            response.headers_mut().insert(header::ALLOW, methods);
        }
    }
    response
}

/// Returns the title and the text of the error page for `problem`.
fn words(problem: &Problem, viewer: Option<&Viewer>) -> (&'static str, Markup) {
    match problem {
        Problem::SignedOut(_) => (
            "Signed out",
            html! {
                p { "Your session has ended because its token has expired. Nothing was done." }
                p { a.button href="/console/sign-in" { "Sign in" } }
            },
        ),
        Problem::Token(refusal) => (
            "Temporarily unavailable",
            html! { p { "The sign-in failed: " (refusal.description()) "." } },
        ),
        Problem::Host(what) => ("Unknown host", html! { p { (what) } }),
        Problem::Foreign => (
            "Form rejected",
            html! { p { "This form was not sent from a page of this console. Nothing was done." } },
        ),
        Problem::OtherPerson => (
            "Another user is signed in",
            html! {
                p { "Another user opened this form. "
                    @if let Some(viewer) = viewer { b { (viewer.caller.subject()) } " is now signed in with this browser, so it" }
                    @else { "It" }
                    " was not sent: nothing was done." }
                p { "To do this as the current user, open the page again and fill in the form." }
            },
        ),
        Problem::NoResult(call) => (
            "The result is no longer stored",
            html! {
                p { "A result is shown for " (KEPT.as_secs() / 60) " minutes, to the user who received it and with the \
                                                                                  permissions at that time, unless newer results replaced \
                                                                                  it. Opening this page called nothing." }
                (on_record(call.as_ref(), viewer))
            },
        ),
        Problem::NoStore => (
            "Temporarily unavailable",
            html! { p { "The results of calls cannot be stored or shown now. Nothing was called; try again." } },
        ),
        Problem::NoSessions => (
            "Temporarily unavailable",
            html! { p { "Your session cannot be checked or renewed now. Nothing was done; try again." } },
        ),
        Problem::ResultLost(call) => (
            "The result is lost",
            html! {
                p { "The tool was called, but its result cannot be shown. Check the audit record before you call the tool again." }
                (on_record(call.as_ref(), viewer))
            },
        ),
        Problem::Method(_) => (
            "Method not allowed",
            html! { p { "This page does not support this kind of request." } },
        ),
        Problem::Body(refusal) => ("Request too large", html! { p { (refusal.description()) } }),
        Problem::Input(what) => ("Invalid input", html! { p { (what) } }),
        Problem::Unknown => (
            "Page not found",
            html! { p { "The page does not exist, or you have no access to it." } },
        ),
        Problem::Busy => (
            "Console is busy",
            html! { p { "Too many pages are being processed, for you or for others. Nothing was done; try again." } },
        ),
        Problem::Refused(what) => (
            "The gateway refused the request",
            html! { p { (cut(what, 500)) } },
        ),
        Problem::Gateway(fault) => (
            "The gateway did not answer",
            html! { p { (fault.words()) } },
        ),
        Problem::NotForYou => (
            "No access to the record",
            html! {
                p { "The policy permits you to read neither the records of all users nor your own." }
                p.quiet { "Policies that permit " code { "Action::\"read_record\"" } " and " code { "Action::\"read_own_record\"" }
                    " decide who has access." }
            },
        ),
        Problem::NoRecord => (
            "No record configured",
            html! {
                p { "This console is not connected to the audit service. The operator can set "
                    code { "console.links.policy" } " and " code { "console.links.audit" } "." }
            },
        ),
        Problem::RecordAway => (
            "The record is not available now",
            html! { p { "The audit service, or the policy service that decides who may read it, does not answer. Try again." } },
        ),
    }
}

/// Renders a link to the record of a call if this person may read the record.
fn on_record(call: Option<&CallId>, viewer: Option<&Viewer>) -> Markup {
    let viewer = viewer.filter(|viewer| viewer.record != RecordAccess::None);
    html! {
        @if let (Some(call), Some(_)) = (call, viewer) {
            p { a href={ "/console/record?" (query([("call_id", call.to_string().as_str())])) } { "The audit records of this call" } }
        }
    }
}

/// Redirects the browser to a page of the console, which it then requests by GET.
pub(crate) fn see_other(path: &str) -> Response {
    let to = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}
