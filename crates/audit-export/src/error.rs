//! Errors in the configuration of an export.

use std::path::PathBuf;

use wardgate_egress::EgressError;

/// An error that prevents an export from starting. Each message begins with the key of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is invalid.
    #[error("audit.exports: the name `{0}` is not 1 to 64 lower-case letters, digits and hyphens")]
    Name(String),
    /// Two exports have the same name.
    #[error("audit.exports: two are called `{0}`; how far an export is, is kept by its name")]
    SameName(String),
    /// No destination or several destinations are configured.
    #[error("audit.exports: `{0}` needs exactly one of `syslog`, `webhook` and `otlp`")]
    Transport(String),
    /// The filter excludes all records.
    #[error("audit.exports: `{0}` names no kind of record; leave `records` out to export all")]
    NoRecords(String),
    /// The URL is unusable.
    #[error(
        "audit.exports: `{export}`: `{url}` is no URL to send to: write https://…, or http:// for this machine alone"
    )]
    Url {
        /// The name of the export.
        export: String,
        /// The URL as configured, without user and password.
        url: String,
    },
    /// The address of the syslog receiver is invalid.
    #[error(
        "audit.exports: `{export}`: `{address}` is no address; write host:port, for example siem.example:6514"
    )]
    Address {
        /// The name of the export.
        export: String,
        /// The address as configured.
        address: String,
    },
    /// A certificate is configured without its key, or a key without its certificate.
    #[error("audit.exports: `{0}`: name both cert_file and key_file, or neither")]
    HalfIdentity(String),
    /// The proxy would be shown the certificate that is meant for the server behind the proxy.
    #[error(
        "audit.exports: `{0}` has certificates of its own and a proxy at an https URL, which would be shown them; name one at an http URL"
    )]
    ProxyIdentity(String),
    /// A setting for webhooks is used for another destination.
    #[error("audit.exports: `{0}`: signing_key_file is for webhooks")]
    Signature(String),
    /// A file is unusable.
    #[error("audit.exports: `{export}`: {}: {problem}", path.display())]
    File {
        /// The name of the export.
        export: String,
        /// The path of the file.
        path: PathBuf,
        /// The description of the problem.
        problem: String,
    },
    /// The HTTP client cannot be created.
    #[error("audit.exports: `{export}`: {source}")]
    Client {
        /// The name of the export.
        export: String,
        /// The cause.
        source: EgressError,
    },
}
