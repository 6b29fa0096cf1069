//! Limits and what is used of them, in words.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::Caller;

use super::rate::Rate;

/// Whose requests a bucket counts, and for which limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketOwner {
    /// The name of the limit.
    pub limit: String,
    /// The tenant whose requests alone it counts, which may be the empty one; none: those of every tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Who names the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The person whose requests alone it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The tool whose requests alone it counts, or the source of prompts and resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The values of claims whose requests alone it counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, String>,
}

impl BucketOwner {
    /// Requests of this person alone.
    pub fn set_person(&mut self, caller: &Caller) {
        self.tenant = Some(caller.tenant().to_owned());
        self.issuer = Some(caller.issuer().to_owned());
        self.subject = Some(caller.subject().to_owned());
    }
}

/// A bucket that is not full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUse {
    /// Whose it is.
    pub owner: BucketOwner,
    /// The time after which it is full, if nobody takes more.
    pub full_in: Duration,
}

/// A limit that is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitOverview {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub rate: Rate,
    /// Whose requests are counted together, in words.
    pub per: Vec<String>,
}

/// What is used of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitState {
    /// Whose requests are counted; of these the name is that of the limit.
    #[serde(flatten)]
    pub owner: BucketOwner,
    /// What it allows.
    pub rate: Rate,
    /// Whose requests are counted together.
    pub per: Vec<String>,
    /// Cost units that have not flowed back yet. Those that a replica has leased count.
    pub used: u32,
    /// Cost units that may be used at once.
    pub left: u32,
    /// The seconds after which all of it may be used at once again, rounded up.
    pub resets_in_seconds: u64,
}

impl LimitOverview {
    pub(crate) fn state(&self, of: Option<&BucketUse>) -> LimitState {
        let full_in = of.map_or(Duration::ZERO, |it| it.full_in);
        let used = self.rate.used(full_in);
        LimitState {
            owner: of.map_or_else(
                || BucketOwner {
                    limit: self.name.clone(),
                    ..BucketOwner::default()
                },
                |it| it.owner.clone(),
            ),
            rate: self.rate,
            per: self.per.clone(),
            used,
            left: self.rate.calls() - used,
            resets_in_seconds: full_in.as_secs() + u64::from(full_in.subsec_nanos() > 0),
        }
    }
}
