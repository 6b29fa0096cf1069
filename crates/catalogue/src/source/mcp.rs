//! Sources that are MCP servers: a program or a URL, and the selection of their tools, prompts and resources.

use std::collections::BTreeMap;
use std::path::Path;

use wardgate_domain::{ColumnClass, source_uri};
use wardgate_yaml::{Node, Yaml};

use super::auth::Service;
use super::expand::STAND_IN;
use super::{VariableExpander, http};
use crate::fault::FieldReader;
use crate::result_shape::read_classes;
use wardgate_egress::AuthSettings;
use wardgate_mcp_client::{Program, Transport};

/// Maximum length of a prefix, in characters. The server's name of a tool follows the prefix.
const MAX_PREFIX: usize = 64;

/// Settings of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettings {
    /// The transport.
    pub transport: Transport,
    /// The prefix of the names of its tools.
    pub prefix: String,
    /// The tools that are offered, or `None` if the file does not select any.
    pub offered: Option<OfferedSelection>,
    /// The prompts that are offered under names of the catalogue. Unlike tools, they are not pinned.
    pub prompts: OfferedSelection,
    /// The resources that are offered.
    pub resources: OfferedSelection,
    /// The skills that are offered, by the URIs of their SKILL.md. Each file of an offered skill must be an offered
    /// resource.
    pub skills: OfferedSelection,
    /// The tools whose `readOnlyHint: true` is trusted. Any other tool counts as one that may write, whatever the server says.
    pub read_only: OfferedSelection,
    /// The mode of approval of its tools.
    pub pins: PinMode,
    /// Tags of all of its tools.
    pub tags: Vec<String>,
    /// Classes of the columns of its tools' results.
    pub classes: BTreeMap<String, ColumnClass>,
}

/// The mode in which the tools of a server are approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinMode {
    /// A tool needs an entry in the lock file.
    Locked,
    /// The tools that the server has when it is first seen are approved, unless the lock file knows the server.
    FirstUse,
}

/// A selection of a server's offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferedSelection {
    /// All offers.
    All,
    /// No offers.
    None,
    /// The offers with these names.
    Named(Vec<String>),
}

impl OfferedSelection {
    /// Returns whether the selection contains an offer with this name.
    pub fn has(&self, own_name: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Named(names) => names.iter().any(|name| name == own_name),
        }
    }
}

impl McpSettings {
    /// Returns the credentials of a server that is reached by URL.
    pub(crate) fn auth(&self) -> Option<&AuthSettings> {
        match &self.transport {
            Transport::Http(http) => Some(&http.client.auth),
            Transport::Stdio(_) => None,
        }
    }

    pub(super) fn from_fields(
        source: &str,
        node: &Node,
        fields: &mut FieldReader<'_>,
        expand: &mut VariableExpander<'_>,
    ) -> Option<Self> {
        let prefix = match fields.take_optional("prefix") {
            Some(node) => prefix(node, expand),
            None => Some(format!("{source}__")),
        };
        let pins = match fields.take_optional("pins") {
            Some(node) => pin_mode(node, expand),
            None => Some(PinMode::Locked),
        };
        let tools = match fields.take_optional("tools") {
            Some(node) => offered_selection(node, "tools", expand).map(Some),
            None => Some(None),
        };
        let selections = ["prompts", "resources", "skills", "read_only"];
        let [prompts, resources, skills, read_only] =
            selections.map(|what| match fields.take_optional(what) {
                Some(node) => offered_selection(node, what, expand),
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
                format!("`{source}` is not a valid prefix for the URIs of its resources"),
                "rename the source with a-z, 0-9, - and ., beginning with a letter",
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
                    "`{source}` offers skills, but none of the resources that contain their files"
                ),
                "offer the resources too: `resources: all`, or a list of URIs and templates",
            );
        }
        let tags = fields.take_optional("tags");
        let tags = tags.map(|node| expand.faults.tags(node));
        let classes = fields.take_optional("classes");
        let classes = classes.map(|node| read_classes(node, expand.faults));
        let transport = match (node.get("command"), node.get("url")) {
            (Some(_), None) => program(fields, expand).map(Transport::Stdio),
            (None, Some(_)) => http::read_settings(Service::Mcp, fields, expand)
                .map(Box::new)
                .map(Transport::Http),
            _ => {
                // Requests both keys, so that they are not also reported as unknown.
                fields.take_optional("command");
                fields.take_optional("url");
                expand.faults.add(
                    node.at,
                    format!("`sources.{source}` requires either a `command` or a `url`"),
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
            read_only: read_only?,
            pins: pins?,
            tags: tags.unwrap_or_default(),
            classes: classes.unwrap_or_default(),
        })
    }
}

fn program(fields: &mut FieldReader<'_>, expand: &mut VariableExpander<'_>) -> Option<Program> {
    let env = match fields.take_optional("env") {
        Some(node) => environment(node, expand),
        None => Some(BTreeMap::new()),
    };
    let node = fields.take_optional("command")?;
    let words = expand.faults.list(node, "command");
    let argv: Vec<_> = words
        .iter()
        .filter_map(|word| expand.connection_text(word, "command", STAND_IN))
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
        // The parent directory of a bare file name is the empty path.
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
                format!(
                    "`{}` is not a valid name of an environment variable",
                    key.name
                ),
                "use letters, digits and `_`",
            );
            return None;
        }
        env.insert(
            key.name.clone(),
            expand.connection_text(node, "env", STAND_IN)?,
        );
    }
    Some(env)
}

fn prefix(node: &Node, expand: &mut VariableExpander<'_>) -> Option<String> {
    let prefix = expand.faults.any_text(node, "prefix")?;
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if prefix.len() > MAX_PREFIX || !prefix.bytes().all(is_legal) {
        expand.faults.add(
            node.at,
            "`prefix` is not a valid prefix for the name of a tool",
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
                "`pins` is neither locked nor first_use",
                "write locked (the default) or first_use",
            );
            None
        }
    }
}

fn offered_selection(
    node: &Node,
    what: &str,
    expand: &mut VariableExpander<'_>,
) -> Option<OfferedSelection> {
    match &node.value {
        Yaml::Text(word) if word == "all" => Some(OfferedSelection::All),
        Yaml::Text(word) if word == "none" => Some(OfferedSelection::None),
        Yaml::List(_) => Some(OfferedSelection::Named(expand.faults.texts(node, what))),
        _ => {
            expand.faults.add(
                node.at,
                format!("`{what}` does not specify which entries of the server it applies to"),
                "write all, none, or a list of the server's own names or URIs",
            );
            None
        }
    }
}
