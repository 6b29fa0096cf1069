//! Expansion of `${NAME}`, `${NAME:-default}` and `${file:PATH}` in the texts of sources.

use std::collections::BTreeMap;
use std::path::Path;

use wardgate_domain::variable::{self, FillError};
use wardgate_yaml::Node;

use crate::fault::Faults;
use crate::files::AttachedFile;

/// A reader of texts of sources that expands their variables. Faults never contain expanded values.
pub(crate) struct VariableExpander<'a> {
    /// The directory of the file, to which relative paths are relative.
    pub(crate) base: &'a Path,
    /// Variables that take precedence over the environment.
    pub(crate) variables: &'a BTreeMap<String, String>,
    /// The files of `${file:PATH}`, with the state in which they were read.
    pub(crate) secret_files: &'a mut Vec<AttachedFile>,
    pub(crate) faults: &'a mut Faults,
}

impl VariableExpander<'_> {
    /// Returns the expanded text of `node`.
    pub(crate) fn text(&mut self, node: &Node, what: &str) -> Option<String> {
        let text = self.faults.text(node, what)?;
        let filled = variable::fill(text, |reference| {
            let value = match reference.strip_prefix("file:") {
                Some(path) => self.file(node, what, path),
                None => self.variable(node, what, reference),
            };
            value.ok_or(())
        });
        match filled {
            Ok(filled) => Some(filled),
            // The fault was reported where the reference was looked up.
            Err(FillError::Reference(())) => None,
            Err(FillError::Unclosed) => {
                self.faults.add(
                    node.at,
                    format!("a `${{` of `{what}` is not closed"),
                    "write ${NAME}, ${NAME:-default} or ${file:PATH}",
                );
                None
            }
        }
    }

    fn variable(&mut self, node: &Node, what: &str, reference: &str) -> Option<String> {
        let value = variable::look_up(reference, self.variables);
        if let Err(name) = value {
            self.faults.add(
                node.at,
                format!("the variable `{name}` of `{what}` is not set"),
                format!("set it in the environment, or write ${{{name}:-default}}"),
            );
        }
        value.ok()
    }

    /// Reads a secret from a file, without the final line break.
    fn file(&mut self, node: &Node, what: &str, path: &str) -> Option<String> {
        let whole = self.base.join(path);
        if let Ok(found) = std::fs::metadata(&whole) {
            self.secret_files
                .push(AttachedFile::of(whole.clone(), &found));
        }
        match std::fs::read_to_string(whole) {
            Ok(text) => {
                let text = text.strip_suffix('\n').unwrap_or(&text);
                Some(text.strip_suffix('\r').unwrap_or(text).to_owned())
            }
            Err(error) => {
                self.faults.add(
                    node.at,
                    format!("the file `{path}` of `{what}` cannot be read: {error}"),
                    "check its path (relative to this file), its permissions and that it is UTF-8",
                );
                None
            }
        }
    }
}
