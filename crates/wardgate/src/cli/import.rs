//! The command line of `wardgate tools import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) from: ImportFrom,
    /// Write the file here instead of to standard output. One that exists is kept.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) out: Option<PathBuf>,
    /// Replace the file that `--out` names.
    #[arg(long, global = true)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportFrom {
    /// From an OpenAPI 3 document, JSON or YAML: a tool for each operation.
    Openapi {
        /// The document; `-` is standard input.
        file: PathBuf,
        /// Where the service is, in place of the document's `servers`.
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
        /// Only operations with this tag; may be given several times.
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// From a `tools.yaml` of the MCP Toolbox for Databases: its SQL tools.
    Toolbox {
        /// The `tools.yaml`; `-` is standard input.
        file: PathBuf,
    },
    /// From the `mcpServers` of a client, such as `claude_desktop_config.json` or `.vscode/mcp.json`: a source for
    /// each server. Secrets become variables.
    McpServers {
        /// The client's configuration; `-` is standard input.
        file: PathBuf,
    },
    /// From the tables and views of a PostgreSQL database: a tool for each, that lists its rows.
    Postgres {
        /// Environment variable that holds the URL of the database, now and when the tools run.
        #[arg(long, value_name = "NAME", default_value = "DATABASE_URL")]
        url_env: String,
        /// Schema to look in; may be given several times.
        #[arg(long = "schema", value_name = "SCHEMA", default_value = "public")]
        schemas: Vec<String>,
        /// Only this table or view; may be given several times.
        #[arg(long = "table", value_name = "NAME")]
        tables: Vec<String>,
    },
}
