//! Names of tools that every client accepts.

use wardgate_domain::ToolName;

/// Maximum length of a name. Clients truncate or reject longer names.
pub(crate) const MAX_NAME: usize = 64;

/// Returns whether every client accepts `text` as a name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME && text.parse::<ToolName>().is_ok()
}
