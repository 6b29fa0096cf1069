//! Sources that are SQL databases.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use wardgate_yaml::{Node, Position, Yaml};

use super::VariableExpander;
use crate::fault::FieldReader;
use crate::statement::SqlDialect;

const DEFAULT_CONNECTIONS: usize = 8;

/// Settings of a database source.
#[derive(Clone, PartialEq, Eq)]
pub struct SqlSettings {
    /// The SQL dialect of the database.
    pub dialect: SqlDialect,
    /// The URL of the database, including credentials.
    pub url: String,
    /// Maximum number of connections for readers, and separately for writers.
    pub max_connections: usize,
}

impl fmt::Debug for SqlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSettings")
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

impl SqlSettings {
    pub(super) fn from_fields(
        kind: &str,
        fields: &mut FieldReader<'_>,
        expand: &mut VariableExpander<'_>,
    ) -> Option<Self> {
        let dialect = match kind {
            "postgres" => SqlDialect::Postgres,
            "mysql" => SqlDialect::Mysql,
            _ => SqlDialect::Sqlite,
        };
        let url = fields.take_required(
            "url",
            "add for example `url: sqlite:data.db` or `url: \"${DATABASE_URL}\"`",
            expand.faults,
        );
        let max_connections = match fields.take_optional("max_connections") {
            Some(node) => connections(node, expand),
            None => Some(DEFAULT_CONNECTIONS),
        };
        let url_node = url?;
        let (_, example) = url_form(dialect);
        let url = expand.connection_text(url_node, "url", example)?;
        check_url(dialect, &url, url_node.at, expand)?;
        let is_literal = matches!(&url_node.value, Yaml::Text(text) if !text.contains('$'));
        let url = if is_literal && dialect == SqlDialect::Sqlite {
            beside(expand.base, url)
        } else {
            url
        };
        Some(Self {
            dialect,
            url,
            max_connections: max_connections?,
        })
    }
}

/// Resolves the path of a SQLite URL relative to the catalogue, like other paths in it. This is only for URLs in the
/// catalogue itself: a path from a variable is relative to the working directory of the process.
fn beside(base: &Path, url: String) -> String {
    match url.strip_prefix("sqlite:") {
        Some(path) if !path.starts_with([':', '/']) && !path.is_empty() => {
            format!("sqlite:{}", base.join(path).display())
        }
        _ => url,
    }
}

fn connections(node: &Node, expand: &mut VariableExpander<'_>) -> Option<usize> {
    if let Yaml::Text(_) = node.value {
        let text = expand.connection_text(node, "max_connections", "1")?;
        if let Some(count) = text.parse().ok().filter(|&count| count > 0) {
            return Some(count);
        }
    }
    expand.faults.positive(node, "max_connections")
}

/// Returns the schemes of the URLs of a database, and an example.
fn url_form(dialect: SqlDialect) -> (&'static [&'static str], &'static str) {
    match dialect {
        SqlDialect::Sqlite => (&["sqlite"], "sqlite:data.db"),
        SqlDialect::Postgres => (&["postgres", "postgresql"], "postgres://user@host/database"),
        SqlDialect::Mysql => (&["mysql", "mariadb"], "mysql://user@host/database"),
    }
}

fn check_url(
    dialect: SqlDialect,
    url: &str,
    at: Position,
    expand: &mut VariableExpander<'_>,
) -> Option<()> {
    let (schemes, example) = url_form(dialect);
    let scheme = url.split(':').next().unwrap_or_default();
    if !schemes.contains(&scheme) {
        expand.faults.add(
            at,
            format!("the scheme of `url` does not match the type {dialect:?}"),
            format!("write a URL like {example}, or change `type`"),
        );
        return None;
    }
    let readable = match dialect {
        SqlDialect::Sqlite => SqliteConnectOptions::from_str(url).is_ok(),
        SqlDialect::Postgres => PgConnectOptions::from_str(url).is_ok(),
        SqlDialect::Mysql => MySqlConnectOptions::from_str(url).is_ok(),
    };
    if !readable {
        expand.faults.add(
            at,
            "`url` cannot be read",
            format!("write a URL like {example}"),
        );
        return None;
    }
    Some(())
}
