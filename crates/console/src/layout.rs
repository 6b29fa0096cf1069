//! The layout of every page around its content.

use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use crate::assets::{SCRIPT_URL, STYLE_URL};
use crate::invisible_marks::mark_text_nodes;
use crate::page_request::Viewer;
use crate::record_access::RecordAccess;

/// The sections of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Tools,
    Chat,
    Approvals,
    Record,
    Policy,
}

/// Returns the sections that this person may open, with their paths and names.
fn parts(record: RecordAccess) -> impl Iterator<Item = (Section, &'static str, &'static str)> {
    let record = match record {
        RecordAccess::None => None,
        RecordAccess::Own => Some((Section::Record, "/console/record", "Your calls")),
        RecordAccess::All => Some((Section::Record, "/console/record", "Record")),
    };
    [
        Some((Section::Tools, "/console/tools", "Tools")),
        Some((Section::Chat, "/console/chat", "Chat")),
        Some((Section::Approvals, "/console/approvals", "Approvals")),
        record,
        Some((Section::Policy, "/console/policy", "Your rights")),
    ]
    .into_iter()
    .flatten()
}

/// Renders a page for a person who is signed in.
pub(crate) fn page(viewer: &Viewer, part: Section, title: &str, content: &Markup) -> Response {
    page_with_status(StatusCode::OK, viewer, part, title, content)
}

/// Like [`page`], but with a status other than 200.
pub(crate) fn page_with_status(
    status: StatusCode,
    viewer: &Viewer,
    part: Section,
    title: &str,
    content: &Markup,
) -> Response {
    let header = header(Some(viewer), Some(part));
    whole(status, title, &header, content, false)
}

/// Like [`page`], but includes the console's script.
pub(crate) fn page_with_script(
    viewer: &Viewer,
    part: Section,
    title: &str,
    content: &Markup,
) -> Response {
    let header = header(Some(viewer), Some(part));
    whole(StatusCode::OK, title, &header, content, true)
}

/// Renders a page outside of the sections. If the viewer is signed in, it has the navigation.
pub(crate) fn plain(
    status: StatusCode,
    viewer: Option<&Viewer>,
    title: &str,
    content: &Markup,
) -> Response {
    whole(status, title, &header(viewer, None), content, false)
}

fn whole(
    status: StatusCode,
    title: &str,
    header: &Markup,
    content: &Markup,
    with_script: bool,
) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Wardgate" }
                link rel="icon" href="/console/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href=(*STYLE_URL);
                @if with_script { script src=(*SCRIPT_URL) defer {} }
            }
            body {
                a.skip href="#main" { "Skip to content" }
                (header)
                main #main tabindex="-1" { (content) }
            }
        }
    };
    (status, Html(mark_text_nodes(page.into_string()))).into_response()
}

fn header(viewer: Option<&Viewer>, here: Option<Section>) -> Markup {
    html! {
        header.top {
            a.brand href="/console" { "Wardgate" }
            @if let Some(Viewer { caller, record, .. }) = viewer {
                nav aria-label="Console" {
                    @for (part, path, name) in parts(*record) {
                        a href=(path) aria-current=[(Some(part) == here).then_some("page")] { (name) }
                    }
                }
                div.who {
                    span { (caller.subject()) }
                    @if !caller.roles().is_empty() { span.quiet { (caller.roles().join(", ")) } }
                    form method="post" action="/console/sign-out" { button.plain { "Sign out" } }
                }
            }
        }
        @if let Some(ends_at) = viewer.and_then(|viewer| viewer.ends_soon) {
            p.notice role="status" #session-ends {
                "Your session ends at " (ends_at.to_string().get(11..16).unwrap_or_default()) " UTC. "
                a href="/console/sign-in" { "Sign in again" }
            }
        }
    }
}
