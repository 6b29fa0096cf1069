//! Sources that are MCP servers: a program or a URL, and which of its tools become tools of ours.

use std::collections::BTreeMap;
use std::path::Path;

use wardgate_domain::{ColumnClass, source_uri};
use wardgate_yaml::{Node, Yaml};

use super::auth::Service;
use super::{VariableExpander, http};
use crate::fault::FieldReader;
use crate::result_shape::read_classes;
use wardgate_egress::AuthSettings;
use wardgate_mcp_client::{Program, Transport};

/// The longest prefix, in characters; a tool's own name needs room behind it.
const MAX_PREFIX: usize = 64;

/// An MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettings {
    /// How it is reached.
    pub transport: Transport,
    /// Stands in front of the names of its tools.
    pub prefix: String,
    /// None where the file does not say.
    pub offered: Option<OfferedSelection>,
    /// Which of its prompts and resources are offered under names of the catalogue. They are not pinned as tools are.
    pub prompts: OfferedSelection,
    /// The resources that are offered.
    pub resources: OfferedSelection,
    /// Which of its skills are, by the URI of their SKILL.md; each file of one is a resource that is offered.
    pub skills: OfferedSelection,
    /// Who approves its tools.
    pub pins: PinMode,
    /// Tags of every tool of its.
    pub tags: Vec<String>,
    /// Classes of the columns of its tools' results.
    pub classes: BTreeMap<String, ColumnClass>,
}

/// What stands for an approval of its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinMode {
    /// An entry in the lock file.
    Locked,
    /// That they were there when the server was first seen, unless the lock file knows the server.
    FirstUse,
}

/// Which things of a server become ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferedSelection {
    /// Everything.
    All,
    /// Nothing.
    None,
    /// What has one of these names.
    Named(Vec<String>),
}

impl OfferedSelection {
    /// Whether something of this name is among them.
    pub fn has(&self, own_name: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Named(names) => names.iter().any(|name| name == own_name),
        }
    }
}

impl McpSettings {
    /// The credentials of a server that has a URL.
    pub(crate) fn auth(&self) -> Option<&AuthSettings> {
        match &self.transport {
            Transport::Http(http) => Some(&http.client.auth),
            Transport::Stdio(_) => None,
        }
    }

    pub(super) fn read(
        source: &str,
        node: &Node,
        fields: &mut FieldReader<'_>,
        expand: &mut VariableExpander<'_>,
    ) -> Option<Self> {
        let prefix = match fields.optional("prefix") {
            Some(node) => prefix(node, expand),
            None => Some(format!("{source}__")),
        };
        let pins = match fields.optional("pins") {
            Some(node) => pin_mode(node, expand),
            None => Some(PinMode::Locked),
        };
        let tools = match fields.optional("tools") {
            Some(node) => offered(node, "tools", expand).map(Some),
            None => Some(None),
        };
        let [prompts, resources, skills] =
            ["prompts", "resources", "skills"].map(|what| match fields.optional(what) {
                Some(node) => offered(node, what, expand),
                None => Some(OfferedSelection::None),
            });
        if let Some(node) = node.get("resources")
            && resources
                .as_ref()
                .is_some_and(|it| *it != OfferedSelection::None)
            && !source_uri::can_name(source)
        {
            expand.faults.add(
                node.at,
                format!("`{source}` cannot begin the URIs of its resources"),
                "name the source with a-z, 0-9, - and ., beginning with a letter",
            );
        }
        if let Some(node) = node.get("skills")
            && resources
                .as_ref()
                .is_some_and(|it| *it == OfferedSelection::None)
            && skills
                .as_ref()
                .is_some_and(|it| *it != OfferedSelection::None)
        {
            expand.faults.add(
                node.at,
                format!(
                    "`{source}` offers skills, and none of the resources that they are made of"
                ),
                "offer those too: `resources: all`, or a list of URIs and templates",
            );
        }
        let tags = fields.optional("tags");
        let tags = tags.map(|node| expand.faults.texts(node, "tags"));
        let classes = fields.optional("classes");
        let classes = classes.map(|node| read_classes(node, expand.faults));
        let transport = match (node.get("command"), node.get("url")) {
            (Some(_), None) => program(fields, expand).map(Transport::Stdio),
            (None, Some(_)) => http::read(Service::Mcp, fields, expand)
                .map(Box::new)
                .map(Transport::Http),
            _ => {
                // Both are known keys, so that only this is held against them.
                fields.optional("command");
                fields.optional("url");
                expand.faults.add(
                    node.at,
                    format!("`sources.{source}` needs either a `command` or a `url`"),
                    "write `command: [program, argument]` or `url: https://host/mcp`",
                );
                None
            }
        };
        Some(Self {
            transport: transport?,
            prefix: prefix?,
            offered: tools?,
            prompts: prompts?,
            resources: resources?,
            skills: skills?,
            pins: pins?,
            tags: tags.unwrap_or_default(),
            classes: classes.unwrap_or_default(),
        })
    }
}

fn program(fields: &mut FieldReader<'_>, expand: &mut VariableExpander<'_>) -> Option<Program> {
    let env = match fields.optional("env") {
        Some(node) => environment(node, expand),
        None => Some(BTreeMap::new()),
    };
    let node = fields.optional("command")?;
    let words = expand.faults.list(node, "command");
    let argv: Vec<_> = words
        .iter()
        .filter_map(|word| expand.text(word, "command"))
        .collect();
    if words.is_empty() {
        expand.faults.add(
            node.at,
            "`command` is empty",
            "write `command: [program, argument]`",
        );
    }
    if argv.len() != words.len() || argv.is_empty() {
        return None;
    }
    let directory = match expand.base {
        // The directory of a file that was named without one.
        base if base.as_os_str().is_empty() => Path::new("."),
        base => base,
    };
    Some(Program {
        argv,
        env: env?,
        directory: directory.to_owned(),
    })
}

fn environment(node: &Node, expand: &mut VariableExpander<'_>) -> Option<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for (key, node) in expand.faults.map(node, "env")? {
        if key.name.is_empty() || key.name.contains(['=', '\0']) {
            expand.faults.add(
                key.at,
                format!("`{}` is no name of an environment variable", key.name),
                "use letters, digits and `_`",
            );
            return None;
        }
        env.insert(key.name.clone(), expand.text(node, "env")?);
    }
    Some(env)
}

fn prefix(node: &Node, expand: &mut VariableExpander<'_>) -> Option<String> {
    let prefix = expand.faults.any_text(node, "prefix")?;
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if prefix.len() > MAX_PREFIX || !prefix.bytes().all(is_legal) {
        expand.faults.add(
            node.at,
            "`prefix` cannot begin the name of a tool",
            format!("use at most {MAX_PREFIX} characters of A-Z a-z 0-9 _ . -"),
        );
        return None;
    }
    Some(prefix)
}

fn pin_mode(node: &Node, expand: &mut VariableExpander<'_>) -> Option<PinMode> {
    match &node.value {
        Yaml::Text(word) if word == "locked" => Some(PinMode::Locked),
        Yaml::Text(word) if word == "first_use" => Some(PinMode::FirstUse),
        _ => {
            expand.faults.add(
                node.at,
                "`pins` does not say what stands for an approval of the server's tools",
                "write locked (the default) or first_use",
            );
            None
        }
    }
}

fn offered(node: &Node, what: &str, expand: &mut VariableExpander<'_>) -> Option<OfferedSelection> {
    match &node.value {
        Yaml::Text(word) if word == "all" => Some(OfferedSelection::All),
        Yaml::Text(word) if word == "none" => Some(OfferedSelection::None),
        Yaml::List(_) => Some(OfferedSelection::Named(expand.faults.texts(node, what))),
        _ => {
            expand.faults.add(
                node.at,
                format!("`{what}` does not say which of the server's are offered"),
                "write all, none, or a list of the server's own names or URIs",
            );
            None
        }
    }
}
