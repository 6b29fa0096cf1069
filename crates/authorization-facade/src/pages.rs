//! The pages of the facade.

use axum::http::StatusCode;
use axum::response::Response;
use wardgate_edge::{browser_page, escape_html};

use crate::AUTHORIZE;
use crate::error::OAuthError;
use crate::redirect_uri;
use crate::request::AuthorizationRequest;

/// What is wrong, for the person: there is no client that it could be told, or none that may be sent there unasked.
pub(crate) fn problem(error: &OAuthError) -> Response {
    let body = format!(
        "<p>The program that sent you here cannot be let in: {} (<code>{}</code>). Nothing was allowed. You can close this page and try again from the program.</p>",
        escape_html(error.description),
        escape_html(error.code),
    );
    browser_page(error.status, "Not signed in", &body)
}

/// Asks whether the client may call tools in the person's name. Every client is asked about each time: the provider knows
/// them all as one, and would let the next one in for the consent that another got.
pub(crate) fn consent(
    request: &AuthorizationRequest,
    document_host: Option<&str>,
    provider_host: &str,
    form: &str,
) -> Response {
    let name = match request.client_name.as_str() {
        "" => "A program without a name".to_owned(),
        name => format!("A program that calls itself <b>{}</b>", escape_html(name)),
    };
    let origin = document_host.map_or_else(String::new, |host| {
        format!(" and is described at <code>{}</code>", escape_html(host))
    });
    let mut scopes = String::new();
    for scope in request.scope.split_ascii_whitespace() {
        scopes.push_str(&format!("<li><code>{}</code></li>", escape_html(scope)));
    }
    let body = format!(
        "<p>{name}{origin} wants to call tools of this gateway in your name. Its name is what it says; nobody has verified it.</p><p>What you allow goes to <b>{}</b>: <code>{}</code></p><p>It asks for:</p><ul>{scopes}</ul><p>You sign in at <code>{}</code>. Go on only if you have just connected this program yourself.</p><form method=\"post\" action=\"{AUTHORIZE}\"><input type=\"hidden\" name=\"request\" value=\"{}\"><button name=\"decision\" value=\"allow\">Allow</button><button name=\"decision\" value=\"deny\">Deny</button></form>",
        escape_html(&redirect_uri::shown(&request.redirect_uri)),
        escape_html(&request.redirect_uri),
        escape_html(provider_host),
        escape_html(form),
    );
    browser_page(StatusCode::OK, "Connect a program", &body)
}
