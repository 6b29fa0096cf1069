//! Redaction of fields and rows according to their tiers.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use wardgate_domain::{ColumnClass, ColumnTier};

use crate::dropped::{DropReason, DroppedColumns};
use crate::pseudonym::Pseudonyms;
use crate::{ClassForms, ConfiguredForms, Form, PseudonymKey, Redacted, Row};

/// A summary of what redaction did to a result, without any of its values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedactionCounts {
    /// The number of fields that were changed or left out because of their tier.
    pub fields_redacted: u64,
    /// Whether a released row contains a field, not null, whose class is health information ([`ColumnClass::is_phi`]),
    /// in clear or masked.
    pub phi: bool,
    /// The columns that were left out of at least one row.
    pub dropped: DroppedColumns,
}

/// Redacts the results of one tenant. Creating one costs two HMACs, so keep it for as long as the tenant is served.
pub struct Redactor {
    pseudonyms: Pseudonyms,
}

impl Redactor {
    /// Creates a redactor for `tenant`, which is empty if the deployment has no tenants.
    pub fn new(key: &PseudonymKey, tenant: &str) -> Self {
        Self {
            pseudonyms: Pseudonyms::new(key, tenant),
        }
    }

    /// Returns `value` as `tier` permits it, in the form that `forms` has for its class, or `None` if it must be left
    /// out.
    pub fn field(
        &self,
        class: &ColumnClass,
        tier: ColumnTier,
        forms: &ConfiguredForms,
        value: Value,
    ) -> Option<Value> {
        Column::new(class, tier, forms).release(&self.pseudonyms, value)
    }

    /// Returns the rows as the tiers permit them, with the remaining columns in the same order. `classify` returns
    /// class and tier of a column name; it is called once per column if the rows share their names. `forms` are the
    /// forms of the classes.
    pub fn rows<'c>(
        &self,
        rows: impl IntoIterator<Item = Row>,
        forms: &'c ConfiguredForms,
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
                        let known = columns.get(position);
                        if !known.is_some_and(|(known, _)| Arc::ptr_eq(known, &name)) {
                            let (class, tier) = classify(&name);
                            let entry = (Arc::clone(&name), Column::new(class, tier, forms));
                            match columns.get_mut(position) {
                                Some(other) => *other = entry,
                                None => columns.push(entry),
                            }
                        }
                        let (_, column) = columns.get(position)?;
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
        column: &Column<'_>,
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
            counts
                .dropped
                .insert(name, DropReason::for_class(column.class));
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

/// How the fields of one column are redacted.
struct Column<'c> {
    class: &'c ColumnClass,
    tier: ColumnTier,
    forms: Cow<'c, ClassForms>,
}

impl<'c> Column<'c> {
    fn new(class: &'c ColumnClass, tier: ColumnTier, forms: &'c ConfiguredForms) -> Self {
        Self {
            class,
            tier,
            forms: forms.for_class(class),
        }
    }

    fn release(&self, pseudonyms: &Pseudonyms, value: Value) -> Option<Value> {
        let Self { class, tier, forms } = self;
        match tier {
            ColumnTier::Clear => Some(value),
            ColumnTier::Partial => mask(value, &|leaf| Some(leaf.apply_form(&forms.partial))),
            ColumnTier::Pseudonym => mask(value, &|leaf| {
                Some(pseudonyms.token(class, leaf.text()).into())
            }),
            ColumnTier::Generalised => mask(value, &|leaf| match leaf {
                Leaf::Scalar(_) if !forms.generalised.takes_numbers() => None,
                leaf => Some(leaf.apply_form(&forms.generalised)),
            }),
            ColumnTier::Dropped => None,
        }
    }
}

/// A value that is neither an array nor an object, as text.
enum Leaf<'v> {
    /// A string.
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

    /// Returns the value in `form`. If the form keeps numbers, a number remains a number.
    fn apply_form(&self, form: &Form) -> Value {
        // A part of one of only two values would reveal the value.
        if let Self::Scalar("true" | "false") = self {
            return Value::String(form.replacement().to_owned());
        }
        let shown = form.apply(self.text());
        match (self, shown.parse()) {
            (Self::Scalar(_), Ok(number)) if form.keeps_numbers() => Value::Number(number),
            _ => Value::String(shown),
        }
    }
}

/// Replaces every leaf of `value`. Leaves without a replacement are left out.
fn mask(value: Value, replace: &impl Fn(Leaf<'_>) -> Option<Value>) -> Option<Value> {
    match value {
        Value::Null => Some(Value::Null),
        Value::String(text) if text.is_empty() => Some(Value::String(text)),
        Value::String(text) => replace(Leaf::Text(&text)),
        Value::Bool(_) | Value::Number(_) => replace(Leaf::Scalar(&value.to_string())),
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
