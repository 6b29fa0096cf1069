//! Options of `wardgate stdio`.

use std::path::PathBuf;

use clap::Args;
use reqwest::Url;

#[derive(Debug, Args)]
pub(crate) struct StdioArgs {
    /// URL of the gateway's MCP endpoint, for example `https://mcp.hospital.example/mcp`; the default path is `/mcp`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Url,
    /// File with your token. It is read again for every request, so a renewed token takes effect immediately. Default: the
    /// token in the environment variable `WARDGATE_TOKEN`.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
