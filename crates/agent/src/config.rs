//! Configuration of the agent service.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The configuration section `agent`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Path of `assistants.yaml` or of a directory of such files. Without it, there are no assistants.
    pub assistants: Option<PathBuf>,
    /// Values for `${NAME}` in providers, which take precedence over environment variables. They can contain keys and are
    /// therefore never shown.
    #[serde(skip_serializing)]
    pub variables: BTreeMap<String, String>,
    /// Interval between two checks of the files for changes, in seconds.
    pub reload_seconds: u64,
    /// Content of traces beyond names and counts.
    pub telemetry: Telemetry,
}

/// The configuration section `agent.telemetry`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Whether traces contain all input and output of models, including user messages and tool results. This content is not
    /// redacted any further.
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
