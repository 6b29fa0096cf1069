//! What an operator sets.

use serde::{Deserialize, Serialize};
use wardgate_store::DatabaseSettings;

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
    /// Bytes that the store may take, so that the days that are left can be told; none: of a file what its file system has
    /// left counts, and at a server nothing is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// How the store is used.
    #[serde(default)]
    pub database: DatabaseSettings,
}

fn default_unknown_after_seconds() -> u64 {
    600
}

impl Config {
    /// Default settings for `store`.
    pub fn for_store(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            unknown_after_seconds: default_unknown_after_seconds(),
            capacity_bytes: None,
            database: DatabaseSettings::default(),
        }
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
}
