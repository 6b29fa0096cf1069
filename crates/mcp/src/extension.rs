//! Identifiers of protocol extensions, as declared under `extensions` of capabilities (from 2026-07-28).

/// The extension for calls that become tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The extension for skills of a server.
pub const SKILLS: &str = "io.modelcontextprotocol/skills";
