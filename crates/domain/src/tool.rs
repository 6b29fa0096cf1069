//! Tools, and what the policy knows of them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::Digest;

/// A name that is not 1 to 128 characters of `A-Z a-z 0-9 _ . -`.
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
    /// The name as text.
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

/// What a column holds, for example `phi.date` or `contact.phone`: dotted, most general word first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnClass(String);

impl ColumnClass {
    /// The class as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The class of a column nobody classified; policies must permit it by name like any other.
    pub fn unclassified() -> Self {
        Self("unclassified".to_owned())
    }

    /// True for the class of columns nobody classified.
    pub fn is_unclassified(&self) -> bool {
        self.0 == "unclassified"
    }

    /// The dotted word before the first dot: the family a policy can permit as a whole.
    pub fn family(&self) -> &str {
        self.0.split('.').next().unwrap_or(&self.0)
    }

    /// True for the families that hold health information about an identifiable person
    /// (45 CFR 160.103): `phi`, `id` and `contact`.
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

/// What happens to the fields of one class before they leave, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnTier {
    /// As stored.
    Clear,
    /// Shortened so that it can be recognised but not used.
    Partial,
    /// A keyed token; equal values give equal tokens within a tenant.
    Pseudonym,
    /// Made coarser, for example a date to its year.
    Generalised,
    /// Left out.
    Dropped,
}

impl ColumnTier {
    /// The tier as documents and records spell it.
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

/// What kind of thing a caller asks to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// A tool.
    Tool,
    /// A source by its own route: its handshake, its lists, its notifications.
    Connect,
    /// The resources of a source; the arguments say which: `{"uri": …}`.
    Resources,
    /// The prompts of a source; the arguments say which: `{"name": …}`.
    Prompts,
}

impl OfferKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Connect, Self::Resources, Self::Prompts];
}

/// What the policy needs to know of a tool, or of what else a source offers; the tool-runner is its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFacts {
    /// What it is.
    pub kind: OfferKind,
    /// Canonical name, never an alias; of other kinds than a tool the source's.
    pub name: ToolName,
    /// SHA-256 over the canonical definition: a changed tool is a new tool.
    pub definition_digest: Digest,
    /// Declared `readOnlyHint: true`.
    pub read_only: bool,
    /// Labels, for policies that speak of groups of tools.
    pub tags: Vec<String>,
    /// Policy entity type of one result row, where rows are governed.
    pub entity: Option<String>,
    /// Column classes the result can carry.
    pub classes: Vec<ColumnClass>,
    /// Defaults of arguments: a text as it is, anything else as its JSON text.
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
