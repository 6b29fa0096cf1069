//! Parsing and validation of `tools.yaml` and `tools.lock`: the available tools, prompts and resources, how they are
//! executed, and which definitions of MCP servers were approved. This crate opens no connections.
//!
//! ```text
//!   tools.yaml ─▶ yaml ─▶ catalogue ─▶ tool ─┬─ schema, derive    the arguments
//!                 nodes    every fault       ├─ plan              execution: one module for each `execute.type`
//!                          with line         ├─ result_shape      rows, columns, classes, row rule
//!                          and column        └─ limits
//!                                     source    connections, credentials, prompts and resources (content)
//!   tools.lock ─▶ pins ─▶ judge ─▶ approved │ new │ drifted │ gone │ refused
//! ```

mod catalogue;
mod classes;
mod content;
mod derive;
mod execute;
mod fault;
mod files;
mod limits;
mod name;
mod offers;
mod pins;
pub mod plan;
mod result_shape;
mod schema;
mod scope;
mod selector;
mod source;
mod statement;
mod subject_key;
mod template;
mod tool;
mod toolset;
mod warnings;

pub use catalogue::{Catalogue, Imports};
pub use content::{CONTENT, ContentError, FileContent, OfferedItem};
pub use derive::DerivedArguments;
pub use fault::Fault;
pub use files::{AttachedFile, FileText, Files, lock_path};
pub use name::is_name;
pub use offers::Offers;
pub use pins::{
    Change, Diff, EscapedText, Finding, Grade, JudgedTool, Names, PinJudgement, Pins,
    SuspicionKind, UpstreamOffer,
};
pub use result_shape::{MaxRows, ResultShape, RowEntity, Shape, VALUE};
pub use source::{McpSettings, OfferedSelection, PinMode, SourceKind, SourceSettings, SqlSettings};
pub use statement::{
    BadStatement, BoundList, BoundValue, Parameter, ParameterType, RowRange, SqlDialect, Statement,
    name_placeholders,
};
pub use subject_key::SubjectKey;
pub use template::{UnfitValue, is_identifier};
pub use tool::Tool;
pub use toolset::Toolset;

/// The JSON Schema of `tools.yaml`.
pub const TOOLS_SCHEMA: &str = include_str!("../../../deploy/tools.schema.json");

#[cfg(test)]
mod tests;
