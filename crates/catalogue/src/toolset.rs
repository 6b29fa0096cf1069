//! `toolsets`: named groups of tools.

use wardgate_domain::ToolFacts;
use wardgate_yaml::Node;

use crate::fault::{Faults, FieldReader};
use crate::name::is_name;
use crate::tool::Tool;

/// A group of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolset {
    /// The name of the toolset.
    pub name: String,
    /// The description of the toolset.
    pub description: String,
    /// Canonical names of tools in the toolset.
    pub tools: Vec<String>,
    /// Tags whose tools are also in the toolset.
    pub tags: Vec<String>,
}

impl Toolset {
    /// Returns whether the toolset contains a tool.
    #[must_use]
    pub fn holds(&self, tool: &ToolFacts) -> bool {
        self.tools.iter().any(|name| name == tool.name.as_str())
            || tool.tags.iter().any(|tag| self.tags.contains(tag))
    }

    /// Reads all toolsets of a file. Names that begin with one of `prefixes` may belong to tools of MCP servers.
    pub(super) fn read_all(
        node: &Node,
        tools: &[Tool],
        prefixes: &[&str],
        known: &mut Vec<Self>,
        faults: &mut Faults,
    ) {
        for (key, node) in faults.map(node, "toolsets").unwrap_or_default() {
            let what = format!("toolsets.{}", key.name);
            let Some(mut fields) = FieldReader::new(node, what, faults) else {
                continue;
            };
            let description = fields.take_optional("description");
            let description = description.and_then(|node| faults.text(node, "description"));
            let named = fields.take_optional("tools");
            let tags = fields.take_optional("tags").map(|node| faults.tags(node));
            fields.finish(faults);
            if !is_name(&key.name) || known.iter().any(|other| other.name == key.name) {
                faults.add(
                    key.at,
                    format!("`{}` cannot be the name of a toolset", key.name),
                    "use a unique name of 1 to 64 characters of A-Z a-z 0-9 _ . -",
                );
            }
            known.push(Self {
                name: key.name.clone(),
                description: description.unwrap_or_default().to_owned(),
                tools: named
                    .map(|node| members(node, tools, prefixes, faults))
                    .unwrap_or_default(),
                tags: tags.unwrap_or_default(),
            });
        }
    }
}

/// Reads the names of the tools in a toolset, which must exist or may be imported.
fn members(node: &Node, tools: &[Tool], prefixes: &[&str], faults: &mut Faults) -> Vec<String> {
    let mut names = Vec::new();
    for node in faults.list(node, "tools") {
        let Some(name) = faults.text(node, "tools") else {
            continue;
        };
        let may_be_imported = prefixes.iter().any(|prefix| name.starts_with(prefix));
        if !may_be_imported && !tools.iter().any(|tool| tool.facts.name.as_str() == name) {
            faults.add(
                node.at,
                format!("the tool `{name}` does not exist"),
                "use names of tools of this catalogue, not their aliases",
            );
        }
        names.push(name.to_owned());
    }
    names
}
