//! What every page looks like around its content.

use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};
use wardgate_domain::Caller;

use crate::assets::{SCRIPT_URL, STYLE_URL};

/// The parts of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Tools,
    Chat,
    Record,
    Policy,
}

const PARTS: [(Part, &str, &str); 4] = [
    (Part::Tools, "/console/tools", "Tools"),
    (Part::Chat, "/console/chat", "Chat"),
    (Part::Record, "/console/record", "Record"),
    (Part::Policy, "/console/policy", "Your rights"),
];

/// A page for somebody who is signed in.
pub(crate) fn page(caller: &Caller, part: Part, title: &str, content: &Markup) -> Response {
    whole(
        StatusCode::OK,
        title,
        &header(Some((caller, part))),
        content,
        false,
    )
}

/// The same with our script.
pub(crate) fn page_with_script(
    caller: &Caller,
    part: Part,
    title: &str,
    content: &Markup,
) -> Response {
    whole(
        StatusCode::OK,
        title,
        &header(Some((caller, part))),
        content,
        true,
    )
}

/// A page for anybody.
pub(crate) fn plain(status: StatusCode, title: &str, content: &Markup) -> Response {
    whole(status, title, &header(None), content, false)
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
    (status, Html(page.into_string())).into_response()
}

fn header(visit: Option<(&Caller, Part)>) -> Markup {
    html! {
        header.top {
            a.brand href="/console" { "Wardgate" }
            @if let Some((caller, here)) = visit {
                nav aria-label="Console" {
                    @for (part, path, name) in PARTS {
                        a href=(path) aria-current=[(part == here).then_some("page")] { (name) }
                    }
                }
                div.who {
                    span { (caller.subject()) }
                    @if !caller.roles().is_empty() { span.quiet { (caller.roles().join(", ")) } }
                    form method="post" action="/console/sign-out" { button.plain { "Sign out" } }
                }
            }
        }
    }
}
