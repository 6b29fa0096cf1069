//! The callback from the identity provider: seals the provider's code in a code of the facade, which only the
//! requesting client can use.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::response::Response;
use tracing::warn;
use wardgate_edge::redirect_browser;
use wardgate_egress::ConnectError;
use wardgate_gateway_store::Purpose;

use crate::authorize::{find_sign_in, without_sign_in};
use crate::error::OAuthError;
use crate::parameters::Parameters;
use crate::request::{CodeGrant, PendingSignIn};
use crate::{AuthorizationFacade, count, pages};

/// Error codes of a provider that clients understand (RFC 6749 §4.1.2.1, `OpenID` Connect Core §3.1.2.6).
const PROVIDER_ERRORS: [&str; 7] = [
    "access_denied",
    "consent_required",
    "interaction_required",
    "invalid_scope",
    "login_required",
    "server_error",
    "temporarily_unavailable",
];

/// Handles `GET /oauth/callback`.
pub(crate) async fn come_back(facade: Arc<AuthorizationFacade>, parts: Parts) -> Response {
    let found = facade.check_host(&parts).and_then(|()| {
        let parameters = Parameters::parse(parts.uri.query().unwrap_or_default().as_bytes())?;
        let state = parameters.get("state").unwrap_or_default();
        let pending = find_sign_in(&facade, &parts.headers, state);
        let pending = pending.ok_or(OAuthError::invalid_request(
            "this browser did not start the sign-in, or the sign-in has expired",
        ))?;
        Ok((parameters, pending))
    });
    let (parameters, pending) = match found {
        Ok(found) => found,
        Err(error) => {
            count("callback", error.code);
            return pages::problem(&error);
        }
    };
    let state = pending.state.clone();
    let request = pending.request.clone();
    let issuer = &facade.parts.public_url;
    let url = match code_of(&facade, &parameters, pending).await {
        Ok(code) => {
            count("callback", "ok");
            request.response_url(issuer, &[("code", &code)])
        }
        Err(code) => {
            count("callback", code);
            request.response_url(issuer, &[("error", code)])
        }
    };
    without_sign_in(redirect_browser(&url), &state)
}

/// Returns the code for the client, or the error code that the client receives.
async fn code_of(
    facade: &AuthorizationFacade,
    parameters: &Parameters,
    pending: PendingSignIn,
) -> Result<String, &'static str> {
    // The issuer is checked before any other parameter is used: RFC 9207 §2.4.
    let checked = facade.provider.check_response(parameters.get("iss")).await;
    checked.map_err(|error| {
        warn!(%error, "the issuer of an authorization response is not the identity provider");
        match error {
            ConnectError::OtherIssuer => "access_denied",
            _ => OAuthError::unavailable().code,
        }
    })?;
    if let Some(error) = parameters.get("error") {
        let known = PROVIDER_ERRORS.into_iter().find(|known| *known == error);
        warn!(
            error = known.unwrap_or("another"),
            "a sign-in at the identity provider failed"
        );
        return Err(known.unwrap_or("server_error"));
    }
    let code = parameters.get("code").ok_or("server_error")?;
    let PendingSignIn {
        request, verifier, ..
    } = pending;
    let grant = CodeGrant {
        id: facade.parts.ambient.random(),
        client: request.client,
        redirect_uri: request.redirect_uri,
        challenge: request.challenge,
        scope: request.scope,
        code: code.to_owned(),
        verifier,
    };
    let sealed = facade
        .parts
        .sealer
        .seal_for_browser(Purpose::OAuthCode, &grant);
    sealed.ok_or("server_error")
}
