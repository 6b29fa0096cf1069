//! What a person reads where there is no page.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use maud::{Markup, html};
use wardgate_domain::CallId;
use wardgate_edge::{BodyRefusal, TokenRefusal};

use crate::Console;
use crate::fields::query;
use crate::http::PageResult;
use crate::layout;
use crate::mcp::GatewayFault;
use crate::output::cut;
use crate::page_request::{PageRequest, Viewer};
use crate::record::RecordAccess;
use crate::results::KEPT;

/// Why there is no page. Nothing of what was sent is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// Not signed in, or not any more; where to come back to.
    #[error("sign in")]
    SignedOut(Option<String>),
    #[error("{0}")]
    Token(TokenRefusal),
    #[error("{0}")]
    Host(String),
    /// What changes something did not come from a page of the console.
    #[error("the form was not sent from a page of this console")]
    Foreign,
    /// The form was opened by another person than the one who is signed in now.
    #[error("the form is another person's")]
    OtherPerson,
    /// A result that is kept no more, or not here, or not for this person; and the call, where the link names it.
    #[error("the result is not kept")]
    NoResult(Option<CallId>),
    /// Results cannot be kept or looked at now: nothing was called.
    #[error("the store of results is away")]
    NoStore,
    /// A call was made, and what came of it cannot be kept for its page.
    #[error("the result cannot be kept")]
    ResultLost(Option<CallId>),
    #[error("the method is not served here")]
    Method(&'static [Method]),
    #[error("the body cannot be read")]
    Body(BodyRefusal),
    #[error("{0}")]
    Input(String),
    /// No such page, no such tool, or none that this person may see: all alike.
    #[error("there is nothing here")]
    Unknown,
    #[error("too many pages are worked on")]
    Busy,
    /// The gateway does not let this person, in its own words.
    #[error("the gateway refused")]
    Refused(String),
    #[error("{0}")]
    Gateway(#[from] GatewayFault),
    /// The policy does not let this person read the record.
    #[error("the record is not for this caller")]
    NotForYou,
    /// There is no link to the record.
    #[error("the record is not linked")]
    NoRecord,
    /// The record or the policy cannot be asked, or the look cannot be put on record.
    #[error("the record cannot be read now")]
    RecordAway,
}

impl Problem {
    /// Whether its page says who is signed in: not where nobody can be, or where that would be more work under load.
    pub(crate) fn has_header(&self) -> bool {
        !matches!(
            self,
            Self::SignedOut(_) | Self::Token(_) | Self::Host(_) | Self::Busy
        )
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::SignedOut(_) => StatusCode::UNAUTHORIZED,
            Self::Token(refusal) => refusal.status(),
            Self::Host(_) | Self::Foreign | Self::Refused(_) | Self::NotForYou => {
                StatusCode::FORBIDDEN
            }
            Self::OtherPerson => StatusCode::CONFLICT,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(refusal) => refusal.status(),
            Self::Input(_) => StatusCode::BAD_REQUEST,
            Self::Unknown | Self::NoResult(_) | Self::NoRecord => StatusCode::NOT_FOUND,
            Self::Busy | Self::RecordAway | Self::NoStore | Self::ResultLost(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Gateway(fault) => fault.status(),
        }
    }

    /// The word for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::SignedOut(_) => "signed_out",
            Self::Token(refusal) => refusal.reason(),
            Self::Host(_) => "host_refused",
            Self::Foreign => "foreign_form",
            Self::OtherPerson => "form_of_another_person",
            Self::NoResult(_) => "result_not_kept",
            Self::NoStore => "results_unavailable",
            Self::ResultLost(_) => "result_lost",
            Self::Method(_) => "method_not_allowed",
            Self::Body(refusal) => refusal.reason(),
            Self::Input(_) => "invalid_form",
            Self::Unknown => "not_found",
            Self::Busy => "overloaded",
            Self::Refused(_) => "gateway_refused",
            Self::Gateway(_) => "gateway_failed",
            Self::NotForYou => "record_denied",
            Self::NoRecord => "record_not_linked",
            Self::RecordAway => "record_unavailable",
        }
    }

    fn words(&self, viewer: Option<&Viewer>) -> (&'static str, Markup) {
        match self {
            Self::SignedOut(_) => (
                "Signed out",
                html! {
                    p { "Your session has ended: sessions end with their token. Nothing was done." }
                    p { a.button href="/console/sign-in" { "Sign in" } }
                },
            ),
            Self::Token(refusal) => (
                "Not now",
                html! { p { "Nobody can be signed in: " (refusal.description()) "." } },
            ),
            Self::Host(what) => ("Not here", html! { p { (what) } }),
            Self::Foreign => (
                "Not from here",
                html! { p { "This form was not sent from a page of this console. Nothing was done." } },
            ),
            Self::OtherPerson => (
                "Somebody else is signed in now",
                html! {
                    p { "Another person opened this form. "
                        @if let Some(viewer) = viewer { b { (viewer.caller.subject()) } " is signed in with this browser now, so it" }
                        @else { "It" }
                        " was not sent on: nothing was done." }
                    p { "To do it as the person who is signed in now, open the page again and fill in the form." }
                },
            ),
            Self::NoResult(call) => (
                "The result is not kept",
                html! {
                    p { "A result can be looked at again for " (KEPT.as_secs() / 60) " minutes, by whom it was given to, with the \
                         rights they had then, unless newer ones took its place. Opening this page called nothing." }
                    (on_record(call.as_ref(), viewer))
                },
            ),
            Self::NoStore => (
                "Not now",
                html! { p { "What comes of calls cannot be kept for you now, or looked at. Nothing was called; try again." } },
            ),
            Self::ResultLost(call) => (
                "The result is lost",
                html! {
                    p { "The tool was called, and what came of it cannot be shown. Look at the record before you call it again." }
                    (on_record(call.as_ref(), viewer))
                },
            ),
            Self::Method(_) => (
                "Not like that",
                html! { p { "This page does not take that kind of request." } },
            ),
            Self::Body(refusal) => ("Too much", html! { p { (refusal.description()) } }),
            Self::Input(what) => ("That does not fit", html! { p { (what) } }),
            Self::Unknown => (
                "Nothing here",
                html! { p { "There is no such page, or nothing of this name that you may see." } },
            ),
            Self::Busy => (
                "One moment",
                html! { p { "Too many pages are being worked on, yours or those of others. Nothing was done; try again." } },
            ),
            Self::Refused(what) => ("The gateway refused", html! { p { (cut(what, 500)) } }),
            Self::Gateway(fault) => (
                "The gateway did not answer",
                html! { p { (fault.words()) } },
            ),
            Self::NotForYou => (
                "The record is not yours to read",
                html! {
                    p { "The policy lets you read neither the record of what everybody did nor that of what you did." }
                    p.quiet { "Policies that permit " code { "Action::\"read_record\"" } " and " code { "Action::\"read_own_record\"" }
                        " decide who may." }
                },
            ),
            Self::NoRecord => (
                "No record here",
                html! {
                    p { "This console has no link to the record. Whoever runs it can set "
                        code { "console.links.policy" } " and " code { "console.links.audit" } "." }
                },
            ),
            Self::RecordAway => (
                "The record cannot be read now",
                html! { p { "The record, or the policy that says who may read it, does not answer. Try again." } },
            ),
        }
    }

    /// The page that says so.
    pub(crate) fn into_page(self, viewer: Option<&Viewer>) -> Response {
        if let Self::SignedOut(Some(back)) = &self {
            let to = format!("/console/sign-in?{}", query([("next", back.as_str())]));
            return see_other(&to);
        }
        let (title, words) = self.words(viewer);
        let content = html! { h1 { (title) } (words) p { a href="/console" { "To the console" } } };
        let mut response = layout::plain(self.status(), viewer, title, &content);
        if let Self::Method(methods) = self {
            let methods: Vec<_> = methods.iter().map(Method::as_str).collect();
            if let Ok(methods) = HeaderValue::try_from(methods.join(", ")) {
                response.headers_mut().insert(header::ALLOW, methods);
            }
        }
        response
    }
}

/// A link to a call on record, for whom there is something behind it.
fn on_record(call: Option<&CallId>, viewer: Option<&Viewer>) -> Markup {
    let viewer = viewer.filter(|viewer| viewer.record != RecordAccess::None);
    html! {
        @if let (Some(call), Some(_)) = (call, viewer) {
            p { a href={ "/console/record?" (query([("call_id", call.to_string().as_str())])) } { "The call on record" } }
        }
    }
}

/// Leads the browser to a page of ours, which it then asks for by GET.
pub(crate) fn see_other(path: &str) -> Response {
    let to = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// A path that nobody serves.
pub(crate) async fn unknown(_: Arc<Console>, _: PageRequest) -> PageResult {
    Err(Problem::Unknown)
}
