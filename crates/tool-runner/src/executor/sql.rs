//! `type: sql`: runs one prepared statement on a database.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use cedar_policy::PolicySet;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use wardgate_catalogue::plan::SqlPlan;
use wardgate_catalogue::{Parameter, ParameterType, SqlDialect};
use wardgate_redact::Row;
use wardgate_sql::{Database, RowSink, SourceError};

use super::{Executor, Invocation, Output, Sources};
use crate::Error;
use crate::executor_error::ExecutorError;
use crate::pushdown::{self, PushedCondition};

pub(super) fn open(plan: &SqlPlan, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
    Ok(Arc::new(SqlExecutor {
        database: sources.sql(&plan.source.name)?,
        plan: plan.clone(),
    }))
}

struct SqlExecutor {
    plan: SqlPlan,
    database: Arc<Database>,
}

impl Executor for SqlExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        let SqlPlan {
            statement, params, ..
        } = &self.plan;
        Box::pin(async move {
            let identifiers = self.plan.identifiers(call.arguments)?;
            let rule = call.pushed;
            let rule = rule.map(|pushed| (pushed.sql.as_str(), pushed.values.as_slice()));
            let params = bind(params, call.arguments, statement.dialect())?;
            // A limit of the database would count rows that the row rule withholds.
            let range = if call.may_withhold {
                statement.limited_rows(&params)?
            } else {
                None
            };
            let (sql, values) = match range {
                Some(range) => {
                    out.limit_to(range);
                    statement.without_limit(&identifiers, rule, &params)
                }
                None => statement.with_values(&identifiers, rule, &params),
            };
            let query = self.database.query(call.read_only, sql, &values, out);
            Ok(query.await?)
        })
    }

    fn push_down(
        &self,
        policies: &PolicySet,
        expressions: &BTreeMap<String, String>,
    ) -> Option<PushedCondition> {
        let statement = &self.plan.statement;
        if !statement.has_row_rule() {
            return None;
        }
        let taken = statement.params().len();
        let dialect = statement.dialect();
        let condition = pushdown::condition(policies, expressions, dialect, taken);
        Some(PushedCondition {
            is_whole: condition.is_whole && statement.restricts_every_row(),
            ..condition
        })
    }
}

impl RowSink for Output<'_> {
    fn row(&mut self, row: Row) -> ControlFlow<()> {
        Output::row(self, row)
    }

    fn unreadable_row(
        &mut self,
        row: Row,
        error: SourceError,
    ) -> Result<ControlFlow<()>, SourceError> {
        // An error because of a row that is not released would reveal that there is such a row. If the row rule needs the
        // unreadable value, it cannot decide on the empty list in its place, because no attribute is a list. Of two columns
        // with the same name, it decides on the first; if it admits the row, the error keeps the row from being released.
        if self.selects(&row) {
            Err(error)
        } else {
            Ok(ControlFlow::Continue(()))
        }
    }
}

/// Returns the values of the parameters, in order.
fn bind(
    params: &[(String, ParameterType)],
    arguments: &Map<String, Value>,
    dialect: SqlDialect,
) -> Result<Vec<Parameter>, ExecutorError> {
    let bound = |(name, kind): &(String, ParameterType)| {
        Parameter::from_value(*kind, arguments.get(name), dialect).map_err(|why| {
            ExecutorError::BadArgument {
                text: format!("`{name}` {why}"),
            }
        })
    };
    params.iter().map(bound).collect()
}
