//! The gateway as an OAuth 2.0 protected resource (RFC 9728): what it says of itself, and its 401.
//!
//! Each path that takes tokens is a resource, and its canonical URI the public URL with that path. A token for `/mcp`, the
//! whole view, is good for the parts of it too; one for a part is good for that part alone.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use wardgate_edge::{Scopes, TokenRefusal};

use super::{not_found, problem};
use crate::config::Config;

/// Where metadata begins; the path of the resource follows (RFC 9728, section 3.1).
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The whole view.
const WHOLE: &str = "/mcp";

/// What the gateway says of itself as a protected resource.
pub(super) struct ResourceMetadata {
    /// How clients reach the gateway.
    public_url: String,
    issuers: Vec<String>,
    /// What every token needs.
    required_scopes: Vec<String>,
}

impl ResourceMetadata {
    pub(super) fn new(config: &Config, public_url: String) -> Self {
        // Clients sign people in at the facade, not at the provider behind it.
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

    /// The handler of every path that begins with [`WELL_KNOWN`].
    pub(super) fn handler(self: &Arc<Self>) -> MethodRouter {
        let metadata = Arc::clone(self);
        get(move |request: Parts| async move {
            let path = request.uri.path().strip_prefix(WELL_KNOWN);
            metadata.protected_resource(path.unwrap_or_default())
        })
        .options(|| async { preflight() })
    }

    /// `GET /.well-known/oauth-protected-resource[/path]`: open to everyone, and to web pages. It is the same for whatever
    /// upstream or toolset a path names, so it tells nobody which there are.
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
        // No more than to begin with: what else an operation needs its 403 says.
        if !self.required_scopes.is_empty() {
            document["scopes_supported"] = self.required_scopes.as_slice().into();
        }
        let headers = [
            (header::CONTENT_TYPE, "application/json"),
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        ];
        (headers, document.to_string()).into_response()
    }

    /// 401 with the way to a token (RFC 6750 §3, RFC 9728 §5.1).
    pub(super) fn unauthorized(&self, refusal: &TokenRefusal, request: &Parts) -> Response {
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

    /// Where the metadata of the resource at `path` is.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{WELL_KNOWN}{path}", self.public_url)
    }
}

/// A page may ask for either, and name the version that it speaks.
fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "mcp-protocol-version"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// The resources, any of which a token for `request` may be for.
pub(super) fn audiences(request: &Parts) -> Vec<&str> {
    let own = resource_of(request);
    if own.starts_with("/mcp/") {
        vec![own, WHOLE]
    } else {
        vec![own]
    }
}

/// The path of the resource that a request is to.
pub(super) fn resource_of(request: &Parts) -> &str {
    let path = request.uri.path();
    // Messages of HTTP+SSE belong to its stream.
    let path = if path.starts_with("/messages") {
        "/sse"
    } else {
        path
    };
    resource_at(path).unwrap_or(WHOLE)
}

/// The resource at `path`: one of those that take tokens, by a name that needs no quoting. Without a path it is the
/// caller's whole view.
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
