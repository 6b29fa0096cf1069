//! Applies tiers to fields and rows.

use std::sync::Arc;

use serde_json::Value;
use wardgate_domain::{ColumnClass, ColumnTier};

use crate::dropped::{DropReason, DroppedColumns};
use crate::kind::Kind;
use crate::pseudonym::Pseudonyms;
use crate::{PseudonymKey, Redacted, Row};

/// What redaction did to a result, without any of its values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedactionCounts {
    /// Fields that were changed or left out because of their tier.
    pub fields_redacted: u64,
    /// A released row holds a field, not null, whose class is health information
    /// ([`ColumnClass::is_phi`]), in clear or masked.
    pub phi: bool,
    /// Columns that were left out of one row at least.
    pub dropped: DroppedColumns,
}

/// Redacts for one tenant. Making one costs two HMACs; keep it for as long as the tenant is served.
pub struct Redactor {
    pseudonyms: Pseudonyms,
}

impl Redactor {
    /// For `tenant`, which is empty where a deployment has only one.
    pub fn new(key: &PseudonymKey, tenant: &str) -> Self {
        Self {
            pseudonyms: Pseudonyms::new(key, tenant),
        }
    }

    /// `value` as `tier` lets it leave; `None` when it must not.
    pub fn field(&self, class: &ColumnClass, tier: ColumnTier, value: Value) -> Option<Value> {
        Column {
            class,
            tier,
            kind: Kind::of(class),
        }
        .release(&self.pseudonyms, value)
    }

    /// Rows as the tiers let them leave, their remaining columns in the same order. `classify` gives class
    /// and tier of a column name; it is asked once per column where rows share the names.
    pub fn rows<'c>(
        &self,
        rows: impl IntoIterator<Item = Row>,
        classify: impl Fn(&str) -> (&'c ColumnClass, ColumnTier),
    ) -> (Redacted<Vec<Row>>, RedactionCounts) {
        let mut counts = RedactionCounts::default();
        let mut columns: Vec<(Arc<str>, Column<'c>)> = Vec::new();
        let mut released = Vec::new();
        for row in rows {
            let fields = row.into_fields().into_iter().enumerate();
            released.push(Row::new(
                fields
                    .filter_map(|(position, (name, value))| {
                        let column = match columns.get(position) {
                            Some((known, column)) if Arc::ptr_eq(known, &name) => *column,
                            known => {
                                let column = Column::of(classify(&name));
                                let entry = (Arc::clone(&name), column);
                                match known {
                                    Some(_) => columns[position] = entry,
                                    None => columns.push(entry),
                                }
                                column
                            }
                        };
                        self.count_and_release(column, &name, value, &mut counts)
                            .map(|value| (name, value))
                    })
                    .collect(),
            ));
        }
        (Redacted::new(released), counts)
    }

    fn count_and_release(
        &self,
        column: Column<'_>,
        name: &Arc<str>,
        value: Value,
        counts: &mut RedactionCounts,
    ) -> Option<Value> {
        let is_null = value.is_null();
        let released = column.release(&self.pseudonyms, value);
        if released.is_none() || !(is_null || column.tier == ColumnTier::Clear) {
            counts.fields_redacted += 1;
        }
        if released.is_none() {
            counts.dropped.insert(name, DropReason::of(column.class));
        }
        counts.phi |= !is_null && released.is_some() && column.class.is_phi();
        released
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}

/// What happens to the fields of one column.
#[derive(Clone, Copy)]
struct Column<'c> {
    class: &'c ColumnClass,
    tier: ColumnTier,
    kind: Kind,
}

impl<'c> Column<'c> {
    fn of((class, tier): (&'c ColumnClass, ColumnTier)) -> Self {
        Self {
            class,
            tier,
            kind: Kind::of(class),
        }
    }

    fn release(self, pseudonyms: &Pseudonyms, value: Value) -> Option<Value> {
        let Self { class, tier, kind } = self;
        match tier {
            ColumnTier::Clear => Some(value),
            ColumnTier::Partial => mask(value, &|leaf| Some(kind.partial(leaf.text()))),
            ColumnTier::Pseudonym => {
                mask(value, &|leaf| Some(pseudonyms.token(class, leaf.text())))
            }
            ColumnTier::Generalised => mask(value, &|leaf| match leaf {
                Leaf::Scalar(_) if !kind.generalises_numbers() => None,
                Leaf::Text(text) | Leaf::Scalar(text) => Some(kind.generalised(text)),
            }),
            ColumnTier::Dropped => None,
        }
    }
}

/// A value without parts, as text.
enum Leaf<'v> {
    /// A text.
    Text(&'v str),
    /// A number or a boolean.
    Scalar(&'v str),
}

impl<'v> Leaf<'v> {
    fn text(&self) -> &'v str {
        match self {
            Self::Text(text) | Self::Scalar(text) => text,
        }
    }
}

/// `value` with every leaf in it replaced; leaves without a replacement are left out.
fn mask(value: Value, replace: &impl Fn(Leaf<'_>) -> Option<String>) -> Option<Value> {
    match value {
        Value::Null => Some(Value::Null),
        Value::String(text) if text.is_empty() => Some(Value::String(text)),
        Value::String(text) => replace(Leaf::Text(&text)).map(Value::String),
        Value::Bool(_) | Value::Number(_) => {
            replace(Leaf::Scalar(&value.to_string())).map(Value::String)
        }
        Value::Array(items) => Some(
            items
                .into_iter()
                .filter_map(|item| mask(item, replace))
                .collect(),
        ),
        Value::Object(members) => Some(
            members
                .into_iter()
                .filter_map(|(name, member)| Some((name, mask(member, replace)?)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests;
