//! Reloading of the policy directory when its files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Sender;
use tokio::time::MissedTickBehavior;
use wardgate_domain::Digest;
use wardgate_rpc::Readiness;
use wardgate_telemetry::names;

use crate::Error;
use crate::authorizer::PolicyAuthorizer;
use crate::files::Files;
use crate::set::PolicySet;
use crate::shadow::ShadowEvaluator;

/// The state of the directory at the last reload. It ensures that a set is compiled once and a fault is logged once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirectoryState {
    /// The directory has not been read yet.
    Unread,
    Files(Digest),
    Unreadable(String),
}

/// The result of checking the directory for changes.
#[derive(Debug)]
pub(crate) enum DirectoryChange {
    None,
    Policies(Box<PolicySet>),
    /// The files changed and are not usable.
    Refused(Error),
}

/// The outcome of a reload.
#[derive(Debug)]
pub(crate) enum ReloadOutcome {
    Unchanged,
    Swapped,
    /// The changed files are not usable. The current set stays in force.
    Refused(Error),
}

/// Loads the policies of `dir` when the service starts.
pub(crate) fn first(dir: &Path) -> Result<(PolicySet, DirectoryState), Error> {
    let files = Files::read_dir(dir)?;
    PolicySet::compile(&files).map(|set| (set, DirectoryState::Files(files.hash())))
}

impl DirectoryState {
    /// Reads `dir`, and puts its policies in force if they have changed and are usable as a whole.
    pub(crate) fn reload(&mut self, dir: &Path, authorizer: &PolicyAuthorizer) -> ReloadOutcome {
        match self.detect_change(dir) {
            DirectoryChange::None => ReloadOutcome::Unchanged,
            DirectoryChange::Policies(set) => {
                authorizer.put_in_force(*set);
                ReloadOutcome::Swapped
            }
            DirectoryChange::Refused(error) => ReloadOutcome::Refused(error),
        }
    }

    /// Reads `dir`, and returns its policies if they have changed and are usable as a whole.
    pub(crate) fn detect_change(&mut self, dir: &Path) -> DirectoryChange {
        let files = match Files::read_dir(dir) {
            Ok(files) => files,
            Err(error) => {
                let now = Self::Unreadable(error.to_string());
                return if *self == now {
                    DirectoryChange::None
                } else {
                    *self = now;
                    DirectoryChange::Refused(error)
                };
            }
        };
        let now = Self::Files(files.hash());
        if *self == now {
            return DirectoryChange::None;
        }
        let compiled = PolicySet::compile(&files);
        // The files changed during compilation, so they may be a mixture of two versions. The next interval checks them
        // again.
        if !Files::read_dir(dir).is_ok_and(|again| again.hash() == files.hash()) {
            return DirectoryChange::None;
        }
        *self = now;
        match compiled {
            Ok(set) => DirectoryChange::Policies(Box::new(set)),
            Err(error) => DirectoryChange::Refused(error),
        }
    }
}

/// Calls `reload` for `dir` every `interval`, as long as `target` is in use.
pub(crate) fn watch<T: Send + Sync + 'static>(
    target: &Arc<T>,
    dir: PathBuf,
    state: DirectoryState,
    interval: Duration,
    reload: impl Fn(&T, &mut DirectoryState, &Path) + Clone + Send + 'static,
) {
    let target = Arc::downgrade(target);
    tokio::spawn(async move {
        let mut ticker = tokio::time::interval(interval);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = state;
        loop {
            ticker.tick().await;
            let Some(target) = target.upgrade() else {
                return;
            };
            let (dir, before, reload) = (dir.clone(), state.clone(), reload.clone());
            let reloaded = tokio::task::spawn_blocking(move || {
                let mut state = before;
                reload(&target, &mut state, &dir);
                state
            });
            state = reloaded.await.unwrap_or(state);
        }
    });
}

/// Reads `dir`, puts its policies in force if they have changed and are usable, and updates `readiness`.
pub(crate) fn reload_policies(
    authorizer: &PolicyAuthorizer,
    state: &mut DirectoryState,
    dir: &Path,
    readiness: &Sender<Readiness>,
) {
    let outcome = state.reload(dir, authorizer);
    report(&outcome, authorizer, readiness);
}

/// Reads `dir`, and makes its policies the candidate if they have changed. If they are not usable, there is no
/// candidate.
pub(crate) fn reload_candidate(shadow: &ShadowEvaluator, state: &mut DirectoryState, dir: &Path) {
    match state.detect_change(dir) {
        DirectoryChange::None => {}
        DirectoryChange::Policies(set) => {
            tracing::info!(policy.hash = %set.hash(), policies = set.policy_ids().len(), "the candidate policies are evaluated in \
                                                                                          addition to the policies in force");
            shadow.replace(Some(*set), String::new());
        }
        DirectoryChange::Refused(error) => {
            tracing::warn!(cause = %error, "the candidate of policy.shadow is not usable; the policies in force are not affected");
            shadow.replace(None, error.to_string());
        }
    }
}

fn report(outcome: &ReloadOutcome, authorizer: &PolicyAuthorizer, readiness: &Sender<Readiness>) {
    let in_force = authorizer.version().borrow().hash;
    match outcome {
        ReloadOutcome::Unchanged => {}
        ReloadOutcome::Swapped => {
            metrics::counter!(names::POLICY_RELOADS, "outcome" => "swapped").increment(1);
            metrics::gauge!(names::POLICY_STALE).set(0.0);
            readiness.send_replace(Readiness::Ready);
            tracing::info!(policy.hash = %in_force, "changed policies are in force");
        }
        ReloadOutcome::Refused(error) => {
            metrics::counter!(names::POLICY_RELOADS, "outcome" => "refused").increment(1);
            metrics::gauge!(names::POLICY_STALE).set(1.0);
            readiness.send_replace(Readiness::Outdated(
                "the changed policies have an error; the previous ones stay in force",
            ));
            tracing::error!(policy.hash = %in_force, cause = %error, "the changed policies are not usable; the ones in force stay");
        }
    }
}
