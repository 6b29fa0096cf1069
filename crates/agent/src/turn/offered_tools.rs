//! The tools that a model is offered: those that the caller may use and the assistant allows.

use std::collections::HashSet;

use crate::assistant::ToolSelection;
use crate::clients::GatewayTool;
use crate::model::Function;

/// Maximum number of offered tools. Providers reject requests with more functions.
const MAX_FUNCTIONS: usize = 128;

/// The offered tools, by the model's names.
#[derive(Debug, Default)]
pub(super) struct OfferedTools(Vec<GatewayTool>);

impl OfferedTools {
    /// Selects the tools of the assistant from those of the caller. The order is the gateway's, which lets a provider's cache
    /// work.
    pub(super) fn select(tools: Vec<GatewayTool>, settings: &ToolSelection) -> Self {
        let mut offered = Vec::new();
        let mut names = HashSet::new();
        for mut tool in tools {
            if offered.len() == MAX_FUNCTIONS {
                tracing::warn!(
                    "tools beyond the first {MAX_FUNCTIONS} are not offered: narrow `tools` of the assistant"
                );
                break;
            }
            let is_allowed = |pattern: &String| matches(pattern, &tool.name);
            if !settings.allow.iter().any(is_allowed) {
                continue;
            }
            let mut renamed = settings.rename.iter();
            if let Some((name, _)) = renamed.find(|(_, tools_own)| **tools_own == tool.name) {
                tool.function.name.clone_from(name);
            }
            if names.insert(tool.function.name.clone()) {
                offered.push(tool);
            } else {
                tracing::warn!(
                    tool = tool.name,
                    "a tool is not offered: another tool has its name"
                );
            }
        }
        Self(offered)
    }

    /// Returns the tool with the model's name `name`.
    pub(super) fn find(&self, name: &str) -> Option<&GatewayTool> {
        self.0.iter().find(|tool| tool.function.name == name)
    }

    pub(super) fn functions(&self) -> Vec<Function> {
        self.0.iter().map(|tool| tool.function.clone()).collect()
    }
}

/// Returns whether `name` matches `pattern`, in which `*` matches any sequence of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, fits) in [
            ("*", "get_x", true),
            ("get_*", "get_x", true),
            ("get_*", "set_x", false),
            ("*_x", "get_x", true),
            ("g*_*x", "get_my_x", true),
            ("get_x", "get_x", true),
            ("get", "get_x", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
