//! Rollout of signed bundles: each new version is verified, tried and put in force as a whole, or refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Sender;
use tokio::time::{Instant, MissedTickBehavior};
use wardgate_domain::BundleReference;
use wardgate_policy_bundle::{
    BundleConfig, BundleSource, BundleState, BundleVerifier, FetchedBundle, PolicyBundle,
};
use wardgate_rpc::Readiness;
use wardgate_telemetry::names;

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
    if report.failed() > 0 {
        let mut problem = format!("{} tests fail", report.failed());
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
}

/// A verified bundle that is newer than the one in force, or the same after a restart.
struct CandidateBundle {
    bundle: PolicyBundle,
    bytes: Vec<u8>,
}

impl BundleFollower {
    /// Opens the source and reads what was in force before.
    pub(crate) fn open(config: &BundleConfig) -> Result<Self, Error> {
        Ok(Self {
            source: BundleSource::open(config)?,
            verifier: config.verifier()?,
            state: BundleState::new(config.state_file.clone()),
            minimum: config.minimum_version,
            newest: None,
            logged: Vec::new(),
        })
    }

    /// Returns the policies with which the service starts: those that the source offers, or if it offers none that are
    /// acceptable, those that were in force before.
    pub(crate) async fn first(&mut self) -> Result<PolicySet, Error> {
        let kept = self.state.read().map_err(|source| self.unusable(source))?;
        if let Some(kept) = &kept {
            let newest = kept.reference().map_err(|error| BundleRefusal::Invalid {
                origin: self.state_file().display().to_string(),
                error,
            })?;
            self.newest = Some(newest);
        }
        let refusal = match self.next(true).await {
            Ok(Some(set)) => return Ok(set),
            Ok(None) => None,
            Err(refusal) => Some(refusal),
        };
        let Some(kept) = kept else {
            return Err(refusal.map_or(Error::NoBundle, Error::Bundle));
        };
        if let Some(refusal) = refusal {
            self.report(&refusal);
        }
        let bundle = kept.open(&self.verifier);
        let bundle = bundle.map_err(|error| BundleRefusal::Invalid {
            origin: self.state_file().display().to_string(),
            error,
        })?;
        let (offered, minimum) = (bundle.reference().version, self.minimum);
        if offered < minimum {
            return Err(BundleRefusal::BelowMinimum { offered, minimum }.into());
        }
        Ok(self.try_out(bundle).await?)
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
        match self.next(false).await {
            Ok(Some(set)) => {
                let (bundle, hash) = (set.bundle(), set.hash());
                authorizer.put_in_force(set);
                metrics::counter!(names::POLICY_RELOADS, "outcome" => "swapped").increment(1);
                if let Some(bundle) = bundle {
                    report_in_force(bundle);
                    tracing::info!(policy.hash = %hash, policy.bundle = %bundle, "policies of a new bundle are in force");
                }
            }
            Ok(None) => {}
            Err(refusal) => self.report(&refusal),
        }
    }

    /// Returns the policies of the bundle that the source offers, if they are to be put in force: if they are newer
    /// than those in force, or with `is_start`, if they are at least not older. Its version is remembered first.
    async fn next(&mut self, is_start: bool) -> Result<Option<PolicySet>, BundleRefusal> {
        let Some(fetched) = self.source.fetch().await? else {
            return Ok(None);
        };
        // From here on, everything that was refused before is judged anew.
        self.logged.clear();
        let chosen = self.choose(fetched, is_start);
        let Some(CandidateBundle { bundle, bytes }) = chosen? else {
            return Ok(None);
        };
        let reference = bundle.reference();
        let set = self.try_out(bundle).await?;
        let state = self.state.clone();
        let written = tokio::task::spawn_blocking(move || state.write(&bytes)).await;
        if let Err(source) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            // It is tried again at the next look.
            self.source.forget();
            return Err(self.unusable(source));
        }
        self.newest = Some(reference);
        Ok(Some(set))
    }

    /// Returns the bundle with the highest version, if it is to be put in force. What is not acceptable beside it is
    /// reported.
    fn choose(
        &mut self,
        fetched: Vec<FetchedBundle>,
        is_start: bool,
    ) -> Result<Option<CandidateBundle>, BundleRefusal> {
        let mut highest: Option<CandidateBundle> = None;
        let mut refused = Vec::new();
        for FetchedBundle { origin, bytes } in fetched {
            match PolicyBundle::open(&bytes, &self.verifier) {
                Ok(bundle) => {
                    let offered = bundle.reference();
                    let known = highest.as_ref().map(|it| it.bundle.reference());
                    if known.is_none_or(|known| known.version < offered.version) {
                        highest = Some(CandidateBundle { bundle, bytes });
                    } else if known.is_some_and(|it| it.version == offered.version && it != offered)
                    {
                        refused.push(BundleRefusal::Reused(offered.version));
                    }
                }
                Err(error) => refused.push(BundleRefusal::Invalid { origin, error }),
            }
        }
        let last = if highest.is_none() {
            refused.pop()
        } else {
            None
        };
        for refusal in refused {
            self.report(&refusal);
        }
        let Some(candidate) = highest else {
            return last.map_or(Ok(None), Err);
        };
        let offered = candidate.bundle.reference();
        if offered.version < self.minimum {
            return Err(BundleRefusal::BelowMinimum {
                offered: offered.version,
                minimum: self.minimum,
            });
        }
        match self.newest {
            Some(known) if offered.version < known.version => Err(BundleRefusal::Older {
                offered: offered.version,
                known: known.version,
            }),
            Some(known) if offered.version == known.version && offered != known => {
                Err(BundleRefusal::Reused(offered.version))
            }
            Some(known) if offered == known && !is_start => Ok(None),
            _ => Ok(Some(candidate)),
        }
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

    /// Counts a refusal, and logs it unless it was logged since the source changed.
    fn report(&mut self, refusal: &BundleRefusal) {
        let text = refusal.to_string();
        if self.logged.contains(&text) {
            return;
        }
        let reason = refusal.label();
        metrics::counter!(names::POLICY_BUNDLE_REFUSALS, "reason" => reason).increment(1);
        tracing::error!(cause = %refusal, reason, "a policy bundle was refused; the policies in force stay");
        if matches!(refusal, BundleRefusal::Source(_)) {
            // The next answer is judged anew, even if it is the one of before.
            self.source.forget();
        }
        self.logged.push(text);
    }
}

/// Sets the metric of the version in force.
pub(crate) fn report_in_force(bundle: BundleReference) {
    // The gauge is exact up to the largest version, 2^53 - 1.
    #[expect(clippy::cast_precision_loss, reason = "a version is below 2^53")]
    let version = bundle.version as f64;
    metrics::gauge!(names::POLICY_BUNDLE_VERSION).set(version);
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
