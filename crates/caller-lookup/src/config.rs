//! Settings of a lookup.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where roles and attributes of callers are looked up: exactly one of `table_file` and `query`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookupConfig {
    /// A YAML file of people. A change is read within a second.
    #[serde(default)]
    pub table_file: Option<PathBuf>,
    /// A statement on a database.
    #[serde(default)]
    pub query: Option<QueryConfig>,
    /// How long what was looked up counts, 1 to 3600 s; default 60 s. Who is taken out of the table or the database loses
    /// their roles after this time at the latest.
    #[serde(default = "default_ttl", with = "seconds")]
    pub ttl: Duration,
    /// How many callers are remembered, 1 to 1,000,000; default 10,000.
    #[serde(default = "default_entries")]
    pub entries: usize,
    /// Roles and attributes of tokens count for nothing; default no.
    #[serde(default)]
    pub only_source: bool,
    /// What becomes of a caller whom the table or the query does not have; default `claims`.
    #[serde(default)]
    pub unlisted: UnlistedCaller,
}

/// What becomes of a caller whom the table or the query does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnlistedCaller {
    /// They have the roles and attributes of their token; none where the lookup is the only source.
    #[default]
    Claims,
    /// They are refused.
    Refuse,
}

/// A statement that finds roles and attributes of a caller.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryConfig {
    /// Where the database is: `sqlite:PATH`, `postgres://…`, or `mysql://…` for MySQL and MariaDB.
    pub url: String,
    /// One statement that reads, with `:subject`, and if need be `:issuer` and `:tenant`, for the caller. The column `role`
    /// has roles, every other one is an attribute.
    pub statement: String,
    /// Columns whose attribute is a list: of the texts of all rows.
    #[serde(default)]
    pub lists: Vec<String>,
    /// How long a lookup may take, 50 to 800 ms; default 500 ms. The gateway waits 900 ms for the policy service.
    #[serde(default = "default_timeout")]
    pub timeout_ms: u64,
    /// Sessions at most, 1 to 64; default 4.
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

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_secs)
    }
}
