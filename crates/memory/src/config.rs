//! Configuration of the memory service.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_store::DatabaseSettings;

/// Settings of the memory service.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `sqlite:PATH`, whose file is created if it is absent, or `postgres://…`. The URL can contain a password, so it
    /// is never shown.
    #[serde(skip_serializing)]
    pub store: String,
    /// Settings of the database connection.
    #[serde(default)]
    pub database: DatabaseSettings,
    /// Rules for how long conversations are kept after their last change. The last rule that applies to a tenant is
    /// used; conversations without a rule are kept forever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retention: Vec<Retention>,
    /// Limits of what one owner may store.
    #[serde(default)]
    pub limits: OwnerLimits,
}

/// Limits of what one owner may store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnerLimits {
    /// Maximum number of conversations that are not erased.
    pub conversations: std::num::NonZeroU32,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        Self {
            conversations: std::num::NonZeroU32::MIN.saturating_add(9_999),
        }
    }
}

/// A rule for how long the conversations of a tenant are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// The tenant to which the rule applies, or `None` if it applies to all tenants. The empty string stands for
    /// callers without a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Number of days after the last change, at least 1.
    pub days: std::num::NonZeroU32,
}

impl Config {
    /// Creates the default configuration for `store`.
    pub fn for_store(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            database: DatabaseSettings::default(),
            retention: Vec::new(),
            limits: OwnerLimits::default(),
        }
    }

    /// Returns how long conversations of `tenant` are kept, or `None` if they are kept forever.
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

    fn parse_config(json: &str) -> Result<Config, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn only_the_store_is_needed_and_a_misspelt_setting_is_refused() {
        let config = parse_config(r#"{"store":"sqlite:a"}"#).unwrap();
        assert_eq!(config, Config::for_store("sqlite:a"));
        assert_eq!(config.kept_for("north"), None);
        assert_eq!(config.limits.conversations.get(), 10_000);
        assert!(parse_config(r#"{"store":"sqlite:a","retentoin":[]}"#).is_err());
        assert!(parse_config(r#"{"store":"sqlite:a","retention":[{"days":0}]}"#).is_err());
        assert!(parse_config(r#"{"store":"sqlite:a","limits":{"conversations":0}}"#).is_err());
    }

    #[test]
    fn of_the_rules_for_a_tenant_the_last_one_counts() {
        let config = parse_config(
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
