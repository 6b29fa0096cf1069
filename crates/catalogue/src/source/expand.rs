//! Expansion of `${NAME}`, `${NAME:-default}` and `${file:PATH}` in the texts of sources.

use std::collections::BTreeMap;
use std::path::Path;

use wardgate_domain::variable::{self, FillError};
use wardgate_yaml::{Node, Yaml};

use crate::fault::Faults;
use crate::files::AttachedFile;

/// The text in place of an omitted setting.
pub(crate) const STAND_IN: &str = "stand-in";

/// The text in place of an omitted URL of a service.
pub(crate) const STAND_IN_URL: &str = "https://host.invalid";

/// The values of the variables in the settings of sources.
#[derive(Clone, Copy)]
pub(crate) enum SourceVariables<'a> {
    /// Every variable is expanded. These values take precedence over the environment.
    Expanded(&'a BTreeMap<String, String>),
    /// No source is opened, so settings with variables or secret files that only a connection needs are omitted. Other settings
    /// are expanded from the environment.
    Omitted,
}

/// A reader of texts of sources that expands their variables. Faults never contain expanded values.
pub(crate) struct VariableExpander<'a> {
    /// The directory of the file, to which relative paths are relative.
    pub(crate) base: &'a Path,
    pub(crate) variables: SourceVariables<'a>,
    /// The files of `${file:PATH}`, with the state in which they were read.
    pub(crate) secret_files: &'a mut Vec<AttachedFile>,
    pub(crate) faults: &'a mut Faults,
}

impl VariableExpander<'_> {
    /// Returns the expanded text of `node`, a setting that only a connection to the source needs, or `stand_in` if it is omitted.
    pub(crate) fn connection_text(
        &mut self,
        node: &Node,
        what: &str,
        stand_in: &str,
    ) -> Option<String> {
        if self.omits(node) {
            return Some(stand_in.to_owned());
        }
        self.text(node, what)
    }

    /// Returns whether `node`, a setting that only a connection to the source needs, is omitted.
    pub(crate) fn omits(&self, node: &Node) -> bool {
        self.opens_nothing() && matches!(&node.value, Yaml::Text(text) if text.contains("${"))
    }

    /// Returns whether the settings are read by a program that opens no source.
    pub(crate) fn opens_nothing(&self) -> bool {
        matches!(self.variables, SourceVariables::Omitted)
    }

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
        let none = BTreeMap::new();
        let configured = match self.variables {
            SourceVariables::Expanded(variables) => variables,
            SourceVariables::Omitted => &none,
        };
        let value = variable::look_up(reference, configured);
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
                .push(AttachedFile::from_metadata(whole.clone(), &found));
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
