//! Variables `${NAME}`, `${NAME:-default}` and `${file:PATH}` in the texts of a provider or the name of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use wardgate_domain::variable::{self, FillError};

use super::secret_files::SecretFiles;

/// The sources of variables: the configuration first, then the environment; and files.
pub(crate) struct Variables<'a> {
    configured: &'a BTreeMap<String, String>,
    /// The directory that relative file paths start from.
    directory: &'a Path,
    files: &'a mut SecretFiles,
    /// The names of variables that are not set and have no default.
    missing: BTreeSet<String>,
}

/// The reason why the variables of a text cannot be replaced.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VariableError {
    #[error("has a `${{` that is not closed")]
    Unclosed,
    /// A file cannot be used. The text describes the problem.
    #[error("cannot be used: {0}")]
    File(String),
}

impl<'a> Variables<'a> {
    pub(crate) fn new(
        configured: &'a BTreeMap<String, String>,
        directory: &'a Path,
        files: &'a mut SecretFiles,
    ) -> Self {
        Self {
            configured,
            directory,
            files,
            missing: BTreeSet::new(),
        }
    }

    /// Returns the names of variables that were requested but are not set.
    pub(crate) fn into_missing_names(self) -> BTreeSet<String> {
        self.missing
    }

    /// Replaces the variables in every string of `value`.
    pub(crate) fn fill(&mut self, value: &mut Value) -> Result<(), VariableError> {
        match value {
            Value::String(text) => *text = self.text(text)?,
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.fill(item))?,
            Value::Object(members) => {
                members
                    .iter_mut()
                    .try_for_each(|(_, item)| self.fill(item))?;
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Ok(())
    }

    /// Returns `text` with its variables replaced.
    pub(crate) fn text(&mut self, text: &str) -> Result<String, VariableError> {
        let filled = variable::fill(text, |reference| {
            if let Some(path) = reference.strip_prefix("file:") {
                // Editors end a file with a newline, which is not part of the key.
                return Ok(self.file(path)?.trim_end().to_owned());
            }
            let value = variable::look_up(reference, self.configured);
            Ok(value.unwrap_or_else(|name| {
                self.missing.insert(name.to_owned());
                String::new()
            }))
        });
        filled.map_err(|unfilled| match unfilled {
            FillError::Unclosed => VariableError::Unclosed,
            FillError::Reference(error) => error,
        })
    }

    /// Returns the content of the file at `path`.
    pub(crate) fn file(&mut self, path: &str) -> Result<String, VariableError> {
        let read = self.files.read_file(self.directory.join(path));
        read.map_err(VariableError::File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_set_is_filled_in_and_what_is_not_is_named() {
        let configured = BTreeMap::from([("HOST".to_owned(), "h".to_owned())]);
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key"), "from a file\n").unwrap();
        let mut files = SecretFiles::default();
        let mut variables = Variables::new(&configured, directory.path(), &mut files);
        let mut value = json!({"a": ["http://${HOST}/v1"], "b": "${NOT_SET_A:-x}${NOT_SET_B:-}", "c": "${NOT_SET_C}"});
        variables.fill(&mut value).unwrap();
        assert_eq!(value, json!({"a": ["http://h/v1"], "b": "x", "c": ""}));
        assert_eq!(variables.text("${HOST"), Err(VariableError::Unclosed));
        assert_eq!(
            variables.text("Bearer ${file:key}").unwrap(),
            "Bearer from a file"
        );
        let gone = variables.text("${file:gone}").unwrap_err();
        assert!(gone.to_string().contains("gone cannot be read"), "{gone}");
        assert_eq!(
            variables.into_missing_names(),
            BTreeSet::from(["NOT_SET_C".to_owned()])
        );
        assert!(!files.are_changed());
        std::fs::write(directory.path().join("gone"), "it is there now").unwrap();
        assert!(files.are_changed());
    }
}
