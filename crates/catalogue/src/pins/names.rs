//! Names that a person or a model would take for one another.
//!
//! Two names look alike when they are the same after Unicode compatibility (NFKC), and then either letter
//! case or what Unicode TS 39 calls the skeleton (`l`, `1` and `I`; `O` and `0`; `rn` and `m`), and
//! without `_`, `-` and `.`. Whoever claims a name first keeps it: configured tools, then approved ones, then
//! the others, each by the order of their sources' names. So an upstream cannot win a name by being quick.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_security::skeleton;

use super::escape::EscapedText;

/// Clients cut or refuse longer names.
const MAX_NAME: usize = 64;

/// The tool that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameOwner {
    /// The source of an upstream's tool; none for a tool of `tools.yaml`.
    pub(crate) source: Option<String>,
    /// The name that clients see.
    pub(crate) name: String,
}

/// The names of all tools, those only approved among them.
#[derive(Debug, Default)]
pub struct Names {
    /// Keyed by both ways a name can look.
    looks: HashMap<String, NameOwner>,
}

/// Why a name cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadName {
    #[error("its name `{}` is not 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . -", EscapedText::short(.0))]
    Characters(String),
    #[error("its name `{name}` looks like `{}` of {}", .owner.name, .owner.whose())]
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
    /// Names of `tools.yaml`, aliases among them: they come first.
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

    /// Gives `source` the name under which clients see its tool `tool`, unless another tool looks the same.
    /// To claim a name again is nothing new.
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

/// How a name looks to someone who does not mind case, and to someone who does not look closely.
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
