//! A pipeline that lets a change of policies pass only if it is proved that nobody gains access.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, run, test_dependency};

use crate::WARDGATE;

const OWN_WARD: &str = r#"
@id("nurses-call-tools") permit (principal in Role::"Nurse", action == Action::"call_tool", resource);
@id("nurses-read-their-ward") permit (principal in Role::"Nurse", action == Action::"read", resource is Patient)
when { principal has ward && resource has ward && resource.ward == principal.ward };
"#;

fn write_policies(dir: &Path, name: &str, policies: &str) -> String {
    let dir = dir.join(name);
    fs::create_dir(&dir).unwrap();
    let schema = "entity User { ward?: String }; entity Patient { ward?: String };";
    fs::write(dir.join("ward.cedarschema"), schema).unwrap();
    fs::write(dir.join("nurse.cedar"), policies).unwrap();
    dir.display().to_string()
}

fn diff(words: &[&str]) -> ProcessExit {
    let words = [&["policy", "diff"], words].concat();
    run(WARDGATE.as_ref(), &words, &[("PATH", "/nonexistent")])
}

#[test]
fn a_pipeline_can_require_the_proof_that_nobody_gains_access() {
    let dir = TempDir::new().unwrap();
    let before = write_policies(dir.path(), "before", OWN_WARD);
    let wider = OWN_WARD.replace(" && resource.ward == principal.ward", "");
    let wider = write_policies(dir.path(), "wider", &wider);

    // Without a solver, there is a search and no proof.
    let found = diff(&[&before, &before]).success();
    assert!(
        found.ends_with("Without the solver cvc5, nothing is proved.\n"),
        "{found}"
    );
    let required = diff(&[&before, &before, "--require-proof"]);
    assert_eq!(required.code, Some(1));
    assert!(
        required.stderr.contains("cannot use the solver cvc5"),
        "{required:?}"
    );

    let Some(solver) = test_dependency("WARDGATE_TEST_SOLVER") else {
        return;
    };
    let with = |after: &str| {
        diff(&[
            &before,
            after,
            "--solver",
            &solver,
            "--require-proof",
            "-o",
            "json",
        ])
    };
    let same: Value = serde_json::from_str(&with(&before).success()).unwrap();
    assert_eq!(same["proof"]["proved"], true, "{same}");
    assert_eq!(same["proof"]["unproved"], Value::Array(Vec::new()));
    let gained = with(&wider);
    assert_eq!(gained.code, Some(1));
    let document: Value = serde_json::from_str(&gained.stdout).unwrap();
    assert_eq!(document["proof"]["proved"], false, "{document}");
    let unproved = &document["proof"]["unproved"][0];
    assert_eq!(unproved["what"], "reads rows of Patient", "{document}");
    assert_eq!(unproved["obstacle"], "gain", "{document}");
    // The search agrees.
    assert_eq!(document["changes"][0]["gains"], true, "{document}");
}
