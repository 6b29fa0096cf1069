//! A policy set, as its questions need it; unchangeable.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{self as cedar, EntityUid, Policy};
use serde_json::Value;
use wardgate_domain::{Digest, OfferKind};

use crate::vocabulary::Vocabulary;

/// A schema and policies that were checked as a whole: within limits, valid under strict validation,
/// speaking of everything Wardgate asks, and tried once.
#[derive(Debug)]
pub struct PolicySet {
    hash: Digest,
    ids: Vec<String>,
    pub(crate) vocabulary: Vocabulary,
    /// The policies that can apply to a question, apart, so that each question costs only its own.
    pub(crate) uses: BTreeMap<OfferKind, cedar::PolicySet>,
    pub(crate) read: BTreeMap<String, cedar::PolicySet>,
    pub(crate) show: [cedar::PolicySet; 4],
    pub(crate) recall: cedar::PolicySet,
    pub(crate) read_record: cedar::PolicySet,
    pub(crate) read_own_record: cedar::PolicySet,
}

impl PolicySet {
    /// SHA-256 over file names and contents: the version that decisions and permits carry.
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// The ids of the policies, sorted.
    pub fn policy_ids(&self) -> &[String] {
        &self.ids
    }

    /// Sorts the policies by the questions they can apply to.
    pub(crate) fn new(hash: Digest, vocabulary: Vocabulary, policies: &cedar::PolicySet) -> Self {
        let mut uses: BTreeMap<_, Vec<Policy>> =
            OfferKind::ALL.map(|kind| (kind, Vec::new())).into();
        let use_of = |action: &EntityUid| {
            let asks = |kind: &OfferKind| vocabulary.question(*kind).0 == action;
            OfferKind::ALL.into_iter().find(asks)
        };
        let mut read: BTreeMap<String, Vec<Policy>> = vocabulary
            .rows
            .keys()
            .map(|name| (name.clone(), Vec::new()))
            .collect();
        let mut show: [Vec<Policy>; 4] = Default::default();
        let mut recall = Vec::new();
        let mut read_record = Vec::new();
        let mut read_own_record = Vec::new();
        for policy in policies.policies() {
            for environment in policy.get_valid_request_envs(&vocabulary.schema) {
                if let Some(kind) = use_of(environment.action()) {
                    uses.entry(kind).or_default().push(policy.clone());
                } else if *environment.action() == vocabulary.recall {
                    recall.push(policy.clone());
                } else if *environment.action() == vocabulary.read_record {
                    read_record.push(policy.clone());
                } else if *environment.action() == vocabulary.read_own_record {
                    read_own_record.push(policy.clone());
                } else if *environment.action() == vocabulary.read {
                    if let Some(of_type) = read.get_mut(&environment.resource().to_string()) {
                        of_type.push(policy.clone());
                    }
                } else if let Some(tier) = vocabulary
                    .show
                    .iter()
                    .position(|(_, action)| action == environment.action())
                {
                    show[tier].push(policy.clone());
                }
            }
        }
        let ids: BTreeSet<_> = policies
            .policies()
            .map(|policy| policy.id().to_string())
            .collect();
        Self {
            hash,
            ids: ids.into_iter().collect(),
            uses: uses
                .into_iter()
                .map(|(kind, of_kind)| (kind, gather(of_kind)))
                .collect(),
            read: read
                .into_iter()
                .map(|(name, of_type)| (name, gather(of_type)))
                .collect(),
            show: show.map(gather),
            recall: gather(recall),
            read_record: gather(read_record),
            read_own_record: gather(read_own_record),
            vocabulary,
        }
    }
}

/// Ids are unique already, so adding cannot fail.
fn gather(policies: Vec<Policy>) -> cedar::PolicySet {
    let mut set = cedar::PolicySet::new();
    for policy in policies {
        let _unique = set.add(policy);
    }
    set
}

/// How deep a JSON value nests; a scalar has depth 0.
pub(crate) fn depth(json: &Value) -> usize {
    match json {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
