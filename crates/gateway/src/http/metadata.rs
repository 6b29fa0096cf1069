//! The gateway as an OAuth 2.0 protected resource (RFC 9728): its metadata document, and its 401 response.
//!
//! Each path that takes tokens is a resource, whose canonical URI is the public URL with that path. A token for `/mcp`, the
//! whole view, is also valid for its parts; a token for a part is valid for that part only.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use wardgate_edge::{Scopes, TokenRefusal};

use super::{not_found, problem};
use crate::config::Config;

/// Path prefix of the metadata documents. The path of the resource follows (RFC 9728, section 3.1).
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Path of the resource that is the whole view.
const WHOLE: &str = "/mcp";

/// The metadata of the gateway as a protected resource.
pub(super) struct ResourceMetadata {
    /// The URL at which clients reach the gateway.
    public_url: String,
    issuers: Vec<String>,
    /// The scopes that every token needs.
    required_scopes: Vec<String>,
}

impl ResourceMetadata {
    pub(super) fn new(config: &Config, public_url: String) -> Self {
        // With a facade, clients sign people in at the facade instead of the provider behind it.
        let facade = config.authorization.as_ref();
        let issuers = config.auth.issuers.iter().map(|it| &it.issuer);
        let others = issuers.filter(|it| facade.is_none_or(|facade| facade.issuer != **it));
        let own = facade.map(|_| &public_url);
        Self {
            issuers: own.into_iter().chain(others).cloned().collect(),
            public_url,
            required_scopes: config.scopes.required.clone(),
        }
    }

    /// Returns the handler of all paths that begin with [`WELL_KNOWN`].
    pub(super) fn handler(self: &Arc<Self>) -> MethodRouter {
        let metadata = Arc::clone(self);
        get(move |request: Parts| async move {
            let path = request.uri.path().strip_prefix(WELL_KNOWN);
            metadata.protected_resource(path.unwrap_or_default())
        })
        .options(|| async { preflight() })
    }

    /// `GET /.well-known/oauth-protected-resource[/path]`: open to everyone, and to web pages. The document does not depend on
    /// whether the upstream or toolset in the path exists, so it does not reveal which ones do.
    fn protected_resource(&self, path: &str) -> Response {
        let Some(resource) = resource_at(path) else {
            return not_found();
        };
        let mut document = serde_json::json!({
            "resource": format!("{}{resource}", self.public_url),
            "resource_name": "Wardgate",
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
        });
        // Only the scopes that every token needs. If an operation needs more, its 403 response names them.
        if !self.required_scopes.is_empty() {
            document["scopes_supported"] = self.required_scopes.as_slice().into();
        }
        let headers = [
            (header::CONTENT_TYPE, "application/json"),
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        ];
        (headers, document.to_string()).into_response()
    }

    /// Returns a 401 response that tells the client how to obtain a token (RFC 6750 §3, RFC 9728 §5.1).
    pub(super) fn challenge(&self, refusal: &TokenRefusal, request: &Parts) -> Response {
        let metadata = self.url(resource_of(request));
        let required = self.required_scopes.iter().cloned();
        let scope = required.collect::<Scopes>().to_string();
        let mut response = problem(refusal.status(), refusal.reason(), &refusal.description());
        response.headers_mut().insert(
            header::WWW_AUTHENTICATE,
            refusal.challenge(Some(&metadata), &scope),
        );
        response
    }

    /// Returns the URL of the metadata of the resource at `path`.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{WELL_KNOWN}{path}", self.public_url)
    }
}

/// Returns the response to a preflight request. Any web page may read the metadata, and may name the version that it speaks.
fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "mcp-protocol-version"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Returns the resources for which a token of `request` may have been issued.
pub(super) fn audiences(request: &Parts) -> Vec<&str> {
    let own = resource_of(request);
    if own.starts_with("/mcp/") {
        vec![own, WHOLE]
    } else {
        vec![own]
    }
}

/// Returns the path of the resource that the request addresses.
pub(super) fn resource_of(request: &Parts) -> &str {
    let path = request.uri.path();
    // Messages of HTTP+SSE belong to the resource of their stream.
    let path = if path.starts_with("/messages") {
        "/sse"
    } else {
        path
    };
    resource_at(path).unwrap_or(WHOLE)
}

/// Returns the resource at `path`, if it is one that takes tokens and its name needs no escaping. An empty path stands for the
/// whole view.
fn resource_at(path: &str) -> Option<&str> {
    let is_name = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !name.is_empty() && name.bytes().all(is_plain)
    };
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        [] | [""] => Some(WHOLE),
        ["mcp" | "message" | "sse"] => Some(path),
        ["mcp", name] | ["mcp", "upstream", name] if is_name(name) => Some(path),
        _ => None,
    }
}
