//! Translates a row rule into SQL, so that the database leaves out most of the rows that would be withheld.
//!
//! ```text
//!   permit … when { resource.doctor == "d7" }   ─▶   (COALESCE(m.doctor = $2, FALSE))
//!   forbid … when { resource.sealed }           ─▶   AND NOT COALESCE(m.sealed, TRUE)
//! ```
//!
//! [`crate::row_rule`] checks the remaining rows again, so the condition may let too many rows through but should not leave
//! out a row that the rule admits. A permit with an unsupported expression lets every row through, and a forbid with one
//! leaves no row out. NULL is an absent attribute: Cedar fails to evaluate it and the row is withheld, while SQL makes the
//! clause unknown, and `COALESCE` withholds the row. If a condition has other parts, SQL may decide although Cedar fails
//! ([`absence`]).
//!
//! If the condition lets no other rows through than the rule (`is_whole`), the database may also limit and combine the rows.
//!
//! Cedar compares strings exactly. SQLite and MySQL compare them by the collation of a column, where `D1` may equal `d1` and
//! even `d1 `, so the bytes are compared there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cedar_policy::pst::{
    self, ActionConstraint, BinaryOp, Clause, Effect, Expr, Literal, PatternElem,
    PrincipalConstraint, ResourceConstraint, Template, UnaryOp, Var,
};
use cedar_policy::{Policy, PolicySet};

use wardgate_catalogue::{BoundValue, SqlDialect};

/// A row rule as an SQL condition, and the values of its placeholders.
#[derive(Debug, PartialEq)]
pub(crate) struct PushedCondition {
    pub(crate) sql: String,
    pub(crate) values: Vec<BoundValue>,
    /// Whether the source applies the whole rule, so that it uses no row that the rule would withhold.
    pub(crate) is_whole: bool,
}

/// Translates `policies` into a condition. `expressions` maps an attribute to its SQL. Placeholders are numbered after
/// the `taken` ones of the statement.
pub(crate) fn condition(
    policies: &PolicySet,
    expressions: &BTreeMap<String, String>,
    dialect: SqlDialect,
    taken: usize,
) -> PushedCondition {
    let mut writer = ConditionWriter {
        expressions,
        dialect,
        taken,
        values: Vec::new(),
        is_whole: true,
    };
    let of = |effect| policies.policies().filter(move |it| it.effect() == effect);
    // If a permit fails, Cedar withholds the row, although another one may permit it.
    let is_only_permit = of(cedar_policy::Effect::Permit).count() < 2;
    // Clauses are written in the order of the text, because MySQL assigns values to placeholders in that order.
    let permits: Vec<_> = of(cedar_policy::Effect::Permit)
        .map(|policy| {
            match writer.clause(policy, |absence| is_only_permit && !absence.can_be_true) {
                Some(sql) => format!("COALESCE({sql}, FALSE)"),
                None => "TRUE".to_owned(),
            }
        })
        .collect();
    let forbids: Vec<_> = of(cedar_policy::Effect::Forbid)
        .filter_map(|policy| writer.clause(policy, |absence| !absence.can_be_false))
        .map(|sql| format!(" AND NOT COALESCE({sql}, TRUE)"))
        .collect();
    let permits = if permits.is_empty() {
        "FALSE".to_owned()
    } else {
        permits.join(" OR ")
    };
    PushedCondition {
        sql: format!("({permits}){}", forbids.concat()),
        values: writer.values,
        is_whole: writer.is_whole,
    }
}

struct ConditionWriter<'a> {
    expressions: &'a BTreeMap<String, String>,
    dialect: SqlDialect,
    taken: usize,
    values: Vec<BoundValue>,
    /// Whether every policy so far was translated completely.
    is_whole: bool,
}

/// Each method returns `None` for an expression that it does not support.
impl ConditionWriter<'_> {
    /// Translates a policy. `withholds` tells whether each of these results of the clause, and an unknown one, withholds the row.
    fn clause(
        &mut self,
        policy: &Policy,
        withholds: impl Fn(ConditionResults) -> bool,
    ) -> Option<String> {
        let bound = self.values.len();
        let pst = policy.to_pst();
        let body = pst.as_ref().ok().map(pst::Policy::body);
        let clause = body.and_then(|body| self.policy(body));
        if clause.is_none() {
            self.values.truncate(bound);
        }
        let is_exact = |body| absence(body).is_none_or(&withholds);
        self.is_whole &= clause.is_some() && body.is_some_and(is_exact);
        clause
    }

    fn policy(&mut self, policy: &Template) -> Option<String> {
        // The scope of a permit was settled when the residual was made, or is checked again with the row.
        let is_open = policy.principal == PrincipalConstraint::Any
            && policy.action == ActionConstraint::Any
            && policy.resource == ResourceConstraint::Any;
        self.is_whole &= is_open;
        let is_understood = is_open || policy.effect == Effect::Permit;
        if !is_understood {
            return None;
        }
        let mut clauses = Vec::new();
        for clause in policy.clauses() {
            clauses.push(match clause {
                Clause::When(expr) => self.boolean(expr)?,
                Clause::Unless(expr) => format!("NOT {}", self.boolean(expr)?),
            });
        }
        if clauses.is_empty() {
            return Some("TRUE".to_owned());
        }
        Some(format!("({})", clauses.join(" AND ")))
    }

    fn boolean(&mut self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Literal(Literal::Bool(truth)) => {
                Some(if *truth { "TRUE" } else { "FALSE" }.to_owned())
            }
            Expr::GetAttr { .. } => self.attribute(expr).map(|sql| format!("({sql})")),
            Expr::UnaryOp {
                op: UnaryOp::Not,
                expr,
            } => Some(format!("(NOT {})", self.boolean(expr)?)),
            Expr::BinaryOp { op, left, right } => self.binary(*op, left, right),
            Expr::Like { expr, pattern } => self.like(expr, pattern),
            Expr::IfThenElse {
                cond,
                then_expr,
                else_expr,
            } => Some(format!(
                "(CASE WHEN {} THEN {} ELSE {} END)",
                self.boolean(cond)?,
                self.boolean(then_expr)?,
                self.boolean(else_expr)?
            )),
            Expr::HasAttr { expr, attrs } if **expr == Expr::Var(Var::Resource) => {
                let sql = self.expressions.get(attrs.head.as_str())?;
                attrs
                    .tail
                    .is_empty()
                    .then(|| format!("(({sql}) IS NOT NULL)"))
            }
            _ => None,
        }
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Option<String> {
        let is_by_collation = self.is_by_collation([left, right]);
        let operator = match op {
            BinaryOp::And => return self.join(left, "AND", right),
            BinaryOp::Or => return self.join(left, "OR", right),
            BinaryOp::Contains => return self.contains(left, right),
            BinaryOp::Eq if is_by_collation => return self.same_text(left, right),
            BinaryOp::NotEq if is_by_collation => {
                return Some(format!("(NOT {})", self.same_text(left, right)?));
            }
            BinaryOp::Eq => "=",
            BinaryOp::NotEq => "<>",
            BinaryOp::Less => "<",
            BinaryOp::LessEq => "<=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterEq => ">=",
            _ => return None,
        };
        Some(format!(
            "({} {operator} {})",
            self.scalar(left)?,
            self.scalar(right)?
        ))
    }

    fn join(&mut self, left: &Expr, operator: &str, right: &Expr) -> Option<String> {
        Some(format!(
            "({} {operator} {})",
            self.boolean(left)?,
            self.boolean(right)?
        ))
    }

    /// Returns whether both sides may be strings that the server compares by a collation.
    fn is_by_collation(&self, sides: [&Expr; 2]) -> bool {
        let is_no_text =
            |side: &Expr| matches!(side, Expr::Literal(Literal::Bool(_) | Literal::Long(_)));
        self.dialect == SqlDialect::Mysql && !sides.into_iter().any(is_no_text)
    }

    /// Returns a condition for two strings that are identical byte for byte. Identical strings are also equal under a
    /// collation, so a comparison by the collation is added where possible, because an index can serve it.
    fn same_text(&mut self, left: &Expr, right: &Expr) -> Option<String> {
        let mut equal = String::new();
        if is_ascii(left) || is_ascii(right) {
            equal = format!("{} = {} AND ", self.scalar(left)?, self.scalar(right)?);
        }
        let (left, right) = (self.scalar(left)?, self.scalar(right)?);
        Some(format!(
            "({equal}{} = {})",
            bytes_of(&left),
            bytes_of(&right)
        ))
    }

    /// Returns a condition for a set of literals that contains an attribute.
    fn contains(&mut self, set: &Expr, item: &Expr) -> Option<String> {
        let Expr::Set(members) = set else {
            return None;
        };
        let sql = self.attribute(item)?;
        if members.is_empty() {
            return Some("FALSE".to_owned());
        }
        let by_collation = members.iter().any(|it| self.is_by_collation([item, it]));
        let mut conditions = Vec::new();
        if !by_collation || members.iter().all(|member| is_ascii(member)) {
            let members = self.literals(members)?;
            conditions.push(format!("({sql}) IN ({})", members.join(", ")));
        }
        if by_collation {
            let members = self.literals(members)?;
            let members: Vec<_> = members.iter().map(|it| bytes_of(it)).collect();
            conditions.push(format!("{} IN ({})", bytes_of(&sql), members.join(", ")));
        }
        Some(format!("({})", conditions.join(" AND ")))
    }

    /// Returns a condition for an attribute that matches a pattern.
    fn like(&mut self, expr: &Expr, pattern: &[PatternElem]) -> Option<String> {
        let text = self.attribute(expr)?;
        match self.dialect {
            SqlDialect::Sqlite => self.sqlite_like(&text, pattern),
            SqlDialect::Postgres => {
                let pattern = self.bind_text(like_pattern(pattern));
                Some(format!("(({text}) LIKE {pattern} ESCAPE '!')"))
            }
            SqlDialect::Mysql => {
                let pattern = self.bind_text(like_pattern(pattern));
                let (text, pattern) = (bytes_of(&text), bytes_of(&pattern));
                Some(format!("({text} LIKE {pattern} ESCAPE '!')"))
            }
        }
    }

    /// Returns a condition for a text that matches a pattern with a wildcard at one place, or at the beginning and the end. SQLite's
    /// `GLOB` ignores what follows a NUL character, and its `LIKE` also ignores case.
    fn sqlite_like(&mut self, text: &str, pattern: &[PatternElem]) -> Option<String> {
        let bytes = format!("CAST({text} AS BLOB)");
        let parts = literal_parts(pattern);
        let condition = match parts.as_slice() {
            [whole] => format!("{bytes} = {}", self.bind_bytes(whole)),
            [prefix, suffix] => {
                let mut condition = format!("length({bytes}) >= {}", prefix.len() + suffix.len());
                if !prefix.is_empty() {
                    let begin = format!("substr({bytes}, 1, {})", prefix.len());
                    condition += &format!(" AND {begin} = {}", self.bind_bytes(prefix));
                }
                if !suffix.is_empty() {
                    let end = format!("substr({bytes}, -{})", suffix.len());
                    condition += &format!(" AND {end} = {}", self.bind_bytes(suffix));
                }
                condition
            }
            [prefix, part, suffix] if prefix.is_empty() && suffix.is_empty() => {
                format!("instr({bytes}, {}) > 0", self.bind_bytes(part))
            }
            _ => return None,
        };
        // A value of another type has bytes too, but is no text.
        Some(format!(
            "(CASE typeof({text}) WHEN 'text' THEN {condition} END)"
        ))
    }

    fn literals(&mut self, members: &[Arc<Expr>]) -> Option<Vec<String>> {
        members
            .iter()
            .map(|member| match &**member {
                Expr::Literal(literal) => self.literal(literal),
                _ => None,
            })
            .collect()
    }

    fn scalar(&mut self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::GetAttr { .. } => self.attribute(expr).map(|sql| format!("({sql})")),
            _ => None,
        }
    }

    fn attribute(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::GetAttr { expr, attr } if **expr == Expr::Var(Var::Resource) => {
                let sql = self.expressions.get(attr.as_str())?;
                Some(match self.dialect {
                    SqlDialect::Sqlite => format!("({sql}) COLLATE BINARY"),
                    SqlDialect::Postgres | SqlDialect::Mysql => sql.clone(),
                })
            }
            _ => None,
        }
    }

    fn literal(&mut self, literal: &Literal) -> Option<String> {
        let value = match literal {
            Literal::Bool(truth) => BoundValue::Boolean(Some(*truth)),
            Literal::Long(number) => BoundValue::Integer(Some(*number)),
            Literal::String(text) => BoundValue::Text(Some(text.to_string())),
            _ => return None,
        };
        Some(self.bind(value))
    }

    fn bind_text(&mut self, text: String) -> String {
        self.bind(BoundValue::Text(Some(text)))
    }

    fn bind_bytes(&mut self, text: &str) -> String {
        format!("CAST({} AS BLOB)", self.bind_text(text.to_owned()))
    }

    /// Adds a value, and returns its placeholder.
    fn bind(&mut self, value: BoundValue) -> String {
        self.values.push(value);
        self.dialect.placeholder(self.taken + self.values.len())
    }
}

/// The results that a condition can have in SQL, besides unknown, for a row without one of its attributes, for which Cedar
/// fails.
#[derive(Debug, Clone, Copy)]
struct ConditionResults {
    can_be_true: bool,
    can_be_false: bool,
}

impl ConditionResults {
    const UNKNOWN: Self = Self {
        can_be_true: false,
        can_be_false: false,
    };

    fn or(self, other: Self) -> Self {
        Self {
            can_be_true: self.can_be_true || other.can_be_true,
            can_be_false: self.can_be_false || other.can_be_false,
        }
    }

    fn not(self) -> Self {
        Self {
            can_be_true: self.can_be_false,
            can_be_false: self.can_be_true,
        }
    }
}

/// Returns the results that either of two operands contributes, or `None` if neither reads an absent attribute.
fn either(
    one: Option<ConditionResults>,
    other: Option<ConditionResults>,
) -> Option<ConditionResults> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.or(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the results of the conditions of a policy for a row without one of their attributes, or `None` if Cedar reads no
/// absent attribute.
fn absence(policy: &Template) -> Option<ConditionResults> {
    let mut present = BTreeSet::new();
    let mut found = None;
    for clause in policy.clauses() {
        let (Clause::When(expr) | Clause::Unless(expr)) = clause;
        let of_clause = absence_in(expr, &present);
        if let Clause::Unless(_) = clause {
            found = conjunction(found, of_clause.map(ConditionResults::not));
        } else {
            found = conjunction(found, of_clause);
            add_tested(expr, &mut present);
        }
    }
    found
}

/// Returns the results of `left AND right`. If Cedar fails on the left side, the right side can still be false in SQL.
fn conjunction(
    left: Option<ConditionResults>,
    right: Option<ConditionResults>,
) -> Option<ConditionResults> {
    let left = left.map(|left| ConditionResults {
        can_be_false: true,
        ..left
    });
    either(left, right)
}

/// Returns the results of `expr` for a row without one of its attributes, of which those in `present` are not absent.
fn absence_in<'e>(expr: &'e Expr, present: &BTreeSet<&'e str>) -> Option<ConditionResults> {
    match expr {
        Expr::Literal(_) | Expr::Set(_) | Expr::HasAttr { .. } => None,
        Expr::GetAttr { attr, .. } if present.contains(attr.as_str()) => None,
        Expr::GetAttr { .. } => Some(ConditionResults::UNKNOWN),
        Expr::UnaryOp {
            op: UnaryOp::Not,
            expr,
        } => absence_in(expr, present).map(ConditionResults::not),
        Expr::BinaryOp { op, left, right } => {
            let of_left = absence_in(left, present);
            match op {
                BinaryOp::And => {
                    let mut present = present.clone();
                    add_tested(left, &mut present);
                    conjunction(of_left, absence_in(right, &present))
                }
                BinaryOp::Or => {
                    let of_right = absence_in(right, present);
                    let denied = conjunction(
                        of_left.map(ConditionResults::not),
                        of_right.map(ConditionResults::not),
                    );
                    denied.map(ConditionResults::not)
                }
                // An empty set is translated to FALSE, which the conjunction with it is too.
                BinaryOp::Contains if matches!(&**left, Expr::Set(members) if members.is_empty()) => {
                    conjunction(absence_in(right, present), None)
                }
                _ => either(of_left, absence_in(right, present)),
            }
        }
        Expr::Like { expr, .. } => absence_in(expr, present),
        // If Cedar fails on the condition, SQL chooses one of the other operands, whatever its result is.
        Expr::IfThenElse {
            cond,
            then_expr,
            else_expr,
        } if absence_in(cond, present).is_none() => {
            let mut present_then = present.clone();
            add_tested(cond, &mut present_then);
            either(
                absence_in(then_expr, &present_then),
                absence_in(else_expr, present),
            )
        }
        _ => Some(ConditionResults {
            can_be_true: true,
            can_be_false: true,
        }),
    }
}

/// Adds the attributes that a row has if `expr` is true.
fn add_tested<'e>(expr: &'e Expr, present: &mut BTreeSet<&'e str>) {
    match expr {
        Expr::HasAttr { attrs, .. } => {
            present.insert(attrs.head.as_str());
        }
        Expr::BinaryOp {
            op: BinaryOp::And,
            left,
            right,
        } => {
            add_tested(left, present);
            add_tested(right, present);
        }
        _ => {}
    }
}

/// Returns whether `expr` is an ASCII literal, which every character set can hold. MySQL refuses to compare a literal
/// with a column whose character set cannot hold it.
fn is_ascii(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(Literal::String(text)) if text.is_ascii())
}

/// Returns a pattern for `LIKE … ESCAPE '!'`.
fn like_pattern(pattern: &[PatternElem]) -> String {
    let mut sql = String::new();
    for element in pattern {
        match element {
            PatternElem::Wildcard => sql.push('%'),
            PatternElem::Char(sign @ ('%' | '_' | '!')) => sql.extend(['!', *sign]),
            PatternElem::Char(sign) => sql.push(*sign),
        }
    }
    sql
}

/// Returns the literal texts before, between and after the wildcards of a pattern. Only the first and the last can be empty.
fn literal_parts(pattern: &[PatternElem]) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    for element in pattern {
        match element {
            PatternElem::Char(sign) => part.push(*sign),
            // Adjacent wildcards are the same as one.
            PatternElem::Wildcard if part.is_empty() && !parts.is_empty() => {}
            PatternElem::Wildcard => parts.push(std::mem::take(&mut part)),
        }
    }
    parts.push(part);
    parts
}

/// Returns SQL for the UTF-8 bytes of a string.
fn bytes_of(sql: &str) -> String {
    format!("CAST(CONVERT({sql} USING utf8mb4) AS BINARY)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(policies: &str) -> bool {
        let policies: PolicySet = policies.parse().unwrap();
        let attributes = ["doctor", "sealed", "level"];
        let expressions = attributes.map(|name| (name.to_owned(), format!("r.{name}")));
        let expressions = BTreeMap::from(expressions);
        condition(&policies, &expressions, SqlDialect::Sqlite, 0).is_whole
    }

    #[test]
    fn a_rule_that_is_sql_in_all_its_parts_is_pushed_down_as_a_whole() {
        for policies in [
            "",
            "permit(principal, action, resource);",
            r#"permit(principal, action, resource) when { resource has doctor && resource.doctor == "d1" };
               permit(principal, action, resource) when { resource has level && resource.level < 3 };
               forbid(principal, action, resource) when { ["d2", "d3"].contains(resource.doctor) };"#,
        ] {
            assert!(is_whole(policies), "{policies}");
        }
    }

    #[test]
    fn a_rule_that_may_fail_is_a_whole_only_if_sql_withholds_the_same_rows() {
        let permit = |condition: &str| {
            format!("permit(principal, action, resource) when {{ {condition} }};")
        };
        for condition in [
            "resource.sealed",
            r#"!(resource.doctor == "d1")"#,
            "resource has level && resource.level < 3 && resource has sealed && resource.sealed",
            "(resource has level && resource has sealed) && (resource.level < 3 && resource.sealed)",
            r#"resource has doctor && (["d1"].contains(resource.doctor) || resource.sealed)"#,
            r#"resource.doctor == "d1" && resource.level < 3 && !(resource.sealed || resource.level == 1)"#,
            "resource.level < 3 && resource has level",
            "[].contains(resource.doctor)",
            r#"resource.doctor like "d*""#,
            "if resource has level then resource.level < 3 else resource has doctor",
            "if resource has level then resource.sealed else resource.level < 3",
        ] {
            let forbid = "forbid(principal, action, resource) when { resource.sealed };";
            let policies = permit(condition) + forbid;
            assert!(is_whole(&policies), "{condition}");
        }
        for policies in [
            permit("resource.sealed || resource.level < 3"),
            permit("!(resource.sealed && resource.level < 3)"),
            permit("![].contains(resource.doctor)"),
            "forbid(principal, action, resource) when { resource.sealed && resource.level < 3 };"
                .to_owned(),
            permit("resource has level || resource.level < 3") + &permit("resource has doctor"),
            permit("!(resource has level) && resource.level < 3 || resource has doctor"),
            permit("resource.sealed") + &permit("resource has doctor"),
            permit("if resource.sealed then resource has level else resource has doctor"),
            permit(
                "!(if resource has doctor then resource.sealed && resource.level < 3 else true)",
            ),
            permit(r#"!(resource.doctor like "d*" && resource.sealed)"#),
        ] {
            assert!(!is_whole(&policies), "{policies}");
        }
    }

    #[test]
    fn a_rule_with_a_part_that_is_not_sql_is_not_pushed_down_as_a_whole() {
        for other in [
            // Expressions that are not translated, one of them on SQLite only, and an attribute that the statement has no expression
            // for.
            r#"permit(principal, action, resource) when { resource.doctor like "d*1*" };"#,
            r#"permit(principal, action, resource) when { ["d1"].containsAny([resource.doctor]) };"#,
            r#"permit(principal, action, resource) when { resource.sealed && ["d1"].containsAny([resource.doctor]) };"#,
            r#"permit(principal, action, resource) when { resource.ward == "W1" };"#,
            r#"forbid(principal, action, resource) when { ["d1"].containsAny([resource.doctor]) };"#,
            "forbid(principal, action, resource) when { resource.level + 1 == 2 };",
            // Policies about some rows only.
            r#"permit(principal, action, resource == Record::"1");"#,
            r#"forbid(principal, action, resource == Record::"1");"#,
            "permit(principal, action, resource is Record) when { resource.sealed };",
        ] {
            let policies =
                format!("permit(principal, action, resource) when {{ resource.sealed }}; {other}");
            assert!(!is_whole(other), "{other}");
            assert!(!is_whole(&policies), "{policies}");
        }
    }
}
