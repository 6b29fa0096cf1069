//! Detection of tool names that a person or a model could confuse.
//!
//! Two names look alike if they are equal after Unicode compatibility normalization (NFKC) without `_`, `-` and `.`, and
//! then either after lower-casing or after the skeleton transformation of Unicode TS 39 (`l`, `1` and `I`; `O` and `0`;
//! `rn` and `m`). The first claim of a name wins. Configured tools claim their names first, then approved tools, then all
//! others, each in the order of their sources' names, so an upstream cannot obtain a name by answering first.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_security::skeleton;

use super::escape::EscapedText;

/// Maximum length of a name. Clients truncate or reject longer names.
const MAX_NAME: usize = 64;

/// The tool that owns a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameOwner {
    /// The source of an upstream's tool, or `None` for a tool of `tools.yaml`.
    pub(crate) source: Option<String>,
    /// The name that clients see.
    pub(crate) name: String,
}

/// The names of all tools, including approved tools that are not offered now.
#[derive(Debug, Default)]
pub struct Names {
    /// The owners of names, by each of the two normalized forms of a name.
    looks: HashMap<String, NameOwner>,
}

/// The reason why a name cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadName {
    #[error("its name `{}` is not 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . -", EscapedText::short(.0))]
    Characters(String),
    #[error("its name `{name}` can be confused with `{}` of {}", .owner.name, .owner.whose())]
    LooksLike { name: String, owner: NameOwner },
}

impl NameOwner {
    fn whose(&self) -> String {
        match &self.source {
            Some(source) => format!("source `{}`", EscapedText::short(source)),
            None => "the configured tools".to_owned(),
        }
    }
}

impl Names {
    /// Creates the set of names from those of `tools.yaml`, including aliases. These names take precedence.
    pub fn of_configured<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for name in names {
            let owner = NameOwner {
                source: None,
                name: name.to_owned(),
            };
            for look in looks(name) {
                all.looks.entry(look).or_insert_with(|| owner.clone());
            }
        }
        all
    }

    /// Claims the client-visible name of the tool `tool` for `source`, unless another tool has a name that looks alike.
    /// Claiming a name again has no effect.
    pub(crate) fn claim(&mut self, source: &str, prefix: &str, tool: &str) -> Result<(), BadName> {
        let name = format!("{prefix}{tool}");
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if tool.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
            return Err(BadName::Characters(name));
        }
        let own = NameOwner {
            source: Some(source.to_owned()),
            name,
        };
        let looks = looks(&own.name);
        let taken = looks.iter().find_map(|look| self.looks.get(look));
        if let Some(owner) = taken.filter(|&owner| *owner != own) {
            return Err(BadName::LooksLike {
                name: own.name,
                owner: owner.clone(),
            });
        }
        for look in looks {
            self.looks.insert(look, own.clone());
        }
        Ok(())
    }
}

/// Returns the normalized forms of a name: one that ignores letter case, and one that ignores similar shapes.
fn looks(name: &str) -> [String; 2] {
    let plain: String = name
        .nfkc()
        .filter(|c| !matches!(c, '_' | '-' | '.'))
        .collect();
    let skeleton: String = skeleton(&plain).collect();
    [
        format!("case {}", plain.to_lowercase()),
        format!("shape {}", skeleton.to_lowercase()),
    ]
}
