//! What the record holds of a call beside its leaf in the tree, sealed under the keys of those whom the call concerned.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::arguments_outline::json_type;
use crate::{ArgumentOutline, ColumnClass, ColumnTier, Digest};

/// The details of one call. No value that a tool returned stands in it, but the keys of data subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDetails {
    /// SHA-256 over everything that a policy can see of the caller.
    pub caller_digest: Digest,
    /// The OAuth client that the caller's token was issued to; empty: not known.
    pub client: String,
    /// Who acts for the caller, by the claim `act` (RFC 8693): the nearest first.
    pub actors: Vec<String>,
    /// The arguments, without their values.
    pub arguments: ArgumentOutline,
    /// The result, without its values.
    pub result: ResultOutline,
    /// Columns that were left out because they have no class.
    pub columns_unclassified: u64,
    /// Columns that were left out because the permit does not show their class.
    pub columns_not_permitted: u64,
    /// Where the time went, in order.
    pub stages: Vec<(String, Duration)>,
    /// The trace, 32 hexadecimal digits; empty: the call was not traced.
    pub trace_id: String,
}

/// A result without its values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultOutline {
    /// The released columns that `tools.yaml` names; at most 128.
    pub columns: Vec<ResultColumn>,
    /// Whose rows were released.
    pub subjects: DataSubjects,
    /// Rows that were withheld because the row rule could not be decided on them: they lack an attribute, or have another type.
    pub rows_undecided: u64,
}

/// A released column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: ColumnClass,
    /// How its values were released.
    pub tier: ColumnTier,
    /// The type of its released values, in the words of JSON; `null` where all are.
    pub kind: String,
}

impl ResultColumn {
    /// The most columns that are outlined.
    pub const MOST: usize = 128;

    /// Takes one more released value into account.
    pub fn observe(&mut self, value: &Value) {
        if self.kind == "null" {
            json_type(value).clone_into(&mut self.kind);
        }
    }
}

/// Somebody whom data is about, by a tool's key column or argument: a patient, an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSubject {
    /// The key, for example a patient's code.
    pub key: String,
    /// Released rows about them.
    pub rows: u64,
}

/// Whose rows a call released: at most 100 by their keys, and how many rows there are of others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataSubjects {
    by_key: BTreeMap<String, u64>,
    rows_of_others: u64,
}

impl DataSubjects {
    /// The most that a call names.
    pub const MOST: usize = 100;

    /// The longest key, in bytes.
    pub const LONGEST_KEY: usize = 512;

    /// Adds `rows` of the data subject with the key `value`. What is neither a text nor a number is no key.
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
    pub fn add_others(&mut self, rows: u64) {
        self.rows_of_others += rows;
    }

    /// Those that are named, by key.
    pub fn named(&self) -> impl ExactSizeIterator<Item = DataSubject> {
        self.by_key.iter().map(|(key, rows)| DataSubject {
            key: key.clone(),
            rows: *rows,
        })
    }

    /// Rows of data subjects beyond those that are named.
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
        assert_eq!(subjects.named().len(), DataSubjects::MOST);
        assert_eq!(subjects.rows_of_others(), 10);
        let first = subjects.named().next().unwrap();
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
        assert_eq!((subjects.named().len(), subjects.rows_of_others()), (0, 3));
    }
}
