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
    #[error(
        "audit.exports: two exports are named `{0}`; the position of an export is stored under its name"
    )]
    SameName(String),
    /// No destination or several destinations are configured.
    #[error("audit.exports: `{0}` requires exactly one of `syslog`, `webhook` and `otlp`")]
    Transport(String),
    /// The filter excludes all records.
    #[error("audit.exports: `{0}` selects no kind of record; omit `records` to export all")]
    NoRecords(String),
    /// The URL is unusable.
    #[error(
        "audit.exports: `{export}`: `{url}` is not a supported URL: write https://…, or http:// for this machine only"
    )]
    Url {
        /// The name of the export.
        export: String,
        /// The URL as configured, without user and password.
        url: String,
    },
    /// The address of the syslog receiver is invalid.
    #[error(
        "audit.exports: `{export}`: `{address}` is not an address; write host:port, for example siem.example:6514"
    )]
    Address {
        /// The name of the export.
        export: String,
        /// The address as configured.
        address: String,
    },
    /// A certificate is configured without its key, or a key without its certificate.
    #[error("audit.exports: `{0}`: set both cert_file and key_file, or neither")]
    HalfIdentity(String),
    /// The proxy would be shown the certificate that is meant for the server behind the proxy.
    #[error(
        "audit.exports: `{0}` has a client certificate and a proxy with an https URL, which would receive the certificate; use a proxy \
         with an http URL"
    )]
    ProxyIdentity(String),
    /// A setting for webhooks is used for another destination.
    #[error("audit.exports: `{0}`: signing_key_file is supported only for webhooks")]
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
