//! Only callers whom the policies allow can read the record.

use wardgate_domain::{Caller, OperatorAction};

use super::fixture::{Dir, TestPolicy};
use super::samples::caller;

const BY_AUDITORS: &str = r#"
@id("auditors") permit(principal in Role::"Auditor", action == Action::"read_record", resource);
@id("never") forbid(principal == User::"mallory", action == Action::"read_record", resource);
"#;

fn may(test_policy: &TestPolicy, caller: &Caller) -> bool {
    may_read(test_policy, caller, OperatorAction::ReadRecord)
}

fn may_read(test_policy: &TestPolicy, caller: &Caller, action: OperatorAction) -> bool {
    test_policy
        .authorizer
        .authorize_operator(caller, action)
        .allowed
}

#[test]
fn what_callers_did_themselves_is_a_question_of_its_own() {
    const OWN: &str = r#"
@id("own") permit(principal, action == Action::"read_own_record", resource);
@id("not-billing") forbid(principal in Role::"Billing", action == Action::"read_own_record", resource);
"#;
    let test_policy = TestPolicy::with(&format!("{BY_AUDITORS}{OWN}"));
    let doctor = caller("dr.yenji", &["Doctor"]);
    assert!(may_read(
        &test_policy,
        &doctor,
        OperatorAction::ReadOwnRecord
    ));
    assert!(!may_read(&test_policy, &doctor, OperatorAction::ReadRecord));
    let billing = caller("ruiz", &["Billing"]);
    assert!(!may_read(
        &test_policy,
        &billing,
        OperatorAction::ReadOwnRecord
    ));
}

#[test]
fn the_right_to_the_whole_record_opens_nobody_their_own() {
    let test_policy = TestPolicy::with(BY_AUDITORS);
    let auditor = caller("lee", &["Auditor"]);
    assert!(!may_read(
        &test_policy,
        &auditor,
        OperatorAction::ReadOwnRecord
    ));
    assert!(may_read(&test_policy, &auditor, OperatorAction::ReadRecord));
}

#[test]
fn the_record_is_read_by_whom_the_policies_name_and_no_one_else() {
    let test_policy = TestPolicy::with(BY_AUDITORS);
    assert!(may(&test_policy, &caller("lee", &["Auditor"])));
    assert!(!may(&test_policy, &caller("lee", &["Doctor"])));
    assert!(!may(&test_policy, &caller("mallory", &["Auditor"])));
}

#[test]
fn a_right_to_call_opens_the_record_to_nobody() {
    let test_policy = TestPolicy::with(
        r#"@id("all") permit(principal, action == Action::"call_tool", resource);"#,
    );
    assert!(!may(&test_policy, &caller("lee", &["Auditor"])));
}

#[test]
fn a_rule_that_always_fails_is_refused_at_load() {
    let dir = Dir::with(
        r#"@id("broken") forbid(principal, action == Action::"read_record", resource)
        when { 9223372036854775807 + 1 == 0 };"#,
    );
    let refused = dir.load().unwrap_err().to_string();
    assert!(refused.contains("`broken` fails to evaluate"), "{refused}");
}
