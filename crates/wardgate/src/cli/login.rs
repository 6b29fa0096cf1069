//! Options of `wardgate login`, `logout` and `contexts`.

use clap::{Args, Subcommand};
use reqwest::Url;

use super::OutputOptions;

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// URL of the gateway's MCP endpoint; the default path is `/mcp`.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: Url,
    /// Name under which the sign-in is stored. It becomes the current one.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) context: String,
    /// Client ID at the provider. Default: the program registers itself.
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// Requested scopes, separated by spaces. Default: those that the gateway names.
    #[arg(long, value_name = "SCOPES")]
    pub(crate) scope: Option<String>,
    /// Sign in with a code in a browser on another device.
    #[arg(long)]
    pub(crate) device: bool,
    /// Print the sign-in URL instead of opening a browser.
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// Name of the sign-in. Default: the current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ContextsArgs {
    #[command(subcommand)]
    pub(crate) command: ContextsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextsCommand {
    /// List stored sign-ins. An asterisk marks the current one.
    List {
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Select the current sign-in.
    Use {
        /// Name of the sign-in.
        name: String,
    },
}
