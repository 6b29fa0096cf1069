//! `type: http`: sends one request to an HTTP service.
//!
//! ```text
//!   method path?query  headers  json ∣ form ∣ text          each with placeholders, encoded for their position
//! ```

mod body;
mod pairs;
mod path;

use ::http::Method;
use wardgate_yaml::Node;

use super::{Plan, PlanSource};
use crate::fault::FieldReader;
use crate::scope::Scope;
use crate::source::SourceKind;

pub use body::BodyTemplate;
pub use pairs::{HeaderTemplates, PairTemplates};
pub use path::PathTemplate;

/// An HTTP request with placeholders.
#[derive(Debug, Clone)]
pub struct HttpPlan {
    /// The service.
    pub source: PlanSource,
    /// The HTTP method.
    pub method: Method,
    /// The path, which is appended to the URL of the source.
    pub path: Option<PathTemplate>,
    /// The query of the URL.
    pub query: PairTemplates,
    /// Headers in addition to those of the source.
    pub headers: HeaderTemplates,
    /// The body.
    pub body: BodyTemplate,
}

pub(super) fn read_plan(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let faults = scope.faults.count();
    let source = source(fields, scope);
    let method_node = fields.take_optional("method");
    let path = fields
        .take_optional("path")
        .and_then(|node| PathTemplate::from_node(node, scope));
    let query = fields
        .take_optional("query")
        .and_then(|node| PairTemplates::from_node(node, "query", scope));
    let headers = fields
        .take_optional("headers")
        .and_then(|node| HeaderTemplates::from_node(node, scope));
    let body = BodyTemplate::from_fields(fields, scope);
    let has_body = body.as_ref().is_some_and(|body| !body.is_none());
    let method = match method_node {
        Some(node) => method(node, has_body, scope),
        None if has_body => Some(Method::POST),
        None => Some(Method::GET),
    };
    if scope.faults.count() > faults {
        return None;
    }
    Some(Plan::Http(HttpPlan {
        source: source?,
        method: method?,
        path,
        query: query.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
        body: body?,
    }))
}

/// Reads the HTTP service that `source` names.
pub(super) fn source(
    fields: &mut FieldReader<'_>,
    scope: &mut Scope<'_, '_>,
) -> Option<PlanSource> {
    let node = fields.take_required("source", "use one of `sources`", scope.faults)?;
    let settings = scope.source(node)?;
    let SourceKind::Http(http) = &settings.kind else {
        scope.wrong_source(node, "an HTTP service");
        return None;
    };
    Some(PlanSource::new(&settings.name, Some(&http.client.auth)))
}

fn method(node: &Node, has_body: bool, scope: &mut Scope<'_, '_>) -> Option<Method> {
    let method = match scope.faults.text(node, "method")? {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        other => {
            scope.faults.add(
                node.at,
                format!("`{other}` is not a supported method"),
                "use one of GET, HEAD, POST, PUT, PATCH, DELETE",
            );
            return None;
        }
    };
    if has_body && matches!(method, Method::GET | Method::HEAD) {
        scope.faults.add(
            node.at,
            format!("a {method} request must not have a body"),
            "use `method: POST`, or put the values in `query`",
        );
    }
    Some(method)
}
