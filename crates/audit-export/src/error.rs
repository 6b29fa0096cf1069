//! What can be wrong with an export as it is configured.

use std::path::PathBuf;

use wardgate_egress::EgressError;

/// An export that cannot be begun. Each message begins with the key of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that does not fit.
    #[error("audit.exports: the name `{0}` is not 1 to 64 lower-case letters, digits and hyphens")]
    Name(String),
    /// A name that two exports have.
    #[error("audit.exports: two are called `{0}`; how far an export is, is kept by its name")]
    SameName(String),
    /// None or several places to send to.
    #[error("audit.exports: `{0}` needs exactly one of `syslog`, `webhook` and `otlp`")]
    Transport(String),
    /// A filter that nothing passes.
    #[error("audit.exports: `{0}` names no kind of record; leave `records` out to export all")]
    NoRecords(String),
    /// A URL that cannot be used.
    #[error(
        "audit.exports: `{export}`: `{url}` is no URL to send to: write https://…, or http:// for this machine alone"
    )]
    Url {
        /// Of which export.
        export: String,
        /// As configured, without user and password.
        url: String,
    },
    /// An address of a syslog receiver that is none.
    #[error(
        "audit.exports: `{export}`: `{address}` is no address; write host:port, for example siem.example:6514"
    )]
    Address {
        /// Of which export.
        export: String,
        /// As configured.
        address: String,
    },
    /// A certificate without its key, or the other way round.
    #[error("audit.exports: `{0}`: name both cert_file and key_file, or neither")]
    HalfIdentity(String),
    /// A proxy that would be shown the certificate which is for the server behind it.
    #[error(
        "audit.exports: `{0}` has certificates of its own and a proxy at an https URL, which would be shown them; name one at an http URL"
    )]
    ProxyIdentity(String),
    /// A setting of webhooks elsewhere.
    #[error("audit.exports: `{0}`: signing_key_file is for webhooks")]
    Signature(String),
    /// A file that cannot be used.
    #[error("audit.exports: `{export}`: {}: {problem}", path.display())]
    File {
        /// Of which export.
        export: String,
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The client of HTTP cannot be made.
    #[error("audit.exports: `{export}`: {source}")]
    Client {
        /// Of which export.
        export: String,
        /// Why not.
        source: EgressError,
    },
}
