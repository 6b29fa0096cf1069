//! Options of `wardgate stdio`.

use std::path::PathBuf;

use clap::Args;
use reqwest::Url;

#[derive(Debug, Args)]
pub(crate) struct StdioArgs {
    /// The gateway's MCP endpoint, for example `https://mcp.hospital.example/mcp`; without a path, `/mcp`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Url,
    /// File with your token. It is read anew for every request, so a renewed token is only written to it. Without
    /// one, the token is that of the environment variable `WARDGATE_TOKEN`.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
