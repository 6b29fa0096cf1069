//! Only callers whom the policies allow can read a conversation of somebody else.

use wardgate_domain::{AttributeValue, Caller, ConversationFacts};

use super::fixture::{Dir, TestPolicy};
use super::samples::{caller, caller_with};

const OF_THE_TEAM: &str = r#"
@id("lead") permit(principal in Role::"Lead", action == Action::"recall", resource)
when { resource.tenant == principal.tenant && resource.owner != User::"chief" };
@id("never") forbid(principal == User::"mallory", action == Action::"recall", resource);
"#;

fn conversation(owner: &str, tenant: &str) -> ConversationFacts {
    ConversationFacts {
        key: "0192d1a0-0000-7000-8000-000000000001".parse().unwrap(),
        owner: owner.to_owned(),
        tenant: tenant.to_owned(),
    }
}

fn may(test_policy: &TestPolicy, caller: &Caller, of: &ConversationFacts) -> bool {
    test_policy.authorizer.authorize_recall(caller, of).allowed
}

#[test]
fn a_conversation_is_shared_with_whom_the_policies_name_and_no_one_else() {
    let test_policy = TestPolicy::with(OF_THE_TEAM);
    let lead = caller("l", &["Lead"]);
    assert!(may(&test_policy, &lead, &conversation("anna", "")));
    assert!(!may(
        &test_policy,
        &lead,
        &conversation("anna", "elsewhere")
    ));
    assert!(!may(&test_policy, &lead, &conversation("chief", "")));
    assert!(!may(
        &test_policy,
        &caller("n", &[]),
        &conversation("anna", "")
    ));
    assert!(!may(
        &test_policy,
        &caller("mallory", &["Lead"]),
        &conversation("anna", "")
    ));
}

#[test]
fn a_decision_carries_the_version_it_was_made_under() {
    let test_policy = TestPolicy::with(OF_THE_TEAM);
    let decision = test_policy
        .authorizer
        .authorize_recall(&caller("l", &["Lead"]), &conversation("anna", ""));
    assert_eq!(
        decision.policy_hash,
        test_policy.authorizer.version().borrow().hash
    );
}

#[test]
fn a_right_to_call_shares_nothing() {
    let test_policy = TestPolicy::with(
        r#"@id("all") permit(principal, action == Action::"call_tool", resource);"#,
    );
    assert!(!may(
        &test_policy,
        &caller("l", &["Lead"]),
        &conversation("anna", "")
    ));
}

#[test]
fn a_rule_that_fails_shares_nothing() {
    let test_policy = TestPolicy::with(
        r#"
        @id("all") permit(principal, action == Action::"recall", resource);
        @id("strict") forbid(principal, action == Action::"recall", resource)
        when { principal has level && principal.level + 9223372036854775807 == 0 };"#,
    );
    let senior = caller_with("s", &[], [("level", AttributeValue::Integer(1))]);
    assert!(!may(&test_policy, &senior, &conversation("anna", "")));
    assert!(may(
        &test_policy,
        &caller("junior", &[]),
        &conversation("anna", "")
    ));
}

#[test]
fn a_rule_that_always_fails_is_refused_at_load() {
    let dir = Dir::with(
        r#"@id("broken") forbid(principal, action == Action::"recall", resource)
        when { 9223372036854775807 + 1 == 0 };"#,
    );
    let refused = dir.load().unwrap_err().to_string();
    assert!(refused.contains("`broken` fails to evaluate"), "{refused}");
}
