//! Configuration of the service.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::duration;
use wardgate_store::DatabaseSettings;

use crate::Error;

/// The section `tool_runner`. Durations are written like `30s` or as whole seconds.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The path of the `tools.yaml`.
    pub catalogue: PathBuf,
    /// Values for `${NAME}` in sources, which take precedence over the environment. They may contain passwords, so they
    /// are never shown.
    #[serde(skip_serializing)]
    pub variables: BTreeMap<String, String>,
    /// The address of the store, which outlives the process and is shared by replicas: `sqlite:PATH`, whose file is
    /// created if it does not exist, or `postgres://…`. The address may contain a password, so it is never shown.
    #[serde(skip_serializing)]
    pub store: String,
    /// The settings of the store's database.
    pub database: DatabaseSettings,
    /// The address at which the other replicas of this service reach this one, such as `https://10.1.2.3:7002`. It is
    /// needed only if there are other replicas. A call of an MCP server that waits for its client waits on one replica,
    /// and the other replicas forward the client's answers to it.
    pub advertise: Option<String>,
    /// Whether the database applies row rules where it can. Every row is checked again in either case.
    pub pushdown: bool,
    /// The maximum number of rows that one call may return, unless the tool sets its own.
    pub max_rows: usize,
    /// The maximum size of a call's result, in bytes of JSON.
    pub max_result_bytes: usize,
    /// The maximum number of rows that are stored of a result that is too large for a response, if any tool reads such
    /// results.
    pub kept_rows: usize,
    /// The maximum size of a stored result, in bytes of JSON.
    pub kept_bytes: usize,
    /// The time for which a large result is stored.
    #[serde(with = "duration")]
    pub kept_for: Duration,
    /// The maximum total size of the cached results of tools with `cache`, in bytes.
    pub result_cache_bytes: usize,
    /// The time limit of one call, unless the tool sets its own.
    #[serde(with = "duration")]
    pub time_limit: Duration,
    /// The interval at which the catalogue is checked for changes.
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
    /// Checks the settings that the types alone do not validate.
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
            // No default location fits every machine; without one the service does not start.
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
