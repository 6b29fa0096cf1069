//! Settings of the caller lookup.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::whole_seconds;

/// The source of callers' roles and attributes: exactly one of `table_file` and `query`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookupConfig {
    /// A YAML file of people. Changes are read within a second.
    #[serde(default)]
    pub table_file: Option<PathBuf>,
    /// A statement for a database.
    #[serde(default)]
    pub query: Option<QueryConfig>,
    /// Time for which a result is used, 1 to 3600 s; default 60 s. A person who is removed from the table or the
    /// database loses their roles after this time at the latest.
    #[serde(default = "default_ttl", with = "whole_seconds")]
    pub ttl: Duration,
    /// Maximum number of callers whose results are cached, 1 to 1,000,000; default 10,000.
    #[serde(default = "default_entries")]
    pub entries: usize,
    /// Whether roles and attributes of tokens are ignored; default `false`.
    #[serde(default)]
    pub only_source: bool,
    /// The treatment of a caller who is not in the table or the database; default `claims`.
    #[serde(default)]
    pub unlisted: UnlistedCaller,
}

/// The treatment of a caller who is not in the table or the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnlistedCaller {
    /// The caller has the roles and attributes of the token, or none if the lookup is the only source.
    #[default]
    Claims,
    /// The caller is refused.
    Refuse,
}

/// A statement that selects roles and attributes of a caller.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryConfig {
    /// The URL of the database: `sqlite:PATH`, `postgres://…`, or `mysql://…` for MySQL and MariaDB.
    pub url: String,
    /// A single SELECT statement with the parameter `:subject`, and optionally `:issuer` and `:tenant`, for the caller.
    /// The column `role` contains roles, and every other column is an attribute.
    pub statement: String,
    /// The columns whose attribute is the list of the values of all rows.
    #[serde(default)]
    pub lists: Vec<String>,
    /// Time limit of a lookup, 50 to 800 ms; default 500 ms. The gateway waits 900 ms for the policy service.
    #[serde(default = "default_timeout")]
    pub timeout_ms: u64,
    /// Maximum number of database connections, 1 to 64; default 4.
    #[serde(default = "default_connections")]
    pub connections: usize,
}

impl fmt::Debug for QueryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryConfig")
            .field("statement", &self.statement)
            .finish_non_exhaustive()
    }
}

impl QueryConfig {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

fn default_ttl() -> Duration {
    Duration::from_mins(1)
}

const fn default_entries() -> usize {
    10_000
}

const fn default_timeout() -> u64 {
    500
}

const fn default_connections() -> usize {
    4
}
