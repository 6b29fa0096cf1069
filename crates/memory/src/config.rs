//! What an operator sets.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_store::DatabaseSettings;

/// Settings of the memory service.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `sqlite:PATH`, the file created when absent, or `postgres://…`. It can hold a password, so it is never
    /// shown.
    #[serde(skip_serializing)]
    pub store: String,
    /// How the store is used.
    #[serde(default)]
    pub database: DatabaseSettings,
    /// How long conversations are kept after they last changed. Of the rules for a tenant the last one counts;
    /// without one they are kept for ever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retention: Vec<Retention>,
    /// How much one owner may store.
    #[serde(default)]
    pub limits: OwnerLimits,
}

/// How much one owner may store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnerLimits {
    /// Conversations that are not erased.
    pub conversations: std::num::NonZeroU32,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        Self {
            conversations: std::num::NonZeroU32::MIN.saturating_add(9_999),
        }
    }
}

/// How long the conversations of a tenant are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Whose; none: everyone's. An empty text stands for callers without a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Days after the last change, at least 1.
    pub days: std::num::NonZeroU32,
}

impl Config {
    /// Default settings for `store`.
    pub fn for_store(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            database: DatabaseSettings::default(),
            retention: Vec::new(),
            limits: OwnerLimits::default(),
        }
    }

    /// How long conversations of `tenant` are kept; none: for ever.
    pub(crate) fn kept_for(&self, tenant: &str) -> Option<Duration> {
        let concerns = |rule: &&Retention| rule.tenant.as_deref().is_none_or(|of| of == tenant);
        let rule = self.retention.iter().rfind(concerns)?;
        Some(Duration::from_hours(24) * rule.days.get())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("database", &self.database)
            .field("retention", &self.retention)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Config, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn only_the_store_is_needed_and_a_misspelt_setting_is_refused() {
        let config = read(r#"{"store":"sqlite:a"}"#).unwrap();
        assert_eq!(config, Config::for_store("sqlite:a"));
        assert_eq!(config.kept_for("north"), None);
        assert_eq!(config.limits.conversations.get(), 10_000);
        assert!(read(r#"{"store":"sqlite:a","retentoin":[]}"#).is_err());
        assert!(read(r#"{"store":"sqlite:a","retention":[{"days":0}]}"#).is_err());
        assert!(read(r#"{"store":"sqlite:a","limits":{"conversations":0}}"#).is_err());
    }

    #[test]
    fn of_the_rules_for_a_tenant_the_last_one_counts() {
        let config = read(
            r#"{"store":"sqlite:a","retention":[{"tenant":"north","days":3},{"days":30},{"tenant":"","days":7}]}"#,
        );
        let config = config.unwrap();
        let days = |tenant| config.kept_for(tenant).unwrap().as_secs() / 86_400;
        assert_eq!((days("north"), days("south"), days("")), (30, 30, 7));
    }

    #[test]
    fn a_printed_configuration_shows_no_password() {
        let config = Config::for_store("postgres://u:canary@h/d");
        let json = serde_json::to_string(&config).unwrap();
        assert!(!format!("{config:?} {json}").contains("canary"));
    }
}
