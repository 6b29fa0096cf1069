//! The limits and their usage, in a readable form.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::Caller;

use super::rate::Rate;

/// The owner of a bucket: the limit, and the requests that the bucket counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketOwner {
    /// The name of the limit.
    pub limit: String,
    /// The tenant whose requests the bucket counts, which may be the empty one, or `None` for every tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The issuer of the person's tokens, or `None` for every person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The person whose requests the bucket counts, or `None` for every person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The tool whose requests the bucket counts, or the source of prompts and resources; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The claims of the callers whose requests the bucket counts, with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, String>,
}

impl BucketOwner {
    /// Restricts the bucket to the requests of this person.
    pub fn set_person(&mut self, caller: &Caller) {
        self.tenant = Some(caller.tenant().to_owned());
        self.issuer = Some(caller.issuer().to_owned());
        self.subject = Some(caller.subject().to_owned());
    }
}

/// The usage of a bucket that is not full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUse {
    /// The owner of the bucket.
    pub owner: BucketOwner,
    /// The time after which the bucket is full if nothing more is taken.
    pub full_in: Duration,
}

/// The description of a configured limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitOverview {
    /// The name of the limit.
    pub name: String,
    /// The rate that the limit allows.
    pub rate: Rate,
    /// The keys by which requests are counted together.
    pub per: Vec<String>,
}

/// The usage of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitState {
    /// The owner, whose name is that of the limit.
    #[serde(flatten)]
    pub owner: BucketOwner,
    /// The rate that the limit allows.
    pub rate: Rate,
    /// The keys by which requests are counted together.
    pub per: Vec<String>,
    /// Cost units that have not flowed back yet, including those that a replica has leased.
    pub used: u32,
    /// Cost units that may be used at once.
    pub left: u32,
    /// The number of seconds after which all of the limit is available again, rounded up.
    pub resets_in_seconds: u64,
}

impl LimitOverview {
    pub(crate) fn state(&self, of: Option<&BucketUse>) -> LimitState {
        let full_in = of.map_or(Duration::ZERO, |it| it.full_in);
        let used = self.rate.used_calls(full_in);
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
