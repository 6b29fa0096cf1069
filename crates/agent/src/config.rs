//! Configuration of the service.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Section `agent`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The `assistants.yaml`, or a directory of such files. None: there are no assistants.
    pub assistants: Option<PathBuf>,
    /// Values for `${NAME}` in providers, looked up before the environment. They can hold keys, so they are never
    /// shown.
    #[serde(skip_serializing)]
    pub variables: BTreeMap<String, String>,
    /// How often the files are looked at for changes, in seconds.
    pub reload_seconds: u64,
    /// What traces hold beyond names and counts.
    pub telemetry: Telemetry,
}

/// Section `agent.telemetry`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Puts everything that models are told and answer into traces: what people say, and what tools gave. Nothing of it
    /// is redacted further.
    pub contents: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            assistants: None,
            variables: BTreeMap::new(),
            reload_seconds: 2,
            telemetry: Telemetry::default(),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("assistants", &self.assistants)
            .field("variables", &self.variables.keys())
            .field("reload_seconds", &self.reload_seconds)
            .field("telemetry", &self.telemetry)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_never_shown_and_unknown_keys_are_refused() {
        let config: Config = serde_json::from_str(r#"{"variables": {"KEY": "canary"}}"#).unwrap();
        assert!(!format!("{config:?}").contains("canary"));
        assert!(!serde_json::to_string(&config).unwrap().contains("canary"));
        assert!(serde_json::from_str::<Config>(r#"{"assistant": "x"}"#).is_err());
    }
}
