//! The name of this program, for command lines that a person pastes into a shell.

use std::path::Path;

/// Returns the name or path by which this program was started. A path is made absolute, so that the command line also works
/// in another directory.
pub(super) fn name() -> String {
    let started = std::env::args().next();
    match started {
        Some(path) if path.contains('/') => {
            std::fs::canonicalize(&path).map_or(path, |whole| quote_path(&whole))
        }
        Some(name) => name,
        None => "wardgate".to_owned(),
    }
}

/// Quotes a path as one word of a shell.
pub(super) fn quote_path(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
