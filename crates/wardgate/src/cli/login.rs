//! Options of `wardgate login`, `logout` and `contexts`.

use clap::{Args, Subcommand};
use reqwest::Url;

use super::OutputOptions;

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The gateway's MCP endpoint; without a path, `/mcp`.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: Url,
    /// What this sign-in is called; it becomes the current one.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) context: String,
    /// What this program is called at the provider. Without it, it registers itself.
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// What is asked for, separated by spaces; without it, what the gateway names.
    #[arg(long, value_name = "SCOPES")]
    pub(crate) scope: Option<String>,
    /// Type a code in a browser elsewhere, where this machine has none.
    #[arg(long)]
    pub(crate) device: bool,
    /// Only print where to sign in; open no browser.
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// Which sign-in; without it, the current one.
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
    /// List them; the current one has an asterisk.
    List {
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Make another one the current one.
    Use {
        /// Its name.
        name: String,
    },
}
