//! `type: jsonrpc`: sends one call to a JSON-RPC service over HTTP, in one of two dialects.
//!
//! ```text
//!   tools_call:  {"method":"tools/call","params":{"name":METHOD,"arguments":PARAMS}}
//!   method:      {"method":METHOD,"params":{"name":METHOD,"arguments":PARAMS}}
//!
//!   200, result ─▶ result.data, else its MCP content, else the result itself
//!   200, error  ─▶ the tool failed with error.message; with isError, with the texts of the content
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use http::header::{ACCEPT, HeaderValue};
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use wardgate_catalogue::plan::{JsonRpcDialect, JsonRpcPlan};
use wardgate_domain::Reason;
use wardgate_egress::EgressRequest;

use super::http::{self as http_source, HttpSource};
use super::{Executor, Invocation, Output, Sources};
use crate::Error;
use crate::executor_error::ExecutorError;

const TOOLS_CALL: &str = "tools/call";

pub(super) fn open(plan: &JsonRpcPlan, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
    Ok(Arc::new(JsonRpcExecutor {
        source: sources.http(&plan.source.name)?,
        plan: plan.clone(),
        last_id: AtomicU64::new(0),
    }))
}

struct JsonRpcExecutor {
    plan: JsonRpcPlan,
    source: Arc<HttpSource>,
    last_id: AtomicU64,
}

impl JsonRpcExecutor {
    fn request(
        &self,
        id: u64,
        values: &Map<String, Value>,
    ) -> Result<EgressRequest, ExecutorError> {
        let plan = &self.plan;
        let url = self.source.url(plan.path.as_ref(), values)?;
        let method = match plan.dialect {
            JsonRpcDialect::ToolsCall => TOOLS_CALL,
            JsonRpcDialect::Method => &plan.method,
        };
        let params = plan.params.fill(values)?;
        let body = json!({
            "jsonrpc": "2.0",
            "id": id,
            "method": method,
            "params": { "name": plan.method, "arguments": params },
        });
        Ok(EgressRequest::new(Method::POST, url)
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .body("application/json", body.to_string()))
    }
}

impl Executor for JsonRpcExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
            let request = self.request(id, call.arguments)?;
            let response = self.source.send(request, call).await?;
            if response.status != StatusCode::OK {
                let status = response.status;
                let text = format!("MCP server returned {}", status.as_u16());
                return Err(http_source::status_error(status, &response.headers, text));
            }
            let answer = http_source::json(&response.body.bytes().await?)
                .map_err(|_| bad("a response that is not JSON"))?;
            release(result(id, answer)?, out)
        })
    }
}

/// Extracts the result from the answer to request `id`.
fn result(id: u64, answer: Value) -> Result<Value, ExecutorError> {
    let Value::Object(mut answer) = answer else {
        return Err(bad("a response that is not a JSON-RPC message"));
    };
    let answered = answer.remove("id").filter(|id| !id.is_null());
    let error = answer.remove("error").filter(|error| !error.is_null());
    if let Some(error) = error
        && answered.as_ref().is_none_or(|answered| *answered == id)
    {
        // An answer without an id counts too, because a server that could not parse the request does not know its id.
        return Err(ExecutorError::Reported(message(&error)));
    }
    if answered.is_none_or(|answered| answered != id) {
        return Err(bad("a response to another request"));
    }
    answer
        .remove("result")
        .ok_or_else(|| bad("neither a result nor an error"))
}

fn message(error: &Value) -> String {
    match error.get("message").unwrap_or(error) {
        Value::String(message) => message.clone(),
        other => other.to_string(),
    }
}

/// Passes the contents of the result to `out`.
fn release(result: Value, out: &mut Output<'_>) -> Result<(), ExecutorError> {
    let mut result = match result {
        Value::Object(result) => result,
        other => return out.document(other).map(drop),
    };
    if result.get("isError") == Some(&Value::Bool(true)) {
        return Err(ExecutorError::Reported(error_text(&result)));
    }
    if let Some(data) = result.remove("data") {
        return out.document(data).map(drop);
    }
    let is_mcp = result.contains_key("content") || result.contains_key("structuredContent");
    if !is_mcp {
        return out.document(Value::Object(result)).map(drop);
    }
    let structured = result.remove("structuredContent");
    let content = match result.remove("content") {
        None => json!([]),
        Some(content @ Value::Array(_)) => content,
        Some(_) => return Err(bad("content that is not a list")),
    };
    out.content(content, structured, false).map(drop)
}

/// Returns the error message of a tool that failed: the texts of its MCP content, one per line.
fn error_text(result: &Map<String, Value>) -> String {
    let blocks = result.get("content").and_then(Value::as_array);
    let texts = blocks.into_iter().flatten();
    let texts = texts.filter_map(|block| block.get("text")?.as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.trim().is_empty()).collect();
    if texts.is_empty() {
        "the tool failed without an error message".to_owned()
    } else {
        texts.join("\n")
    }
}

/// Creates the error for an invalid answer. The caller reads what is wrong, and nothing of the answer itself.
fn bad(what: &str) -> ExecutorError {
    let text = format!("MCP server returned {what}");
    ExecutorError::Refused {
        kind: Reason::BAD_RESULT,
        cause: text.clone(),
        text,
    }
}

#[cfg(test)]
mod tests;
