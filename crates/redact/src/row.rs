//! The rows of a result.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// A row: columns with their values, in the order of the result. Rows share the column names. A row is serialised as
/// one JSON object, and its `Debug` output contains only the names of the columns.
#[derive(Clone, PartialEq, Default)]
pub struct Row(Vec<(Arc<str>, Value)>);

impl Row {
    /// Creates a row from columns in order. Names should be distinct, because they become the members of one JSON
    /// object.
    pub fn new(fields: Vec<(Arc<str>, Value)>) -> Self {
        Self(fields)
    }

    /// Returns the columns and values in order.
    pub fn fields(&self) -> &[(Arc<str>, Value)] {
        &self.0
    }

    /// Returns the columns and values in order.
    pub fn into_fields(self) -> Vec<(Arc<str>, Value)> {
        self.0
    }

    /// Returns the value of `column`, or `None` if there is no such column.
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(name, _)| &**name == column)
            .map(|(_, value)| value)
    }
}

impl FromIterator<(Arc<str>, Value)> for Row {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Value)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (&**name, value)))
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Row ")?;
        f.debug_set()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}
