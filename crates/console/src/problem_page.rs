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
    let content = html! { h1 { (title) } (words) p { a href="/console" { "To the console" } } };
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
                p { "Your session has ended: sessions end with their token. Nothing was done." }
                p { a.button href="/console/sign-in" { "Sign in" } }
            },
        ),
        Problem::Token(refusal) => (
            "Not now",
            html! { p { "Nobody can be signed in: " (refusal.description()) "." } },
        ),
        Problem::Host(what) => ("Not here", html! { p { (what) } }),
        Problem::Foreign => (
            "Not from here",
            html! { p { "This form was not sent from a page of this console. Nothing was done." } },
        ),
        Problem::OtherPerson => (
            "Somebody else is signed in now",
            html! {
                p { "Another person opened this form. "
                    @if let Some(viewer) = viewer { b { (viewer.caller.subject()) } " is signed in with this browser now, so it" }
                    @else { "It" }
                    " was not sent on: nothing was done." }
                p { "To do it as the person who is signed in now, open the page again and fill in the form." }
            },
        ),
        Problem::NoResult(call) => (
            "The result is not kept",
            html! {
                p { "A result can be looked at again for " (KEPT.as_secs() / 60) " minutes, by whom it was given to, with the \
                     rights they had then, unless newer ones took its place. Opening this page called nothing." }
                (on_record(call.as_ref(), viewer))
            },
        ),
        Problem::NoStore => (
            "Not now",
            html! { p { "What comes of calls cannot be kept for you now, or looked at. Nothing was called; try again." } },
        ),
        Problem::NoSessions => (
            "Not now",
            html! { p { "Your session cannot be looked at or renewed now. Nothing was done; try again." } },
        ),
        Problem::ResultLost(call) => (
            "The result is lost",
            html! {
                p { "The tool was called, and what came of it cannot be shown. Look at the record before you call it again." }
                (on_record(call.as_ref(), viewer))
            },
        ),
        Problem::Method(_) => (
            "Not like that",
            html! { p { "This page does not take that kind of request." } },
        ),
        Problem::Body(refusal) => ("Too much", html! { p { (refusal.description()) } }),
        Problem::Input(what) => ("That does not fit", html! { p { (what) } }),
        Problem::Unknown => (
            "Nothing here",
            html! { p { "There is no such page, or nothing of this name that you may see." } },
        ),
        Problem::Busy => (
            "One moment",
            html! { p { "Too many pages are being worked on, yours or those of others. Nothing was done; try again." } },
        ),
        Problem::Refused(what) => ("The gateway refused", html! { p { (cut(what, 500)) } }),
        Problem::Gateway(fault) => (
            "The gateway did not answer",
            html! { p { (fault.words()) } },
        ),
        Problem::NotForYou => (
            "The record is not yours to read",
            html! {
                p { "The policy lets you read neither the record of what everybody did nor that of what you did." }
                p.quiet { "Policies that permit " code { "Action::\"read_record\"" } " and " code { "Action::\"read_own_record\"" }
                    " decide who may." }
            },
        ),
        Problem::NoRecord => (
            "No record here",
            html! {
                p { "This console has no link to the record. Whoever runs it can set "
                    code { "console.links.policy" } " and " code { "console.links.audit" } "." }
            },
        ),
        Problem::RecordAway => (
            "The record cannot be read now",
            html! { p { "The record, or the policy that says who may read it, does not answer. Try again." } },
        ),
    }
}

/// Renders a link to the record of a call if this person may read the record.
fn on_record(call: Option<&CallId>, viewer: Option<&Viewer>) -> Markup {
    let viewer = viewer.filter(|viewer| viewer.record != RecordAccess::None);
    html! {
        @if let (Some(call), Some(_)) = (call, viewer) {
            p { a href={ "/console/record?" (query([("call_id", call.to_string().as_str())])) } { "The call on record" } }
        }
    }
}

/// Redirects the browser to a page of the console, which it then requests by GET.
pub(crate) fn see_other(path: &str) -> Response {
    let to = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}
