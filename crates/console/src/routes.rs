//! The routes of the console and their handlers.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use wardgate_edge::routes::{self, GET, GET_AND_POST, POST, Route, RouteInfo};

use crate::http::{open, signed_in, unknown};
use crate::provider_sign_in::SIGNED_IN;
use crate::{
    Console, approvals, assets, chat, playground, profile, provider_pages, record_pages, sign_in,
    tools,
};

const EVERYBODY: &str = "anyone";
/// A person whose cookie contains a session.
const PERSON: &str = "signed-in users";
const READER: &str = "signed-in users, for the audit records that policy permits them to read";

/// All routes. Everything that the pages need is below `/console`.
const ROUTES: &[Route<Arc<Console>>] = &[
    Route {
        info: RouteInfo::new("/console", GET, EVERYBODY, "303 to `/console/tools`"),
        handler: |console, methods| open(console, "home", methods, sign_in::home),
    },
    Route {
        info: RouteInfo::new("/console/", GET, EVERYBODY, "like `/console`"),
        handler: |console, methods| open(console, "home", methods, sign_in::home),
    },
    Route {
        info: RouteInfo::new(
            "/console/sign-in",
            GET_AND_POST,
            EVERYBODY,
            "200 HTML. `POST` of its form: 303 with the cookie; 401 if the token is refused",
        ),
        handler: |console, methods| open(console, "sign_in", methods, sign_in::page),
    },
    Route {
        info: RouteInfo::new(
            "/console/sign-out",
            POST,
            EVERYBODY,
            "deletes the cookie; 303 to `/console/sign-in`, or 200 and continues at the provider",
        ),
        handler: |console, methods| open(console, "sign_out", methods, sign_in::sign_out),
    },
    Route {
        info: RouteInfo::new(
            "/console/sign-in/provider",
            POST,
            EVERYBODY,
            "200, and continues at the provider of `sign_in`, if configured",
        ),
        handler: |console, methods| {
            open(console, "sign_in_provider", methods, provider_pages::begin)
        },
    },
    Route {
        info: RouteInfo::new(
            SIGNED_IN,
            GET,
            EVERYBODY,
            "callback of the provider: 200 with the cookie; 401 if the sign-in failed",
        ),
        handler: |console, methods| open(console, "signed_in", methods, provider_pages::finish),
    },
    Route {
        info: RouteInfo::new("/console/tools", GET, PERSON, "200 HTML: the tools"),
        handler: |console, methods| signed_in(console, "tools", methods, tools::list),
    },
    Route {
        info: RouteInfo::new(
            "/console/tools/{name}",
            GET_AND_POST,
            PERSON,
            "200 HTML: one tool. `POST` of its form calls it: 303 to the page of the call",
        ),
        handler: |console, methods| signed_in(console, "tool", methods, playground::page),
    },
    Route {
        info: RouteInfo::new(
            "/console/calls/{id}",
            GET,
            PERSON,
            "200 HTML: a call and its result",
        ),
        handler: |console, methods| signed_in(console, "call", methods, playground::call),
    },
    Route {
        info: RouteInfo::new("/console/chat", GET, PERSON, "200 HTML: the chat"),
        handler: |console, methods| signed_in(console, "chat", methods, chat::page),
    },
    Route {
        info: RouteInfo::new(
            "/console/chat/message",
            POST,
            PERSON,
            "forwards JSON to the agent and returns its response",
        ),
        handler: |console, methods| signed_in(console, "chat_message", methods, chat::message),
    },
    Route {
        info: RouteInfo::new(
            "/console/chat/approvals/{id}",
            POST,
            PERSON,
            "forwards JSON to the agent and returns its response",
        ),
        handler: |console, methods| signed_in(console, "chat_approval", methods, chat::approval),
    },
    Route {
        info: RouteInfo::new(
            "/console/approvals",
            GET,
            PERSON,
            "200 HTML: the calls that wait for the user's approval",
        ),
        handler: |console, methods| signed_in(console, "approvals", methods, approvals::list),
    },
    Route {
        info: RouteInfo::new(
            "/console/approvals/{id}",
            GET_AND_POST,
            PERSON,
            "200 HTML: one waiting call. `POST` of its form approves or refuses it: 303 to the list",
        ),
        handler: |console, methods| signed_in(console, "approval", methods, approvals::page),
    },
    Route {
        info: RouteInfo::new("/console/record", GET, READER, "200 HTML: the audit log"),
        handler: |console, methods| signed_in(console, "record", methods, record_pages::list),
    },
    Route {
        info: RouteInfo::new(
            "/console/record.jsonl",
            GET,
            READER,
            "200, one record per line",
        ),
        handler: |console, methods| {
            signed_in(console, "record_download", methods, record_pages::download)
        },
    },
    Route {
        info: RouteInfo::new(
            "/console/record/{sequence}",
            GET,
            READER,
            "200 HTML: one record",
        ),
        handler: |console, methods| {
            signed_in(console, "record_entry", methods, record_pages::entry)
        },
    },
    Route {
        info: RouteInfo::new(
            "/console/policy",
            GET,
            PERSON,
            "200 HTML: the calls that the user may make",
        ),
        handler: |console, methods| signed_in(console, "policy", methods, profile::page),
    },
    Route {
        info: RouteInfo::new("/console/style.css", GET, EVERYBODY, "200"),
        handler: |_, _| get(assets::style),
    },
    Route {
        info: RouteInfo::new("/console/chat.js", GET, EVERYBODY, "200"),
        handler: |_, _| get(assets::script),
    },
    Route {
        info: RouteInfo::new("/console/icon.svg", GET, EVERYBODY, "200"),
        handler: |_, _| get(assets::icon),
    },
    Route {
        info: RouteInfo::new(
            "/console/{*rest}",
            GET_AND_POST,
            EVERYBODY,
            "any other path: 404",
        ),
        handler: |console, methods| open(console, "unknown", methods, unknown),
    },
];

/// The additional route of a console with its own address.
const ROUTES_ALONE: &[Route<Arc<Console>>] = &[Route {
    info: RouteInfo::new(
        "/",
        GET,
        EVERYBODY,
        "303 to `/console/tools`, if the console runs separately",
    ),
    handler: |console, methods| open(console, "home", methods, sign_in::home),
}];

/// Returns the description of every route, for the reference documentation.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    [routes::describe(ROUTES), routes::describe(ROUTES_ALONE)].concat()
}

impl Console {
    /// Returns the routes of the console, to be merged with other routes.
    pub fn router(self: &Arc<Self>) -> Router {
        routes::build_router(ROUTES, self)
    }

    /// Returns the routes of a console with its own address, merged with `probes`.
    pub fn alone(self: &Arc<Self>, probes: Router) -> Router {
        let elsewhere = open(self, "unknown", GET_AND_POST, unknown);
        self.router()
            .merge(routes::build_router(ROUTES_ALONE, self))
            .merge(probes)
            .fallback_service(elsewhere)
    }
}
