//! `type: http`: sends one request to an HTTP service.
//!
//! ```text
//!   HttpPlan, filled ─▶ HttpSource (URL, credentials, egress) ─▶ response ─▶ document ∣ text ∣ failure
//! ```

mod response;
mod source;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use url::form_urlencoded;
use wardgate_catalogue::plan::HttpPlan;
use wardgate_egress::EgressRequest;

use super::{Executor, Invocation, Output, Sources};
use crate::Error;
use crate::executor_error::ExecutorError;

pub(super) use response::{json, status_error};
pub(crate) use source::HttpSource;

/// Maximum length of a URL, in bytes. Servers refuse longer URLs, and some truncate them instead.
const MAX_URL: usize = 16 * 1024;

pub(super) fn open(plan: &HttpPlan, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
    Ok(Arc::new(HttpExecutor {
        source: sources.http(&plan.source.name)?,
        plan: plan.clone(),
    }))
}

struct HttpExecutor {
    plan: HttpPlan,
    source: Arc<HttpSource>,
}

impl HttpExecutor {
    fn request(&self, values: &Map<String, Value>) -> Result<EgressRequest, ExecutorError> {
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
                text: format!("the URL with these arguments exceeds {MAX_URL} bytes; shorten them"),
            });
        }
        let mut request = EgressRequest::new(plan.method.clone(), url);
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
            response::read_body(response, out).await
        })
    }
}

#[cfg(test)]
mod tests;
