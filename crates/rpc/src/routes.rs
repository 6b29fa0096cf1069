//! Tables of HTTP routes. A router is built from its table and from nothing else, so the reference, which is generated
//! from the tables, names every path that is served.

use axum::Router;
use axum::routing::MethodRouter;
use http::Method;

/// Reading alone.
pub const GET: &[Method] = &[Method::GET];
/// Sending alone.
pub const POST: &[Method] = &[Method::POST];
/// Both.
pub const GET_AND_POST: &[Method] = &[Method::GET, Method::POST];
/// Whatever the method: the path exists for its refusals.
pub const ANY: &[Method] = &[];

/// What the reference says of a route.
#[derive(Debug)]
pub struct RouteInfo {
    /// The path, with its parameters as `{name}`.
    pub path: &'static str,
    /// Its methods; none: every method.
    pub methods: &'static [Method],
    /// Who may call it.
    pub callers: &'static str,
    /// What it is for and what it responds with, in Markdown.
    pub response: &'static str,
}

impl RouteInfo {
    /// A route of `methods` at `path`.
    pub const fn new(
        path: &'static str,
        methods: &'static [Method],
        callers: &'static str,
        response: &'static str,
    ) -> Self {
        Self {
            path,
            methods,
            callers,
            response,
        }
    }
}

/// A route of a service whose handlers work with `S`.
#[derive(Debug)]
pub struct Route<S> {
    /// What the reference says of it.
    pub info: RouteInfo,
    /// The handler, for the methods of `info`.
    pub handler: fn(&S, &'static [Method]) -> MethodRouter,
}

/// A router with the routes of the table, and no other.
pub fn build_router<S>(table: &[Route<S>], state: &S) -> Router {
    table.iter().fold(Router::new(), |router, route| {
        let handler = (route.handler)(state, route.info.methods);
        router.route(route.info.path, handler)
    })
}

/// What the reference says of the routes of a table.
pub fn describe<S>(table: &'static [Route<S>]) -> Vec<&'static RouteInfo> {
    table.iter().map(|route| &route.info).collect()
}
