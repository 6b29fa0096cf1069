//! `type: jsonrpc`: makes one call to a JSON-RPC service over HTTP, in one of two dialects.

use wardgate_yaml::Node;

use super::http::{self, PathTemplate};
use super::{Plan, PlanSource, SentArguments};
use crate::fault::FieldReader;
use crate::scope::Scope;

/// The position of the method's name in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonRpcDialect {
    /// The name is in `params` of the method `tools/call`, as in MCP.
    ToolsCall,
    /// The name is also the `method` of the request.
    Method,
}

/// A JSON-RPC call with placeholders.
#[derive(Debug, Clone)]
pub struct JsonRpcPlan {
    /// The service.
    pub source: PlanSource,
    /// The path, which is appended to the URL of the source.
    pub path: Option<PathTemplate>,
    /// The position of the method's name in the request.
    pub dialect: JsonRpcDialect,
    /// The name of the method or tool.
    pub method: String,
    /// The parameters of the call.
    pub params: SentArguments,
}

pub(super) fn read_plan(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let source = http::source(fields, scope);
    let path = fields
        .take_optional("path")
        .map(|node| PathTemplate::from_node(node, scope));
    let dialect = match fields.take_optional("dialect") {
        Some(node) => dialect(node, scope),
        None => Some(JsonRpcDialect::ToolsCall),
    };
    let method = fields
        .take_required("method", "specify the method or tool to call", scope.faults)
        .and_then(|node| scope.faults.text(node, "method"))
        .map(str::to_owned);
    let params = SentArguments::from_node(fields.take_optional("params"), scope);
    Some(Plan::JsonRpc(JsonRpcPlan {
        source: source?,
        path: path.map_or(Some(None), |path| path.map(Some))?,
        dialect: dialect?,
        method: method?,
        params,
    }))
}

fn dialect(node: &Node, scope: &mut Scope<'_, '_>) -> Option<JsonRpcDialect> {
    match scope.faults.text(node, "dialect")? {
        "tools_call" => Some(JsonRpcDialect::ToolsCall),
        "method" => Some(JsonRpcDialect::Method),
        other => {
            scope.faults.add(
                node.at,
                format!("`{other}` is not a dialect"),
                "use tools_call or method",
            );
            None
        }
    }
}
