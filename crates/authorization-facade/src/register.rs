//! Dynamic client registration (RFC 7591): the client id is the sealed description of the client.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::AuthorizationFacade;
use crate::client::ClientMetadata;
use crate::error::{OAuthError, json_response};

/// Handles `POST /oauth/register`.
pub(crate) async fn register(
    facade: Arc<AuthorizationFacade>,
    request: Request,
) -> Result<Response, OAuthError> {
    let body = facade.read_body(request, "application/json").await?;
    let metadata: ClientMetadata = serde_json::from_slice(&body).map_err(|_| {
        OAuthError::new(
            "invalid_client_metadata",
            "the body is not client metadata in JSON",
        )
    })?;
    let client = metadata.describe(facade.config.redirect_hosts.as_deref())?;
    let registered = json!({
        "client_id": client.seal(&facade)?,
        "client_id_issued_at": facade.parts.ambient.now().as_seconds(),
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        // Every client is public, whatever it asked for: a secret that anybody can get proves nothing, but PKCE does.
        "token_endpoint_auth_method": "none",
    });
    Ok(json_response(StatusCode::CREATED, &registered))
}
