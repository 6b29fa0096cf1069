//! The texts of the pages.

use axum::http::StatusCode;
use axum::response::Response;
use wardgate_edge::{browser_page, escape_html};
use wardgate_rpc::client::ConnectionDescription;

/// A problem that is shown to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectProblem {
    /// The link or the cookie was not sealed by this gateway, or has expired.
    Lapsed,
    /// The link was used before.
    Used,
    /// The user signed in as a different person than the caller.
    SomebodyElse,
    /// The user did not sign in.
    NotSignedIn,
    /// The authorization server did not grant access.
    NotGranted,
    /// The form was submitted by another page, or the request names a host that is not the gateway's.
    Foreign,
    /// A required service is unavailable or misconfigured.
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
            Self::Lapsed => "This link is no longer valid. Call the tool again for a new one.",
            Self::Used => "This link was already used. Call the tool again if you need a new one.",
            Self::SomebodyElse => {
                "You are signed in as a user other than the one for whom this link was created. Nothing was allowed."
            }
            Self::NotSignedIn => "The sign-in failed. Nothing was allowed.",
            Self::NotGranted => {
                "The service refused the authorization. Nothing was stored. Call the tool again to repeat it."
            }
            Self::Foreign => "This form was not sent from its own page. Nothing was allowed.",
            Self::Unavailable => {
                "The service is not available now. Try again later, or contact the operator of this gateway."
            }
        }
    }
}

pub(crate) fn problem(problem: ConnectProblem) -> Response {
    browser_page(
        problem.status(),
        "Not connected",
        &paragraph(problem.words()),
    )
}

/// Returns the page that asks whether the source may act in the user's name.
pub(crate) fn consent(source: &str, described: &ConnectionDescription, token: &str) -> Response {
    let scope = match &described.scope {
        Some(scope) => {
            let scopes = scope
                .split_ascii_whitespace()
                .map(|scope| format!("<li><code>{}</code></li>", escape_html(scope)));
            format!("<p>It requests:</p><ul>{}</ul>", scopes.collect::<String>())
        }
        None => paragraph("The authorization server will show the requested access."),
    };
    let body = format!(
        "<p>The tools of <b>{}</b> act in your name at <code>{}</code>. You authorize this at <code>{}</code>, the next \
         page.</p>{scope}<p>Continue only if you have just called one of these tools yourself.</p><form method=\"post\" \
         action=\"{}\"><input type=\"hidden\" name=\"token\" value=\"{}\"><button name=\"decision\" \
         value=\"allow\">Continue</button><button name=\"decision\" value=\"deny\">Cancel</button></form>",
        escape_html(source),
        escape_html(&described.service_host),
        escape_html(&described.server_host),
        super::CONSENT,
        escape_html(token),
    );
    browser_page(StatusCode::OK, "Connect a service", &body)
}

pub(crate) fn connected_page(source: &str) -> Response {
    let words = format!("{source} may act in your name now. You can close this page.");
    browser_page(StatusCode::OK, "Connected", &paragraph(&words))
}

pub(crate) fn denied_page() -> Response {
    browser_page(
        StatusCode::OK,
        "Not connected",
        &paragraph("Nothing was allowed. You can close this page."),
    )
}

fn paragraph(words: &str) -> String {
    format!("<p>{}</p>", escape_html(words))
}
