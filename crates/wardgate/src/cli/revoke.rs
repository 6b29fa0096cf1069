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
    /// Revoke one token by its id, the `token_id` of audit records. The id of an API key is its name.
    Token(RevocationOptions),
    /// Revoke all tokens of a subject, including future ones.
    Subject(RevocationOptions),
    /// Revoke all tokens of a session at the identity provider, as named by the claim `sid`.
    Session(RevocationOptions),
    /// List revocations.
    List {
        #[command(flatten)]
        operator: ClientOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RevocationOptions {
    /// Id of the token or session, or the subject.
    pub(crate) name: String,
    /// Issuer of the tokens. Default: every issuer.
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,
    /// Tenant of the callers. Default: every tenant; for an operator with a tenant, always their own.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Reason, shown in the list of revocations. The audit log stores its digest.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Lift the revocation of the same kind, name, issuer and tenant.
    #[arg(long, conflicts_with = "reason")]
    pub(crate) lift: bool,
    #[command(flatten)]
    pub(crate) operator: ClientOptions,
}
