//! The address of a store, as it is configured.

use std::fmt;
use std::path::PathBuf;

use sqlx::postgres::PgConnectOptions;

use crate::DatabaseSettings;
use crate::postgres::PostgresServer;
use crate::tls::verify_server;

/// The error for a text that is not the address of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a store must have the form `sqlite:PATH` or `postgres://…`")]
pub struct NotAStore;

/// The address of a store: `sqlite:PATH` or `postgres://…`.
#[derive(Clone)]
pub enum Address {
    /// The path of a SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL server and the options to connect to it.
    Postgres(Box<PostgresServer>),
}

impl Address {
    /// Parses the address of a service's store. `settings` is the section `database` of the service, with the options
    /// of its connections.
    pub fn new(text: &str, settings: &DatabaseSettings) -> Result<Self, NotAStore> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            // With these two names SQLite opens a store in memory, whose content is lost when it is closed.
            if path.is_empty() || path == ":memory:" {
                return Err(NotAStore);
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let options: PgConnectOptions = text.parse().map_err(|_| NotAStore)?;
            let password_file = settings.password_file.as_deref();
            let server = PostgresServer::new(verify_server(options), password_file);
            return Ok(Self::Postgres(Box::new(server)));
        }
        Err(NotAStore)
    }

    /// Fails if this is a SQLite file that does not exist, which the first connection would create.
    pub fn check_exists(&self) -> Result<(), sqlx::Error> {
        if let Self::Sqlite(path) = self {
            std::fs::metadata(path)?;
        }
        Ok(())
    }
}

impl fmt::Display for Address {
    /// Formats the address without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(server) => {
                let options = server.options();
                let (port, database) = (options.get_port(), options.get_database());
                let database = database.unwrap_or_default();
                match options.get_host() {
                    ipv6 if ipv6.contains(':') => {
                        write!(f, "postgres://[{ipv6}]:{port}/{database}")
                    }
                    host => write!(f, "postgres://{host}:{port}/{database}"),
                }
            }
        }
    }
}

impl fmt::Debug for Address {
    /// Formats the address as `Display` does, because the options of a server hold its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<Address, NotAStore> {
        Address::new(text, &DatabaseSettings::default())
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = address("postgres://ada:secret@db.example:5433/wardgate").unwrap();
        assert_eq!(address.to_string(), "postgres://db.example:5433/wardgate");
        assert_eq!(format!("{address:?}"), address.to_string());
    }

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        let shown = address("postgres://[fd00::7]:5433/wardgate")
            .unwrap()
            .to_string();
        assert_eq!(shown, "postgres://[fd00::7]:5433/wardgate");
    }

    #[test]
    fn a_store_on_another_machine_is_verified_unless_its_address_says_otherwise() {
        let mode = |text: &str| match address(text).unwrap() {
            Address::Postgres(server) => format!("{:?}", server.options().get_ssl_mode()),
            Address::Sqlite(_) => panic!("{text}"),
        };
        assert_eq!(mode("postgres://db.example/wardgate"), "VerifyFull");
        assert_eq!(
            mode("postgres://db.example/wardgate?sslmode=disable"),
            "Disable"
        );
        assert_eq!(mode("postgres://127.0.0.1/wardgate"), "Prefer");
    }

    #[test]
    fn what_would_remember_nothing_is_no_store() {
        for text in [
            "",
            "sqlite:",
            "sqlite::memory:",
            "mysql://a/b",
            "postgres://a:b:c",
        ] {
            assert_eq!(address(text).unwrap_err(), NotAStore, "{text}");
        }
    }
}
