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
    /// Make a key and print it, alone and only this once; the file gets its digest.
    Create(NewApiKey),
    /// List the keys of the file.
    List {
        #[command(flatten)]
        file: KeyFilePath,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Take a key out of the file: it is refused within a second by every service that reads the file.
    Revoke {
        /// What the key is called.
        name: String,
        #[command(flatten)]
        file: KeyFilePath,
    },
}

/// Which file of API keys.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct KeyFilePath {
    /// The file that `auth.api_keys.file` names.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Data directory of `wardgate up`, which has a file of its own.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
}

/// A key to be made.
#[derive(Debug, Args)]
pub(crate) struct NewApiKey {
    /// What to call the key; the record has it as the id of the token.
    pub(crate) name: String,
    /// Subject: who the key is for. Without it, NAME.
    #[arg(long, value_name = "SUB")]
    pub(crate) sub: Option<String>,
    /// Role; may be given several times.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<String>,
    /// Tenant.
    #[arg(
        long,
        value_name = "TENANT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) tenant: String,
    /// Attribute for policies, for example `ward=W2`; may be given several times. A VALUE that is JSON is a number, a truth
    /// value or a list.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) attributes: Vec<(String, String)>,
    /// Scope; may be given several times.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,
    /// How many days it is accepted. Without it, until it is revoked.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) days: Option<u32>,
    #[command(flatten)]
    pub(crate) file: KeyFilePath,
}
