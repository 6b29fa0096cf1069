//! Why an edge cannot start.

use std::net::SocketAddr;
use std::path::PathBuf;

use wardgate_json::ScanError;

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

/// Why a file of API keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// It is not JSON of that form.
    #[error("it is no JSON object with `keys`: {0}")]
    Malformed(String),
    /// An entry cannot be used.
    #[error("keys[{index}].{field} {problem}")]
    Entry {
        /// Which one.
        index: usize,
        /// Which member.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Why a key set cannot be used. Its text is for operators.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The URL cannot be reached.
    #[error("the URL cannot be fetched")]
    Unreachable(#[from] reqwest::Error),
    /// The URL answers with another status than 200. Redirects are not followed.
    #[error("the URL answers with status {0}; it must be 200, redirects are not followed")]
    Status(u16),
    /// What the issuer publishes of itself cannot be read.
    #[error("the issuer's metadata is not JSON with `issuer` and `jwks_uri`: {0}")]
    NotMetadata(#[source] serde_json::Error),
    /// It is another issuer's.
    #[error("the issuer's metadata names another issuer; write `issuer` exactly as it does")]
    OtherIssuer,
    /// It leads where keys are not fetched from.
    #[error("the `jwks_uri` of the issuer's metadata {0}")]
    KeysElsewhere(String),
    /// Reading takes too long.
    #[error("reading takes longer than 5 s")]
    Slow,
    /// It is larger than 1 MiB.
    #[error("it is larger than 1 MiB")]
    TooLarge,
    /// It is not a JSON Web Key Set.
    #[error("it is not a JSON Web Key Set: {0}")]
    NotAKeySet(#[from] serde_json::Error),
    /// Readers could take it for different ones.
    #[error("it is not a JSON Web Key Set: {0}")]
    NotStrict(#[from] ScanError),
    /// It holds a symmetric key.
    #[error("it holds a symmetric key (`kty` is `oct`); publish only public keys")]
    SymmetricKey,
    /// It holds a private key.
    #[error("it holds a private key (`d`); publish only public keys, and replace that key")]
    PrivateKey,
    /// Two keys have the same id.
    #[error("two of its keys have the `kid` {0:?}; give each its own")]
    DuplicateKeyId(String),
    /// It holds too many keys.
    #[error("it holds more than 256 keys")]
    TooManyKeys,
    /// No key in it can verify.
    #[error("it holds no usable signature key (RSA of 2048 bits or more, P-256, P-384, Ed25519)")]
    NoUsableKey,
}
