//! What this program is called, for lines that a person pastes.

use std::path::Path;

/// As it was started, so that a line can be pasted in another directory too.
pub(super) fn name() -> String {
    let started = std::env::args().next();
    match started {
        Some(path) if path.contains('/') => {
            std::fs::canonicalize(&path).map_or(path, |whole| quoted(&whole))
        }
        Some(name) => name,
        None => "wardgate".to_owned(),
    }
}

/// A path as one word of a shell.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
