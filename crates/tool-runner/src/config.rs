//! Configuration of the service.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::duration;
use wardgate_store::DatabaseSettings;

use crate::Error;

/// Section `tool_runner`. Lengths of time are written like `30s` or as whole seconds.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The `tools.yaml`.
    pub catalogue: PathBuf,
    /// Values for `${NAME}` in sources, looked up before the environment. They can hold passwords, so they
    /// are never shown.
    #[serde(skip_serializing)]
    pub variables: BTreeMap<String, String>,
    /// What must outlive the process and be shared by replicas: `sqlite:PATH`, the file created when absent, or
    /// `postgres://…`. It can hold a password, so it is never shown.
    #[serde(skip_serializing)]
    pub store: String,
    /// How the store is used.
    pub database: DatabaseSettings,
    /// Where the other replicas of this service reach this one, like `https://10.1.2.3:7002`; only where there are
    /// others. A call of an MCP server that waits for its client waits on one replica; the others hand the client's
    /// answers on to it.
    pub advertise: Option<String>,
    /// Lets the database apply row rules where it can. Every row is checked again either way.
    pub pushdown: bool,
    /// Rows one call may return, unless the tool says otherwise.
    pub max_rows: usize,
    /// Bytes of JSON one call may return.
    pub max_result_bytes: usize,
    /// Rows kept of one result that is too large for an answer, where some tool reads such results.
    pub kept_rows: usize,
    /// Bytes of JSON kept of one such result.
    pub kept_bytes: usize,
    /// How long it is kept.
    #[serde(with = "duration")]
    pub kept_for: Duration,
    /// Bytes of results that tools with `cache` may keep, all together.
    pub result_cache_bytes: usize,
    /// How long one call may take, unless the tool says otherwise.
    #[serde(with = "duration")]
    pub time_limit: Duration,
    /// How often the catalogue is looked at for changes.
    #[serde(with = "duration")]
    pub reload_interval: Duration,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("catalogue", &self.catalogue)
            .field("variables", &self.variables.keys())
            .field("database", &self.database)
            .field("advertise", &self.advertise)
            .field("pushdown", &self.pushdown)
            .field("max_rows", &self.max_rows)
            .field("max_result_bytes", &self.max_result_bytes)
            .field("kept_rows", &self.kept_rows)
            .field("kept_bytes", &self.kept_bytes)
            .field("kept_for", &self.kept_for)
            .field("result_cache_bytes", &self.result_cache_bytes)
            .field("time_limit", &self.time_limit)
            .field("reload_interval", &self.reload_interval)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Refuses what the types do not.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(url) = &self.advertise else {
            return Ok(());
        };
        let is_bare = url.parse::<http::Uri>().is_ok_and(|parsed| {
            matches!(parsed.scheme_str(), Some("http" | "https"))
                && parsed.host().is_some()
                && parsed.path() == "/"
                && parsed.query().is_none()
        });
        if is_bare && !url.ends_with('/') {
            Ok(())
        } else {
            Err(Error::Advertise(url.clone()))
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            catalogue: PathBuf::from("tools.yaml"),
            variables: BTreeMap::new(),
            // There is no place that fits every machine; without one the service does not start.
            store: String::new(),
            database: DatabaseSettings::default(),
            advertise: None,
            pushdown: true,
            max_rows: 1_000,
            max_result_bytes: 1 << 20,
            kept_rows: 100_000,
            kept_bytes: 32 << 20,
            kept_for: Duration::from_mins(15),
            result_cache_bytes: 64 << 20,
            time_limit: Duration::from_secs(30),
            reload_interval: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_for_people_and_unknown_keys_are_refused() {
        let config: Config =
            serde_json::from_str(r#"{"time_limit": "500ms", "reload_interval": 5}"#).unwrap();
        assert_eq!(config.time_limit, Duration::from_millis(500));
        assert_eq!(config.reload_interval, Duration::from_secs(5));
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains(r#""time_limit":"500ms""#), "{text}");
        assert!(serde_json::from_str::<Config>(r#"{"time_limits": 5}"#).is_err());
    }

    #[test]
    fn an_advertised_address_is_scheme_host_and_port() {
        let with = |url: &str| Config {
            advertise: Some(url.to_owned()),
            ..Config::default()
        };
        assert!(with("https://10.1.2.3:7002").check().is_ok());
        assert!(Config::default().check().is_ok());
        for bad in [
            "10.1.2.3:7002",
            "https://h/",
            "https://h/path",
            "ftp://h",
            "",
            "https://h?q",
        ] {
            let told = with(bad).check().unwrap_err().to_string();
            assert!(told.contains("tool_runner.advertise"), "{bad}: {told}");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        let config: Config = serde_json::from_str(
            r#"{"variables": {"URL": "canary"}, "store": "postgres://u:canary@h/d"}"#,
        )
        .unwrap();
        assert_eq!(config.variables["URL"], "canary");
        assert!(!format!("{config:?}").contains("canary"));
        assert!(!serde_json::to_string(&config).unwrap().contains("canary"));
    }
}
