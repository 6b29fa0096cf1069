//! `wardgate tools import`: from what a team already has to a `tools.yaml` that a person reviews.
//!
//! ```text
//!   OpenAPI · Toolbox · mcpServers ─▶ document ─┐
//!                                               ├─▶ draft: sources · tools · toolsets ─▶ loaded once ─▶ YAML, notes
//!   PostgreSQL ─▶ description of its tables ────┘      └ what cannot be loaded is left out, and said
//! ```
//!
//! Nothing is carried over in silence: a choice or a loss is a `# review:` comment where it matters and a note.
//! Secrets never reach the file: `${NAME}` stands in their place. What is imported is not trusted: no text of it
//! becomes a placeholder, a comment's end or a variable of the environment.

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

/// A `tools.yaml` that loads, and what to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCatalogue {
    /// The file.
    pub yaml: String,
    /// What was chosen, changed or left out.
    pub notes: Vec<ImportNote>,
}

/// A note for the person who imports, about one thing that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNote {
    /// What it is about, for example ``tool `list_pets` ``.
    pub about: String,
    /// What happened.
    pub text: String,
}

impl fmt::Display for ImportNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { about, text } = self;
        // Both can repeat what was imported, and a note is one line.
        let line = format!("{about}: {text}").replace(['\n', '\t'], " ");
        f.write_str(&mark_invisible(&line))
    }
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The document is beyond what is read.
    #[error("the document is larger than {} MiB; import a part of it", MAX_DOCUMENT >> 20)]
    TooLarge,
    /// It is neither JSON nor YAML, or not of the shape that was asked for.
    #[error("the document cannot be read: {0}")]
    Unreadable(String),
    /// It can be read, and there is nothing in it to import.
    #[error("there is nothing to import: {0}")]
    Nothing(String),
    /// The database could not be asked.
    #[error("the database cannot be read: {0}")]
    Database(String),
    /// What was written does not load: a fault of the import itself.
    #[error("the imported file would not load, which is a fault of the import: {}", first(.0))]
    Unusable(Vec<Fault>),
}

fn first(faults: &[Fault]) -> String {
    faults.first().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
