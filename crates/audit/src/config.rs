//! What an operator sets.

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
    /// Bytes that the store may take, so that the days that are left can be told; none: what the file systems of its file
    /// and of the second copy have left counts, and of a server's own disk nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// A directory on another disk that has every record before it is acknowledged. None: the store alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_copy_dir: Option<PathBuf>,
    /// What the transparency log over the record is called: the origin of its checkpoints. It stays as it was once
    /// checkpoints are signed. None: as they say, and at first a name made of the log's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_origin: Option<String>,
    /// The public key under which checkpoints were signed before the log's key was replaced. It is needed until one is signed
    /// under the new key. None: the key is the one that signed the newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_log_key: Option<String>,
    /// The check value, in hexadecimal, of the key with which digests of arguments and results were made before that was
    /// replaced. It is needed once. None: the key is the one that made those in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_mac_key: Option<String>,
    /// Who cosigns the checkpoints. None: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnesses: Option<WitnessSettings>,
    /// The security tools that get copies of the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ExportSettings>,
    /// What counts as unusual behaviour of callers, which is put on record. None: nothing is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomalies: Option<AnomalySettings>,
    /// Days that records are kept at least; default 2,192, which is six years (45 CFR 164.316(b)(2)). Older ones are removed
    /// when an operator applies retention, and never by themselves.
    #[serde(default = "default_retention_days")]
    pub retention_days: u32,
    /// How the store is used.
    #[serde(default)]
    pub database: DatabaseSettings,
}

/// Settings of the cosigning of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WitnessSettings {
    /// A file with a trust policy (c2sp.org/tlog-policy): the witnesses with their URLs, and the quorum to reach.
    pub policy_file: PathBuf,
    /// Whether witnesses may have addresses off the public internet; default false.
    #[serde(default)]
    pub private_addresses: bool,
}

impl WitnessSettings {
    /// The policy in the file.
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
    /// Default settings for `store`.
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

    /// What bounds the record besides the disk of its file.
    pub fn room(&self) -> StoreRoom {
        StoreRoom {
            capacity: self.capacity_bytes,
            second_copy: self.second_copy_dir.clone(),
        }
    }

    /// What checkpoints were verified with before the log's key was replaced.
    pub(crate) fn former_log_key(&self) -> Result<Option<VerifierKey>, Error> {
        let key = self.former_log_key.as_deref().map(str::parse);
        key.transpose().map_err(Error::FormerLogKey)
    }

    /// The check value of the key of digests before that was replaced.
    pub(crate) fn former_mac_key(&self) -> Result<Option<Digest>, Error> {
        let value = self.former_mac_key.as_deref().map(str::parse);
        value.transpose().map_err(|_| Error::FormerMacKey)
    }

    /// Checks what the types cannot say.
    pub fn validate(&self) -> Result<(), Error> {
        if self.write_limit.is_zero() || self.write_limit > LONGEST_WRITE {
            return Err(Error::WriteLimit {
                given: duration::show(self.write_limit),
                most: duration::show(LONGEST_WRITE),
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
