//! Random policies about rows: their Cedar text, and their meaning in plain Rust.

use std::collections::{BTreeMap, BTreeSet};

use wardgate_domain::{AttributeType, RowRule};
use wardgate_testkit::SeededRandom;

use super::rows::{KEYS, LEVELS, PUSHED_COLUMNS, SampleRow, StoredValue, TEXT_COLUMNS};
use crate::tests::harness::rule;

/// A condition about a row.
#[derive(Debug, Clone)]
enum RowCondition {
    Truth(bool),
    Sealed,
    SealedIs(bool),
    Has(&'static str),
    /// `resource.C == "V"`, or `!=` if the flag is false.
    TextIs(&'static str, bool, &'static str),
    /// `resource.C == resource.D`.
    SameText(&'static str, &'static str),
    /// `["V", …].contains(resource.C)`.
    OneOf(Vec<&'static str>, &'static str),
    /// `resource.C like "V"`, with a `*` before or after it.
    Like(&'static str, bool, &'static str, bool),
    Level(&'static str, i64),
    Not(Box<RowCondition>),
    And(Box<RowCondition>, Box<RowCondition>),
    Or(Box<RowCondition>, Box<RowCondition>),
    If(Box<RowCondition>, Box<RowCondition>, Box<RowCondition>),
}

const ORDERS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];

/// Returns a string literal of Cedar.
fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n").replace('\t', "\\t"))
}

impl RowCondition {
    /// Creates a condition that nests at most `depth` levels. If `is_sql` is true, all of it can be written in SQL.
    fn random(random: &mut SeededRandom, depth: usize, is_sql: bool) -> Self {
        if depth == 0 || random.is_one_in(3) {
            return Self::leaf(random, is_sql);
        }
        let mut inner = || Box::new(Self::random(random, depth - 1, is_sql));
        let (first, second, third) = (inner(), inner(), inner());
        match random.below(8) {
            0..3 => Self::And(first, second),
            3..5 => Self::Or(first, second),
            5 => Self::If(first, second, third),
            _ => Self::Not(first),
        }
    }

    fn leaf(random: &mut SeededRandom, is_sql: bool) -> Self {
        let columns = if is_sql {
            &TEXT_COLUMNS[..PUSHED_COLUMNS]
        } else {
            &TEXT_COLUMNS[..]
        };
        let (column, values) = random.choose(columns);
        let value = random.choose(values);
        match random.below(16) {
            0 => Self::Truth(random.is_one_in(2)),
            1 => Self::Sealed,
            2 => Self::SealedIs(random.is_one_in(2)),
            3 => Self::Has(random.choose(&["sealed", "level"])),
            4 => Self::Has(column),
            5 => Self::SameText(column, random.choose(columns).0),
            6 | 7 => {
                let values = (0..random.below(4)).map(|_| random.choose(values));
                Self::OneOf(values.collect(), column)
            }
            8 => Self::Like(column, random.is_one_in(2), value, random.is_one_in(2)),
            9..12 => Self::Level(random.choose(&ORDERS), random.choose(&LEVELS[..8])),
            _ => Self::TextIs(column, random.is_one_in(2), value),
        }
    }

    /// Returns the condition in Cedar.
    fn cedar(&self) -> String {
        match self {
            Self::Truth(truth) => truth.to_string(),
            Self::Sealed => "resource.sealed".to_owned(),
            Self::SealedIs(truth) => format!("(resource.sealed == {truth})"),
            Self::Has(column) => format!("(resource has {column})"),
            Self::TextIs(column, is_equal, value) => {
                let operator = if *is_equal { "==" } else { "!=" };
                format!("(resource.{column} {operator} {})", literal(value))
            }
            Self::SameText(one, other) => format!("(resource.{one} == resource.{other})"),
            Self::OneOf(values, column) => {
                let values: Vec<String> = values.iter().map(|value| literal(value)).collect();
                format!("([{}].contains(resource.{column}))", values.join(", "))
            }
            Self::Like(column, before, value, after) => {
                let value = literal(value).replace('*', "\\*");
                let value = &value[1..value.len() - 1];
                let star = |has: &bool| if *has { "*" } else { "" };
                format!(
                    "(resource.{column} like \"{}{value}{}\")",
                    star(before),
                    star(after)
                )
            }
            Self::Level(order, level) => format!("(resource.level {order} {level})"),
            Self::Not(inner) => format!("(!{})", inner.cedar()),
            Self::And(one, other) => format!("({} && {})", one.cedar(), other.cedar()),
            Self::Or(one, other) => format!("({} || {})", one.cedar(), other.cedar()),
            Self::If(test, yes, no) => {
                let (test, yes, no) = (test.cedar(), yes.cedar(), no.cedar());
                format!("(if {test} then {yes} else {no})")
            }
        }
    }

    /// Returns the value of the condition, or `None` if it reads an absent attribute.
    fn value(&self, row: &SampleRow) -> Option<bool> {
        let text = |column: &str| row.texts.get(column).copied();
        Some(match self {
            Self::Truth(truth) => *truth,
            Self::Sealed => typed_value(row.sealed)?,
            Self::SealedIs(truth) => typed_value(row.sealed)? == *truth,
            Self::Has("sealed") => typed_value(row.sealed).is_some(),
            Self::Has("level") => typed_value(row.level).is_some(),
            Self::Has(column) => text(column).is_some(),
            Self::TextIs(column, is_equal, value) => (text(column)? == *value) == *is_equal,
            Self::SameText(one, other) => text(one)? == text(other)?,
            Self::OneOf(values, column) => values.contains(&text(column)?),
            Self::Like(column, before, value, after) => {
                let text = text(column)?;
                match (before, after) {
                    (true, true) => text.contains(*value),
                    (true, false) => text.ends_with(*value),
                    (false, true) => text.starts_with(*value),
                    (false, false) => text == *value,
                }
            }
            Self::Level(order, level) => {
                let (stored, level) = (typed_value(row.level)?, *level);
                match *order {
                    "==" => stored == level,
                    "!=" => stored != level,
                    "<" => stored < level,
                    "<=" => stored <= level,
                    ">" => stored > level,
                    _ => stored >= level,
                }
            }
            Self::Not(inner) => !inner.value(row)?,
            Self::And(one, other) => one.value(row)? && other.value(row)?,
            Self::Or(one, other) => one.value(row)? || other.value(row)?,
            Self::If(test, yes, no) => {
                let branch = if test.value(row)? { yes } else { no };
                branch.value(row)?
            }
        })
    }

    /// Collects the columns that the condition mentions, whether they are read or not.
    fn collect_columns(&self, columns: &mut BTreeSet<&'static str>) {
        match self {
            Self::Truth(_) => {}
            Self::Sealed | Self::SealedIs(_) => {
                columns.insert("sealed");
            }
            Self::Level(..) => {
                columns.insert("level");
            }
            Self::Has(column)
            | Self::TextIs(column, ..)
            | Self::OneOf(_, column)
            | Self::Like(column, ..) => {
                columns.insert(column);
            }
            Self::SameText(one, other) => columns.extend([*one, *other]),
            Self::Not(inner) => inner.collect_columns(columns),
            Self::And(one, other) | Self::Or(one, other) => {
                one.collect_columns(columns);
                other.collect_columns(columns);
            }
            Self::If(test, yes, no) => {
                for part in [test, yes, no] {
                    part.collect_columns(columns);
                }
            }
        }
    }
}

fn typed_value<T>(value: StoredValue<T>) -> Option<T> {
    match value {
        StoredValue::Typed(value) => Some(value),
        StoredValue::Null | StoredValue::Mistyped(_) => None,
    }
}

/// A policy about rows.
#[derive(Debug)]
struct RowPolicy {
    is_permit: bool,
    /// The key of the only row to which it applies; `None` if it applies to every row.
    key: Option<&'static str>,
    /// Whether the condition is the exception (`unless`).
    is_unless: bool,
    condition: RowCondition,
}

impl RowPolicy {
    fn random(random: &mut SeededRandom, is_permit: bool, is_sql: bool) -> Self {
        let depth = random.below(4);
        Self {
            is_permit,
            key: random.is_one_in(10).then(|| random.choose(&KEYS)),
            is_unless: random.is_one_in(4),
            condition: RowCondition::random(random, depth, is_sql),
        }
    }

    fn cedar(&self) -> String {
        let effect = if self.is_permit { "permit" } else { "forbid" };
        let resource = self.key.map_or("resource".to_owned(), |key| {
            format!("resource == Record::{}", literal(key))
        });
        let clause = if self.is_unless { "unless" } else { "when" };
        let condition = self.condition.cedar();
        format!("{effect}(principal, action, {resource}) {clause} {{ {condition} }};")
    }

    /// Returns whether the policy applies, or `None` if it cannot be evaluated.
    fn applies(&self, row: &SampleRow) -> Option<bool> {
        if self.key.is_some() && self.key != row.key {
            return Some(false);
        }
        Some(self.condition.value(row)? != self.is_unless)
    }
}

/// A row rule with its meaning.
#[derive(Debug)]
pub(super) struct SampleRule {
    policies: Vec<RowPolicy>,
    columns: BTreeSet<&'static str>,
}

impl SampleRule {
    pub(super) fn random(random: &mut SeededRandom) -> Self {
        // Two of three rules can be pushed down as a whole.
        let is_sql = !random.is_one_in(3);
        let mut policies = Vec::new();
        for _ in 0..random.below(4) {
            policies.push(RowPolicy::random(random, true, is_sql));
        }
        for _ in 0..random.below(3) {
            policies.push(RowPolicy::random(random, false, is_sql));
        }
        let mut columns = BTreeSet::new();
        for policy in &policies {
            policy.condition.collect_columns(&mut columns);
        }
        Self { policies, columns }
    }

    /// Returns the rule as a permit contains it.
    pub(super) fn row_rule(&self) -> RowRule {
        let texts: Vec<String> = self.policies.iter().map(RowPolicy::cedar).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let attribute = |column: &&'static str| {
            let kind = match *column {
                "sealed" => AttributeType::Boolean,
                "level" => AttributeType::Integer,
                _ => AttributeType::Text,
            };
            ((*column).to_owned(), kind)
        };
        RowRule {
            attributes: self
                .columns
                .iter()
                .map(attribute)
                .collect::<BTreeMap<_, _>>(),
            ..rule(&texts)
        }
    }

    /// Returns whether the rule admits `row`. A row that it cannot decide on is withheld.
    pub(super) fn admits(&self, row: &SampleRow) -> bool {
        if row.key.is_none() || self.columns.iter().any(|column| row.is_mistyped(column)) {
            return false;
        }
        let mut is_permitted = false;
        let mut is_forbidden = false;
        for policy in &self.policies {
            match policy.applies(row) {
                None => return false,
                Some(applies) if policy.is_permit => is_permitted |= applies,
                Some(applies) => is_forbidden |= applies,
            }
        }
        is_permitted && !is_forbidden
    }
}
