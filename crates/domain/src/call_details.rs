//! Details of a call that the record holds beside the leaf in the tree, sealed under the keys of the people whom the
//! call concerned.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::arguments_outline::json_type;
use crate::{ArgumentOutline, ColumnClass, ColumnTier, Digest};

/// The details of one call. They contain no value that a tool returned, except the keys of data subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDetails {
    /// The SHA-256 digest of everything about the caller that a policy can see.
    pub caller_digest: Digest,
    /// The OAuth client to which the caller's token was issued; empty if unknown.
    pub client: String,
    /// The actors of the token's claim `act` (RFC 8693), the current actor first.
    pub actors: Vec<String>,
    /// The arguments, without their values.
    pub arguments: ArgumentOutline,
    /// The result, without its values.
    pub result: ResultOutline,
    /// The number of columns that were left out because they have no class.
    pub columns_unclassified: u64,
    /// The number of columns that were left out because the permit does not show their class.
    pub columns_not_permitted: u64,
    /// The stages of the call and how long each took, in order.
    pub stages: Vec<(String, Duration)>,
    /// The trace id, 32 hexadecimal digits; empty if the call was not traced.
    pub trace_id: String,
}

/// A result without its values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultOutline {
    /// The released columns that `tools.yaml` names; at most [`ResultColumn::MOST`].
    pub columns: Vec<ResultColumn>,
    /// The data subjects whose rows were released.
    pub subjects: DataSubjects,
    /// The number of rows that were withheld because the row rule could not be evaluated for them: an attribute is
    /// missing or has another type.
    pub rows_undecided: u64,
}

/// A released column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// The name of the column.
    pub name: String,
    /// The class of the column.
    pub class: ColumnClass,
    /// The form in which the values were released.
    pub tier: ColumnTier,
    /// The JSON type of the released values; `null` if all of them are null.
    pub kind: String,
}

impl ResultColumn {
    /// Maximum number of columns in an outline.
    pub const MOST: usize = 128;

    /// Updates the type of the column with one more released value.
    pub fn observe(&mut self, value: &Value) {
        if self.kind == "null" {
            json_type(value).clone_into(&mut self.kind);
        }
    }
}

/// A person or thing that data is about, such as a patient or an account, identified by a key column or an argument of
/// a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSubject {
    /// The key, for example the code of a patient.
    pub key: String,
    /// The number of released rows about the data subject.
    pub rows: u64,
}

/// The data subjects whose rows a call released: at most 100 of them by key, and the number of rows of all others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataSubjects {
    by_key: BTreeMap<String, u64>,
    rows_of_others: u64,
}

impl DataSubjects {
    /// Maximum number of data subjects that are named by key.
    pub const MOST: usize = 100;

    /// Maximum length of a key, in bytes.
    pub const LONGEST_KEY: usize = 512;

    /// Adds `rows` rows of the data subject with the key `value`. A value that is neither a string nor a number is not
    /// a key and is ignored.
    pub fn add(&mut self, value: &Value, rows: u64) {
        match value {
            Value::String(key) => self.add_key(key, rows),
            Value::Number(key) => self.add_key(&key.to_string(), rows),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }

    fn add_key(&mut self, key: &str, rows: u64) {
        if key.is_empty() {
            return;
        }
        if let Some(count) = self.by_key.get_mut(key) {
            *count += rows;
        } else if self.by_key.len() < Self::MOST && key.len() <= Self::LONGEST_KEY {
            self.by_key.insert(key.to_owned(), rows);
        } else {
            self.rows_of_others += rows;
        }
    }

    /// Adds rows of data subjects that are not named.
    pub(crate) fn add_others(&mut self, rows: u64) {
        self.rows_of_others += rows;
    }

    /// Returns the named data subjects, sorted by key.
    pub fn named_subjects(&self) -> impl ExactSizeIterator<Item = DataSubject> {
        self.by_key.iter().map(|(key, rows)| DataSubject {
            key: key.clone(),
            rows: *rows,
        })
    }

    /// Returns the number of rows of data subjects that are not named.
    pub fn rows_of_others(&self) -> u64 {
        self.rows_of_others
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hundred_data_subjects_are_named_and_the_rows_of_others_are_counted() {
        let mut subjects = DataSubjects::default();
        for number in 0..DataSubjects::MOST + 5 {
            subjects.add(&json!(number), 2);
            subjects.add(&json!(0), 1);
        }
        assert_eq!(subjects.named_subjects().len(), DataSubjects::MOST);
        assert_eq!(subjects.rows_of_others(), 10);
        let first = subjects.named_subjects().next().unwrap();
        assert_eq!((first.key.as_str(), first.rows), ("0", 107));
    }

    #[test]
    fn what_is_no_key_names_nobody() {
        let mut subjects = DataSubjects::default();
        for value in [json!(null), json!(true), json!([]), json!({}), json!("")] {
            subjects.add(&value, 1);
        }
        assert_eq!(subjects, DataSubjects::default());
        subjects.add(&json!("x".repeat(DataSubjects::LONGEST_KEY + 1)), 3);
        assert_eq!(
            (subjects.named_subjects().len(), subjects.rows_of_others()),
            (0, 3)
        );
    }
}
