//! Random rows with hostile values, and the SQL that stores them.

use std::collections::BTreeMap;

use wardgate_testkit::{SeededRandom, TestDatabase};

/// The table of the rows. `code` is the key of a row in policies.
pub(super) const TABLE: &str = "
    CREATE TABLE people (
        id INTEGER PRIMARY KEY, code TEXT, doctor TEXT, ward TEXT, amount TEXT,
        note TEXT, born DATE, sealed BOOLEAN, level BIGINT
    )";

/// The columns with texts, and the values that occur in rows and in conditions. The first ones, [`PUSHED_COLUMNS`] of
/// them, can be pushed down.
pub(super) static TEXT_COLUMNS: [(&str, &[&str]); 5] = [
    ("doctor", &TEXTS),
    ("ward", &TEXTS),
    (
        "amount",
        &[
            "1.5",
            "1.50",
            "01.5",
            "-0",
            "0",
            "1e3",
            "12345678901234567890.0012300",
        ],
    ),
    ("note", &TEXTS),
    // The database has a type for dates, and a condition compares their text.
    ("born", &["2026-11-28", "1999-12-31", "2000-02-29"]),
];

/// Number of columns with texts that can be pushed down.
pub(super) const PUSHED_COLUMNS: usize = 3;

/// Texts that databases, collations and careless quoting confuse.
const TEXTS: [&str; 29] = [
    "d1",
    "D1",
    "d1 ",
    " d1",
    "d2",
    "d'1",
    "d''1",
    "d\"1",
    "d\\1",
    "d\\",
    "",
    " ",
    "é",
    "e\u{301}",
    "e",
    "ß",
    "ss",
    "İ",
    "😀",
    "%",
    "_",
    "*",
    "?",
    "[d1]",
    "!",
    "1",
    "NULL",
    "x' OR '1'='1",
    "'); DROP TABLE people; --\n\t",
];

/// Values of the column `level`.
pub(super) const LEVELS: [i64; 9] = [
    -1,
    0,
    1,
    2,
    3,
    9_007_199_254_740_992,
    9_007_199_254_740_993,
    i64::MAX,
    i64::MIN,
];

/// Keys of rows.
pub(super) const KEYS: [&str; 4] = ["k1", "K1", "k'1", ""];

/// A value of a column whose type the policies declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredValue<T> {
    Null,
    Typed(T),
    /// A value of another type, as SQL.
    Mistyped(&'static str),
}

/// A row. Texts that are absent are NULL.
#[derive(Debug)]
pub(super) struct SampleRow {
    pub(super) id: i64,
    pub(super) key: Option<&'static str>,
    pub(super) texts: BTreeMap<&'static str, &'static str>,
    pub(super) sealed: StoredValue<bool>,
    pub(super) level: StoredValue<i64>,
}

impl SampleRow {
    pub(super) fn random(random: &mut SeededRandom, id: i64, database: &TestDatabase) -> Self {
        let mut texts = BTreeMap::new();
        for (name, values) in TEXT_COLUMNS {
            if !random.is_one_in(4) {
                texts.insert(name, random.choose(values));
            }
        }
        let level = random.choose(&LEVELS);
        let truth = random.is_one_in(2);
        // Only SQLite stores any value in any column, and MySQL any small number in a BOOLEAN.
        let (levels, truths): (&[&str], &[&str]) = match database {
            TestDatabase::Sqlite { .. } => (&["'abc'", "1.5", "'1x'"], &["2", "'yes'"]),
            TestDatabase::Mysql { .. } => (&[], &["2"]),
            TestDatabase::Postgres { .. } => (&[], &[]),
        };
        Self {
            id,
            key: (!random.is_one_in(12)).then(|| random.choose(&KEYS)),
            texts,
            sealed: random_stored_value(random, truth, truths),
            level: random_stored_value(random, level, levels),
        }
    }

    /// Returns the row as a list of SQL values.
    pub(super) fn sql(&self, database: &TestDatabase) -> String {
        let is_mysql = matches!(database, TestDatabase::Mysql { .. });
        let quoted = |text: Option<&&str>| {
            text.map_or("NULL".to_owned(), |text| {
                let text = text.replace('\'', "''");
                // The session of the test, unlike those of Wardgate, has backslash escapes.
                let text = if is_mysql {
                    text.replace('\\', "\\\\")
                } else {
                    text
                };
                format!("'{text}'")
            })
        };
        let mut values = vec![self.id.to_string(), quoted(self.key.as_ref())];
        values.extend(
            TEXT_COLUMNS
                .iter()
                .map(|(name, _)| quoted(self.texts.get(name))),
        );
        values.push(match self.sealed {
            StoredValue::Null => "NULL".to_owned(),
            StoredValue::Typed(true) => "TRUE".to_owned(),
            StoredValue::Typed(false) => "FALSE".to_owned(),
            StoredValue::Mistyped(sql) => sql.to_owned(),
        });
        values.push(match self.level {
            StoredValue::Null => "NULL".to_owned(),
            StoredValue::Typed(level) => level.to_string(),
            StoredValue::Mistyped(sql) => sql.to_owned(),
        });
        format!("({})", values.join(", "))
    }

    /// Returns whether the column has a value of another type than the policies declare.
    pub(super) fn is_mistyped(&self, column: &str) -> bool {
        match column {
            "sealed" => matches!(self.sealed, StoredValue::Mistyped(_)),
            "level" => matches!(self.level, StoredValue::Mistyped(_)),
            _ => false,
        }
    }
}

fn random_stored_value<T>(
    random: &mut SeededRandom,
    value: T,
    mistyped: &[&'static str],
) -> StoredValue<T> {
    if random.is_one_in(5) {
        return StoredValue::Null;
    }
    if !mistyped.is_empty() && random.is_one_in(10) {
        return StoredValue::Mistyped(random.choose(mistyped));
    }
    StoredValue::Typed(value)
}
