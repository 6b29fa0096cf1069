//! Errors of a configuration, with their positions.

use std::fmt;
use std::path::PathBuf;

use wardgate_yaml::Position;

/// Names of the sections that a file can have.
pub(crate) const SECTIONS: [&str; 11] = [
    "telemetry",
    "local_issuer",
    "gateway",
    "policy",
    "tool_runner",
    "audit",
    "agent",
    "memory",
    "console",
    "operator",
    "witness",
];

/// The reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}:{position}: {message}", path.display())]
    Syntax {
        path: PathBuf,
        position: Position,
        message: String,
    },
    #[error("{origin}: section `{section}`: {message}")]
    Section {
        origin: ValueOrigin,
        section: String,
        message: String,
    },
    #[error("{origin}: unknown section `{section}`; known sections are {}", SECTIONS.join(", "))]
    UnknownSection {
        origin: ValueOrigin,
        section: String,
    },
    #[error("{origin}: {message}")]
    Value {
        origin: ValueOrigin,
        message: String,
    },
}

/// The origin of a value of the configuration. Displayed as `FILE:LINE:COLUMN`, or as the name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    File { file: String, position: Position },
    Environment(String),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, position } => write!(f, "{file}:{position}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}
