//! HTTP: every path in one list.
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
use http::Method;
use wardgate_domain::Ambient;
use wardgate_edge::{Admission, Grants};

use crate::Agent;
use admission::endpoint;
pub use limits::HttpLimits;
use problem::Problem;

/// What pages of a welcome origin may do. OpenAI's client for browsers sends many headers of its own.
const GRANTS: Grants = Grants {
    methods: "GET, POST",
    request_headers: "authorization, *",
    request_prefix: None,
    response_headers: "www-authenticate",
};

/// The paths of an agent.
pub struct Endpoints {
    /// Who answers.
    pub agent: Agent,
    /// Whom it lets in: the gateway's, where both have one address.
    pub admission: Admission,
    /// Time and ids.
    pub ambient: Ambient,
}

impl Endpoints {
    /// The paths alone, to stand beside others. What is under `/v1/` and `/api/` and unknown is answered here too:
    /// clients of these read no JSON-RPC.
    pub fn router(self) -> Router {
        let here = Arc::new(self);
        let chat = endpoint(&here, Method::POST, chat::post);
        Router::new()
            .route("/api/chat/message", chat.clone())
            .route("/api/chat/message/", chat.clone())
            // What chat services of before called it.
            .route("/chat", chat)
            .route(
                "/api/chat/approvals/{id}",
                endpoint(&here, Method::POST, approvals::post),
            )
            .route(
                "/v1/chat/completions",
                endpoint(&here, Method::POST, completions::post),
            )
            .route("/v1/models", endpoint(&here, Method::GET, models::list))
            .route(
                "/v1/models/{name}",
                endpoint(&here, Method::GET, models::one),
            )
            .route("/v1/{*rest}", any(not_found))
            .route("/api/{*rest}", any(not_found))
    }

    /// The paths on an address of their own, beside `probes`.
    pub fn alone(self, probes: Router) -> Router {
        self.router().merge(probes).fallback(not_found)
    }
}

async fn not_found() -> Problem {
    Problem::not_found(
        "No such path; chats are served at /api/chat/message/ and /v1/chat/completions.",
    )
}
