//! `tools.yaml`: read, checked whole, and turned into what a call needs.

mod fault;
mod schema;
mod source;
mod statement;
mod template;
mod tool;
mod yaml;

use std::collections::BTreeMap;
use std::path::Path;

use wardgate_domain::Digest;

pub use fault::Fault;
pub(crate) use schema::{InputSchema, JsonType, Property};
pub(crate) use source::SourceSettings;
pub(crate) use statement::{Dialect, Statement};
pub(crate) use tool::RowEntity;
pub use tool::Tool;

use fault::{Faults, Fields};
use yaml::{Mark, Node, NotYaml};

/// A checked `tools.yaml`.
#[derive(Debug)]
pub struct Catalogue {
    tools: Vec<Tool>,
    sources: Vec<SourceSettings>,
    version: Digest,
}

impl Catalogue {
    /// Reads and checks the file. Every `${NAME}` of a source is looked up in `variables`, then in the
    /// environment. All faults that can be told apart are returned together; connections are not tried.
    pub fn load(path: &Path, variables: &BTreeMap<String, String>) -> Result<Self, Vec<Fault>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text, variables),
            Err(error) => {
                let mut faults = Faults::of(path);
                faults.add(
                    Mark::START,
                    format!("the file cannot be read: {error}"),
                    "check its path, its permissions and that it is UTF-8",
                );
                Err(faults.into_vec())
            }
        }
    }

    /// Checks `text`; `file` names it in faults.
    pub(crate) fn parse(
        file: &Path,
        text: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::of(file);
        let root = match Node::parse(text) {
            Ok(root) => root,
            Err(NotYaml { at, problem }) => {
                faults.add(
                    at,
                    format!("the file is not YAML: {problem}"),
                    "mend the syntax",
                );
                return Err(faults.into_vec());
            }
        };
        let catalogue = Self::read(&root, variables, &mut faults);
        let faults = faults.into_vec();
        match catalogue {
            Some(catalogue) if faults.is_empty() => Ok(catalogue),
            _ => Err(faults),
        }
    }

    fn read(
        root: &Node,
        variables: &BTreeMap<String, String>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut fields = Fields::of(root, "the file", faults)?;
        let sources = fields.optional("sources");
        let tools = fields.required("tools", "add `tools:` with one entry a tool", faults);
        fields.finish(faults);

        let sources: BTreeMap<_, _> = sources
            .and_then(|node| faults.map(node, "sources"))
            .unwrap_or_default()
            .iter()
            .map(|entry| {
                (
                    entry.0.name.clone(),
                    SourceSettings::read(entry, variables, faults),
                )
            })
            .collect();
        let nodes = faults.list(tools?, "tools");
        let tools: Vec<_> = nodes
            .iter()
            .filter_map(|node| Some((node, Tool::read(node, &sources, faults)?)))
            .collect();
        check_names(&tools, faults);
        let tools: Vec<_> = tools.into_iter().map(|(_, tool)| tool).collect();
        Some(Self {
            version: version(&tools),
            tools,
            sources: sources.into_values().flatten().collect(),
        })
    }

    /// The tools in the order of the file.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Changes whenever what clients or the policy see of any tool changes.
    pub fn version(&self) -> Digest {
        self.version
    }

    pub(crate) fn into_parts(self) -> (Vec<Tool>, Vec<SourceSettings>, Digest) {
        (self.tools, self.sources, self.version)
    }
}

/// No two tools may answer to one name.
fn check_names(tools: &[(&Node, Tool)], faults: &mut Faults) {
    let mut taken: BTreeMap<&str, &Tool> = BTreeMap::new();
    for (node, tool) in tools {
        let own = ("/name".to_owned(), &tool.facts.name);
        let aliases = tool.aliases.iter().enumerate();
        let aliases = aliases.map(|(number, alias)| (format!("/aliases/{number}"), alias));
        for (place, name) in [own].into_iter().chain(aliases) {
            if let Some(other) = taken.insert(name.as_str(), tool) {
                faults.add(
                    node.follow(&place).at,
                    format!("the name `{name}` is taken by tool `{}`", other.facts.name),
                    "give each tool and each alias a name of its own",
                );
            }
        }
    }
}

fn version(tools: &[Tool]) -> Digest {
    let mut names = String::new();
    for tool in tools {
        names.push_str(&tool.facts.definition_digest.to_string());
        for alias in &tool.aliases {
            names.push(' ');
            names.push_str(alias.as_str());
        }
        names.push('\n');
    }
    Digest::of(names.as_bytes())
}

#[cfg(test)]
mod tests;
