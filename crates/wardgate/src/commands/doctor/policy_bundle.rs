//! Check of the policy bundle: which bundle was put in force last, and whether the policy service could start with it.

use wardgate_policy::{BundleConfig, try_bundle};
use wardgate_policy_bundle::BundleState;

use super::finding::{Finding, FindingSubject};

/// The fix for a state file with which the policy service does not start.
const REMEDY: &str = "restore the file from a backup, or add the public key that signed it to policy.bundle.public_key_files; if the \
                      file is lost, set policy.bundle.minimum_version to the last version before it is removed";

/// Names the bundle in the state file by its version, digest and policy hash, as records of decisions name it. Returns
/// `None` if the policies come from a directory.
pub(super) fn examine(config: Option<&BundleConfig>) -> Option<Finding> {
    let config = config?;
    let Some(path) = &config.state_file else {
        let about = FindingSubject::new("policy bundle", "policy.bundle.state_file");
        let minimum = config.minimum_version;
        return Some(about.ok(format!(
            "is not set, so the bundle in force is not known here; versions below {minimum} are refused"
        )));
    };
    let about = FindingSubject::new("policy bundle", path.display().to_string());
    let kept = match BundleState::new(Some(path.clone())).read_bundle() {
        Ok(Some(kept)) => kept,
        Ok(None) => {
            let remedy = "nothing, before the first start; otherwise the policy service uses another file, or refused every bundle";
            return Some(about.warn("does not exist: no bundle was put in force", remedy));
        }
        Err(error) => return Some(about.fail(format!("cannot be read: {error}"), REMEDY)),
    };
    let verifier = config.verifier().map_err(|error| error.to_string());
    let opened = verifier.and_then(|verifier| {
        let opened = kept.open(&verifier);
        opened.map_err(|error| error.to_string())
    });
    let bundle = match opened {
        Ok(bundle) => bundle,
        Err(problem) => return Some(about.fail(problem, REMEDY)),
    };
    let (reference, minimum) = (bundle.reference(), config.minimum_version);
    if reference.version < minimum {
        let problem = format!("bundle {reference} is below bundle.minimum_version, {minimum}");
        return Some(about.fail(problem, "publish a bundle with a higher version"));
    }
    Some(match try_bundle(&bundle) {
        Ok(set) => about.ok(format!(
            "bundle {reference} was put in force last; its policy hash is {}",
            set.hash()
        )),
        Err(refusal) => about.fail(
            format!("bundle {reference} cannot be used: {refusal}"),
            "publish a corrected bundle with a higher version",
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use aws_lc_rs::signature::Ed25519KeyPair;
    use wardgate_policy_bundle::{BundleSigner, BundledFile, PolicyBundle};

    use super::*;
    use crate::commands::doctor::finding::CheckStatus;

    fn signer() -> BundleSigner {
        let key = Ed25519KeyPair::generate().unwrap();
        BundleSigner::from_pkcs8(key.to_pkcs8().unwrap().as_ref()).unwrap()
    }

    fn config(dir: &Path, signer: &BundleSigner) -> BundleConfig {
        let key = dir.join("key.pem");
        std::fs::write(&key, signer.public_key_pem()).unwrap();
        BundleConfig {
            state_file: Some(dir.join("state")),
            ..BundleConfig::new("bundles", vec![key])
        }
    }

    #[test]
    fn the_bundle_in_force_is_named_by_version_digest_and_policy_hash() {
        let dir = tempfile::tempdir().unwrap();
        let signer = signer();
        let config = config(dir.path(), &signer);
        let finding = examine(Some(&config)).unwrap();
        assert_eq!(finding.verdict, CheckStatus::Warn, "{finding}");
        let file = BundledFile {
            path: "p.cedar".to_owned(),
            text: "// nobody may do anything".to_owned(),
        };
        let bundle = PolicyBundle::new(7, vec![file], Vec::new()).unwrap();
        std::fs::write(dir.path().join("state"), bundle.sign(&signer).unwrap()).unwrap();
        let finding = examine(Some(&config)).unwrap();
        assert_eq!(finding.verdict, CheckStatus::Ok, "{finding}");
        let text = finding.to_string();
        let hash = try_bundle(&bundle).unwrap().hash().to_string();
        for part in [bundle.reference().to_string(), hash] {
            assert!(text.contains(&part), "{part} in {text}");
        }
        let newer = BundleConfig {
            minimum_version: 8,
            ..config
        };
        let finding = examine(Some(&newer)).unwrap();
        assert_eq!(finding.verdict, CheckStatus::Fail, "{finding}");
    }

    #[test]
    fn a_bundle_that_no_trusted_key_signed_fails_the_check() {
        let dir = tempfile::tempdir().unwrap();
        let trusted = signer();
        let config = config(dir.path(), &trusted);
        let bundle = PolicyBundle::new(1, Vec::new(), Vec::new()).unwrap();
        let sealed = bundle.sign(&signer()).unwrap();
        std::fs::write(dir.path().join("state"), sealed).unwrap();
        let finding = examine(Some(&config)).unwrap();
        assert_eq!(finding.verdict, CheckStatus::Fail, "{finding}");
    }

    #[test]
    fn policies_of_a_directory_have_no_bundle_to_check() {
        assert_eq!(examine(None), None);
    }
}
