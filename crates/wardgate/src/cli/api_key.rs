//! Arguments of `wardgate api-key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{OutputOptions, claim};

/// `wardgate api-key`.
#[derive(Debug, Args)]
pub(crate) struct ApiKeyArgs {
    #[command(subcommand)]
    pub(crate) command: ApiKeyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApiKeyCommand {
    /// Create a key and print it once. The file stores only its digest.
    Create(NewApiKey),
    /// List the keys in the file.
    List {
        #[command(flatten)]
        file: KeyFilePath,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Remove a key from the file. Every service that reads the file refuses the key within a second.
    Revoke {
        /// Name of the key.
        name: String,
        #[command(flatten)]
        file: KeyFilePath,
    },
}

/// The file of API keys.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct KeyFilePath {
    /// Path of the file that `auth.api_keys.file` names.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Data directory of `wardgate up`, which contains its key file.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
}

/// A key to create.
#[derive(Debug, Args)]
pub(crate) struct NewApiKey {
    /// Name of the key, which audit records have as the token id.
    pub(crate) name: String,
    /// Subject of the key. Default: NAME.
    #[arg(long, value_name = "SUB")]
    pub(crate) sub: Option<String>,
    /// Role of the caller; may be repeated.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<String>,
    /// Tenant of the caller.
    #[arg(
        long,
        value_name = "TENANT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) tenant: String,
    /// Attribute for policies, for example `ward=W2`; may be repeated. A VALUE in JSON is read as a number, a boolean or a
    /// list.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) attributes: Vec<(String, String)>,
    /// Scope of the key; may be repeated.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,
    /// Validity of the key in days. Default: until it is revoked.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) days: Option<u32>,
    #[command(flatten)]
    pub(crate) file: KeyFilePath,
}
