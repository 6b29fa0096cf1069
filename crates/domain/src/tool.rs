//! Tools, and the facts about them that the policy uses.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::Digest;

/// An error for a name that is not 1 to 128 characters of `A-Z a-z 0-9 _ . -`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a valid {kind}: use 1 to 128 characters of A-Z a-z 0-9 _ . -")]
pub struct InvalidName {
    name: String,
    kind: &'static str,
}

fn check(name: &str, kind: &'static str) -> Result<(), InvalidName> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if (1..=128).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(InvalidName {
        name: name.chars().take(128).collect(),
        kind,
    })
}

/// The canonical name of a configured tool: 1 to 128 characters of `A-Z a-z 0-9 _ . -`, case-sensitive
/// (MCP 2025-11-25, server/tools, "Tool Names").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(String);

impl ToolName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ToolName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        check(name, "tool name").map(|()| Self(name.to_owned()))
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The class of a column's contents, for example `phi.date` or `contact.phone`: words separated by dots, the most
/// general first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnClass(String);

impl ColumnClass {
    /// Returns the class as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the class of columns that are not classified. Policies must permit it by name like any other class.
    pub fn unclassified() -> Self {
        Self("unclassified".to_owned())
    }

    /// Returns whether this is the class of columns that are not classified.
    pub fn is_unclassified(&self) -> bool {
        self.0 == "unclassified"
    }

    /// Returns the word before the first dot: the family, which a policy can permit as a whole.
    pub fn family(&self) -> &str {
        self.0.split('.').next().unwrap_or(&self.0)
    }

    /// Returns whether the class belongs to a family of health information about an identifiable person (45 CFR
    /// 160.103): `phi`, `id` or `contact`.
    pub fn is_phi(&self) -> bool {
        matches!(self.family(), "phi" | "id" | "contact")
    }
}

impl FromStr for ColumnClass {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        check(name, "column class").map(|()| Self(name.to_owned()))
    }
}

impl fmt::Display for ColumnClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The treatment of the fields of one class before they are released, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnTier {
    /// The value is released as stored.
    Clear,
    /// The value is shortened so that it can be recognised but not used.
    Partial,
    /// The value is replaced by a keyed token. Equal values have equal tokens within a tenant.
    Pseudonym,
    /// The value is made less precise, for example a date is reduced to its year.
    Generalised,
    /// The value is left out.
    Dropped,
}

impl ColumnTier {
    /// Returns the name of the tier in documents and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Partial => "partial",
            Self::Pseudonym => "pseudonym",
            Self::Generalised => "generalised",
            Self::Dropped => "dropped",
        }
    }
}

/// The kind of object that a caller asks to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// A tool.
    Tool,
    /// Access to a source through its own route: its handshake, its lists and its notifications.
    Connect,
    /// The resources of a source. The arguments name the resource: `{"uri": …}`.
    Resources,
    /// The prompts of a source. The arguments name the prompt: `{"name": …}`.
    Prompts,
}

impl OfferKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Connect, Self::Resources, Self::Prompts];
}

/// The facts about a tool, or about another offer of a source, that the policy uses. The tool-runner provides them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFacts {
    /// The kind of offer.
    pub kind: OfferKind,
    /// The canonical name of the tool, never an alias; for other kinds, the name of the source.
    pub name: ToolName,
    /// The SHA-256 digest of the canonical definition. A tool whose definition changes counts as a new tool.
    pub definition_digest: Digest,
    /// Whether the tool is declared with `readOnlyHint: true`. For a tool as an MCP server defines it, the settings of the source
    /// must also trust the declaration.
    pub read_only: bool,
    /// Tags, by which policies can refer to groups of tools. The records of each call share them.
    pub tags: Arc<[String]>,
    /// The policy entity type of a result row, or `None` if rows are not governed.
    pub entity: Option<String>,
    /// The column classes that the result can contain.
    pub classes: Vec<ColumnClass>,
    /// The default values of arguments: a string as it is, any other value as JSON.
    pub argument_defaults: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!("get.it_2-x".parse::<ToolName>().is_ok());
        for bad in ["", "a b", "naïve", "x\0", &"x".repeat(129)] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_class_knows_its_family() {
        let class: ColumnClass = "phi.date".parse().unwrap();
        assert_eq!(class.family(), "phi");
        assert!(class.is_phi());
        assert!(!ColumnClass::unclassified().is_phi());
        assert!(ColumnClass::unclassified().is_unclassified());
    }
}
