//! What an operator sets.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::duration;
use wardgate_store::DatabaseSettings;

use crate::Error;
use crate::store::{LONGEST_WRITE, WRITE_LIMIT};

/// Settings of the audit service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `sqlite:PATH`, the file created when absent, or `postgres://…`. A relative path is relative to the working
    /// directory; `wardgate` makes those of a configuration file relative to that file.
    pub store: String,
    /// Seconds after which an intent without an outcome counts as abandoned and gets the outcome
    /// `unknown`; default 600. Must exceed the longest time limit of any tool (at most 300), and the difference between the clocks
    /// of the machines.
    #[serde(default = "default_unknown_after_seconds")]
    pub unknown_after_seconds: u64,
    /// How long one write may take before the store counts as failed, unless writes were measured to be slower; default
    /// 600 ms, at most four seconds. `gateway.append_limit` is longer.
    #[serde(with = "duration", default = "default_write_limit")]
    pub write_limit: Duration,
    /// Bytes that the store may take, so that the days that are left can be told; none: of a file what its file system has
    /// left counts, and at a server nothing is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// What the transparency log over the record is called: the origin of its checkpoints. It stays as it was once
    /// checkpoints are signed. None: as they say, and at first a name made of the log's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_origin: Option<String>,
    /// How the store is used.
    #[serde(default)]
    pub database: DatabaseSettings,
}

fn default_unknown_after_seconds() -> u64 {
    600
}

fn default_write_limit() -> Duration {
    WRITE_LIMIT
}

impl Config {
    /// Default settings for `store`.
    pub fn for_store(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            unknown_after_seconds: default_unknown_after_seconds(),
            write_limit: default_write_limit(),
            capacity_bytes: None,
            log_origin: None,
            database: DatabaseSettings::default(),
        }
    }

    /// Checks what the types cannot say.
    pub fn validate(&self) -> Result<(), Error> {
        if self.write_limit.is_zero() || self.write_limit > LONGEST_WRITE {
            return Err(Error::WriteLimit {
                given: duration::show(self.write_limit),
                most: duration::show(LONGEST_WRITE),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_setting_is_refused_and_only_the_store_is_needed() {
        let config: Config = serde_json::from_str(r#"{"store":"sqlite:a"}"#).unwrap();
        assert_eq!(config, Config::for_store("sqlite:a"));
        assert!(serde_json::from_str::<Config>(r#"{"store":"sqlite:a","stroe":"b"}"#).is_err());
    }

    #[test]
    fn a_write_may_take_four_seconds_at_most() {
        let read = |limit: &str| {
            let text = format!(r#"{{"store":"sqlite:a","write_limit":"{limit}"}}"#);
            serde_json::from_str::<Config>(&text).unwrap().validate()
        };
        assert!(read("4s").is_ok());
        for wrong in ["0s", "4001ms"] {
            let error = read(wrong).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("audit.write_limit: `{wrong}` is not between 1ms and 4s")
            );
        }
    }
}
