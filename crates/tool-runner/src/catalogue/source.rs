//! The data sources of a `tools.yaml`: what they are and where, with `${NAME}` filled in.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::fault::{Faults, Fields};
use super::statement::Dialect;
use super::yaml::{Key, Mark, Node, Yaml};

const DEFAULT_CONNECTIONS: usize = 8;

/// Where a source is and how many connections it gets, for readers and for writers each. Its URL can
/// hold a password, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SourceSettings {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    pub(crate) url: String,
    pub(crate) max_connections: usize,
}

impl fmt::Debug for SourceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSettings")
            .field("name", &self.name)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

impl SourceSettings {
    pub(super) fn read(
        (key, node): &(Key, Node),
        variables: &BTreeMap<String, String>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut fields = Fields::of(node, format!("sources.{}", key.name), faults)?;
        let dialect = fields
            .required(
                "type",
                "add `type: sqlite`, `type: postgres` or `type: mysql`",
                faults,
            )
            .and_then(|node| dialect(node, variables, faults));
        let url = fields.required(
            "url",
            "add for example `url: sqlite:data.db` or `url: \"${DATABASE_URL}\"`",
            faults,
        );
        let url_at = url.map_or(node.at, |node| node.at);
        let url = url.and_then(|node| expanded(node, "url", variables, faults));
        let max_connections = match fields.optional("max_connections") {
            Some(node) => connections(node, variables, faults),
            None => Some(DEFAULT_CONNECTIONS),
        };
        fields.finish(faults);
        let (dialect, url) = (dialect?, url?);
        check_url(dialect, &url, url_at, faults)?;
        Some(Self {
            name: key.name.clone(),
            dialect,
            url,
            max_connections: max_connections?,
        })
    }
}

fn dialect(
    node: &Node,
    variables: &BTreeMap<String, String>,
    faults: &mut Faults,
) -> Option<Dialect> {
    match expanded(node, "type", variables, faults)?.as_str() {
        "sqlite" => Some(Dialect::Sqlite),
        "postgres" => Some(Dialect::Postgres),
        "mysql" => Some(Dialect::Mysql),
        other => {
            faults.add(
                node.at,
                format!("`{other}` is no type of source"),
                "use sqlite, postgres or mysql",
            );
            None
        }
    }
}

fn connections(
    node: &Node,
    variables: &BTreeMap<String, String>,
    faults: &mut Faults,
) -> Option<usize> {
    if let Yaml::Text(_) = node.value {
        let text = expanded(node, "max_connections", variables, faults)?;
        if let Some(count) = text.parse().ok().filter(|&count| count > 0) {
            return Some(count);
        }
    }
    faults.positive(node, "max_connections")
}

fn check_url(dialect: Dialect, url: &str, at: Mark, faults: &mut Faults) -> Option<()> {
    let (schemes, example): (&[&str], _) = match dialect {
        Dialect::Sqlite => (&["sqlite"], "sqlite:data.db"),
        Dialect::Postgres => (&["postgres", "postgresql"], "postgres://user@host/database"),
        Dialect::Mysql => (&["mysql", "mariadb"], "mysql://user@host/database"),
    };
    let scheme = url.split(':').next().unwrap_or_default();
    if !schemes.contains(&scheme) {
        faults.add(
            at,
            format!("the scheme of `url` does not fit the type {dialect:?}"),
            format!("write a URL like {example}, or change `type`"),
        );
        return None;
    }
    let readable = match dialect {
        Dialect::Sqlite => SqliteConnectOptions::from_str(url).is_ok(),
        Dialect::Postgres => PgConnectOptions::from_str(url).is_ok(),
        Dialect::Mysql => MySqlConnectOptions::from_str(url).is_ok(),
    };
    if !readable {
        faults.add(
            at,
            "`url` cannot be read",
            format!("write a URL like {example}"),
        );
        return None;
    }
    Some(())
}

/// The text of `node` with each `${NAME}` and `${NAME:-default}` replaced, from `variables` first, then
/// from the environment.
fn expanded(
    node: &Node,
    what: &str,
    variables: &BTreeMap<String, String>,
    faults: &mut Faults,
) -> Option<String> {
    let text = faults.text(node, what)?;
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = (&rest[..at], &rest[at + 2..]);
        let Some(end) = reference.find('}') else {
            faults.add(
                node.at,
                format!("a `${{` of `{what}` is never closed"),
                "write ${NAME} or ${NAME:-default}",
            );
            return None;
        };
        filled.push_str(before);
        let (name, default) = match reference[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&reference[..end], None),
        };
        let value = variables
            .get(name)
            .cloned()
            .or_else(|| std::env::var(name).ok());
        let value = value.as_deref().filter(|value| !value.is_empty());
        let Some(value) = value.or(default) else {
            faults.add(
                node.at,
                format!("the variable `{name}` of `{what}` is not set"),
                format!("set it in the environment, or write ${{{name}:-default}}"),
            );
            return None;
        };
        filled.push_str(value);
        rest = &reference[end + 1..];
    }
    filled.push_str(rest);
    Some(filled)
}
