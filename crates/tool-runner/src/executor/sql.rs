//! `type: sql`: one prepared statement on a database.

use std::collections::BTreeMap;
use std::sync::Arc;

use cedar_policy::PolicySet;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::{Executor, ExecutorError, Invocation, Kind, Output, Plan, Sources};
use crate::Error;
use crate::catalogue::{Fields, JsonType, Scope, SourceKind, Statement};
use crate::pushdown::{self, Condition};
use crate::sql::{Bound, Database};

pub(super) const KIND: Kind = Kind { name: "sql", read };

/// A statement with a row rule pushed down, and the values for its placeholders behind those of the arguments.
#[derive(Debug, PartialEq)]
pub(crate) struct Pushed {
    pub(crate) sql: Arc<str>,
    pub(crate) values: Vec<Bound>,
}

#[derive(Debug, Clone)]
struct SqlPlan {
    source: String,
    statement: Arc<Statement>,
    /// Each parameter with the type its values are bound as.
    params: Vec<(String, JsonType)>,
}

fn read(fields: &mut Fields<'_>, scope: &mut Scope<'_, '_>) -> Option<Box<dyn Plan>> {
    let source = fields.required("source", "name one of `sources`", scope.faults);
    let statement = fields.required("statement", "add the SQL statement", scope.faults);
    let source = source.and_then(|node| {
        let settings = scope.source(node)?;
        let SourceKind::Sql(sql) = &settings.kind else {
            scope.wrong_source(node, "a database");
            return None;
        };
        Some((settings.name.clone(), sql.dialect))
    });
    let node = statement?;
    let sql = scope.faults.text(node, "statement");
    let ((source, dialect), sql) = (source?, sql?);
    let statement = Statement::parse(dialect, sql)
        .map_err(|bad| scope.faults.add(node.at, bad.problem, bad.fix))
        .ok()?;
    let params = statement
        .params()
        .iter()
        .filter_map(|name| Some((name.clone(), param(name, node, scope)?)))
        .collect();
    Some(Box::new(SqlPlan {
        source,
        params,
        statement: Arc::new(statement),
    }))
}

/// The type that values of the parameter are bound as.
fn param(name: &str, node: &crate::catalogue::Node, scope: &mut Scope<'_, '_>) -> Option<JsonType> {
    if scope.derive.get(name).is_some() {
        return Some(JsonType::String);
    }
    let Some(property) = scope.input?.property(name) else {
        scope.unknown_value(node.at, &format!(":{name}"));
        return None;
    };
    let scalar = property.scalar();
    if scalar.is_none() {
        scope.faults.add(
            node.at,
            format!("`:{name}` has no single type that can be bound"),
            "give the property one type of string, integer, number or boolean",
        );
    }
    scalar
}

impl Plan for SqlPlan {
    fn source(&self) -> Option<&str> {
        Some(&self.source)
    }

    fn statement(&self) -> Option<&Statement> {
        Some(&self.statement)
    }

    fn open(&self, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
        Ok(Arc::new(SqlExecutor {
            database: sources.sql(&self.source)?,
            unruled: self.statement.render(None),
            plan: self.clone(),
        }))
    }
}

struct SqlExecutor {
    plan: SqlPlan,
    database: Arc<Database>,
    /// The statement that every row passes.
    unruled: Arc<str>,
}

impl Executor for SqlExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        let mut values = bind(&self.plan.params, call.arguments);
        let sql = match call.pushed {
            Some(pushed) => {
                values.extend_from_slice(&pushed.values);
                Arc::clone(&pushed.sql)
            }
            None => Arc::clone(&self.unruled),
        };
        Box::pin(async move {
            let rows = &mut |row| out.row(row);
            self.database
                .query(call.read_only, sql, &values, rows)
                .await
        })
    }

    fn push_down(
        &self,
        policies: &PolicySet,
        expressions: &BTreeMap<String, String>,
    ) -> Option<Pushed> {
        let statement = &self.plan.statement;
        if !statement.has_row_rule() {
            return None;
        }
        let taken = statement.params().len();
        let Condition { sql, values } =
            pushdown::condition(policies, expressions, statement.dialect(), taken);
        Some(Pushed {
            sql: statement.render(Some(&sql)),
            values,
        })
    }
}

/// The values for the placeholders, in order.
fn bind(params: &[(String, JsonType)], arguments: &Map<String, Value>) -> Vec<Bound> {
    let bound = |(name, kind): &(String, JsonType)| {
        let value = arguments.get(name);
        match kind {
            JsonType::Integer => Bound::Integer(value.and_then(integral)),
            JsonType::Number => Bound::Number(value.and_then(Value::as_f64)),
            JsonType::Boolean => Bound::Boolean(value.and_then(Value::as_bool)),
            // No other type is bound.
            _ => Bound::Text(value.and_then(Value::as_str).map(str::to_owned)),
        }
    };
    params.iter().map(bound).collect()
}

/// A whole number, also where a default is written as 10.0.
fn integral(value: &Value) -> Option<i64> {
    value
        .as_i64()
        .or_else(|| crate::arguments::rounded(value)?.as_i64())
}
