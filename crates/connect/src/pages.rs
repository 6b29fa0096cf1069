//! The pages: plain HTML without a script, in nobody's frame, kept by nobody.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wardgate_domain::{Digest, mark_invisible};
use wardgate_rpc::client::ConnectionDescription;

const STYLE: &str = "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1rem}button{font:inherit;padding:.4rem 1.2rem;margin-right:.6rem}code{background:#8882;padding:.1rem .3rem}";

/// What is wrong, for the person who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectProblem {
    /// The link or the cookie is none of ours, or too old.
    Lapsed,
    /// The link was used.
    Used,
    /// Signed in, but as somebody else than the caller.
    SomebodyElse,
    /// Not signed in.
    NotSignedIn,
    /// The server did not grant it.
    NotGranted,
    /// A form of another page.
    Foreign,
    /// A part of the way is away or misconfigured.
    Unavailable,
}

impl ConnectProblem {
    fn status(self) -> StatusCode {
        match self {
            Self::Lapsed | Self::Used => StatusCode::GONE,
            Self::SomebodyElse | Self::NotSignedIn | Self::NotGranted | Self::Foreign => {
                StatusCode::FORBIDDEN
            }
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Lapsed => "This link is not valid any more. Call the tool again for a new one.",
            Self::Used => "This link was used already. Call the tool again if you need a new one.",
            Self::SomebodyElse => {
                "You are signed in as somebody else than the person this link was made for. Nothing was allowed."
            }
            Self::NotSignedIn => "You could not be signed in. Nothing was allowed.",
            Self::NotGranted => {
                "The service did not grant it. Nothing was stored. Call the tool again to try once more."
            }
            Self::Foreign => "This form was not sent from its own page. Nothing was allowed.",
            Self::Unavailable => {
                "This cannot be done now. Try again later, or tell the operator of this gateway."
            }
        }
    }
}

pub(crate) fn problem(problem: ConnectProblem) -> Response {
    page(
        problem.status(),
        "Not connected",
        &paragraph(problem.words()),
    )
}

/// Asks whether the source may act in the person's name.
pub(crate) fn consent(source: &str, described: &ConnectionDescription, token: &str) -> Response {
    let scope = match &described.scope {
        Some(scope) => {
            let scopes = scope
                .split_ascii_whitespace()
                .map(|scope| format!("<li><code>{}</code></li>", escaped(scope)));
            format!("<p>It asks for:</p><ul>{}</ul>", scopes.collect::<String>())
        }
        None => paragraph("What it may do, that server will tell you."),
    };
    let body = format!(
        "<p>The tools of <b>{}</b> act in your name at <code>{}</code>. You allow that at <code>{}</code>, where you are led now.</p>{scope}<p>Go on only if you have just called one of these tools yourself.</p><form method=\"post\" action=\"{}\"><input type=\"hidden\" name=\"token\" value=\"{}\"><button name=\"decision\" value=\"allow\">Go on</button><button name=\"decision\" value=\"deny\">Cancel</button></form>",
        escaped(source),
        escaped(&described.service_host),
        escaped(&described.server_host),
        super::CONSENT,
        escaped(token),
    );
    page(StatusCode::OK, "Connect a service", &body)
}

/// Leads the browser to another site. A redirect would be held against `form-action`, whatever site comes after that.
pub(crate) fn leave(url: &str) -> Response {
    let url = escaped(url);
    let body = format!(
        "<meta http-equiv=\"refresh\" content=\"0; url={url}\"><p><a href=\"{url}\" rel=\"noreferrer\">Go on</a></p>"
    );
    page(StatusCode::OK, "One moment", &body)
}

pub(crate) fn connected(source: &str) -> Response {
    let words = format!("{source} may act in your name now. You can close this page and go on.");
    page(StatusCode::OK, "Connected", &paragraph(&words))
}

pub(crate) fn denied() -> Response {
    page(
        StatusCode::OK,
        "Not connected",
        &paragraph("Nothing was allowed. You can close this page."),
    )
}

fn paragraph(words: &str) -> String {
    format!("<p>{}</p>", escaped(words))
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{body}</html>"
    );
    let mut response = (status, html).into_response();
    let digest = STANDARD.encode(Digest::of(STYLE.as_bytes()).as_bytes());
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// `text` as HTML, with its invisible characters marked. Addresses and tokens have none.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in mark_invisible(text).chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_others_becomes_markup() {
        let hostile = "<script>\"'&";
        assert_eq!(escaped(hostile), "&lt;script&gt;&quot;&#39;&amp;");
        assert_eq!(escaped("read\u{202e}lla"), "read‹U+202E›lla");
    }
}
