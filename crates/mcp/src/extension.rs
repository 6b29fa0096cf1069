//! Names of extensions, as capabilities declare them under `extensions` (from 2026-07-28).

/// Calls that become tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Skills of a server.
pub const SKILLS: &str = "io.modelcontextprotocol/skills";
