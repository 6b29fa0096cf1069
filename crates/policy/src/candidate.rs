//! Signed bundles whose policies are the candidate of the shadow evaluation.

use std::sync::Arc;

use tokio::time::MissedTickBehavior;
use wardgate_policy_bundle::BundleConfig;

use crate::Error;
use crate::rollout::BundleFollower;
use crate::set::PolicySet;
use crate::shadow::ShadowEvaluator;

/// A follower of a source of candidate bundles. Nothing that it finds affects an answer or prevents a start.
#[derive(Debug)]
pub(crate) struct CandidateFollower {
    config: BundleConfig,
    /// `None` until the files that the settings name can be used, for example the public keys.
    follower: Option<BundleFollower>,
    /// Whether the policies of a bundle are evaluated.
    has_candidate: bool,
    /// The reason why there is no candidate, as it was logged last.
    fault: String,
}

impl CandidateFollower {
    pub(crate) fn new(config: BundleConfig) -> Self {
        Self {
            config,
            follower: None,
            has_candidate: false,
            fault: String::new(),
        }
    }

    /// Looks at the source, and makes the policies of a newer usable bundle the candidate. If a bundle is refused, the
    /// former candidate stays.
    pub(crate) async fn load_newer_bundle(&mut self, shadow: &ShadowEvaluator) {
        let found = match &mut self.follower {
            Some(follower) if self.has_candidate => Ok(follower.newer().await),
            _ => self.first().await,
        };
        match found {
            Ok(None) => {}
            Ok(Some(set)) => {
                let bundle = set.bundle().map(|it| it.to_string());
                let bundle = bundle.unwrap_or_default();
                tracing::info!(policy.hash = %set.hash(), policy.bundle = %bundle, "the candidate policies of a bundle are evaluated in \
                                                                                   addition to the policies in force");
                shadow.replace(Some(set), String::new());
                self.has_candidate = true;
            }
            Err(error) => {
                let fault = match error {
                    Error::Bundle(refusal) => format!("policy.shadow.bundle: {refusal}"),
                    Error::NoBundle => "policy.shadow.bundle.source contains no bundle".to_owned(),
                    other => other.to_string(),
                };
                if fault != self.fault {
                    tracing::warn!(cause = %fault, "the candidate of policy.shadow is not usable; the policies in force are not affected");
                    shadow.replace(None, fault.clone());
                    self.fault = fault;
                }
            }
        }
    }

    /// Returns the policies of the first candidate: those that the source offers, or those that were the candidate before
    /// a restart.
    async fn first(&mut self) -> Result<Option<PolicySet>, Error> {
        let mut follower = match self.follower.take() {
            Some(follower) => follower,
            None => BundleFollower::open_candidate(self.config.clone()).await?,
        };
        let first = follower.first().await;
        self.follower = Some(follower);
        match first {
            Ok(set) => Ok(Some(set)),
            // The source offers what it offered before, and the reason why that was refused is known.
            Err(Error::NoBundle) if !self.fault.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Looks at the source in its interval as long as `shadow` is in use. The start of the service does not wait for the
/// first look, because the source may be slow.
pub(crate) fn follow(shadow: &Arc<ShadowEvaluator>, config: BundleConfig) {
    let shadow = Arc::downgrade(shadow);
    let mut ticker = tokio::time::interval(config.poll_interval);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut candidate = CandidateFollower::new(config);
    tokio::spawn(async move {
        loop {
            ticker.tick().await;
            let Some(shadow) = shadow.upgrade() else {
                return;
            };
            candidate.load_newer_bundle(&shadow).await;
        }
    });
}
