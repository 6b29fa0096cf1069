//! Revocation (RFC 7009): revokes the provider's refresh token that a refresh token of the facade contains.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use tracing::warn;
use wardgate_gateway_store::Purpose;

use crate::error::{OAuthError, json_response};
use crate::parameters::Parameters;
use crate::token::{open_refresh_token, use_once};
use crate::{AuthorizationFacade, client};

/// Handles `POST /oauth/revoke`. A token of another client is treated like an invalid one (RFC 7009 §2.2).
pub(crate) async fn revoke(
    facade: Arc<AuthorizationFacade>,
    request: Request,
) -> Result<Response, OAuthError> {
    let body = facade
        .read_body(request, "application/x-www-form-urlencoded")
        .await?;
    let parameters = Parameters::parse(&body)?;
    let client_id = parameters.get("client_id");
    let client_id = client_id.ok_or(OAuthError::invalid_client("client_id is missing"))?;
    let text = parameters.token("token");
    if text.is_some_and(is_access_token) {
        // The access token is the provider's own, and remains valid until it expires.
        return Err(OAuthError::new(
            "unsupported_token_type",
            "access tokens cannot be revoked here; revoke the refresh token",
        ));
    }
    let Some(grant) = open_refresh_token(&facade, text, &client::digest(client_id)) else {
        return Ok(json_response(StatusCode::OK, &json!({})));
    };
    let purpose = Purpose::OAuthRefresh;
    match use_once(
        &facade,
        grant.id,
        purpose,
        OAuthError::invalid_grant("used"),
    )
    .await
    {
        Err(error) if error.code != "invalid_grant" => return Err(error),
        _ => {}
    }
    facade
        .provider
        .revoke(&grant.token)
        .await
        .map_err(|error| {
            warn!(%error, "the identity provider did not revoke a refresh token");
            OAuthError::unavailable()
        })?;
    Ok(json_response(StatusCode::OK, &json!({})))
}

/// Returns whether the token is a JWT. Sealed tokens contain no dots.
fn is_access_token(token: &str) -> bool {
    token.matches('.').count() == 2
}
