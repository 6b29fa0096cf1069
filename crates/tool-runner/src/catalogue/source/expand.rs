//! `${NAME}`, `${NAME:-default}` and `${file:PATH}` in the texts of sources.

use std::collections::BTreeMap;
use std::path::Path;

use crate::catalogue::fault::Faults;
use crate::catalogue::yaml::Node;

/// Reads texts of sources. Nothing it fills in is ever part of a fault.
pub(crate) struct Expand<'a> {
    /// What relative paths are relative to: the directory of the file.
    pub(crate) base: &'a Path,
    /// Looked up before the environment.
    pub(crate) variables: &'a BTreeMap<String, String>,
    pub(crate) faults: &'a mut Faults,
}

impl Expand<'_> {
    /// The text of `node`, filled in.
    pub(crate) fn text(&mut self, node: &Node, what: &str) -> Option<String> {
        let text = self.faults.text(node, what)?;
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, reference) = (&rest[..at], &rest[at + 2..]);
            let Some(end) = reference.find('}') else {
                self.faults.add(
                    node.at,
                    format!("a `${{` of `{what}` is never closed"),
                    "write ${NAME}, ${NAME:-default} or ${file:PATH}",
                );
                return None;
            };
            filled.push_str(before);
            let value = match reference[..end].strip_prefix("file:") {
                Some(path) => self.file(node, what, path)?,
                None => self.variable(node, what, &reference[..end])?,
            };
            filled.push_str(&value);
            rest = &reference[end + 1..];
        }
        filled.push_str(rest);
        Some(filled)
    }

    fn variable(&mut self, node: &Node, what: &str, reference: &str) -> Option<String> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let value = self
            .variables
            .get(name)
            .cloned()
            .or_else(|| std::env::var(name).ok())
            .filter(|value| !value.is_empty())
            .or_else(|| default.map(str::to_owned));
        if value.is_none() {
            self.faults.add(
                node.at,
                format!("the variable `{name}` of `{what}` is not set"),
                format!("set it in the environment, or write ${{{name}:-default}}"),
            );
        }
        value
    }

    /// A secret kept in a file, without the line's end.
    fn file(&mut self, node: &Node, what: &str, path: &str) -> Option<String> {
        match std::fs::read_to_string(self.base.join(path)) {
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
