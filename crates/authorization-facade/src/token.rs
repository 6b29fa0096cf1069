//! The token endpoint (RFC 6749 §3.2): exchanges codes and refresh tokens of the facade for the provider's tokens.
//!
//! A code can be used once over all replicas: its id is recorded before the request to the provider. A refresh token
//! can be used once too (RFC 9700 §4.14.2), and is replaced at each use. It is used up only after a successful response
//! of the provider, so that people do not have to sign in again after the provider was unavailable.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tracing::warn;
use wardgate_domain::{Digest, is_same_secret};
use wardgate_egress::{AuthError, CodeRequest, ProviderTokens};
use wardgate_gateway_store::Purpose;

use crate::authorize::check_resources;
use crate::error::{OAuthError, json_response};
use crate::parameters::Parameters;
use crate::request::{CodeGrant, RefreshGrant};
use crate::{AuthorizationFacade, CALLBACK, client};

/// Maximum length of a client's refresh token, in bytes.
const MAX_REFRESH: usize = 64 * 1_024;

/// Handles `POST /oauth/token`.
pub(crate) async fn token(
    facade: Arc<AuthorizationFacade>,
    request: Request,
) -> Result<Response, OAuthError> {
    let body = facade
        .read_body(request, "application/x-www-form-urlencoded")
        .await?;
    let parameters = Parameters::parse(&body)?;
    check_resources(&facade, &parameters)?;
    let client_id = parameters.get("client_id");
    let client_id = client_id.ok_or(OAuthError::invalid_client("client_id is missing"))?;
    let client = client::digest(client_id);
    match parameters.get("grant_type") {
        Some("authorization_code") => redeem_code(&facade, &parameters, client).await,
        Some("refresh_token") => refresh(&facade, &parameters, client).await,
        _ => Err(OAuthError::new(
            "unsupported_grant_type",
            "the supported grants are authorization_code and refresh_token",
        )),
    }
}

async fn redeem_code(
    facade: &AuthorizationFacade,
    parameters: &Parameters,
    client: String,
) -> Result<Response, OAuthError> {
    const NOT_GOOD: OAuthError = OAuthError::invalid_grant(
        "the code is not valid: it belongs to another client, was used, has expired, or does not match redirect_uri or code_verifier",
    );
    let code = parameters.require("code", "code is missing")?;
    let grant = facade
        .parts
        .sealer
        .open_from_browser(Purpose::OAuthCode, code);
    let grant: CodeGrant = grant.ok_or(NOT_GOOD)?;
    let verifier = parameters.require("code_verifier", "code_verifier is missing (RFC 7636)")?;
    let redirect_uri = parameters.get("redirect_uri");
    let fits = is_same_secret(&client, &grant.client)
        && is_same_secret(
            redirect_uri.unwrap_or(&grant.redirect_uri),
            &grant.redirect_uri,
        )
        && verifies(verifier, &grant.challenge);
    // A request with a stolen code but without the verifier does not use the code up.
    if !fits {
        return Err(NOT_GOOD);
    }
    use_once(facade, grant.id, Purpose::OAuthCode, NOT_GOOD).await?;
    let callback = facade.url(CALLBACK);
    let code_request = CodeRequest {
        redirect_uri: &callback,
        verifier: &grant.verifier,
    };
    let further = further(facade);
    let tokens = facade
        .provider
        .redeem_code(code_request, &grant.code, &further);
    let tokens = tokens
        .await
        .map_err(|error| convert_provider_error(&error, NOT_GOOD))?;
    answer(facade, tokens, client, grant.scope, None).await
}

async fn refresh(
    facade: &AuthorizationFacade,
    parameters: &Parameters,
    client: String,
) -> Result<Response, OAuthError> {
    const NOT_GOOD: OAuthError = OAuthError::invalid_grant(
        "the refresh token is not valid: it belongs to another client, was used, has expired, or was revoked",
    );
    let grant = open_refresh_token(facade, parameters.token("refresh_token"), &client);
    let grant = grant.ok_or(NOT_GOOD)?;
    let used = facade.parts.store.is_id_used(grant.id).await;
    match used {
        Ok(false) => {}
        Ok(true) => return Err(NOT_GOOD),
        Err(_) => return Err(OAuthError::unavailable()),
    }
    let further = further(facade);
    let tokens = facade.provider.refresh(&grant.token, &further);
    let tokens = tokens
        .await
        .map_err(|error| convert_provider_error(&error, NOT_GOOD))?;
    use_once(facade, grant.id, Purpose::OAuthRefresh, NOT_GOOD).await?;
    answer(facade, tokens, client, grant.scope, Some(grant.token)).await
}

/// Returns the content of a refresh token of this client.
pub(crate) fn open_refresh_token(
    facade: &AuthorizationFacade,
    text: Option<&str>,
    client: &str,
) -> Option<RefreshGrant> {
    let text = text.filter(|text| text.len() <= MAX_REFRESH)?;
    let grant = facade
        .parts
        .sealer
        .open_from_browser(Purpose::OAuthRefresh, text);
    grant.filter(|grant: &RefreshGrant| is_same_secret(client, &grant.client))
}

/// Returns additional parameters of every token request.
fn further(facade: &AuthorizationFacade) -> Vec<(&str, &str)> {
    let resource = facade.config.resource.as_deref();
    resource.map(|it| ("resource", it)).into_iter().collect()
}

/// Verifies the PKCE verifier (RFC 7636 §4.6).
fn verifies(verifier: &str, challenge: &str) -> bool {
    let digest = Digest::compute(verifier.as_bytes());
    (43..=128).contains(&verifier.len()) && URL_SAFE_NO_PAD.encode(digest.as_bytes()) == challenge
}

pub(crate) async fn use_once(
    facade: &AuthorizationFacade,
    id: [u8; 16],
    purpose: Purpose,
    used: OAuthError,
) -> Result<(), OAuthError> {
    let until = facade.parts.ambient.now().plus(purpose.lasts());
    match facade.parts.store.use_id_once(id, until).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(used),
        Err(_) => Err(OAuthError::unavailable()),
    }
}

/// Converts an error of the provider to the one that the client gets. `not_good` is used if the provider rejected the
/// grant.
fn convert_provider_error(error: &AuthError, not_good: OAuthError) -> OAuthError {
    warn!(%error, "the identity provider returned no tokens");
    match error {
        AuthError::Refused {
            code: Some("invalid_grant"),
            ..
        } => not_good,
        AuthError::Refused { status, .. } if *status < 500 => OAuthError::misconfiguration(),
        AuthError::Refused { .. } | AuthError::Endpoint(_) => OAuthError::unavailable(),
        _ => OAuthError::misconfiguration(),
    }
}

/// Creates the response with the provider's tokens. `held` is the provider's refresh token that was used to get them,
/// if any.
async fn answer(
    facade: &AuthorizationFacade,
    tokens: ProviderTokens,
    client: String,
    scope: String,
    held: Option<String>,
) -> Result<Response, OAuthError> {
    let preset = facade.config.preset;
    let bearer = if preset.uses_id_token() {
        tokens.id_token
    } else {
        Some(tokens.access_token)
    };
    let bearer = bearer.ok_or_else(|| {
        warn!("the identity provider returned no identity token: add openid to `scopes`");
        OAuthError::misconfiguration()
    })?;
    // If the client got a token that the gateway refuses, it would start one sign-in after another.
    let caller = facade
        .parts
        .auth
        .verify_token(&bearer)
        .await
        .map_err(|refusal| {
            warn!(
                reason = refusal.reason().as_str(),
                "gateway.auth does not accept a token of the identity provider: {}",
                refusal.description()
            );
            OAuthError::misconfiguration()
        })?;
    let left = caller.expires_at().since(facade.parts.ambient.now());
    let lifetime = tokens.lifetime.map_or(left, |lifetime| lifetime.min(left));
    let granted = tokens.scope.filter(|_| !preset.uses_id_token());
    let granted = granted.map_or_else(|| scope.clone(), |it| facade.scopes.for_client(&it));
    let mut body = json!({
        "access_token": bearer,
        "token_type": "Bearer",
        "expires_in": lifetime.as_secs(),
        "scope": granted,
    });
    if let Some(token) = tokens.refresh_token.or(held) {
        let grant = RefreshGrant {
            id: facade.parts.ambient.random(),
            client,
            scope,
            token,
        };
        let sealed = facade
            .parts
            .sealer
            .seal_for_browser(Purpose::OAuthRefresh, &grant);
        if let Some(sealed) = sealed {
            body["refresh_token"] = sealed.into();
        }
    }
    Ok(json_response(StatusCode::OK, &body))
}
