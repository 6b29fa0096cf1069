//! Proofs that a change of policies gives nobody new access, by the solver that `WARDGATE_TEST_SOLVER` names.

use std::path::{Path, PathBuf};

use wardgate_testkit::test_dependency;

use super::fixture::{Dir, hospital};
use crate::PolicySet;
use crate::comparison::{GainProof, prove_no_gain};

const STAFF_CALLS: &str = r#"@id("staff-calls") permit (principal in Role::"Staff", action == Action::"call_tool", resource);"#;

fn solver() -> Option<PathBuf> {
    test_dependency("WARDGATE_TEST_SOLVER").map(PathBuf::from)
}

async fn prove(solver: &Path, before: &str, after: &str) -> GainProof {
    let [before, after] = [before, after].map(|policies| Dir::with(policies).load().unwrap());
    prove_no_gain(&before, &after, solver).await.unwrap()
}

/// Returns the questions without a proof, with the reasons.
async fn unproved(solver: &Path, before: &str, after: &str) -> Vec<(String, String)> {
    let unproved = prove(solver, before, after).await.unproved.into_iter();
    unproved.map(|it| (it.what, it.reason)).collect()
}

#[tokio::test]
async fn equivalent_and_narrower_policies_are_proved_to_give_nobody_access() {
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
        let proof = prove(&solver, &before, after).await;
        assert_eq!(proof.unproved, [], "{after}");
        // Four kinds of offers, two row types, four tiers, five operator actions, and conversations.
        assert_eq!(proof.questions, 16);
    }
    let wider = unproved(&solver, &narrower, &before).await;
    let [(what, reason)] = &wider[..] else {
        panic!("{wider:?}")
    };
    assert_eq!(what, "reads rows of Row");
    assert!(reason.starts_with("only the new policies allow this request:\nprincipal: User::"));
}

#[tokio::test]
async fn a_gain_beyond_the_bounds_of_the_search_is_found() {
    let Some(solver) = solver() else { return };
    // The search tries the numbers in the policies and their neighbours, one attribute at a time.
    let before = format!(
        "{STAFF_CALLS} @id(\"other\") forbid (principal, action == Action::\"call_tool\", resource) when {{ principal has level && principal has ward && principal.ward == principal.subject && principal.level == 7 }};"
    );
    let gained = unproved(&solver, &before, STAFF_CALLS).await;
    let [(what, reason)] = &gained[..] else {
        panic!("{gained:?}")
    };
    assert_eq!(what, "calls tools");
    assert!(reason.contains("level: 7"), "{reason}");
}

#[tokio::test]
async fn an_approval_that_was_not_enough_before_is_a_gain() {
    let Some(solver) = solver() else { return };
    let approved = |role: &str| {
        format!(
            r#"@id("p") @approval("{role}") permit (principal in Role::"Staff", action == Action::"call_tool", resource);"#
        )
    };
    let (lead, caller) = (approved("Lead"), approved("caller"));
    let what = |unproved: Vec<(String, String)>| {
        let what = unproved.into_iter().map(|(what, _)| what);
        what.collect::<Vec<_>>()
    };
    assert_eq!(what(unproved(&solver, STAFF_CALLS, &lead).await), [""; 0]);
    assert_eq!(
        what(unproved(&solver, &lead, &caller).await),
        ["calls tools, approved by the caller"]
    );
    assert_eq!(
        what(unproved(&solver, &lead, STAFF_CALLS).await),
        ["calls tools"]
    );
}

#[tokio::test]
async fn policies_that_denied_by_failing_prove_nothing() {
    let Some(solver) = solver() else { return };
    // The addition overflows for the largest number, and the failure denies the request.
    let failing = format!(
        "{STAFF_CALLS} @id(\"sum\") forbid (principal, action == Action::\"call_tool\", resource) when {{ principal has level && principal.level + 1 == 0 }};"
    );
    let safe = format!(
        "{STAFF_CALLS} @id(\"other\") forbid (principal, action == Action::\"call_tool\", resource) when {{ principal has level && principal.level == -1 }};"
    );
    let gained = unproved(&solver, &failing, &safe).await;
    let [(what, reason)] = &gained[..] else {
        panic!("{gained:?}")
    };
    assert_eq!(what, "calls tools");
    assert!(reason.contains("the old policy `sum` can fail"), "{reason}");
}

#[tokio::test]
async fn a_milder_tier_is_a_gain_and_a_stricter_one_is_not_taken_for_one() {
    let Some(solver) = solver() else { return };
    let shows = |tier: &str| {
        format!(r#"@id("p") permit (principal, action == Action::"show_{tier}", resource);"#)
    };
    let (clear, partial) = (shows("clear"), shows("partial"));
    let milder = unproved(&solver, &partial, &clear).await;
    let [(what, reason)] = &milder[..] else {
        panic!("{milder:?}")
    };
    assert_eq!(what, "sees columns clear");
    assert!(
        reason.starts_with("only the new policies allow"),
        "{reason}"
    );
    let stricter = unproved(&solver, &clear, &partial).await;
    let [(what, reason)] = &stricter[..] else {
        panic!("{stricter:?}")
    };
    assert_eq!(what, "sees columns partial");
    assert!(reason.contains("milder tier"), "{reason}");
}

#[tokio::test]
async fn declarations_that_differ_prove_nothing() {
    let Some(solver) = solver() else { return };
    let policies = r#"@id("p") permit (principal, action == Action::"read", resource is Row);"#;
    let before = Dir::with(policies).load().unwrap();
    let dir = Dir::with(policies);
    let declare = |n: &str| {
        dir.write(
            "s.cedarschema",
            &format!("entity User {{ ward?: String, level?: Long, new?: String }}; entity Row {{ owner?: String, n?: {n}, open?: Bool }}; entity Other {{ owner: String }};"),
        );
        dir.load().unwrap()
    };
    let added = prove_no_gain(&before, &declare("Long"), &solver).await;
    assert_eq!(added.unwrap().unproved, []);
    let changed = prove_no_gain(&before, &declare("String"), &solver).await;
    let unproved = changed.unwrap().unproved;
    let [question] = &unproved[..] else {
        panic!("{unproved:?}")
    };
    assert_eq!(question.what, "reads rows of Row");
    assert!(question.reason.contains("`n` of Row"), "{question:?}");
}

#[tokio::test]
async fn the_policies_of_the_hospital_are_proved_to_equal_themselves() {
    let Some(solver) = solver() else { return };
    let load = || PolicySet::load(&hospital()).unwrap();
    let proof = prove_no_gain(&load(), &load(), &solver).await.unwrap();
    assert_eq!(proof.unproved, []);
}

#[tokio::test]
async fn a_program_that_is_no_solver_proves_nothing() {
    let set = Dir::with(STAFF_CALLS).load().unwrap();
    let missing = prove_no_gain(&set, &set, "/nonexistent/cvc5".as_ref()).await;
    assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let narrower = STAFF_CALLS.replace(';', " when { resource.read_only };");
    let unproved = unproved("true".as_ref(), STAFF_CALLS, &narrower).await;
    let [(what, _)] = &unproved[..] else {
        panic!("{unproved:?}")
    };
    assert_eq!(what, "calls tools");
}
