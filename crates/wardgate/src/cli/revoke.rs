//! Options of `wardgate revoke`.

use clap::{Args, Subcommand};

use super::{ClientOptions, OutputOptions};

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(subcommand)]
    pub(crate) command: RevokeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RevokeCommand {
    /// Refuse one token. Records have its id as `token_id`; that of an API key is its name.
    Token(RevocationOptions),
    /// Refuse every token of one subject, also those that the subject gets from now on.
    Subject(RevocationOptions),
    /// Refuse every token of one sign-in at the identity provider, which tokens name in the claim `sid`.
    Session(RevocationOptions),
    /// List what is revoked.
    List {
        #[command(flatten)]
        operator: ClientOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RevocationOptions {
    /// The id of the token or session, or the subject.
    pub(crate) name: String,
    /// The issuer of the tokens. Without it, whichever issuer names them.
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,
    /// The tenant of the callers. Without it, every tenant; of an operator with a tenant always their own.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Why, for whoever lists what is revoked. The record keeps a digest of it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Accept the tokens again: lifts the revocation of the same kind, name, issuer and tenant.
    #[arg(long, conflicts_with = "reason")]
    pub(crate) lift: bool,
    #[command(flatten)]
    pub(crate) operator: ClientOptions,
}
