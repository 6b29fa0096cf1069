//! Which store, as configured.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

use crate::Error;

/// `sqlite:PATH` or `postgres://…`.
#[derive(Clone)]
pub(super) enum Address {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            // SQLite gives these two names a store in memory, which remembers nothing.
            if path.is_empty() || path == ":memory:" {
                return Err(Error::UnknownStore);
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return text
                .parse()
                .map(Box::new)
                .map(Self::Postgres)
                .map_err(|_| Error::UnknownStore);
        }
        Err(Error::UnknownStore)
    }
}

impl fmt::Display for Address {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(options) => write!(
                f,
                "postgres://{}:{}/{}",
                options.get_host(),
                options.get_port(),
                options.get_database().unwrap_or_default()
            ),
        }
    }
}
