//! The words of `wardgate agent`.

use clap::{Args, Subcommand};
use wardgate_agent::Family;

#[derive(Debug, Args)]
pub(crate) struct Agent {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Find the tool calls in what models wrote: JSON lines from standard input to standard output.
    ///
    /// A line `{"id", "text", "tools", "family"?}`, with tools as in the chat completions API, gives a line
    /// `{"id", "calls": [{"name", "arguments"}], "text"}`, or `{"id", "error"}` if it cannot be used.
    Extract(Extract),
}

#[derive(Debug, Args)]
pub(crate) struct Extract {
    /// Which models wrote it, for lines that do not say; `unknown` for any.
    #[arg(long, value_name = "FAMILY", default_value_t = Family::UNKNOWN)]
    pub(crate) family: Family,
}
