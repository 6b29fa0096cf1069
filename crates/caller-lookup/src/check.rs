//! Validation of the configuration, before anything is opened.

use std::ops::RangeInclusive;

use crate::Error;
use crate::config::LookupConfig;
use crate::query::Query;
use crate::table;

impl LookupConfig {
    /// Checks the constraints that the types alone do not express, and the statement. Opens no connection and reads no
    /// file.
    pub fn validate(&self) -> Result<(), Error> {
        if self.table_file.is_some() == self.query.is_some() {
            return Err(not_one_source());
        }
        check_range("ttl", self.ttl.as_secs(), 1..=3600)?;
        check_range("entries", self.entries as u64, 1..=1_000_000)?;
        if let Some(query) = &self.query {
            check_range("query.timeout_ms", query.timeout_ms, 50..=800)?;
            check_range("query.connections", query.connections as u64, 1..=64)?;
            Query::open(query)?;
        }
        Ok(())
    }

    /// Reads and checks the table, if there is one.
    pub fn check_table(&self) -> Result<(), Error> {
        self.table_file.as_deref().map_or(Ok(()), table::check)
    }
}

fn check_range(
    setting: &'static str,
    value: u64,
    allowed: RangeInclusive<u64>,
) -> Result<(), Error> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let (least, most) = allowed.into_inner();
    let problem = format!("is {value}; it must be {least} to {most}");
    Err(Error::Setting { setting, problem })
}

pub(crate) fn not_one_source() -> Error {
    Error::Setting {
        setting: "table_file",
        problem: "and caller_lookup.query: set exactly one of the two".to_owned(),
    }
}
