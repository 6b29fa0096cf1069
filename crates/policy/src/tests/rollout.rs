//! Signed bundles: a newer one that is usable takes effect, and everything else changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use tempfile::TempDir;
use wardgate_domain::{Ambient, ApprovalId, CallToApprove, OperatorAction, Verdict};
use wardgate_policy_bundle::{BundleConfig, BundleSigner, BundledFile, PolicyBundle};
use wardgate_rpc::Readiness;
use wardgate_testkit::{until, until_true};

use super::fixture::{SCHEMA, TestPolicy, tool};
use super::samples::caller;
use crate::candidate::{self, CandidateFollower};
use crate::history::CallHistory;
use crate::rollout::BundleFollower;
use crate::shadow::ShadowEvaluator;
use crate::{BundleRefusal, Error, try_bundle};

const TESTS: &str = r"
tools: { t: {} }
callers: { anybody: { subject: a } }
tests:
  - { name: everybody may call it, callers: [anybody], tools: [t], expect: { decision: allowed } }
";

/// Policies that allow everything, by a policy of this name.
fn policies(id: &str) -> String {
    format!("@id(\"{id}\") permit(principal, action == Action::\"call_tool\", resource);")
}

fn signer() -> BundleSigner {
    let key = Ed25519KeyPair::generate().unwrap();
    BundleSigner::from_pkcs8(key.to_pkcs8().unwrap().as_ref()).unwrap()
}

fn bundle(version: u64, policies: &str) -> PolicyBundle {
    let file = |path: &str, text: &str| BundledFile {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let files = vec![
        file("p.cedar", policies),
        file("s.cedarschema", SCHEMA),
        file("tests/t.yaml", TESTS),
    ];
    PolicyBundle::new(version, files, Vec::new()).unwrap()
}

/// A bundle without tests.
fn bundle_without_tests(version: u64, policies: &str) -> PolicyBundle {
    let tested = bundle(version, policies);
    let files = tested.files().iter();
    let files = files.filter(|file| !file.path.starts_with("tests/"));
    PolicyBundle::new(version, files.cloned().collect(), Vec::new()).unwrap()
}

/// A directory of bundles, and a service that follows it.
struct RolloutSetup {
    dir: TempDir,
    signer: BundleSigner,
}

impl RolloutSetup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let signer = signer();
        std::fs::create_dir(dir.path().join("bundles")).unwrap();
        std::fs::write(dir.path().join("key.pem"), signer.public_key_pem()).unwrap();
        Self { dir, signer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self) -> BundleConfig {
        BundleConfig {
            state_file: Some(self.path("state")),
            ..BundleConfig::new(
                self.path("bundles").display().to_string(),
                vec![self.path("key.pem")],
            )
        }
    }

    fn publish(&self, version: u64, policies: &str) {
        let sealed = bundle(version, policies).sign(&self.signer).unwrap();
        self.write(&format!("{version}.bundle"), &sealed);
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path("bundles").join(name), text).unwrap();
    }

    fn withdraw(&self, name: &str) {
        std::fs::remove_file(self.path("bundles").join(name)).unwrap();
    }

    async fn start(&self) -> Result<FollowingPolicy, Error> {
        let mut follower = BundleFollower::open(self.config()).await?;
        let set = follower.first().await?;
        Ok(FollowingPolicy {
            policy: TestPolicy::over(set),
            follower,
        })
    }
}

struct FollowingPolicy {
    policy: TestPolicy,
    follower: BundleFollower,
}

impl FollowingPolicy {
    /// Looks at the source. Returns the version that decisions name, and whether nothing is refused.
    async fn poll(&mut self) -> (u64, bool) {
        self.follower.poll(&self.policy.authorizer).await;
        let is_in_order = self.follower.readiness() == Readiness::Ready;
        (self.version(), is_in_order)
    }

    fn version(&self) -> u64 {
        let decision = self.policy.authorize(&caller("s", &[]), &tool("t"), "{}");
        let reference = decision.bundle.unwrap();
        assert_eq!(decision.policies, [format!("v{}", reference.version)]);
        let Verdict::Allow(permit) = &decision.verdict else {
            panic!("{:?}", decision.verdict)
        };
        let terms = permit.unverified_terms().unwrap();
        assert_eq!(terms.bundle, Some(reference));
        reference.version
    }
}

#[tokio::test]
async fn a_newer_version_takes_effect_and_an_older_one_never() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    assert_eq!(service.version(), 1);
    assert_eq!(service.poll().await, (1, true));
    rollout.publish(3, &policies("v3"));
    assert_eq!(
        service.poll().await,
        (3, true),
        "the highest version counts"
    );
    rollout.withdraw("3.bundle");
    assert_eq!(service.poll().await, (3, false), "version 1 is older");
    rollout.publish(2, &policies("v2"));
    assert_eq!(service.poll().await, (3, false), "version 2 too");
    // A restart does not forget it: the service starts with what was in force.
    let mut restarted = rollout.start().await.unwrap();
    assert_eq!(restarted.version(), 3);
    assert_eq!(restarted.poll().await, (3, false));
    rollout.publish(4, &policies("v4"));
    assert_eq!(restarted.poll().await, (4, true));
}

#[tokio::test]
async fn a_version_names_one_content_for_ever() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    rollout.publish(1, &policies("other"));
    assert_eq!(service.poll().await, (1, false));
    let mut restarted = rollout.start().await.unwrap();
    assert_eq!(restarted.poll().await, (1, false));
    rollout.publish(1, &policies("v1"));
    assert_eq!(restarted.poll().await, (1, true));
}

#[tokio::test]
async fn a_bundle_of_another_key_is_refused_and_hinders_no_good_one() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    let forged = bundle(9, &policies("v9")).sign(&signer()).unwrap();
    rollout.write("forged.bundle", &forged);
    assert_eq!(service.poll().await, (1, false));
    rollout.publish(2, &policies("v2"));
    assert_eq!(
        service.poll().await,
        (2, false),
        "the forged one is still there"
    );
    rollout.withdraw("forged.bundle");
    assert_eq!(service.poll().await, (2, true));
    rollout.write("damaged.bundle", "{");
    assert_eq!(service.poll().await, (2, false));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_refused_and_hinders_no_good_one() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    let (broken, mem) = (rollout.path("bundles/0.bundle"), "/proc/self/mem");
    // The first page of a process is not mapped, so a read fails, also for root.
    std::os::unix::fs::symlink(mem, &broken).unwrap();
    assert_eq!(service.poll().await, (1, false));
    assert_eq!(service.poll().await, (1, false), "it stays reported");
    rollout.publish(2, &policies("v2"));
    assert_eq!(service.poll().await, (2, false));
    rollout.withdraw("2.bundle");
    assert_eq!(service.poll().await, (2, false), "version 1 is older");
    rollout.publish(3, &policies("v3"));
    let mut restarted = rollout.start().await.unwrap();
    assert_eq!(restarted.poll().await, (3, false));
    std::fs::remove_file(broken).unwrap();
    assert_eq!(restarted.poll().await, (3, true));
}

#[tokio::test]
async fn a_newest_version_that_is_not_usable_hinders_no_earlier_new_one() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    rollout.publish(2, &policies("v2"));
    rollout.publish(3, "permit(principal, action, resource)");
    rollout.publish(4, "// nobody may do anything");
    assert_eq!(service.poll().await, (2, false));
    let mut restarted = rollout.start().await.unwrap();
    assert_eq!(restarted.version(), 2);
    rollout.withdraw("2.bundle");
    assert_eq!(
        restarted.poll().await,
        (2, false),
        "no other version is usable"
    );
    rollout.publish(4, &policies("v4"));
    assert_eq!(restarted.poll().await, (4, true));
}

#[tokio::test]
async fn a_first_start_does_not_use_an_older_version_in_place_of_the_newest() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    for unusable in [
        "// nobody may do anything",
        "permit(principal, action, resource)",
    ] {
        rollout.publish(2, unusable);
        let error = rollout.start().await.err().unwrap().to_string();
        assert!(error.starts_with("policy.bundle: version 2: "), "{error}");
    }
    rollout.withdraw("2.bundle");
    // The first page of a process is not mapped, so a read fails, also for root.
    std::os::unix::fs::symlink("/proc/self/mem", rollout.path("bundles/2.bundle")).unwrap();
    rollout.write("damaged.bundle", "{");
    let error = rollout.start().await.err().unwrap().to_string();
    assert!(error.starts_with("policy.bundle: cannot read "), "{error}");
    assert!(error.contains("2.bundle"), "{error}");
    rollout.withdraw("2.bundle");
    assert_eq!(rollout.start().await.unwrap().version(), 1);
}

#[tokio::test]
async fn policies_that_cannot_be_used_and_tests_that_fail_leave_the_former_in_force() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    rollout.publish(2, "permit(principal, action, resource)");
    assert_eq!(service.poll().await, (1, false));
    rollout.publish(3, "// nobody may do anything");
    assert_eq!(service.poll().await, (1, false));
    // A version that was never in force may be published again.
    rollout.publish(3, &policies("v3"));
    assert_eq!(service.poll().await, (3, true));
    let refused = try_bundle(&bundle(4, "// nobody"));
    let Err(BundleRefusal::Tests { problem, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(problem.contains("everybody may call it"), "{problem}");
}

#[tokio::test]
async fn a_source_that_is_away_is_asked_again_and_a_restart_does_not_need_it() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    let (there, away) = (rollout.path("bundles"), rollout.path("away"));
    std::fs::rename(&there, &away).unwrap();
    assert_eq!(service.poll().await, (1, false));
    let mut restarted = rollout.start().await.unwrap();
    assert_eq!(restarted.version(), 1);
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(service.poll().await, (1, true));
    assert_eq!(restarted.poll().await, (1, true));
    rollout.publish(2, &policies("v2"));
    assert_eq!(restarted.poll().await, (2, true));
}

#[tokio::test]
async fn a_version_that_cannot_be_remembered_is_not_put_in_force() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let mut service = rollout.start().await.unwrap();
    // A directory in the place of the file cannot be replaced by a file.
    std::fs::remove_file(rollout.path("state")).unwrap();
    std::fs::create_dir(rollout.path("state")).unwrap();
    rollout.publish(2, &policies("v2"));
    assert_eq!(service.poll().await, (1, false));
    std::fs::remove_dir(rollout.path("state")).unwrap();
    assert_eq!(service.poll().await, (2, true));
}

#[tokio::test]
async fn a_service_without_a_good_bundle_does_not_start() {
    let rollout = RolloutSetup::new();
    assert!(rollout.start().await.is_err(), "there is none");
    rollout.write(
        "1.bundle",
        &bundle(1, &policies("v1")).sign(&signer()).unwrap(),
    );
    assert!(rollout.start().await.is_err(), "it is forged");
    rollout.publish(1, &policies("v1"));
    rollout.start().await.unwrap();
    // What was in force counts only if a trusted key signed it.
    rollout.withdraw("1.bundle");
    let forged = bundle(5, &policies("v5")).sign(&signer()).unwrap();
    std::fs::write(rollout.path("state"), forged).unwrap();
    assert!(rollout.start().await.is_err());
    let low = BundleConfig {
        minimum_version: 2,
        ..rollout.config()
    };
    std::fs::remove_file(rollout.path("state")).unwrap();
    rollout.publish(1, &policies("v1"));
    let mut follower = BundleFollower::open(low).await.unwrap();
    let error = follower.first().await.unwrap_err().to_string();
    assert!(error.contains("minimum_version"), "{error}");
}

#[tokio::test]
async fn decisions_about_operators_and_approvers_name_the_bundle() {
    let rollout = RolloutSetup::new();
    let approvable = policies("v1").replace("permit(", "@approval(\"Manager\") permit(");
    let may_read = "@id(\"reads\") permit(principal, action == Action::\"read_record\", resource);";
    let sealed = bundle_without_tests(1, &format!("{approvable}\n{may_read}"));
    let expected = sealed.reference();
    rollout.write("1.bundle", &sealed.sign(&rollout.signer).unwrap());
    let service = rollout.start().await.unwrap();
    let authorizer = &service.policy.authorizer;
    let auditor = caller("lee", &["Auditor"]);
    let reading = authorizer.authorize_operator(&auditor, OperatorAction::ReadRecord);
    assert!(reading.allowed);
    assert_eq!(reading.bundle, Some(expected));
    let call = CallToApprove {
        id: ApprovalId::new(&Ambient::system()),
        caller: caller("tom", &[]),
        tool: tool("t"),
        arguments: b"{}".as_slice().into(),
        client_ip: String::new(),
    };
    let manager = caller("mia", &["Manager"]);
    let approved = authorizer.approve(&manager, &call, true).unwrap();
    assert!(approved.outcome.is_ok());
    assert_eq!(approved.bundle, Some(expected));
}

#[tokio::test]
async fn a_bundle_with_the_same_policies_is_another_version_to_those_who_watch() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("same"));
    let mut service = rollout.start().await.unwrap();
    let mut version = service.policy.authorizer.version();
    let first = *version.borrow_and_update();
    rollout.publish(2, &policies("same"));
    service.follower.poll(&service.policy.authorizer).await;
    assert!(version.has_changed().unwrap());
    let second = *version.borrow_and_update();
    assert_eq!(first.hash, second.hash);
    assert_eq!(first.bundle.unwrap().version, 1);
    assert_eq!(second.bundle.unwrap().version, 2);
}

#[tokio::test]
async fn a_candidate_comes_from_a_bundle_and_a_refused_one_changes_nothing() {
    let rollout = RolloutSetup::new();
    let hash = |version: u64, policies: &str| {
        let tried = try_bundle(&bundle(version, policies)).unwrap();
        Some(tried.hash())
    };
    let shadow = ShadowEvaluator::new(CallHistory::default());
    let mut candidate = CandidateFollower::new(rollout.config());
    let forged = bundle(9, &policies("v9")).sign(&signer()).unwrap();
    rollout.write("forged.bundle", &forged);
    for _ in 0..2 {
        candidate.load_newer_bundle(&shadow).await;
        let report = shadow.report(None);
        assert_eq!(report.candidate_hash, None);
        let fault = report.fault;
        assert!(fault.contains("not signed by a trusted key"), "{fault}");
        assert!(fault.starts_with("policy.shadow.bundle: "), "{fault}");
    }
    rollout.publish(1, &policies("v1"));
    candidate.load_newer_bundle(&shadow).await;
    let report = shadow.report(None);
    assert_eq!(report.candidate_hash, hash(1, &policies("v1")));
    assert_eq!(report.fault, "");
    rollout.publish(2, "// nobody may do anything");
    candidate.load_newer_bundle(&shadow).await;
    let kept = shadow.report(None).candidate_hash;
    assert_eq!(
        kept,
        hash(1, &policies("v1")),
        "the tests of version 2 fail"
    );
    rollout.publish(3, &policies("v3"));
    candidate.load_newer_bundle(&shadow).await;
    let newer = hash(3, &policies("v3"));
    assert_eq!(shadow.report(None).candidate_hash, newer);
    // After a restart, an older version is refused, and the former candidate is evaluated.
    rollout.withdraw("3.bundle");
    let restarted = ShadowEvaluator::new(CallHistory::default());
    let mut candidate = CandidateFollower::new(rollout.config());
    candidate.load_newer_bundle(&restarted).await;
    assert_eq!(restarted.report(None).candidate_hash, newer);
}

#[tokio::test]
async fn a_source_of_candidates_is_followed_once_its_key_can_be_read() {
    let rollout = RolloutSetup::new();
    rollout.publish(1, &policies("v1"));
    let (key, away) = (rollout.path("key.pem"), rollout.path("away.pem"));
    std::fs::rename(&key, &away).unwrap();
    let shadow = ShadowEvaluator::new(CallHistory::default());
    let config = BundleConfig {
        poll_interval: Duration::from_secs(1),
        ..rollout.config()
    };
    candidate::follow(&shadow, config);
    let fault = until("the fault is reported", async || {
        Some(shadow.report(None).fault).filter(|fault| !fault.is_empty())
    })
    .await;
    assert!(
        fault.starts_with("policy.shadow.bundle.public_key_files"),
        "{fault}"
    );
    std::fs::rename(&away, &key).unwrap();
    until_true("the candidate is evaluated", async || {
        shadow.report(None).candidate_hash.is_some()
    })
    .await;
}

#[test]
fn the_policies_of_a_bundle_have_the_hash_of_the_same_files_in_a_directory() {
    let dir = super::fixture::Dir::with(&policies("v1"));
    let tried = try_bundle(&bundle(1, &policies("v1"))).unwrap();
    assert_eq!(tried.hash(), dir.load().unwrap().hash());
}
