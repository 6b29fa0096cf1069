//! Settings of the policy service.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_caller_lookup::LookupConfig;
use wardgate_domain::{TimeZone, whole_seconds};
use wardgate_edge::AuthConfig;
use wardgate_policy_bundle::{BundleConfig, BundleConfigError};

use crate::Error;

/// The settings of the policy service. Durations are whole seconds in a configuration file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The directory of `*.cedar` and `*.cedarschema` files. Exactly one of `policies` and `bundle` must be set.
    #[serde(default)]
    pub policies: Option<PathBuf>,
    /// The source of signed bundles of policies.
    #[serde(default)]
    pub bundle: Option<BundleConfig>,
    /// The issuers whose tokens are accepted, the same as those of the gateway.
    #[serde(default)]
    pub auth: AuthConfig,
    /// The public URL of the gateway. It is required if tokens name a resource below it as their audience (RFC 8707).
    #[serde(default)]
    pub public_url: Option<String>,
    /// The lifetime of a permit, 1 to 300 s; default 30 s. It bounds how long a permit can outlive the rule that
    /// allowed it, for clients that do not watch the policy version.
    #[serde(default = "default_permit_ttl", with = "whole_seconds")]
    pub permit_ttl: Duration,
    /// The time for which a request for an approval that a policy requires (`@approval`) stays open, and for which the
    /// approval is then valid until it is used, 1 to 86400 s; default 900 s.
    #[serde(default = "default_approval_ttl", with = "whole_seconds")]
    pub approval_ttl: Duration,
    /// The IANA name of the time zone of `context.local`; default `UTC`.
    #[serde(default = "default_time_zone")]
    pub time_zone: String,
    /// The interval between two checks of the directories for changes, 1 to 3600 s; default 1 s.
    #[serde(default = "default_reload_interval", with = "whole_seconds")]
    pub reload_interval: Duration,
    /// A candidate policy set, whose decisions are compared with those of the policies in force without changing any
    /// answer. If it is missing, there is no candidate.
    #[serde(default)]
    pub shadow: Option<ShadowConfig>,
    /// The source of roles and attributes of callers. If it is missing, they come from the tokens alone.
    #[serde(default)]
    pub caller_lookup: Option<LookupConfig>,
}

/// The settings of a candidate policy set.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowConfig {
    /// The directory of `*.cedar` and `*.cedarschema` files. Exactly one of `policies` and `bundle` must be set.
    #[serde(default)]
    pub policies: Option<PathBuf>,
    /// The source of signed bundles of candidate policies.
    #[serde(default)]
    pub bundle: Option<BundleConfig>,
}

impl ShadowConfig {
    /// Checks the settings. `in_force` has those of the bundles of the policies in force.
    fn validate(&self, in_force: Option<&BundleConfig>) -> Result<(), Error> {
        if self.policies.is_some() == self.bundle.is_some() {
            return Err(Error::CandidateOrigin);
        }
        let Some(bundle) = &self.bundle else {
            return Ok(());
        };
        bundle.validate().map_err(Error::CandidateSettings)?;
        let states = (
            bundle.state_file.as_deref(),
            in_force.and_then(|it| it.state_file.as_deref()),
        );
        if let (Some(candidate), Some(in_force)) = states
            && are_same_path(candidate, in_force)
        {
            let problem = "must differ from policy.bundle.state_file, because a candidate in the same file could be put in force \
                           after a restart";
            return Err(Error::CandidateSettings(BundleConfigError::Value {
                key: "state_file",
                problem: problem.to_owned(),
            }));
        }
        Ok(())
    }
}

/// Returns whether two paths are of one file. A directory that does not exist yet is compared as it is written.
fn are_same_path(one: &Path, other: &Path) -> bool {
    let resolve = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let directory = path.parent().and_then(|it| it.canonicalize().ok());
        match (directory, path.file_name()) {
            (Some(directory), Some(name)) => directory.join(name),
            _ => path,
        }
    };
    resolve(one) == resolve(other)
}

impl Config {
    /// Creates a configuration with defaults, for the policies in `policies` and callers with tokens of the issuers in
    /// `auth`.
    pub fn new(policies: impl Into<PathBuf>, auth: AuthConfig) -> Self {
        Self {
            policies: Some(policies.into()),
            bundle: None,
            auth,
            public_url: None,
            permit_ttl: default_permit_ttl(),
            approval_ttl: default_approval_ttl(),
            time_zone: default_time_zone(),
            reload_interval: default_reload_interval(),
            shadow: None,
            caller_lookup: None,
        }
    }

    /// Checks the values that types alone cannot check. The issuers are checked when their keys are read.
    pub fn validate(&self) -> Result<(), Error> {
        for (setting, value, longest) in [
            ("permit_ttl", self.permit_ttl, 300),
            ("approval_ttl", self.approval_ttl, 86_400),
            ("reload_interval", self.reload_interval, 3600),
        ] {
            if !(1..=longest).contains(&value.as_secs()) {
                return Err(Error::Setting { setting, longest });
            }
        }
        if self.policies.is_some() == self.bundle.is_some() {
            return Err(Error::Origin);
        }
        if let Some(bundle) = &self.bundle {
            bundle.validate()?;
        }
        if let Some(shadow) = &self.shadow {
            shadow.validate(self.bundle.as_ref())?;
        }
        if let Some(lookup) = &self.caller_lookup {
            lookup.validate()?;
        }
        self.parse_time_zone().map(drop)
    }

    /// Reads the table of `caller_lookup`, if there is one, and checks its contents.
    pub fn check_table(&self) -> Result<(), Error> {
        match &self.caller_lookup {
            Some(lookup) => Ok(lookup.check_table()?),
            None => Ok(()),
        }
    }

    pub(crate) fn parse_time_zone(&self) -> Result<TimeZone, Error> {
        Ok(self.time_zone.parse()?)
    }
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

fn default_permit_ttl() -> Duration {
    Duration::from_secs(30)
}

fn default_approval_ttl() -> Duration {
    Duration::from_mins(15)
}

fn default_reload_interval() -> Duration {
    Duration::from_secs(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_must_be_named() {
        let config: Config = serde_json::from_str(r#"{"policies": "p"}"#).unwrap();
        assert_eq!(
            (
                config.permit_ttl.as_secs(),
                config.reload_interval.as_secs()
            ),
            (30, 1)
        );
        config.validate().unwrap();
    }

    #[test]
    fn a_candidate_has_one_place_and_errors_name_its_settings() {
        let error = |shadow: &str| {
            let config = format!(r#"{{"policies": "p", "shadow": {shadow}}}"#);
            let config: Config = serde_json::from_str(&config).unwrap();
            config.validate().map_err(|error| error.to_string())
        };
        let bundle =
            r#""bundle": {"source": "b", "public_key_files": ["k"], "minimum_version": 2}"#;
        assert_eq!(error(r#"{"policies": "c"}"#), Ok(()));
        assert_eq!(error(&format!("{{{bundle}}}")), Ok(()));
        for shadow in ["{}".to_owned(), format!(r#"{{"policies": "c", {bundle}}}"#)] {
            let error = error(&shadow).unwrap_err();
            assert!(error.contains("policy.shadow.policies"), "{error}");
        }
        let without_keys = bundle.replace(r#""k""#, "");
        let error = error(&format!("{{{without_keys}}}")).unwrap_err();
        assert!(
            error.starts_with("policy.shadow.bundle.public_key_files "),
            "{error}"
        );
    }

    #[test]
    fn a_candidate_does_not_share_the_state_file_of_the_policies_in_force() {
        let error = |candidate: &str| {
            let bundle = |state: &str| {
                format!(r#"{{"source": "b", "public_key_files": ["k"], "state_file": "{state}"}}"#)
            };
            let (in_force, candidate) = (bundle("data/policy.state"), bundle(candidate));
            let config =
                format!(r#"{{"bundle": {in_force}, "shadow": {{"bundle": {candidate}}}}}"#);
            let config: Config = serde_json::from_str(&config).unwrap();
            config.validate().map_err(|error| error.to_string())
        };
        for other in [
            "data/candidate.state",
            "data/policy.bundle",
            "data/policy",
            "other/policy.state",
        ] {
            assert_eq!(error(other), Ok(()), "{other}");
        }
        for same in ["data/policy.state", "./data/policy.state"] {
            let error = error(same).unwrap_err();
            assert!(
                error.starts_with("policy.shadow.bundle.state_file "),
                "{same}: {error}"
            );
        }
    }

    #[test]
    fn an_unknown_setting_and_an_impossible_one_are_refused() {
        assert!(serde_json::from_str::<Config>(r#"{"policies": "p", "permit_tll": 3}"#).is_err());
        for (setting, value) in [("permit_ttl", "0"), ("time_zone", "\"Europe/Wien\"")] {
            let config = format!(r#"{{"policies": "p", "{setting}": {value}}}"#);
            let config: Config = serde_json::from_str(&config).unwrap();
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(setting), "{error}");
        }
    }
}
