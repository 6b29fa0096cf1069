//! Configuration of the audit service.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_audit_export::ExportSettings;
use wardgate_domain::{Digest, duration};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{TrustPolicy, VerifierKey};

use crate::Error;
use crate::anomaly::AnomalySettings;
use crate::growth::StoreRoom;
use crate::second_copy::check_marker;
use crate::store::{LONGEST_WRITE, WRITE_LIMIT};

/// Settings of the audit service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address of the store: `sqlite:PATH`, whose file is created if it does not exist, or `postgres://…`. A relative path is
    /// relative to the working directory; `wardgate` makes the paths of a configuration file relative to that file.
    pub store: String,
    /// Seconds after which an intent without an outcome counts as abandoned and gets the outcome `unknown`; default 600. It
    /// must exceed the longest time limit of any tool (at most 300), and the difference between the clocks of the machines.
    #[serde(default = "default_unknown_after_seconds")]
    pub unknown_after_seconds: u64,
    /// Maximum time that one write may take before the store counts as failed, unless writes were measured to be slower;
    /// default 600 ms, at most four seconds. `gateway.append_limit` must be longer.
    #[serde(with = "duration", default = "default_write_limit")]
    pub write_limit: Duration,
    /// Maximum size of the store in bytes, from which the remaining days are calculated. With `None`, only the free space of
    /// the file systems of a SQLite file and of the second copy is known; that of a database server is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// A directory on another disk to which every record is copied before it is acknowledged. With `None`, there is no second
    /// copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_copy_dir: Option<PathBuf>,
    /// The origin of the checkpoints, which is the name of the transparency log. It cannot change once a checkpoint is signed.
    /// With `None`, the origin of the newest checkpoint is used, or at first a name that is derived from the log's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_origin: Option<String>,
    /// The public key that verifies the checkpoints signed before the log's key was replaced. It is needed until a checkpoint
    /// is signed with the new key. With `None`, the newest checkpoint must be signed with the configured key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_log_key: Option<String>,
    /// The check value, in hexadecimal, of the previous key for the digests of arguments and results, if that key was replaced.
    /// It is needed for one start. With `None`, the digests in the store must have been made with the configured key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_mac_key: Option<String>,
    /// The witnesses that cosign the checkpoints. With `None`, checkpoints are not cosigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnesses: Option<WitnessSettings>,
    /// The exports of records to security tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ExportSettings>,
    /// The settings of anomaly detection. With `None`, anomalies are not detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomalies: Option<AnomalySettings>,
    /// Minimum number of days for which records are kept; default 2,192, which is six years (45 CFR 164.316(b)(2)). Older
    /// records are removed only when an operator applies retention.
    #[serde(default = "default_retention_days")]
    pub retention_days: u32,
    /// Settings of the database connections.
    #[serde(default)]
    pub database: DatabaseSettings,
}

/// Settings of the witnesses that cosign checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WitnessSettings {
    /// A file with a trust policy (c2sp.org/tlog-policy): the witnesses with their URLs, and the required quorum.
    pub policy_file: PathBuf,
    /// Whether witnesses may have addresses outside the public internet; default false.
    #[serde(default)]
    pub private_addresses: bool,
}

impl WitnessSettings {
    /// Reads the trust policy from its file.
    pub fn read_policy(&self) -> Result<TrustPolicy, Error> {
        let text = fs::read_to_string(&self.policy_file).map_err(|error| self.unfit(&error))?;
        text.parse()
            .map_err(|error: wardgate_transparency::Error| self.unfit(&error))
    }

    pub(crate) fn unfit(&self, problem: &dyn std::error::Error) -> Error {
        Error::WitnessPolicy {
            path: self.policy_file.display().to_string(),
            problem: problem.to_string(),
        }
    }
}

fn default_unknown_after_seconds() -> u64 {
    600
}

fn default_retention_days() -> u32 {
    2_192
}

fn default_write_limit() -> Duration {
    WRITE_LIMIT
}

impl Config {
    /// Creates the default settings for `store`.
    pub fn for_store(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            unknown_after_seconds: default_unknown_after_seconds(),
            write_limit: default_write_limit(),
            capacity_bytes: None,
            second_copy_dir: None,
            log_origin: None,
            former_log_key: None,
            former_mac_key: None,
            witnesses: None,
            exports: Vec::new(),
            anomalies: None,
            retention_days: default_retention_days(),
            database: DatabaseSettings::default(),
        }
    }

    /// Returns the limits on the size of the audit log besides the disk of its file.
    pub fn room(&self) -> StoreRoom {
        StoreRoom {
            capacity: self.capacity_bytes,
            second_copy: self.second_copy_dir.clone(),
        }
    }

    /// Returns the key that verifies the checkpoints signed before the log's key was replaced.
    pub(crate) fn former_log_key(&self) -> Result<Option<VerifierKey>, Error> {
        let key = self.former_log_key.as_deref().map(str::parse);
        key.transpose().map_err(Error::FormerLogKey)
    }

    /// Returns the check value of the key for digests before it was replaced.
    pub(crate) fn former_mac_key(&self) -> Result<Option<Digest>, Error> {
        let value = self.former_mac_key.as_deref().map(str::parse);
        value.transpose().map_err(|_| Error::FormerMacKey)
    }

    /// Checks the values that the types do not restrict.
    pub fn validate(&self) -> Result<(), Error> {
        if self.write_limit.is_zero() || self.write_limit > LONGEST_WRITE {
            return Err(Error::WriteLimit {
                given: duration::format(self.write_limit),
                most: duration::format(LONGEST_WRITE),
            });
        }
        if let Some(directory) = &self.second_copy_dir {
            let checked = check_marker(directory);
            checked.map_err(|problem| Error::second_copy(directory, problem))?;
        }
        if let Some(witnesses) = &self.witnesses {
            witnesses.read_policy()?;
        }
        self.former_log_key()?;
        self.former_mac_key()?;
        ExportSettings::validate(&self.exports)?;
        if let Some(anomalies) = &self.anomalies {
            anomalies.validate()?;
        }
        if self.retention_days == 0 {
            return Err(Error::RetentionDays);
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
    fn a12_records_are_kept_for_six_years_by_default() {
        let config: Config = serde_json::from_str(r#"{"store":"sqlite:a"}"#).unwrap();
        // Six years contain at most two leap days.
        assert!(config.retention_days >= 6 * 365 + 2);
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
