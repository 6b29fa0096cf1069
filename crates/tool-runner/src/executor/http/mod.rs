//! `type: http`: one request to an HTTP service.
//!
//! ```text
//!   method path?query  headers  json ∣ form ∣ text          each with placeholders, filled for where they stand
//!       └─▶ HttpSource (URL, credentials, egress) ─▶ response ─▶ document ∣ text ∣ failure
//! ```

mod body;
mod pairs;
mod path;
mod response;
mod source;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::Method;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::{Executor, ExecutorError, Invocation, Kind, Output, Plan, Sources};
use crate::Error;
use crate::catalogue::{Fields, Node, Scope, SourceKind};
use body::BodyTemplate;
use pairs::{Headers, Pairs};
use wardgate_egress::Request;

pub(super) use path::PathTemplate;
pub(super) use response::{json, refused};
pub(crate) use source::HttpSource;

pub(super) const KIND: Kind = Kind { name: "http", read };

/// Longer URLs are refused by servers, some of which cut them instead.
const MAX_URL: usize = 16 * 1024;

/// An HTTP source as a plan refers to it.
#[derive(Debug, Clone)]
pub(super) struct SourceName {
    pub(super) name: String,
    pub(super) exchanges_token: bool,
    pub(super) stands_for_caller: bool,
}

/// A request with placeholders.
#[derive(Debug, Clone)]
struct HttpPlan {
    source: SourceName,
    method: Method,
    path: Option<PathTemplate>,
    query: Pairs,
    headers: Headers,
    body: BodyTemplate,
}

fn read(fields: &mut Fields<'_>, scope: &mut Scope<'_, '_>) -> Option<Box<dyn Plan>> {
    let faults = scope.faults.count();
    let source = SourceName::read(fields, scope);
    let method_node = fields.optional("method");
    let path = fields
        .optional("path")
        .and_then(|node| PathTemplate::read(node, scope));
    let query = fields
        .optional("query")
        .and_then(|node| Pairs::read(node, "query", scope));
    let headers = fields
        .optional("headers")
        .and_then(|node| Headers::read(node, scope));
    let body = BodyTemplate::read(fields, scope);
    let has_body = body.as_ref().is_some_and(|body| !body.is_none());
    let method = match method_node {
        Some(node) => method(node, has_body, scope),
        None if has_body => Some(Method::POST),
        None => Some(Method::GET),
    };
    if scope.faults.count() > faults {
        return None;
    }
    Some(Box::new(HttpPlan {
        source: source?,
        method: method?,
        path,
        query: query.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
        body: body?,
    }))
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
                format!("`{other}` is no method"),
                "use one of GET, HEAD, POST, PUT, PATCH, DELETE",
            );
            return None;
        }
    };
    if has_body && matches!(method, Method::GET | Method::HEAD) {
        scope.faults.add(
            node.at,
            format!("a {method} request has no body"),
            "use `method: POST`, or put the values in `query`",
        );
    }
    Some(method)
}

impl SourceName {
    pub(super) fn read(fields: &mut Fields<'_>, scope: &mut Scope<'_, '_>) -> Option<Self> {
        let node = fields.required("source", "name one of `sources`", scope.faults)?;
        let settings = scope.source(node)?;
        let SourceKind::Http(http) = &settings.kind else {
            scope.wrong_source(node, "an HTTP service");
            return None;
        };
        Some(Self {
            name: settings.name.clone(),
            exchanges_token: http.client.auth.exchange_token(),
            stands_for_caller: http.client.auth.stand_for_caller(),
        })
    }
}

impl Plan for HttpPlan {
    fn source(&self) -> Option<&str> {
        Some(&self.source.name)
    }

    fn needs_caller_token(&self) -> bool {
        self.source.exchanges_token
    }

    fn stands_for_caller(&self) -> bool {
        self.source.stands_for_caller
    }

    fn open(&self, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
        Ok(Arc::new(HttpExecutor {
            source: sources.http(&self.source.name)?,
            plan: self.clone(),
        }))
    }
}

struct HttpExecutor {
    plan: HttpPlan,
    source: Arc<HttpSource>,
}

impl HttpExecutor {
    fn request(&self, values: &Map<String, Value>) -> Result<Request, ExecutorError> {
        let plan = &self.plan;
        let mut url = self.source.url(plan.path.as_ref(), values)?;
        let query = plan.query.fill(values)?;
        if !query.is_empty() {
            let mut text = form_urlencoded::Serializer::new(String::new());
            text.extend_pairs(query);
            url.set_query(Some(&text.finish()));
        }
        if url.as_str().len() > MAX_URL {
            return Err(ExecutorError::BadArgument {
                text: format!(
                    "the arguments make a URL of more than {MAX_URL} bytes; shorten them"
                ),
            });
        }
        let mut request = Request::new(plan.method.clone(), url);
        if let Some((content_type, body)) = plan.body.fill(values)? {
            request = request.body(content_type, body);
        }
        for (name, value) in plan.headers.fill(values)? {
            if let Some(name) = name {
                request = request.header(name, value);
            }
        }
        Ok(request)
    }
}

impl Executor for HttpExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let request = self.request(call.arguments)?;
            let response = self.source.send(request, call).await?;
            response::read(response, out).await
        })
    }
}

#[cfg(test)]
mod tests;
