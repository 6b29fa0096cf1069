//! HTTP: all paths in one table, and the checks of a request before its message is parsed.

mod guard;
mod metadata;
mod post;

use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any};
use wardgate_domain::Reason;
use wardgate_edge::Grants;
use wardgate_edge::routes::{self, Route, RouteInfo};
use wardgate_mcp::header::PARAM_PREFIX;
use wardgate_mcp_server::{McpResponse, RpcError};

use crate::Gateway;
use crate::post::Transport;

pub(crate) use self::guard::HttpGuard;

/// Methods, request headers and response headers of MCP that CORS allows.
const GRANTS: Grants = Grants {
    methods: "GET, POST, DELETE",
    request_headers: "authorization, content-type, accept, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id, idempotency-key",
    // The prefix of mirrored headers. Each tool defines its own.
    request_prefix: Some(PARAM_PREFIX),
    response_headers: "www-authenticate, mcp-session-id, retry-after, ratelimit-policy, ratelimit",
};

/// The kind of endpoint at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// The endpoint takes messages.
    Messages(Transport),
    /// The endpoint opens an HTTP+SSE stream.
    Sse,
}

impl Endpoint {
    const MCP: Self = Self::Messages(Transport::Mcp);

    /// Returns the methods that a path of this kind takes.
    const fn methods(self) -> &'static [Method] {
        match self {
            Self::Messages(Transport::Mcp) => &[Method::GET, Method::POST, Method::DELETE],
            Self::Messages(Transport::Message | Transport::Sse) => routes::POST,
            Self::Sse => routes::GET,
        }
    }

    /// Returns a route of this kind.
    const fn route_at(
        self,
        path: &'static str,
        response: &'static str,
        handler: fn(&Arc<Gateway>, &'static [Method]) -> MethodRouter,
    ) -> Route<Arc<Gateway>> {
        let info = RouteInfo::new(path, self.methods(), "a caller", response);
        Route { info, handler }
    }

    /// Returns the handler of a path of this kind.
    fn handler(self, gateway: &Arc<Gateway>) -> MethodRouter {
        let for_preflight = Arc::clone(gateway);
        let preflight = move |request: Parts| async move {
            GRANTS
                .preflight(for_preflight.guard.origins(), &request)
                .unwrap_or_else(|what| {
                    problem(StatusCode::FORBIDDEN, Reason::ORIGIN_REFUSED, &what)
                })
        };
        let gateway = Arc::clone(gateway);
        any(move |request| post::handle(gateway, self, request)).options(preflight)
    }
}

/// All paths that take tokens.
const ENDPOINTS: &[Route<Arc<Gateway>>] = &[
    Endpoint::MCP.route_at(
        "/mcp",
        "all tools: `POST` sends a message, `GET` opens a stream of changes or resumes an answer, `DELETE` ends a session",
        |gateway, _| Endpoint::MCP.handler(gateway),
    ),
    Endpoint::MCP.route_at(
        "/mcp/{toolset}",
        "like `/mcp`, for the tools of one toolset",
        |gateway, _| Endpoint::MCP.handler(gateway),
    ),
    Endpoint::MCP.route_at(
        "/mcp/upstream/{source}",
        "like `/mcp`, for one MCP server directly; requires the right `connect`",
        |gateway, _| Endpoint::MCP.handler(gateway),
    ),
    Endpoint::Messages(Transport::Message).route_at("/message", "`POST` sends one message", |gateway, _| {
        Endpoint::Messages(Transport::Message).handler(gateway)
    }),
    Endpoint::Sse.route_at("/sse", "`GET` opens a stream (2024-11-05)", |gateway, _| {
        Endpoint::Sse.handler(gateway)
    }),
    Endpoint::Messages(Transport::Sse).route_at(
        "/messages/",
        "`POST` sends a message to a stream of `/sse`, with the `?session_id=` of its first event",
        |gateway, _| Endpoint::Messages(Transport::Sse).handler(gateway),
    ),
    Endpoint::Messages(Transport::Sse).route_at("/messages", "like `/messages/`", |gateway, _| {
        Endpoint::Messages(Transport::Sse).handler(gateway)
    }),
];

const EVERYBODY: &str = "anyone, and pages of any origin";

/// All paths of the metadata of the gateway as a protected resource.
const METADATA: &[Route<Arc<Gateway>>] = &[
    Route {
        info: RouteInfo::new(
            metadata::WELL_KNOWN,
            routes::GET,
            EVERYBODY,
            "200 JSON (RFC 9728) about `/mcp`",
        ),
        handler: |gateway, _| gateway.guard.metadata().handler(),
    },
    Route {
        info: RouteInfo::new(
            "/.well-known/oauth-protected-resource/{*path}",
            routes::GET,
            EVERYBODY,
            "200 JSON about `mcp`, `mcp/{toolset}`, `mcp/upstream/{source}`, `message` or `sse`, even if the toolset or source does not exist; otherwise 404",
        ),
        handler: |gateway, _| gateway.guard.metadata().handler(),
    },
];

/// Returns the paths that take tokens, for the reference documentation.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    routes::describe(ENDPOINTS)
}

/// Returns the paths of OAuth metadata, for the reference documentation.
pub fn listed_metadata_routes() -> Vec<&'static RouteInfo> {
    routes::describe(METADATA)
}

/// Returns the router of all paths for clients.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    routes::build_router(ENDPOINTS, gateway)
        .merge(routes::build_router(METADATA, gateway))
        .merge(gateway.authorization.router())
        .merge(wardgate_connect::router(&gateway.connect_pages))
        .fallback(|| async { not_found() })
}

/// Returns the response that refuses a request before its message was read: an HTTP status, and a JSON-RPC error with the
/// reason, because clients display the error.
fn problem(status: StatusCode, reason: Reason, description: &str) -> Response {
    let error = RpcError::for_unread_request(status, reason, description);
    McpResponse::error(None, &error).into_response()
}

/// Returns the response for a path that does not exist.
fn not_found() -> Response {
    problem(
        StatusCode::NOT_FOUND,
        Reason::NOT_FOUND,
        "No such path; MCP is served at /mcp.",
    )
}
