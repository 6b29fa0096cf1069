//! Proofs that a change of policies gives nobody new access, by the solver that `WARDGATE_TEST_SOLVER` names.

use std::path::{Path, PathBuf};

use wardgate_testkit::test_dependency;

use super::fixture::{Dir, SCHEMA, hospital};
use crate::PolicySet;
use crate::comparison::{NoGainProof, ProofObstacle, prove_no_gain};

const STAFF_CALLS: &str = r#"@id("staff-calls") permit (principal in Role::"Staff", action == Action::"call_tool", resource);"#;

fn solver() -> Option<PathBuf> {
    test_dependency("WARDGATE_TEST_SOLVER").map(PathBuf::from)
}

fn prove(solver: &Path, before: &str, after: &str) -> NoGainProof {
    let [before, after] = [before, after].map(|policies| Dir::with(policies).load().unwrap());
    prove_no_gain(&before, &after, solver).unwrap()
}

/// Returns the questions without a proof, with the obstacles.
fn unproved_questions(solver: &Path, before: &str, after: &str) -> Vec<(String, ProofObstacle)> {
    let unproved = prove(solver, before, after).unproved.into_iter();
    unproved.map(|it| (it.what, it.obstacle)).collect()
}

/// Returns the only question without a proof, with its obstacle.
fn only_unproved(solver: &Path, before: &str, after: &str) -> (String, ProofObstacle) {
    let mut unproved = unproved_questions(solver, before, after);
    assert_eq!(unproved.len(), 1, "{unproved:?}");
    unproved.remove(0)
}

fn is_gain(obstacle: &ProofObstacle, part: &str) -> bool {
    matches!(obstacle, ProofObstacle::Gain(request) if request.contains(part))
}

#[test]
fn equivalent_and_narrower_policies_are_proved_to_give_nobody_access() {
    let Some(solver) = solver() else { return };
    let named = |condition: &str| {
        format!(
            r#"@id("p") permit (principal in Role::"Staff", action == Action::"read", resource is Row) when {{ {condition} }};"#
        )
    };
    let before = named("resource has owner && resource.owner == principal.subject");
    let same = named("if resource has owner then resource.owner == principal.subject else false");
    let narrower = named(
        "resource has owner && resource.owner == principal.subject && resource has n && resource.n < 5",
    );
    for after in [&before, &same, &narrower] {
        let proof = prove(&solver, &before, after);
        assert_eq!(proof.unproved, [], "{after}");
        // Four kinds of offers, two row types, four tiers, five operator actions, and conversations.
        assert_eq!(proof.questions, 16);
    }
    let (what, obstacle) = only_unproved(&solver, &narrower, &before);
    assert_eq!(what, "reads rows of Row");
    assert!(is_gain(&obstacle, "principal: User::"), "{obstacle}");
}

#[test]
fn a_gain_beyond_the_bounds_of_the_search_is_found() {
    let Some(solver) = solver() else { return };
    // The search tries the numbers in the policies and their neighbours, one attribute at a time.
    let before = format!(
        r#"{STAFF_CALLS} @id("other") forbid (principal, action == Action::"call_tool", resource)
        when {{ principal has level && principal has ward && principal.ward == principal.subject && principal.level == 7 }};"#
    );
    let (what, obstacle) = only_unproved(&solver, &before, STAFF_CALLS);
    assert_eq!(what, "calls tools");
    assert!(is_gain(&obstacle, "level: 7"), "{obstacle}");
}

#[test]
fn operators_and_readers_of_conversations_who_gain_access_are_found() {
    let Some(solver) = solver() else { return };
    for (action, what) in [
        ("read_record", "performs read_record"),
        ("recall", "reads conversations of others"),
    ] {
        let added = format!(
            r#"{STAFF_CALLS} @id("other") permit (principal in Role::"Staff", action == Action::"{action}", resource);"#
        );
        let (found, obstacle) = only_unproved(&solver, STAFF_CALLS, &added);
        assert_eq!(found, what);
        assert!(is_gain(&obstacle, "Role::\"Staff\""), "{obstacle}");
    }
}

#[test]
fn an_approval_that_was_not_enough_before_is_a_gain() {
    let Some(solver) = solver() else { return };
    let approved = |role: &str| {
        format!(
            r#"@id("p") @approval("{role}") permit (principal in Role::"Staff", action == Action::"call_tool", resource);"#
        )
    };
    let (lead, caller) = (approved("Lead"), approved("caller"));
    assert_eq!(unproved_questions(&solver, STAFF_CALLS, &lead), []);
    let (what, obstacle) = only_unproved(&solver, &lead, &caller);
    assert_eq!(what, "calls tools, approved by the caller");
    assert!(is_gain(&obstacle, ""), "{obstacle}");
    let (what, obstacle) = only_unproved(&solver, &lead, STAFF_CALLS);
    assert_eq!(what, "calls tools");
    assert!(is_gain(&obstacle, ""), "{obstacle}");
}

#[test]
fn policies_that_denied_by_failing_prove_nothing() {
    let Some(solver) = solver() else { return };
    let forbid = |condition: &str| {
        format!(
            r#"{STAFF_CALLS} @id("sum") forbid (principal, action == Action::"call_tool", resource)
            when {{ principal has level && {condition} }};"#
        )
    };
    // The addition overflows for the largest number, and the failure denies the request.
    let (failing, safe) = (
        forbid("principal.level + 1 == 0"),
        forbid("principal.level == -1"),
    );
    let (what, obstacle) = only_unproved(&solver, &failing, &safe);
    assert_eq!(what, "calls tools");
    assert_eq!(obstacle, ProofObstacle::CanFail("sum".to_owned()));
    assert_eq!(unproved_questions(&solver, &safe, &failing), []);
}

#[test]
fn a_milder_tier_is_a_gain_and_a_stricter_one_is_not_taken_for_one() {
    let Some(solver) = solver() else { return };
    let shows = |tier: &str| {
        format!(r#"@id("p") permit (principal, action == Action::"show_{tier}", resource);"#)
    };
    let (clear, partial) = (shows("clear"), shows("partial"));
    let (what, obstacle) = only_unproved(&solver, &partial, &clear);
    assert_eq!(what, "sees columns clear");
    assert!(is_gain(&obstacle, "Class::"), "{obstacle}");
    let (what, obstacle) = only_unproved(&solver, &clear, &partial);
    assert_eq!(what, "sees columns partial");
    assert_eq!(obstacle, ProofObstacle::MilderTier);
}

#[test]
fn schemas_that_differ_prove_nothing() {
    let Some(solver) = solver() else { return };
    // Under the first schema nobody has a badge, so the same policy permits less.
    let policies = r#"@id("p") permit (principal, action == Action::"call_tool", resource) when { principal has ward || principal has badge };"#;
    let before = Dir::with(policies).load().unwrap();
    let dir = Dir::with(policies);
    dir.write(
        "s.cedarschema",
        &SCHEMA.replace("ward?: String", "ward?: String, badge?: String"),
    );
    let after = dir.load().unwrap();
    let proof = prove_no_gain(&before, &after, &solver).unwrap();
    assert_eq!(proof.unproved.len(), proof.questions);
    for question in proof.unproved {
        assert_eq!(question.obstacle, ProofObstacle::Declarations);
    }
    // The order of declarations does not matter.
    let lines = SCHEMA.lines().rev().collect::<Vec<_>>();
    dir.write("s.cedarschema", &lines.join("\n"));
    let reordered = dir.load().unwrap();
    assert_eq!(
        prove_no_gain(&before, &reordered, &solver)
            .unwrap()
            .unproved,
        []
    );
}

#[test]
fn the_policies_of_the_hospital_are_proved_to_equal_themselves() {
    let Some(solver) = solver() else { return };
    let load = || PolicySet::load(&hospital()).unwrap();
    let proof = prove_no_gain(&load(), &load(), &solver).unwrap();
    assert_eq!(proof.unproved, []);
}

#[test]
fn a_program_that_is_no_solver_proves_nothing() {
    let set = Dir::with(STAFF_CALLS).load().unwrap();
    let missing = prove_no_gain(&set, &set, "/nonexistent/cvc5".as_ref());
    assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let other = prove_no_gain(&set, &set, "true".as_ref()).unwrap_err();
    assert_eq!(other.to_string(), "it is not cvc5 1.3.1 or later");
    // A program that a test writes could still be open in a process that another test starts, so this one is in the repository.
    let dir = tempfile::tempdir().unwrap();
    let fake = |name: &str| {
        let path = dir.path().join(name);
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/fake-solver");
        std::os::unix::fs::symlink(program, &path).unwrap();
        path
    };
    assert!(prove_no_gain(&set, &set, &fake("old")).is_err());
    let narrower = STAFF_CALLS.replace(';', " when { resource.read_only };");
    for name in ["ends", "error", "nonsense"] {
        let (what, obstacle) = only_unproved(&fake(name), STAFF_CALLS, &narrower);
        assert_eq!(what, "calls tools");
        assert!(
            matches!(obstacle, ProofObstacle::NoAnswer(_)),
            "{name}: {obstacle}"
        );
    }
}
