//! Lookup of people in a database by a configured statement.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde_json::Value;
use wardgate_catalogue::{BoundValue, Parameter, SqlDialect, SqlSettings, Statement};
use wardgate_redact::Row;
use wardgate_sql::Database;

use crate::config::QueryConfig;
use crate::rights::ListedRights;
use crate::{Error, LookupSubject};

/// The column that contains roles.
const ROLE: &str = "role";
/// Maximum number of rows of one caller.
const MAX_ROWS: usize = 1_000;
/// The parameters that a statement may have.
const PARAMETERS: [&str; 3] = ["subject", "issuer", "tenant"];

/// A statement and its database.
#[derive(Debug)]
pub(crate) struct Query {
    config: QueryConfig,
    statement: Statement,
    database: Database,
}

impl Query {
    /// Checks the statement and the URL. Opens no connection.
    pub(crate) fn open(config: &QueryConfig) -> Result<Self, Error> {
        let wrong = |setting, problem: String| Error::Setting { setting, problem };
        let dialect = match config.url.split(':').next() {
            Some("sqlite") => SqlDialect::Sqlite,
            Some("postgres" | "postgresql") => SqlDialect::Postgres,
            Some("mysql" | "mariadb") => SqlDialect::Mysql,
            _ => {
                let problem = "is not a database URL; write sqlite:PATH, postgres://… or mysql://…";
                return Err(wrong("query.url", problem.to_owned()));
            }
        };
        let statement = Statement::parse(dialect, &config.statement).map_err(|bad| {
            let problem = format!("cannot be used: {}; {}", bad.problem, bad.fix);
            wrong("query.statement", problem)
        })?;
        check_parameters(&statement).map_err(|problem| wrong("query.statement", problem))?;
        if config.lists.iter().any(|name| name == ROLE) {
            let problem = "contains the column `role`, which always contains roles; remove it";
            return Err(wrong("query.lists", problem.to_owned()));
        }
        let settings = SqlSettings {
            dialect,
            url: config.url.clone(),
            max_connections: config.connections,
        };
        let database = Database::new(&settings, config.timeout());
        Ok(Self {
            // The message of the driver can quote the URL with its password.
            database: database
                .map_err(|_| wrong("query.url", "cannot be parsed as a database URL".to_owned()))?,
            config: config.clone(),
            statement,
        })
    }

    /// Returns the rights of `person`, or `None` if there is no row.
    pub(crate) async fn find(
        &self,
        person: LookupSubject<'_>,
    ) -> Result<Option<ListedRights>, String> {
        let limit = self.config.timeout();
        let rows = tokio::time::timeout(limit, self.rows(person)).await;
        let rows = rows.map_err(|_| format!("the query took longer than {limit:?}"))??;
        if rows.is_empty() {
            return Ok(None);
        }
        read_rows(rows, &self.config.lists).map(Some)
    }

    async fn rows(&self, person: LookupSubject<'_>) -> Result<Vec<Row>, String> {
        let parameters = self.statement.params().iter().map(|name| {
            let value = match name.as_str() {
                "issuer" => person.issuer,
                "tenant" => person.tenant,
                _ => person.subject,
            };
            Parameter::One(BoundValue::Text(Some(value.to_owned())))
        });
        let parameters: Vec<_> = parameters.collect();
        let (sql, values) = self.statement.with_values(&[], None, &parameters);
        let mut rows = Vec::new();
        let mut sink = |row: Row| {
            rows.push(row);
            if rows.len() > MAX_ROWS {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let read = self.database.query(true, sql, &values, &mut sink).await;
        read.map_err(|error| error.to_string())?;
        if rows.len() > MAX_ROWS {
            return Err(format!(
                "the query returned more than {MAX_ROWS} rows for one caller"
            ));
        }
        Ok(rows)
    }
}

fn check_parameters(statement: &Statement) -> Result<(), String> {
    let is_known = |name: &String| PARAMETERS.contains(&name.as_str());
    if let Some(name) = statement.params().iter().find(|name| !is_known(name)) {
        return Err(format!(
            "has the parameter `:{name}`; the supported parameters are `:subject`, `:issuer` and `:tenant`"
        ));
    }
    if !statement.params().iter().any(|name| name == "subject") {
        return Err("does not use the caller; compare a column with `:subject`".to_owned());
    }
    if statement.has_row_rule() || statement.has_names() {
        return Err("has `:row_rule` or `{name}`, which are supported only for tools".to_owned());
    }
    Ok(())
}

/// Returns the roles and attributes in the rows of one caller. NULL is ignored.
fn read_rows(rows: Vec<Row>, lists: &[String]) -> Result<ListedRights, String> {
    let mut roles = BTreeSet::new();
    let mut listed: BTreeMap<String, BTreeSet<String>> = lists
        .iter()
        .map(|name| (name.clone(), BTreeSet::new()))
        .collect();
    let mut single = BTreeMap::new();
    for (name, value) in rows.into_iter().flat_map(Row::into_fields) {
        if value.is_null() {
            continue;
        }
        if &*name == ROLE {
            extend(&mut roles, &name, value)?;
        } else if let Some(items) = listed.get_mut(&*name) {
            extend(items, &name, value)?;
        } else if *single
            .entry(name.to_string())
            .or_insert_with(|| value.clone())
            != value
        {
            return Err(format!(
                "the rows of one caller have several values of `{name}`; add it to `lists`, or let the query return one value"
            ));
        }
    }
    let lists = listed
        .into_iter()
        .map(|(name, items)| (name, Value::from_iter(items)));
    ListedRights::check(roles.into_iter().collect(), single.into_iter().chain(lists))
}

/// Adds a string, or the strings of an array.
fn extend(items: &mut BTreeSet<String>, name: &str, value: Value) -> Result<(), String> {
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    for value in values {
        match value {
            Value::String(text) => {
                items.insert(text);
            }
            Value::Null => {}
            _ => return Err(format!("a value of the column `{name}` is not a string")),
        }
    }
    Ok(())
}
