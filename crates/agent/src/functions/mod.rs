//! Converts tools to functions for models, and tool results to text for models.
//!
//! ```text
//!   list of tools ─▶ name: 1 to 64 of [A-Za-z0-9_-], unique ─▶ schema: accepted by every provider ─▶ GatewayTool
//!   text of a call ─▶ arguments: repaired, validated, coerced ─▶ gateway ─▶ result ─▶ text for the model
//! ```

mod arguments;
mod name;
mod result;
mod schema;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use wardgate_arguments::InputSchema;
use wardgate_mcp::meta::MAY_WRITE;

use crate::clients::GatewayTool;
use crate::mcp_tool::ListedTool;
use crate::model::Function;
use name::FunctionNames;

pub(crate) use arguments::read_arguments;
pub(crate) use result::result_text;

/// Returns the tools that can be offered to a model, in the order of the list. A tool that providers would reject is left out,
/// because they would reject the whole request because of it.
pub(crate) fn offerable(tools: &[ListedTool]) -> Vec<GatewayTool> {
    let mut names = FunctionNames::from_tool_names(tools.iter().map(|tool| tool.name.as_str()));
    let mut seen = HashSet::new();
    let mut offered = Vec::new();
    for tool in tools.iter().filter(|tool| !is_for_apps_only(tool)) {
        if !seen.insert(tool.name.as_str()) {
            tracing::warn!(
                tool = tool.name,
                "a tool is listed twice; only the first one is used"
            );
            continue;
        }
        match offer(tool, &mut names) {
            Ok(tool) => offered.push(tool),
            Err(problem) => {
                tracing::warn!(tool = tool.name, problem, "a tool is not offered to models");
            }
        }
    }
    offered
}

fn offer(tool: &ListedTool, names: &mut FunctionNames) -> Result<GatewayTool, String> {
    let parameters = schema::parameters(&tool.input_schema).map_err(|unfit| unfit.to_string())?;
    // Arguments are validated against the tool's own schema, not against the simplified one for providers.
    let schema =
        InputSchema::compile_open(&tool.input_schema).map_err(|unusable| unusable.to_string())?;
    let description = [&tool.description, &tool.title]
        .into_iter()
        .flatten()
        .next();
    Ok(GatewayTool {
        name: tool.name.clone(),
        function: Function {
            name: names.name(&tool.name),
            description: description.cloned().unwrap_or_default(),
            parameters,
        },
        schema: Arc::new(schema),
        read_only: tool.annotations.read_only == Some(true) && !tool.meta.contains_key(MAY_WRITE),
        needs_approval: tool.meta.get(NEEDS_APPROVAL) == Some(&Value::Bool(true)),
    })
}

/// The key in `_meta` of a tool that requires the user's approval of each call.
const NEEDS_APPROVAL: &str = "dev.wardgate/approval";

/// Returns whether a tool is hidden from models: in MCP Apps, by a `_meta.ui.visibility` without `model`.
fn is_for_apps_only(tool: &ListedTool) -> bool {
    let visibility = tool.meta.get("ui").and_then(|ui| ui.get("visibility"));
    let visibility = visibility.and_then(Value::as_array);
    visibility.is_some_and(|who| !who.iter().any(|who| who == "model"))
}

#[cfg(test)]
mod tests;
