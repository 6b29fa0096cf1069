//! Errors of bundles, their sources and their settings.

use std::path::PathBuf;

use http::StatusCode;
use wardgate_egress::EgressError;

/// The reason why bytes are not an acceptable bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The bundle, or a part of it, exceeds a limit.
    #[error("the bundle {0}")]
    TooLarge(String),
    /// The bytes are not a DSSE envelope of a policy bundle. Nothing in them was used.
    #[error("this is not a signed policy bundle: {0}")]
    Envelope(String),
    /// No trusted key signed the bundle. Its contents were not parsed.
    #[error("the bundle is not signed by a trusted key")]
    Signature,
    /// The signed payload is not a bundle that this version can read.
    #[error("the signed contents cannot be used: {0}")]
    Payload(String),
    /// The path of a file is not one that a bundle may have.
    #[error("the file `{path}` cannot be in a bundle: {problem}")]
    Path {
        /// The path, shortened and without control characters.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// The reason why a source offers nothing now.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Bundles or files of their settings were not read or verified, because the process failed to do so.
    #[error("the processing of policy bundles ended abnormally")]
    Interrupted,
    /// A directory has no bundle.
    #[error("{} has no file with the ending `.bundle`", .0.display())]
    Empty(PathBuf),
    /// A directory has too many bundles.
    #[error("{} has more than {most} bundles; remove old ones", path.display())]
    Crowded {
        /// The directory.
        path: PathBuf,
        /// The maximum number of bundles.
        most: usize,
    },
    /// The file is longer than any bundle may be.
    #[error("{origin} is longer than {most} bytes")]
    TooLarge {
        /// The file or URL.
        origin: String,
        /// The maximum length in bytes.
        most: usize,
    },
    /// The request failed.
    #[error("cannot fetch {origin}: {source}")]
    Request {
        /// The host.
        origin: String,
        /// The error of the request.
        source: EgressError,
    },
    /// The server does not answer with a bundle.
    #[error("cannot fetch {origin}: the server responded with status {status}")]
    Status {
        /// The host.
        origin: String,
        /// The status.
        status: StatusCode,
    },
    /// The answer of a registry cannot be used.
    #[error("cannot fetch {origin}: {problem}")]
    Registry {
        /// The host.
        origin: String,
        /// What is wrong.
        problem: String,
    },
}

/// A setting of bundles that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleConfigError {
    /// A file cannot be read.
    #[error("bundle.{key}: cannot read {}: {source}", path.display())]
    Unreadable {
        /// The name of the setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The value is wrong. The text completes the sentence.
    #[error("bundle.{key} {problem}")]
    Value {
        /// The name of the setting.
        key: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The HTTP client cannot be created.
    #[error("bundle.source: {0}")]
    Client(EgressError),
}

impl BundleConfigError {
    pub(crate) fn value(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Value {
            key,
            problem: problem.into(),
        }
    }
}
