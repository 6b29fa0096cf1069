//! The section `database` of a service, which configures how the service uses its store.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU32};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The section `database` of a service. For SQLite only `migrate` has an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseSettings {
    /// Whether the service migrates its store to the newest schema when it starts. If not, `wardgate migrate` must be
    /// run, and the service refuses to start with an older schema.
    pub migrate: bool,
    /// The role that the service connects as, if another role owns the tables. `wardgate migrate` grants this role
    /// exactly the rights that the service needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The file that holds the password, which replaces a password in the address. It is read again when the server
    /// refuses the password that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Maximum number of connections of one process, or `None` for the default of the service. The audit service has
    /// one more, for writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<NonZeroU8>,
    /// Maximum time that one statement may take at the server. If it is `None` or longer than the timeout of the
    /// service, the latter applies. The writes of the audit service have a limit of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement_timeout_ms: Option<NonZeroU32>,
}

impl Default for DatabaseSettings {
    fn default() -> Self {
        Self {
            migrate: true,
            role: None,
            password_file: None,
            connections: None,
            statement_timeout_ms: None,
        }
    }
}

impl DatabaseSettings {
    /// Returns the maximum number of connections of one pool, for a service whose default is `own`.
    pub fn connections(&self, own: u32) -> u32 {
        self.connections
            .map_or(own, |connections| connections.get().into())
    }

    /// Returns the statement timeout at the server, for a service that waits for `waits` at most.
    pub fn statement_timeout(&self, waits: Duration) -> Duration {
        self.statement_timeout_ms.map_or(waits, |limit| {
            waits.min(Duration::from_millis(limit.get().into()))
        })
    }
}

/// The name of a PostgreSQL role, which can be inserted into a statement as it is displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Role(String);

/// The error for a text that is not the name of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a role must have 1 to 63 characters: letters, digits, `_` and `-`")]
pub struct NotARole;

impl FromStr for Role {
    type Err = NotARole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if (1..=63).contains(&text.len()) && text.chars().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotARole)
        }
    }
}

impl TryFrom<String> for Role {
    type Error = NotARole;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Role> for String {
    fn from(role: Role) -> Self {
        role.0
    }
}

impl fmt::Display for Role {
    /// Formats the name as a quoted identifier of PostgreSQL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

impl Role {
    /// Returns the name without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_can_be_smuggled_in_as_a_role() {
        let role: Role = "wardgate-audit".parse().unwrap();
        assert_eq!(role.to_string(), "\"wardgate-audit\"");
        for text in ["", "a b", "a\"; DROP TABLE x; --", &"a".repeat(64), "ä"] {
            assert_eq!(text.parse::<Role>(), Err(NotARole), "{text}");
        }
    }

    #[test]
    fn the_server_never_works_longer_than_anybody_waits() {
        let second = Duration::from_secs(1);
        let with = |limit| DatabaseSettings {
            statement_timeout_ms: NonZeroU32::new(limit),
            ..DatabaseSettings::default()
        };
        assert_eq!(with(0).statement_timeout(second), second);
        assert_eq!(with(5_000).statement_timeout(second), second);
        assert_eq!(with(200).statement_timeout(second), second / 5);
    }
}
