//! The metadata of the facade (RFC 8414).

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::error::json_response;
use crate::{AUTHORIZE, AuthorizationFacade, REGISTER, REVOKE, TOKEN};

/// The path of the metadata.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";

/// Handles `GET /.well-known/oauth-authorization-server[/path]`.
pub(crate) fn document(facade: &AuthorizationFacade) -> Response {
    let scopes: Vec<&str> = facade.scopes.supported_scopes().collect();
    let document = json!({
        "issuer": facade.parts.public_url,
        "authorization_endpoint": facade.url(AUTHORIZE),
        "token_endpoint": facade.url(TOKEN),
        "registration_endpoint": facade.url(REGISTER),
        "revocation_endpoint": facade.url(REVOKE),
        "scopes_supported": scopes,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": true,
    });
    json_response(StatusCode::OK, &document)
}
