//! The HTML pages of the facade.

use axum::http::StatusCode;
use axum::response::Response;
use wardgate_edge::{browser_page, escape_html};

use crate::AUTHORIZE;
use crate::error::OAuthError;
use crate::redirect_uri;
use crate::request::AuthorizationRequest;

/// Renders an error for the person. It is used if there is no known client to which the error could be returned, or if
/// the browser must not be redirected there.
pub(crate) fn problem(error: &OAuthError) -> Response {
    let body = format!(
        "<p>The program that sent you here cannot be connected: {} (<code>{}</code>). Nothing was allowed. You can close this page and \
         try again from the program.</p>",
        escape_html(error.description),
        escape_html(error.code),
    );
    browser_page(error.status, "Not signed in", &body)
}

/// Renders the page that asks whether the client may call tools on the person's behalf. It is shown for each request,
/// because the provider knows all clients as one and would apply the consent for one client to the next.
pub(crate) fn consent(
    request: &AuthorizationRequest,
    document_host: Option<&str>,
    provider_host: &str,
    form: &str,
) -> Response {
    let name = match request.client_name.as_str() {
        "" => "A program without a name".to_owned(),
        name => format!("A program with the name <b>{}</b>", escape_html(name)),
    };
    let origin = document_host.map_or_else(String::new, |host| {
        format!(" and is described at <code>{}</code>", escape_html(host))
    });
    let mut scopes = String::new();
    for scope in request.scope.split_ascii_whitespace() {
        scopes.push_str(&format!("<li><code>{}</code></li>", escape_html(scope)));
    }
    let body = format!(
        "<p>{name}{origin} requests to call tools of this gateway in your name. The name was set by the program and is not \
         verified.</p><p>The access is sent to <b>{}</b>: <code>{}</code></p><p>It requests:</p><ul>{scopes}</ul><p>You sign in at \
         <code>{}</code>. Continue only if you have just connected this program yourself.</p><form method=\"post\" \
         action=\"{AUTHORIZE}\"><input type=\"hidden\" name=\"request\" value=\"{}\"><button name=\"decision\" \
         value=\"allow\">Allow</button><button name=\"decision\" value=\"deny\">Deny</button></form>",
        escape_html(&redirect_uri::describe_target(&request.redirect_uri)),
        escape_html(&request.redirect_uri),
        escape_html(provider_host),
        escape_html(form),
    );
    browser_page(StatusCode::OK, "Connect a program", &body)
}
