//! Names that every client accepts.

use wardgate_domain::ToolName;

/// Clients cut or refuse longer names.
pub(crate) const MAX_NAME: usize = 64;

/// Whether every client accepts it as a name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME && text.parse::<ToolName>().is_ok()
}
