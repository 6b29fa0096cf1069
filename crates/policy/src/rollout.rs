//! Rollout of signed bundles: each new version is verified, tried and put in force as a whole, or refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Sender;
use tokio::time::{Instant, MissedTickBehavior};
use wardgate_domain::BundleReference;
use wardgate_policy_bundle::{
    BundleConfig, BundleConfigError, BundleError, BundleSource, BundleState, BundleVerifier,
    FetchedBundle, OfferedBundles, PolicyBundle, run_blocking,
};
use wardgate_rpc::Readiness;
use wardgate_telemetry::{as_float, names};

use crate::authorizer::PolicyAuthorizer;
use crate::files::Files;
use crate::policy_test::{TestFile, run_tests};
use crate::set::PolicySet;
use crate::simulator::Simulator;
use crate::{BundleRefusal, Error};

/// Maximum number of failed tests that an error names.
const MAX_NAMED_TESTS: usize = 5;

/// The readiness while something that the source offers is refused.
const OUTDATED: &str = "the source of policy bundles cannot be reached, or returned a bundle that is refused; the previous policies stay \
                        in force";

/// Compiles, validates and tests the policies of a bundle, as the service does before it puts them in force.
pub fn try_bundle(bundle: &PolicyBundle) -> Result<PolicySet, BundleRefusal> {
    let reference = bundle.reference();
    let version = reference.version;
    let set = PolicySet::compile(&Files::of_bundle(bundle));
    let set = set.map_err(|error| BundleRefusal::Policies {
        version,
        error: Box::new(error),
    })?;
    let failed = |problem: String| BundleRefusal::Tests { version, problem };
    let mut files = Vec::new();
    for file in bundle.tests() {
        let test: TestFile = wardgate_yaml::parse(&file.text)
            .map_err(|fault| failed(format!("{}:{}: {}", file.path, fault.at, fault.problem)))?;
        files.push((PathBuf::from(&file.path), test));
    }
    let offers = bundle.tools().map_err(|error| failed(error.to_string()))?;
    let simulator = Simulator::new(set);
    let report = run_tests(&simulator, &offers, &files);
    if report.failed_count() > 0 {
        let mut problem = format!("{} tests fail", report.failed_count());
        let wrong = (report.results.iter()).filter(|it| !it.differences.is_empty());
        for result in wrong.take(MAX_NAMED_TESTS) {
            let differences = result.differences.join("; ");
            let file = result.file.display();
            problem += &format!("\n{file}: {}: {differences}", result.name);
        }
        return Err(failed(problem));
    }
    let set = simulator.into_set();
    let set = set.ok_or_else(|| failed("the tests did not finish".to_owned()))?;
    Ok(set.of_bundle(reference))
}

/// A follower of a source of bundles.
#[derive(Debug)]
pub(crate) struct BundleFollower {
    source: BundleSource,
    verifier: BundleVerifier,
    state: BundleState,
    minimum: u64,
    /// The newest bundle that was in force, in this process or before.
    newest: Option<BundleReference>,
    /// The refusals that were logged last. Each is logged once.
    logged: Vec<String>,
    purpose: BundlePurpose,
}

/// The purpose for which bundles are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BundlePurpose {
    /// The policies of a bundle are put in force.
    InForce,
    /// The policies of a bundle are a candidate, whose decisions affect no answer.
    Candidate,
}

/// A verified bundle that is newer than the one in force, or the same after a restart.
struct CandidateBundle {
    bundle: PolicyBundle,
    bytes: Vec<u8>,
}

/// The bundle that was in force before a restart, as the state file has it.
struct StoredBundle {
    /// The version and digest, which are not signed.
    reference: BundleReference,
    /// The bundle, or the reason why it cannot be used.
    opened: Result<PolicyBundle, BundleError>,
}

/// The rules by which one of the offered bundles is chosen.
struct SelectionRules {
    verifier: BundleVerifier,
    minimum: u64,
    newest: Option<BundleReference>,
    is_start: bool,
}

/// The bundles that may be put in force, and what is refused beside them.
struct BundleSelection {
    /// The bundles to try until one is usable, the newest first.
    candidates: Vec<CandidateBundle>,
    /// The refusals. If there is no candidate, the last one is the reason.
    refused: Vec<BundleRefusal>,
}

impl BundleFollower {
    /// Opens the source of the policies in force.
    pub(crate) async fn open(config: BundleConfig) -> Result<Self, Error> {
        Ok(Self::open_for(BundlePurpose::InForce, config).await??)
    }

    /// Opens the source of candidate policies.
    pub(crate) async fn open_candidate(config: BundleConfig) -> Result<Self, Error> {
        let opened = Self::open_for(BundlePurpose::Candidate, config).await?;
        opened.map_err(Error::CandidateSettings)
    }

    /// Opens a source. The files that the settings name are read on a thread for blocking work.
    async fn open_for(
        purpose: BundlePurpose,
        config: BundleConfig,
    ) -> Result<Result<Self, BundleConfigError>, BundleRefusal> {
        let open = move || -> Result<Self, BundleConfigError> {
            Ok(Self {
                source: BundleSource::open(&config)?,
                verifier: config.verifier()?,
                state: BundleState::new(config.state_file),
                minimum: config.minimum_version,
                newest: None,
                logged: Vec::new(),
                purpose,
            })
        };
        Ok(run_blocking(open).await?)
    }

    /// Returns the policies with which the service starts: those that the source offers, or if it offers none that are
    /// acceptable, those that were in force before.
    pub(crate) async fn first(&mut self) -> Result<PolicySet, Error> {
        let stored = self.read_state().await?;
        self.newest = stored.as_ref().map(|it| it.reference);
        let refusal = match self.next(true).await {
            Ok(Some(set)) => return Ok(set),
            Ok(None) => None,
            Err(refusal) => Some(refusal),
        };
        let Some(stored) = stored else {
            return Err(refusal.map_or(Error::NoBundle, Error::Bundle));
        };
        if let Some(refusal) = refusal {
            self.report(&refusal);
        }
        let bundle = stored.opened.map_err(|error| self.invalid_state(error))?;
        let (offered, minimum) = (bundle.reference().version, self.minimum);
        if offered < minimum {
            return Err(BundleRefusal::BelowMinimum { offered, minimum }.into());
        }
        Ok(self.try_out(bundle).await?)
    }

    /// Reads and verifies the bundle that was in force before, or returns `None` if there is none.
    async fn read_state(&self) -> Result<Option<StoredBundle>, BundleRefusal> {
        let (state, verifier) = (self.state.clone(), self.verifier.clone());
        let read = tokio::task::spawn_blocking(move || {
            let kept = state.read_bundle();
            kept.map(|kept| kept.map(|kept| (kept.reference(), kept.open(&verifier))))
        });
        let read = read.await;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let Some((reference, opened)) = read.map_err(|source| self.unusable(source))? else {
            return Ok(None);
        };
        let reference = reference.map_err(|error| self.invalid_state(error))?;
        Ok(Some(StoredBundle { reference, opened }))
    }

    /// Returns the readiness of the policies, and sets its metric.
    pub(crate) fn readiness(&self) -> Readiness {
        let is_in_order = self.logged.is_empty();
        metrics::gauge!(names::POLICY_STALE).set(if is_in_order { 0.0 } else { 1.0 });
        if is_in_order {
            Readiness::Ready
        } else {
            Readiness::Outdated(OUTDATED)
        }
    }

    /// Looks at the source and puts a newer bundle in force.
    pub(crate) async fn poll(&mut self, authorizer: &PolicyAuthorizer) {
        let Some(set) = self.newer().await else {
            return;
        };
        let (bundle, hash) = (set.bundle(), set.hash());
        authorizer.put_in_force(set);
        metrics::counter!(names::POLICY_RELOADS, "outcome" => "swapped").increment(1);
        if let Some(bundle) = bundle {
            report_in_force(bundle);
            tracing::info!(policy.hash = %hash, policy.bundle = %bundle, "policies of a new bundle are in force");
        }
    }

    /// Returns the policies of a newer bundle, if the source offers one. What is refused is reported.
    pub(crate) async fn newer(&mut self) -> Option<PolicySet> {
        match self.next(false).await {
            Ok(newer) => newer,
            Err(refusal) => {
                self.report(&refusal);
                None
            }
        }
    }

    /// Returns the policies of the newest usable bundle that the source offers, if they are to be put in force: if they
    /// are newer than those in force, or with `is_start`, if they are at least not older. Its version is remembered
    /// first. What is refused beside it is reported.
    async fn next(&mut self, is_start: bool) -> Result<Option<PolicySet>, BundleRefusal> {
        let Some(offered) = self.source.fetch().await? else {
            return Ok(None);
        };
        // From here on, everything that was refused before is judged anew.
        self.logged.clear();
        let BundleSelection {
            candidates,
            mut refused,
        } = self.select(offered, is_start).await?;
        // The reason why the newest candidate is not usable.
        let mut unusable = None;
        for CandidateBundle { bundle, bytes } in candidates {
            let reference = bundle.reference();
            match self.try_out(bundle).await {
                Ok(set) => {
                    refused.extend(unusable);
                    self.report_all(&refused);
                    self.remember(reference, bytes).await?;
                    return Ok(Some(set));
                }
                Err(refusal) if unusable.is_none() => unusable = Some(refusal),
                Err(refusal) => refused.push(refusal),
            }
        }
        let reason = unusable.or_else(|| refused.pop());
        self.report_all(&refused);
        reason.map_or(Ok(None), Err)
    }

    /// Verifies and selects bundles on a thread for blocking work, because the bundles of a directory have up to 512 MiB.
    async fn select(
        &self,
        offered: OfferedBundles,
        is_start: bool,
    ) -> Result<BundleSelection, BundleRefusal> {
        let rules = SelectionRules {
            verifier: self.verifier.clone(),
            minimum: self.minimum,
            newest: self.newest,
            is_start,
        };
        Ok(run_blocking(move || rules.select(offered)).await?)
    }

    /// Writes the bundle that is about to be put in force to the state file.
    async fn remember(
        &mut self,
        reference: BundleReference,
        bytes: Vec<u8>,
    ) -> Result<(), BundleRefusal> {
        let state = self.state.clone();
        let written = tokio::task::spawn_blocking(move || state.write(&bytes)).await;
        if let Err(source) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            // It is tried again at the next look.
            self.source.forget();
            return Err(self.unusable(source));
        }
        self.newest = Some(reference);
        Ok(())
    }

    async fn try_out(&self, bundle: PolicyBundle) -> Result<PolicySet, BundleRefusal> {
        let version = bundle.reference().version;
        let tried = tokio::task::spawn_blocking(move || try_bundle(&bundle)).await;
        tried.unwrap_or_else(|_| {
            let problem = "the process of the tests failed".to_owned();
            Err(BundleRefusal::Tests { version, problem })
        })
    }

    /// Returns the path of the state file for messages.
    fn state_file(&self) -> &Path {
        self.state.path().unwrap_or(Path::new(""))
    }

    fn unusable(&self, source: std::io::Error) -> BundleRefusal {
        BundleRefusal::State {
            path: self.state_file().to_owned(),
            source,
        }
    }

    fn invalid_state(&self, error: BundleError) -> BundleRefusal {
        BundleRefusal::Invalid {
            origin: self.state_file().display().to_string(),
            error,
        }
    }

    fn report_all(&mut self, refused: &[BundleRefusal]) {
        for refusal in refused {
            self.report(refusal);
        }
    }

    /// Counts a refusal, unless it is about a candidate, and logs it unless it was logged since the source changed.
    fn report(&mut self, refusal: &BundleRefusal) {
        let text = refusal.to_string();
        if self.logged.contains(&text) {
            return;
        }
        let reason = refusal.label();
        match self.purpose {
            BundlePurpose::InForce => {
                metrics::counter!(names::POLICY_BUNDLE_REFUSALS, "reason" => reason).increment(1);
                tracing::error!(cause = %refusal, reason, "a policy bundle was refused; the policies in force stay");
            }
            BundlePurpose::Candidate => {
                tracing::warn!(cause = %refusal, reason, "a policy bundle of policy.shadow was refused; the policies in force are not affected");
            }
        }
        if matches!(refusal, BundleRefusal::Source(_)) {
            // The next answer is judged anew, even if it is the one of before.
            self.source.forget();
        }
        self.logged.push(text);
    }
}

impl SelectionRules {
    /// Verifies the offered bundles and selects those that may be put in force. A file that is unreadable, damaged or
    /// not signed by a trusted key does not affect the others. At a start without a stored version, however, only the
    /// newest version may be put in force, and only if every file can be read.
    fn select(self, offered: OfferedBundles) -> BundleSelection {
        let OfferedBundles {
            bundles,
            unreadable,
        } = offered;
        let number_unreadable = unreadable.len();
        let unreadable = unreadable.into_iter().map(BundleRefusal::Unreadable);
        let mut refused: Vec<_> = unreadable.collect();
        let mut by_version: BTreeMap<u64, CandidateBundle> = BTreeMap::new();
        for FetchedBundle { origin, bytes } in bundles {
            match PolicyBundle::open(&bytes, &self.verifier) {
                Ok(bundle) => {
                    let reference = bundle.reference();
                    match by_version.entry(reference.version) {
                        Entry::Vacant(place) => {
                            place.insert(CandidateBundle { bundle, bytes });
                        }
                        Entry::Occupied(other) if other.get().bundle.reference() != reference => {
                            refused.push(BundleRefusal::Reused(reference.version));
                        }
                        Entry::Occupied(_) => {}
                    }
                }
                Err(error) => refused.push(BundleRefusal::Invalid { origin, error }),
            }
        }
        let newest = by_version.last_key_value();
        refused.extend(newest.and_then(|(_, it)| self.refusal(it.bundle.reference())));
        let candidates = by_version.into_values().rev();
        let candidates = candidates.filter(|it| self.admits(it.bundle.reference()));
        let mut candidates: Vec<_> = candidates.collect();
        if self.is_start && self.newest.is_none() {
            // No stored version protects against a return to older policies. A file that cannot be read may be the newest
            // version, and is then the reason.
            candidates.truncate(usize::from(number_unreadable == 0));
            refused.rotate_left(number_unreadable);
        }
        BundleSelection {
            candidates,
            refused,
        }
    }

    /// Returns whether a bundle may be put in force.
    fn admits(&self, offered: BundleReference) -> bool {
        let is_new = self.newest.is_none_or(|known| {
            offered.version > known.version || (self.is_start && offered == known)
        });
        is_new && offered.version >= self.minimum
    }

    /// Returns the reason why the newest bundle is refused. Older bundles beside an accepted one are no fault.
    fn refusal(&self, newest: BundleReference) -> Option<BundleRefusal> {
        let (offered, minimum) = (newest.version, self.minimum);
        if offered < minimum {
            return Some(BundleRefusal::BelowMinimum { offered, minimum });
        }
        let known = self.newest?;
        if offered < known.version {
            let known = known.version;
            return Some(BundleRefusal::Older { offered, known });
        }
        (offered == known.version && newest != known).then_some(BundleRefusal::Reused(offered))
    }
}

/// Sets the metric of the version in force.
pub(crate) fn report_in_force(bundle: BundleReference) {
    // The gauge is exact up to the largest version, 2^53 - 1.
    metrics::gauge!(names::POLICY_BUNDLE_VERSION).set(as_float(bundle.version));
}

/// Looks at the source every `interval`, as long as `authorizer` is in use, and updates `readiness`.
pub(crate) fn follow(
    authorizer: &Arc<PolicyAuthorizer>,
    mut follower: BundleFollower,
    interval: Duration,
    readiness: Sender<Readiness>,
) {
    let authorizer = Arc::downgrade(authorizer);
    tokio::spawn(async move {
        let mut ticker = tokio::time::interval_at(Instant::now() + interval, interval);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticker.tick().await;
            let Some(authorizer) = authorizer.upgrade() else {
                return;
            };
            follower.poll(&authorizer).await;
            let now = follower.readiness();
            readiness.send_if_modified(|before| {
                let is_changed = *before != now;
                *before = now;
                is_changed
            });
        }
    });
}
