//! `type: sql`: runs one prepared statement on a database.
//!
//! ```text
//!   SELECT … FROM {table} WHERE id = :id     one statement text for each allowed table, and no others
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use wardgate_arguments::JsonType;
use wardgate_yaml::Node;

use super::{Plan, PlanSource};
use crate::derive::DerivedValue;
use crate::fault::FieldReader;
use crate::scope::Scope;
use crate::source::SourceKind;
use crate::statement::{
    ParameterType, QuotedPlaceholder, SqlDialect, Statement, quoted_placeholders,
};
use crate::template::UnfitValue;

/// Maximum number of texts of one statement. Each database session keeps every text that it has run as a prepared
/// statement.
const MAX_TEXTS: usize = 64;

/// A statement, and the values of its placeholders.
#[derive(Debug, Clone)]
pub struct SqlPlan {
    /// The database.
    pub source: PlanSource,
    /// The statement.
    pub statement: Arc<Statement>,
    /// The parameters, each with the type as which its values are bound.
    pub params: Vec<(String, ParameterType)>,
    names: Vec<Identifiers>,
}

/// The identifiers that can replace `{name}` in a statement.
#[derive(Debug, Clone)]
struct Identifiers {
    name: String,
    /// The quoted identifiers, by the value that selects them.
    by_value: BTreeMap<String, String>,
}

pub(super) fn read_plan(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let source = fields.take_required("source", "use one of `sources`", scope.faults);
    let statement = fields.take_required("statement", "add the SQL statement", scope.faults);
    let source = source.and_then(|node| {
        let settings = scope.source(node)?;
        let SourceKind::Sql(sql) = &settings.kind else {
            scope.wrong_source(node, "a database");
            return None;
        };
        Some((PlanSource::new(&settings.name, None), sql.dialect))
    });
    let node = statement?;
    let sql = scope.faults.text(node, "statement");
    let ((source, dialect), sql) = (source?, sql?);
    let mut statement = Statement::parse(dialect, sql)
        .map_err(|bad| scope.faults.add(node.at, bad.problem, bad.fix))
        .ok()?;
    check_quoted(sql, &statement, node, scope);
    let params: Vec<_> = statement
        .params()
        .iter()
        .filter_map(|name| Some((name.clone(), param(name, node, scope)?)))
        .collect();
    for (name, kind) in &params {
        if matches!(kind, ParameterType::List(_)) {
            statement
                .set_list(name)
                .map_err(|bad| scope.faults.add(node.at, bad.problem, bad.fix))
                .ok()?;
        }
    }
    let names: Vec<_> = statement
        .names()
        .iter()
        .map(|name| read_identifiers(name, dialect, node, scope))
        .collect::<Option<_>>()?;
    check_texts(&names, node, scope);
    Some(Plan::Sql(SqlPlan {
        source,
        params,
        names,
        statement: Arc::new(statement),
    }))
}

/// Checks for placeholders in quotes, which are plain text. This is a fault if the argument is not used anywhere else in
/// the statement, and a warning otherwise.
fn check_quoted(sql: &str, statement: &Statement, node: &Node, scope: &mut Scope<'_, '_>) {
    // A text that cannot be scanned is not a statement, which is reported elsewhere.
    let quoted = quoted_placeholders(statement.dialect(), sql).unwrap_or_default();
    for QuotedPlaceholder { name, shown, line } in quoted {
        let is_argument = scope.input.is_some_and(|it| it.property(name).is_some());
        if !is_argument && scope.derive.get(name).is_none() {
            continue;
        }
        let problem = format!(
            "`{shown}` is inside quotes (line {line} of the text), so it is text and is not replaced by a value"
        );
        let fix = format!(
            "write `:{name}` outside the quotes; for a part of a string add `derive: {{ pattern: \"%{{{name}}}%\" }}` and write `:pattern`"
        );
        let used = [statement.params(), statement.names()].concat();
        if used.iter().any(|it| it == name) {
            scope.faults.warn(node.at, problem, fix);
        } else {
            scope.faults.add(node.at, problem, fix);
        }
    }
}

/// Returns the type as which values of the parameter are bound.
fn param(name: &str, node: &Node, scope: &mut Scope<'_, '_>) -> Option<ParameterType> {
    if scope.derive.get(name).is_some() {
        return Some(ParameterType::One(JsonType::String));
    }
    let Some(property) = scope.input?.property(name) else {
        scope.unknown_value(node.at, &format!(":{name}"));
        return None;
    };
    let kind = match property.scalar() {
        Some(kind) => Some(ParameterType::One(kind)),
        None => property.list_of().map(ParameterType::List),
    };
    if kind.is_none() {
        scope.faults.add(
            node.at,
            format!("`:{name}` has no single type that can be bound"),
            "set the type of the property to one of string, integer, number or boolean, or to array with `items` of one of these types",
        );
    }
    kind
}

/// Reads the identifiers that can replace `{name}`.
fn read_identifiers(
    name: &str,
    dialect: SqlDialect,
    node: &Node,
    scope: &mut Scope<'_, '_>,
) -> Option<Identifiers> {
    // Without a schema `derive` is not read, and the missing schema is reported already.
    scope.input?;
    let Some(DerivedValue::Choice { allow, .. }) = scope.derive.get(name) else {
        scope.faults.add(
            node.at,
            format!("`{{{name}}}` is not selected by `derive`"),
            format!(
                "add `derive: {{ {name}: {{ argument: …, allow: […] }} }}` with the allowed identifiers, or bind a value as `:{name}`"
            ),
        );
        return None;
    };
    if allow.iter().any(|value| value.contains('\0')) {
        let problem = format!("a value of `{name}` contains a NUL character");
        scope.faults.add(node.at, problem, "remove it");
    }
    let identifier = |value: &String| (value.clone(), dialect.identifier(value));
    Some(Identifiers {
        name: name.to_owned(),
        by_value: allow.iter().map(identifier).collect(),
    })
}

fn check_texts(names: &[Identifiers], node: &Node, scope: &mut Scope<'_, '_>) {
    let texts = names.iter().try_fold(1_usize, |texts, name| {
        texts.checked_mul(name.by_value.len())
    });
    if texts.is_none_or(|texts| texts > MAX_TEXTS) {
        scope.faults.add(
            node.at,
            format!("the statement has more than {MAX_TEXTS} variants"),
            "allow fewer identifiers, or split it into several tools",
        );
    }
}

impl SqlPlan {
    /// Returns arbitrary allowed identifiers, in the order of the statement's names. They are used to determine the
    /// columns, not for calls.
    pub fn some_identifiers(&self) -> Vec<&str> {
        let some = self.names.iter().map(|names| {
            let mut identifiers = names.by_value.values();
            identifiers.next().map_or("", String::as_str)
        });
        some.collect()
    }

    /// Returns the identifiers that the arguments select, in the order of the statement's names.
    pub fn identifiers(&self, arguments: &Map<String, Value>) -> Result<Vec<&str>, UnfitValue> {
        self.names
            .iter()
            .map(|Identifiers { name, by_value }| {
                let chosen = arguments.get(name).and_then(Value::as_str);
                let chosen = chosen.and_then(|value| by_value.get(value));
                chosen.map(String::as_str).ok_or_else(|| UnfitValue {
                    argument: name.clone(),
                    problem: "is not one of the allowed values",
                })
            })
            .collect()
    }
}
