//! Why an edge cannot start.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::auth::{ApiKeyError, KeySetError};

/// Why an edge cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The certificate or its key.
    #[error("https: {0}")]
    Tls(#[from] wardgate_tls::Error),
    /// An origin that no browser sends.
    #[error("{section}.allowed_origins: `{origin}` is not an origin; write scheme://host[:port]")]
    Origin {
        /// The section of the configuration.
        section: &'static str,
        /// What stands there.
        origin: String,
    },
    /// The configuration names no issuer.
    #[error("auth.issuers is empty; name at least one token issuer, or a file of auth.api_keys")]
    NoIssuer,
    /// A field of an issuer's configuration cannot be used.
    #[error("auth.issuers[{index}].{field} {problem}")]
    Issuer {
        /// Which issuer.
        index: usize,
        /// Which field.
        field: &'static str,
        /// What is wrong with it, and what to set.
        problem: String,
    },
    /// A key set in a file cannot be used.
    #[error("the key set {} of the issuer {issuer} cannot be used: {cause}", path.display())]
    KeyFile {
        /// Whose keys they are.
        issuer: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: KeySetError,
    },
    /// The file of API keys cannot be used.
    #[error("the API keys in {} cannot be used: {cause}", path.display())]
    ApiKeys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: ApiKeyError,
    },
    /// The HTTP client cannot be made, for example without any trusted root certificate.
    #[error("the HTTP client for key sets cannot be made")]
    HttpClient(#[source] reqwest::Error),
}
