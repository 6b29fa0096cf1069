//! The command line of `wardgate tools import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) from: ImportFrom,
    /// Output file instead of standard output. An existing file is not overwritten.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite an existing `--out` file.
    #[arg(long, global = true)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportFrom {
    /// Import an OpenAPI 3 document, JSON or YAML: a tool for each operation.
    Openapi {
        /// Path of the document; `-` is standard input.
        file: PathBuf,
        /// Base URL of the service, instead of the document's `servers`.
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
        /// Only operations with this tag; may be repeated.
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Import the SQL tools of a `tools.yaml` of the MCP Toolbox for Databases.
    Toolbox {
        /// Path of the `tools.yaml`; `-` is standard input.
        file: PathBuf,
    },
    /// Import the `mcpServers` of a client, such as `claude_desktop_config.json` or `.vscode/mcp.json`: a source for each
    /// server. Secrets become variables.
    McpServers {
        /// Path of the client's configuration; `-` is standard input.
        file: PathBuf,
    },
    /// Import the tables and views of a PostgreSQL database: for each, a tool that lists its rows.
    Postgres {
        /// Environment variable with the URL of the database, now and when the tools run.
        #[arg(long, value_name = "NAME", default_value = "DATABASE_URL")]
        url_env: String,
        /// Schema to import; may be repeated.
        #[arg(long = "schema", value_name = "SCHEMA", default_value = "public")]
        schemas: Vec<String>,
        /// Only this table or view; may be repeated.
        #[arg(long = "table", value_name = "NAME")]
        tables: Vec<String>,
    },
}
