//! Errors that prevent an edge from starting.

use std::net::SocketAddr;
use std::path::PathBuf;

use wardgate_json::ScanError;

/// The reason why an edge cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use or does not belong to this machine.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The certificate or its key is not usable.
    #[error("https: {0}")]
    Tls(#[from] wardgate_tls::Error),
    /// An allowed origin is not in the form that browsers send.
    #[error("{section}.allowed_origins: `{origin}` is not an origin; write scheme://host[:port]")]
    Origin {
        /// The section of the configuration.
        section: &'static str,
        /// The configured value.
        origin: String,
    },
    /// The configuration names no issuer.
    #[error("auth.issuers is empty; add at least one token issuer, or set auth.api_keys to a file")]
    NoIssuer,
    /// A field of an issuer's configuration cannot be used.
    #[error("auth.issuers[{index}].{field} {problem}")]
    Issuer {
        /// The index of the issuer.
        index: usize,
        /// The name of the field.
        field: &'static str,
        /// The problem, and what to set instead.
        problem: String,
    },
    /// A key set in a file cannot be used.
    #[error("auth.issuers: the key set {} of the issuer {issuer} cannot be used: {cause}", path.display())]
    KeyFile {
        /// The issuer of the keys.
        issuer: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: KeySetError,
    },
    /// The file of API keys cannot be used.
    #[error("auth.api_keys: the API keys in {} cannot be used: {cause}", path.display())]
    ApiKeys {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: ApiKeyError,
    },
    /// The HTTP client cannot be created, for example because there is no trusted root certificate.
    #[error("the HTTP client for key sets cannot be created")]
    HttpClient(#[source] reqwest::Error),
}

/// The reason why a file of API keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The file is not JSON of the expected form.
    #[error("it is not a JSON object with `keys`: {0}")]
    Malformed(String),
    /// An entry cannot be used.
    #[error("keys[{index}].{field} {problem}")]
    Entry {
        /// The index of the entry.
        index: usize,
        /// The name of the member.
        field: &'static str,
        /// The problem.
        problem: &'static str,
    },
}

/// The reason why a key set cannot be used. The displayed text is for operators.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The URL cannot be reached.
    #[error("the URL cannot be fetched")]
    Unreachable(#[from] reqwest::Error),
    /// The URL responds with a status other than 200. Redirects are not followed.
    #[error("the URL returned status {0}; the status must be 200, and redirects are not followed")]
    Status(u16),
    /// The issuer's metadata cannot be parsed.
    #[error("the issuer's metadata is not JSON with `issuer` and `jwks_uri`: {0}")]
    NotMetadata(#[source] serde_json::Error),
    /// The metadata names another issuer.
    #[error(
        "the issuer's metadata names another issuer; write `issuer` exactly as in the metadata"
    )]
    OtherIssuer,
    /// The metadata names a URL from which keys are not fetched.
    #[error("the `jwks_uri` of the issuer's metadata {0}")]
    KeysElsewhere(String),
    /// Reading took too long.
    #[error("reading it takes longer than 5 s")]
    Slow,
    /// The key set is larger than 1 MiB.
    #[error("it is larger than 1 MiB")]
    TooLarge,
    /// The document is not a JSON Web Key Set.
    #[error("it is not a JSON Web Key Set: {0}")]
    NotAKeySet(#[from] serde_json::Error),
    /// The JSON is ambiguous, so that readers could interpret it differently.
    #[error("it is not a JSON Web Key Set: {0}")]
    NotStrict(#[from] ScanError),
    /// The set contains a symmetric key.
    #[error("it contains a symmetric key (`kty` is `oct`); publish only public keys")]
    SymmetricKey,
    /// The set contains a private key.
    #[error("it contains a private key (`d`); publish only public keys, and replace that key")]
    PrivateKey,
    /// Two keys have the same id.
    #[error("two of its keys have the `kid` {0:?}; give each key a unique one")]
    DuplicateKeyId(String),
    /// The set contains too many keys.
    #[error("it contains more than 256 keys")]
    TooManyKeys,
    /// The set contains no key that can verify signatures.
    #[error(
        "it contains no usable signature key (RSA of 2048 bits or more, P-256, P-384, Ed25519)"
    )]
    NoUsableKey,
}
