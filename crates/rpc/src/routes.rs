//! Tables of HTTP routes. A router is built only from its table, so the reference, which is generated from the tables, lists
//! every path that is served.

use axum::Router;
use axum::routing::MethodRouter;
use http::Method;

/// Only `GET`.
pub const GET: &[Method] = &[Method::GET];
/// Only `POST`.
pub const POST: &[Method] = &[Method::POST];
/// `GET` and `POST`.
pub const GET_AND_POST: &[Method] = &[Method::GET, Method::POST];
/// Every method, for a path that refuses requests.
pub const ANY: &[Method] = &[];

/// The description of a route in the reference.
#[derive(Debug)]
pub struct RouteInfo {
    /// The path, with its parameters as `{name}`.
    pub path: &'static str,
    /// The methods, or empty for every method.
    pub methods: &'static [Method],
    /// A description of who may call the route.
    pub callers: &'static str,
    /// The purpose and the responses, in Markdown.
    pub response: &'static str,
}

impl RouteInfo {
    /// Describes a route for `methods` at `path`.
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

/// A route of a service whose handlers have the state `S`.
#[derive(Debug)]
pub struct Route<S> {
    /// The description in the reference.
    pub info: RouteInfo,
    /// Creates the handler for the methods of `info`.
    pub handler: fn(&S, &'static [Method]) -> MethodRouter,
}

/// Builds a router with the routes of the table only.
pub fn build_router<S>(table: &[Route<S>], state: &S) -> Router {
    table.iter().fold(Router::new(), |router, route| {
        let handler = (route.handler)(state, route.info.methods);
        router.route(route.info.path, handler)
    })
}

/// Returns the descriptions of the routes of a table.
pub fn describe<S>(table: &'static [Route<S>]) -> Vec<&'static RouteInfo> {
    table.iter().map(|route| &route.info).collect()
}
