//! `wardgate tools import`: converts existing definitions to a `tools.yaml`, which a person then reviews.
//!
//! ```text
//!   OpenAPI · Toolbox · mcpServers ─▶ document ─┐
//!                                               ├─▶ draft: sources · tools · toolsets ─▶ loaded once ─▶ YAML, notes
//!   PostgreSQL ─▶ description of its tables ────┘      └ what does not load is left out and reported
//! ```
//!
//! Every choice and every loss is reported, both as a `# review:` comment in the file and as a note. Secrets are never
//! written to the file, but replaced by `${NAME}`. Imported text is not trusted: it can neither become a placeholder or an
//! environment variable, nor end a comment.

mod classes;
mod document;
mod draft;
mod mcp_servers;
mod openapi;
mod postgres;
mod row_types;
mod secrets;
mod text;
mod toolbox;

use std::fmt;

use wardgate_domain::mark_invisible;

use wardgate_catalogue::Fault;

pub use document::MAX_DOCUMENT;
pub use mcp_servers::mcp_servers;
pub use openapi::{OpenapiOptions, openapi};
pub use postgres::{PostgresOptions, postgres};
pub use row_types::{RowTypes, row_types};
pub use toolbox::toolbox;

/// A generated `tools.yaml` that loads, and notes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCatalogue {
    /// The text of the file.
    pub yaml: String,
    /// Notes about what was chosen, changed or left out.
    pub notes: Vec<ImportNote>,
}

/// A note about one imported item, for the person who runs the import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNote {
    /// The item, for example ``tool `list_pets` ``.
    pub about: String,
    /// What happened to the item.
    pub text: String,
}

impl fmt::Display for ImportNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { about, text } = self;
        // Both may contain imported text, and a note must be one line.
        let line = format!("{about}: {text}").replace(['\n', '\t'], " ");
        f.write_str(&mark_invisible(&line))
    }
}

/// The reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The document is larger than [`MAX_DOCUMENT`].
    #[error("the document is larger than {} MiB; import a part of it", MAX_DOCUMENT >> 20)]
    TooLarge,
    /// The document is neither JSON nor YAML, or does not have the expected structure.
    #[error("the document cannot be read: {0}")]
    Unreadable(String),
    /// The document contains nothing that can be imported.
    #[error("there is nothing to import: {0}")]
    Nothing(String),
    /// The database could not be read.
    #[error("the database cannot be read: {0}")]
    Database(String),
    /// The generated file does not load, which is a bug of the import.
    #[error("the imported file cannot be loaded, which is a bug in the import: {}", first(.0))]
    Unusable(Vec<Fault>),
}

fn first(faults: &[Fault]) -> String {
    faults.first().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
