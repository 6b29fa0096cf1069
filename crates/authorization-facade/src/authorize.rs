//! The authorization endpoint (RFC 6749 §3.1): the request is validated, the person is asked for consent, and only then
//! sent to the identity provider.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use tracing::warn;
use url::Url;
use wardgate_domain::is_same_secret;
use wardgate_edge::{find_cookie, leave_page, redirect_browser};
use wardgate_egress::CodeRequest;
use wardgate_gateway_store::Purpose;

use crate::client::{self, ClientDescription, find_client};
use crate::error::OAuthError;
use crate::parameters::Parameters;
use crate::request::{AuthorizationRequest, ConsentForm, PendingSignIn};
use crate::{AuthorizationFacade, CALLBACK, count, pages, redirect_uri};

/// The cookie that identifies a browser until it is closed.
const BROWSER_COOKIE: &str = "__Host-wardgate-browser";
/// Prefix of the name of the cookie of a pending sign-in. The first characters of its `state` follow, so that one
/// browser can have several.
const SIGN_IN_COOKIE: &str = "__Host-wardgate-sign-in-";
/// The attributes of the cookies: sent only to this host over TLS, hidden from scripts, and also sent when another site
/// links here.
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Lax";
/// Maximum length of the sealed sign-in, in bytes. Browsers keep cookies of up to 4,096 bytes, including name and
/// attributes.
const MAX_COOKIE: usize = 3_900;
/// Maximum length of a client's `state`, in bytes.
const MAX_STATE: usize = 1_024;

/// The reason why no consent is requested.
enum RequestRefusal {
    /// The error is shown to the person, because the client or its redirect URI is unknown.
    Page(OAuthError),
    /// The error is returned to the client.
    Client(AuthorizationRequest, OAuthError),
}

impl From<OAuthError> for RequestRefusal {
    fn from(error: OAuthError) -> Self {
        Self::Page(error)
    }
}

/// Handles `GET /oauth/authorize`.
pub(crate) async fn show_consent(facade: Arc<AuthorizationFacade>, parts: Parts) -> Response {
    let checked = check_request(&facade, &parts).await;
    let (request, document_host) = match checked {
        Ok(checked) => checked,
        Err(RequestRefusal::Page(error)) => {
            count("authorize", error.code);
            return pages::problem(&error);
        }
        Err(RequestRefusal::Client(request, error)) => {
            count("authorize", error.code);
            // A registered web site must not be able to use this endpoint as an open redirector (RFC 9700 §4.11.2).
            if !redirect_uri::is_of_program(&request.redirect_uri) {
                return pages::problem(&error);
            }
            let failure = [
                ("error", error.code),
                ("error_description", error.description),
            ];
            return redirect_browser(&request.response_url(&facade.parts.public_url, &failure));
        }
    };
    let known = find_cookie(&parts.headers, BROWSER_COOKIE);
    let browser = known.map_or_else(|| facade.parts.ambient.random_text(), ToOwned::to_owned);
    let form = ConsentForm {
        browser: client::digest(&browser),
        request,
    };
    let sealed = facade
        .parts
        .sealer
        .seal_for_browser(Purpose::OAuthConsent, &form);
    let Some(sealed) = sealed else {
        return pages::problem(&OAuthError::invalid_request("the request is too long"));
    };
    count("authorize", "ok");
    let document_host = document_host.as_deref();
    let page = pages::consent(&form.request, document_host, &facade.provider_host, &sealed);
    match known {
        Some(_) => page,
        None => with_cookie(page, &format!("{BROWSER_COOKIE}={browser}; {ATTRIBUTES}")),
    }
}

/// Validates the request. Also returns the host of the client's metadata document, if the client id is the URL of one.
async fn check_request(
    facade: &AuthorizationFacade,
    parts: &Parts,
) -> Result<(AuthorizationRequest, Option<String>), RequestRefusal> {
    facade.check_host(parts)?;
    let parameters = Parameters::parse(parts.uri.query().unwrap_or_default().as_bytes())?;
    let client_id = parameters.require("client_id", "client_id is missing")?;
    let client = find_client(facade, client_id).await?;
    let redirect_uri = find_redirect_uri(facade, &client, parameters.get("redirect_uri"))?;
    let request = AuthorizationRequest {
        client: client::digest(client_id),
        client_name: client.name,
        redirect_uri,
        state: None,
        challenge: String::new(),
        scope: facade
            .scopes
            .granted_scopes(parameters.get("scope"))
            .join(" "),
    };
    let document_host = Url::parse(client_id).ok();
    let document_host = document_host.and_then(|url| url.host_str().map(ToOwned::to_owned));
    match check_parameters(facade, &parameters) {
        Ok((state, challenge)) => {
            let request = AuthorizationRequest {
                state,
                challenge,
                ..request
            };
            Ok((request, document_host))
        }
        Err(error) => {
            let state = check_state(&parameters).unwrap_or_default();
            Err(RequestRefusal::Client(
                AuthorizationRequest { state, ..request },
                error,
            ))
        }
    }
}

/// Returns the redirect URI of the request, which must be registered for the client.
fn find_redirect_uri(
    facade: &AuthorizationFacade,
    client: &ClientDescription,
    asked: Option<&str>,
) -> Result<String, OAuthError> {
    const NOT_REGISTERED: OAuthError =
        OAuthError::invalid_request("the redirect_uri is not registered for this client");
    let uri = match (asked, client.redirect_uris.as_slice()) {
        (Some(uri), registered) => {
            let mut registered = registered.iter();
            let found = registered.any(|it| redirect_uri::is_same(it, uri));
            found.then_some(uri).ok_or(NOT_REGISTERED)?
        }
        (None, [only]) => only,
        (None, _) => return Err(NOT_REGISTERED),
    };
    // The URI may have been registered before the settings were changed.
    let hosts = facade.config.redirect_hosts.as_deref();
    redirect_uri::check(uri, hosts).map_err(|_| NOT_REGISTERED)?;
    Ok(uri.to_owned())
}

/// Validates the other parameters of a request and returns its `state` and PKCE challenge.
fn check_parameters(
    facade: &AuthorizationFacade,
    parameters: &Parameters,
) -> Result<(Option<String>, String), OAuthError> {
    if parameters.get("response_type") != Some("code") {
        return Err(OAuthError::new(
            "unsupported_response_type",
            "only the response type code is supported",
        ));
    }
    if parameters
        .get("response_mode")
        .is_some_and(|it| it != "query")
    {
        return Err(OAuthError::invalid_request(
            "only the response mode query is supported",
        ));
    }
    let state = check_state(parameters)?;
    let challenge = parameters.require("code_challenge", "code_challenge is missing (RFC 7636)")?;
    let is_digest = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if parameters.get("code_challenge_method") != Some("S256")
        || challenge.len() != 43
        || !challenge.bytes().all(is_digest)
    {
        return Err(OAuthError::invalid_request(
            "send a code_challenge by code_challenge_method S256 (RFC 7636)",
        ));
    }
    check_resources(facade, parameters)?;
    Ok((state, challenge.to_owned()))
}

fn check_state(parameters: &Parameters) -> Result<Option<String>, OAuthError> {
    let Some(state) = parameters.token("state") else {
        return Ok(None);
    };
    let plain = state.len() <= MAX_STATE && state.bytes().all(|it| (0x20..0x7f).contains(&it));
    let state = plain.then(|| Some(state.to_owned()));
    state.ok_or(OAuthError::invalid_request(
        "state is longer than 1,024 bytes, or not ASCII",
    ))
}

/// Checks that the requested resources belong to this gateway (RFC 8707). The provider's token is valid for all of it.
pub(crate) fn check_resources(
    facade: &AuthorizationFacade,
    parameters: &Parameters,
) -> Result<(), OAuthError> {
    let is_ours = |resource: &str| {
        let path = resource.strip_prefix(&facade.parts.public_url);
        path.is_some_and(|path| path.is_empty() || path.starts_with('/'))
    };
    if parameters.values("resource").all(is_ours) {
        return Ok(());
    }
    Err(OAuthError::new(
        "invalid_target",
        "the resource does not belong to this gateway",
    ))
}

/// Handles `POST /oauth/authorize`, the form of the consent page.
pub(crate) async fn decide(facade: Arc<AuthorizationFacade>, request: Request) -> Response {
    let headers = request.headers().clone();
    let body = facade
        .read_body(request, "application/x-www-form-urlencoded")
        .await;
    let form = body.and_then(|body| Parameters::parse(&body));
    let decided = form.and_then(|form| {
        let request = check_form(&facade, &headers, &form)?;
        Ok((request, form.get("decision") == Some("allow")))
    });
    match decided {
        Err(error) => {
            count("consent", error.code);
            pages::problem(&error)
        }
        Ok((request, true)) => {
            count("consent", "ok");
            start_sign_in(&facade, request).await
        }
        Ok((request, false)) => {
            count("consent", "access_denied");
            let failure = [("error", "access_denied")];
            leave_page(&request.response_url(&facade.parts.public_url, &failure))
        }
    }
}

/// Returns the request that the person decided about. The form must have been sent from the consent page, in the
/// browser in which it was shown.
fn check_form(
    facade: &AuthorizationFacade,
    headers: &HeaderMap,
    form: &Parameters,
) -> Result<AuthorizationRequest, OAuthError> {
    const FOREIGN: OAuthError =
        OAuthError::invalid_request("this form was not sent from its own page, or has expired");
    let own = Url::parse(&facade.parts.public_url).map_err(|_| FOREIGN)?;
    let own = own.origin().ascii_serialization();
    if headers
        .get(header::ORIGIN)
        .is_some_and(|origin| origin.as_bytes() != own.as_bytes())
    {
        return Err(FOREIGN);
    }
    let sealed = form.token("request").ok_or(FOREIGN)?;
    let opened = facade
        .parts
        .sealer
        .open_from_browser(Purpose::OAuthConsent, sealed);
    let opened: ConsentForm = opened.ok_or(FOREIGN)?;
    let browser = find_cookie(headers, BROWSER_COOKIE).ok_or(FOREIGN)?;
    if !is_same_secret(&client::digest(browser), &opened.browser) {
        return Err(FOREIGN);
    }
    Ok(opened.request)
}

/// Sends the person to the identity provider.
async fn start_sign_in(facade: &AuthorizationFacade, request: AuthorizationRequest) -> Response {
    let ambient = &facade.parts.ambient;
    let pending = PendingSignIn {
        state: ambient.random_text(),
        verifier: ambient.random_text(),
        request,
    };
    let redirect_uri = facade.url(CALLBACK);
    let code = CodeRequest {
        redirect_uri: &redirect_uri,
        verifier: &pending.verifier,
    };
    let scope = facade.scopes.at_provider(&pending.request.scope);
    let config = &facade.config;
    let further = [
        Some(("scope", scope.as_str())),
        config.audience.as_deref().map(|it| ("audience", it)),
        config.resource.as_deref().map(|it| ("resource", it)),
    ];
    let mut further: Vec<_> = further.into_iter().flatten().collect();
    further.extend(config.preset.parameters(&scope));
    let url = facade
        .provider
        .authorization_url(code, &pending.state, &further)
        .await;
    let url = match url {
        Ok(url) => url,
        Err(error) => {
            warn!(%error, "the identity provider is not available now");
            let failure = [("error", OAuthError::unavailable().code)];
            return leave_page(
                &pending
                    .request
                    .response_url(&facade.parts.public_url, &failure),
            );
        }
    };
    let sealed = facade
        .parts
        .sealer
        .seal_for_browser(Purpose::OAuthRequest, &pending);
    let sealed = sealed.filter(|sealed| sealed.len() <= MAX_COOKIE);
    let Some(sealed) = sealed else {
        return pages::problem(&OAuthError::invalid_request("the request is too long"));
    };
    let name = cookie_name(&pending.state);
    with_cookie(
        leave_page(url.as_str()),
        &format!("{name}={sealed}; {ATTRIBUTES}; Max-Age=900"),
    )
}

fn cookie_name(state: &str) -> String {
    format!("{SIGN_IN_COOKIE}{}", state.get(..8).unwrap_or_default())
}

/// Returns the pending sign-in from which the provider sends this browser back.
pub(crate) fn find_sign_in(
    facade: &AuthorizationFacade,
    headers: &HeaderMap,
    state: &str,
) -> Option<PendingSignIn> {
    let sealed = find_cookie(headers, &cookie_name(state))?;
    let opened = facade
        .parts
        .sealer
        .open_from_browser(Purpose::OAuthRequest, sealed);
    opened.filter(|pending: &PendingSignIn| is_same_secret(state, &pending.state))
}

/// Removes the cookie of a sign-in.
pub(crate) fn without_sign_in(response: Response, state: &str) -> Response {
    with_cookie(
        response,
        &format!("{}=; {ATTRIBUTES}; Max-Age=0", cookie_name(state)),
    )
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
