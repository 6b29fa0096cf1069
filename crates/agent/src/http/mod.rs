//! The HTTP API of the agent, and the list of its paths.
//!
//! ```text
//!  request ─▶ admission: host, origin ─▶ token ─▶ method ─▶ media type ─▶ body
//!                                                                          │
//!     chat · approvals ────── NDJSON ◀── body ◀─────┐                      ▼
//!     completions ─ SSE, or one JSON ◀── body ◀─────┴── events ◀── Agent::chat
//! ```

mod admission;
mod approvals;
mod chat;
mod completions;
mod fields;
mod limits;
mod models;
mod ndjson;
mod problem;
mod response_body;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use wardgate_domain::Ambient;
use wardgate_edge::routes::{self, ANY, GET, POST, Route, RouteInfo};
use wardgate_edge::{Admission, Grants};

use crate::Agent;
use admission::endpoint;
pub use limits::HttpLimits;
use problem::Problem;
pub use problem::listed_failures;

/// What web pages of an allowed origin may do. The request headers are not limited, because OpenAI's browser client sends many
/// headers of its own.
const GRANTS: Grants = Grants {
    methods: "GET, POST",
    request_headers: "authorization, *",
    request_prefix: None,
    response_headers: "www-authenticate",
};

/// Access: a caller with a token that is valid at `/mcp`.
const CALLER: &str = "a caller";
const EVERYBODY: &str = "anyone";

const CHAT: &str = "a turn of a chat, from `message`, `model`, `conversation_id`, `message_id`; `Last-Event-ID` resumes. \
    200 `application/x-ndjson`: [events](../chat-with-an-assistant.md#send-a-message)";

/// All routes.
const ROUTES: &[Route<Arc<Endpoints>>] = &[
    Route {
        info: RouteInfo::new("/api/chat/message/", POST, CALLER, CHAT),
        handler: |here, methods| endpoint(here, methods, chat::post),
    },
    Route {
        info: RouteInfo::new(
            "/api/chat/message",
            POST,
            CALLER,
            "like `/api/chat/message/`",
        ),
        handler: |here, methods| endpoint(here, methods, chat::post),
    },
    // The path of earlier chat services, kept for compatibility.
    Route {
        info: RouteInfo::new("/chat", POST, CALLER, "like `/api/chat/message/`"),
        handler: |here, methods| endpoint(here, methods, chat::post),
    },
    Route {
        info: RouteInfo::new(
            "/api/chat/approvals/{id}",
            POST,
            CALLER,
            "approves or refuses a waiting call: `decision` is `approve` or `refuse`. 200 `application/x-ndjson`",
        ),
        handler: |here, methods| endpoint(here, methods, approvals::post),
    },
    Route {
        info: RouteInfo::new(
            "/v1/chat/completions",
            POST,
            CALLER,
            "a turn in the format of OpenAI. 200 JSON, or `text/event-stream` with `stream`",
        ),
        handler: |here, methods| endpoint(here, methods, completions::post),
    },
    Route {
        info: RouteInfo::new("/v1/models", GET, CALLER, "lists the assistants. 200 JSON"),
        handler: |here, methods| endpoint(here, methods, models::list),
    },
    Route {
        info: RouteInfo::new("/v1/models/{name}", GET, CALLER, "one assistant. 200 JSON"),
        handler: |here, methods| endpoint(here, methods, models::get_model),
    },
    Route {
        info: RouteInfo::new("/v1/{*rest}", ANY, EVERYBODY, "any other path: 404"),
        handler: |_, _| any(not_found),
    },
    Route {
        info: RouteInfo::new("/api/{*rest}", ANY, EVERYBODY, "any other path: 404"),
        handler: |_, _| any(not_found),
    },
];

/// Returns a description of every route, for the reference documentation.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    routes::describe(ROUTES)
}

/// The HTTP endpoints of an agent.
pub struct Endpoints {
    /// The agent that answers the requests.
    pub agent: Agent,
    /// The admission checks: those of the gateway if both share one address.
    pub admission: Admission,
    /// The source of time and ids.
    pub ambient: Ambient,
}

impl Endpoints {
    /// Returns the routes, to be merged into another router. Unknown paths under `/v1/` and `/api/` are answered here too,
    /// because clients of these paths do not understand JSON-RPC errors.
    pub fn router(self) -> Router {
        routes::build_router(ROUTES, &Arc::new(self))
    }

    /// Returns the routes and `probes`, for an address of their own.
    pub fn alone(self, probes: Router) -> Router {
        self.router().merge(probes).fallback(not_found)
    }
}

async fn not_found() -> Problem {
    Problem::not_found(
        "No such path; chats are served at /api/chat/message/ and /v1/chat/completions.",
    )
}
