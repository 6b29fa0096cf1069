//! Takes up a changed policy directory, if what it holds is usable.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
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

/// The state of the directory at the last reload, so that a set is tried once and a fault is logged once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirectoryState {
    Files(Digest),
    Unreadable(String),
}

/// The outcome of a reload.
#[derive(Debug)]
pub(crate) enum ReloadOutcome {
    Unchanged,
    Swapped,
    /// The set in force stays.
    Refused(Error),
}

/// Loads the policies of `dir` for the first time.
pub(crate) fn first(dir: &Path) -> Result<(PolicySet, DirectoryState), Error> {
    let files = Files::read(dir)?;
    PolicySet::compile(&files).map(|set| (set, DirectoryState::Files(files.hash())))
}

impl DirectoryState {
    /// Reads `dir`, and puts its policies in force if they changed and are usable as a whole.
    pub(crate) fn reload(&mut self, dir: &Path, authorizer: &PolicyAuthorizer) -> ReloadOutcome {
        let files = match Files::read(dir) {
            Ok(files) => files,
            Err(error) => {
                let now = Self::Unreadable(error.to_string());
                return if *self == now {
                    ReloadOutcome::Unchanged
                } else {
                    *self = now;
                    ReloadOutcome::Refused(error)
                };
            }
        };
        let now = Self::Files(files.hash());
        if *self == now {
            return ReloadOutcome::Unchanged;
        }
        let compiled = PolicySet::compile(&files);
        // Files that changed meanwhile may have been read half before and half after: look again later.
        if !Files::read(dir).is_ok_and(|again| again.hash() == files.hash()) {
            return ReloadOutcome::Unchanged;
        }
        *self = now;
        match compiled {
            Ok(set) => {
                authorizer.put_in_force(set);
                ReloadOutcome::Swapped
            }
            Err(error) => ReloadOutcome::Refused(error),
        }
    }
}

/// Reads `dir` every `interval`, for as long as `authorizer` is in use.
pub(crate) fn watch(
    authorizer: &Arc<PolicyAuthorizer>,
    dir: PathBuf,
    state: DirectoryState,
    interval: Duration,
    readiness: Sender<Readiness>,
) {
    let authorizer = Arc::downgrade(authorizer);
    tokio::spawn(async move {
        let mut ticker = tokio::time::interval(interval);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = state;
        loop {
            ticker.tick().await;
            match reload_in_background(&authorizer, &dir, state.clone(), readiness.clone()).await {
                Some(after) => state = after,
                None => return,
            }
        }
    });
}

/// One reload on a thread that may block; `None` when the authorizer is gone.
async fn reload_in_background(
    authorizer: &Weak<PolicyAuthorizer>,
    dir: &Path,
    state: DirectoryState,
    readiness: Sender<Readiness>,
) -> Option<DirectoryState> {
    let (authorizer, dir, before) = (authorizer.upgrade()?, dir.to_owned(), state.clone());
    let reloaded = tokio::task::spawn_blocking(move || {
        let mut state = state;
        let outcome = state.reload(&dir, &authorizer);
        report(&outcome, &authorizer, &readiness);
        state
    });
    Some(reloaded.await.unwrap_or(before))
}

fn report(outcome: &ReloadOutcome, authorizer: &PolicyAuthorizer, readiness: &Sender<Readiness>) {
    let in_force = *authorizer.version().borrow();
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
                "the changed policies have a fault; the earlier ones are in force",
            ));
            tracing::error!(policy.hash = %in_force, cause = %error, "changed policies are not usable; the ones in force stay");
        }
    }
}
