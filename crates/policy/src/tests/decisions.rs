//! Any fault leads to a denial, and a permit allows no more than was decided.

use std::time::Duration;

use wardgate_domain::{
    AttributeValue, CallToRun, ColumnTier, DenialReason, Digest, PermitRefusal, Verdict,
};

use super::fixture::{Dir, SCHEMA, TestPolicy, start, tool};
use super::samples::{admits, caller, caller_with, row, text, token_end};
use crate::history::EarlierCalls;

const ANYBODY: &str = r#"
@id("anybody") permit(principal, action == Action::"call_tool", resource);
"#;

/// A condition that overflows for a caller with a level of 1 or more, but not for the made-up caller of the trial,
/// whose level is 0.
const OVERFLOW: &str = "principal has level && principal.level + 9223372036854775807 == 0";

#[test]
fn a_forbid_that_fails_denies() {
    let test_policy = TestPolicy::with(&format!(
        r#"{ANYBODY}
        @id("strict") forbid(principal, action == Action::"call_tool", resource) when {{ {OVERFLOW} }};"#
    ));
    let senior = caller_with("s", &[], [("level", AttributeValue::Integer(1))]);
    let decision = test_policy.authorize(&senior, &tool("t"), "{}");
    assert!(matches!(
        decision.verdict,
        Verdict::Deny {
            reason: DenialReason::PolicyError,
            visible: false
        }
    ));
    assert_eq!(decision.policies, ["strict"]);
    test_policy.permit(&caller("junior", &[]), &tool("t"), "{}");
}

#[test]
fn a_forbid_that_fails_on_arguments_denies_too() {
    let test_policy = TestPolicy::with(&format!(
        r#"{ANYBODY}
        @id("strict") forbid(principal, action == Action::"call_tool", resource)
        when {{ context.arguments.hasTag("x") && {OVERFLOW} }};"#
    ));
    let senior = caller_with("s", &[], [("level", AttributeValue::Integer(1))]);
    assert_eq!(
        test_policy.denial(&senior, &tool("t"), r#"{"x": 1}"#),
        (DenialReason::PolicyError, true)
    );
    test_policy.permit(&senior, &tool("t"), "{}");
}

#[test]
fn a_row_or_column_rule_that_fails_denies_the_call() {
    let senior = caller_with("s", &[], [("level", AttributeValue::Integer(1))]);
    for action in ["read", "show_clear"] {
        let test_policy = TestPolicy::with(&format!(
            r#"{ANYBODY}
            @id("strict") forbid(principal, action == Action::"{action}", resource) when {{ {OVERFLOW} }};"#
        ));
        assert_eq!(
            test_policy.denial(&senior, &tool("t"), "{}"),
            (DenialReason::PolicyError, true),
            "{action}"
        );
        test_policy.permit(&caller("junior", &[]), &tool("t"), "{}");
    }
}

#[test]
fn a_row_rule_that_fails_for_some_rows_only_denies_the_call() {
    let test_policy = TestPolicy::with(&format!(
        r#"{ANYBODY}
        @id("strict") forbid(principal, action == Action::"read", resource is Row)
        when {{ resource has owner && resource.owner == "x" && {OVERFLOW} }};
        @id("all") permit(principal, action == Action::"read", resource);"#
    ));
    let senior = caller_with("s", &[], [("level", AttributeValue::Integer(1))]);
    assert_eq!(
        test_policy.denial(&senior, &tool("t"), "{}").0,
        DenialReason::PolicyError
    );
}

#[test]
fn a_row_rule_that_would_need_the_callers_roles_again_denies_the_call() {
    // Partial evaluation resolves the condition for the made-up callers of the trial, who have no ward "hidden".
    let test_policy = TestPolicy::with(&format!(
        r#"{ANYBODY}
        @id("tricky") forbid(principal, action == Action::"read", resource is Row)
        when {{ principal has ward && principal.ward == "hidden" &&
                principal in (if resource has open && resource.open then Role::"A" else Role::"B") }};
        @id("all") permit(principal, action == Action::"read", resource);"#
    ));
    let tricky = caller_with("s", &["A"], [("ward", text("hidden"))]);
    let decision = test_policy.authorize(&tricky, &tool("t"), "{}");
    assert!(matches!(
        decision.verdict,
        Verdict::Deny {
            reason: DenialReason::PolicyError,
            ..
        }
    ));
    assert_eq!(decision.policies, ["tricky"]);
}

#[test]
fn rows_of_an_unknown_type_deny_the_call() {
    let test_policy = TestPolicy::with(ANYBODY);
    let mut unknown = tool("t");
    unknown.entity = Some("Nowhere".to_owned());
    assert_eq!(
        test_policy.denial(&caller("s", &[]), &unknown, "{}"),
        (DenialReason::PolicyError, true)
    );
}

#[test]
fn rows_that_are_not_governed_have_no_rule() {
    let test_policy = TestPolicy::with(ANYBODY);
    let mut free = tool("t");
    free.entity = None;
    assert_eq!(
        test_policy.permit(&caller("s", &[]), &free, "{}").row_rule,
        None
    );
}

#[test]
fn a_permit_with_forbids_left_over_still_admits() {
    let test_policy = TestPolicy::with(&format!(
        r#"{ANYBODY}
        @id("all") permit(principal, action == Action::"read", resource is Row);
        @id("closed") forbid(principal, action == Action::"read", resource is Row)
        unless {{ resource has open && resource.open }};"#
    ));
    let rule = test_policy
        .permit(&caller("s", &[]), &tool("t"), "{}")
        .row_rule
        .unwrap();
    assert!(!rule.all);
    assert!(admits(&rule, "s", &row([("open", "true")])));
    assert!(!admits(&rule, "s", &row([("open", "false")])));
    assert!(!admits(&rule, "s", &row([])));
}

#[test]
fn a_caller_without_a_mandatory_attribute_is_denied_everything() {
    let dir = Dir::with(ANYBODY);
    dir.write(
        "s.cedarschema",
        &SCHEMA.replace("ward?: String", "ward: String"),
    );
    let test_policy = TestPolicy::over(dir.load().unwrap());
    assert_eq!(
        test_policy.denial(&caller("s", &[]), &tool("t"), "{}"),
        (DenialReason::PolicyError, false)
    );
    let misfit = caller_with("s", &[], [("ward", AttributeValue::Integer(2))]);
    assert_eq!(
        test_policy.denial(&misfit, &tool("t"), "{}"),
        (DenialReason::PolicyError, false)
    );
    test_policy.permit(
        &caller_with("s", &[], [("ward", text("W"))]),
        &tool("t"),
        "{}",
    );
}

#[test]
fn only_declared_attributes_of_the_declared_type_reach_the_policies() {
    let test_policy = TestPolicy::with(
        r#"@id("w") permit(principal, action == Action::"call_tool", resource) when { principal has ward };
           @id("s") forbid(principal, action == Action::"call_tool", resource)
           when { principal.subject == "forged" || principal.tenant == "forged" };"#,
    );
    test_policy.permit(
        &caller_with("s", &[], [("ward", text("W"))]),
        &tool("t"),
        "{}",
    );
    test_policy.denial(
        &caller_with("s", &[], [("ward", AttributeValue::Boolean(true))]),
        &tool("t"),
        "{}",
    );
    let forging = [
        ("ward", text("W")),
        ("subject", text("forged")),
        ("tenant", text("forged")),
        ("x", text("y")),
    ];
    test_policy.permit(&caller_with("s", &[], forging), &tool("t"), "{}");
}

#[test]
fn a_decision_on_arguments_binds_its_permit_to_them() {
    let test_policy = TestPolicy::with(
        r#"@id("a") permit(principal, action == Action::"call_tool", resource)
           when { context.arguments.hasTag("n") && context.arguments.getTag("n") == "10" };"#,
    );
    let (caller, tool) = (caller("s", &[]), tool("t"));
    let arguments = r#"{"n": 10}"#;
    let Verdict::Allow(signed) = test_policy.authorize(&caller, &tool, arguments).verdict else {
        panic!()
    };
    let verified = test_policy.verifier.verify(&signed).unwrap();
    let call = CallToRun {
        caller: &caller,
        tool: &tool.name,
        definition_digest: tool.definition_digest,
        arguments: arguments.as_bytes(),
    };
    verified.admit(call, start()).unwrap();
    let other = CallToRun {
        arguments: br#"{"n":10}"#,
        ..call
    };
    assert_eq!(
        verified.admit(other, start()).unwrap_err(),
        PermitRefusal::Arguments
    );

    assert_eq!(
        test_policy.denial(&caller, &tool, r#"{"n": 11}"#),
        (DenialReason::NotPermitted, true)
    );
    assert_eq!(
        test_policy.denial(&caller, &tool, "{}"),
        (DenialReason::NotPermitted, true)
    );
}

#[test]
fn arguments_that_are_no_object_are_refused_where_they_matter() {
    let test_policy = TestPolicy::with(
        r#"@id("a") permit(principal, action == Action::"call_tool", resource)
           when { context.arguments.hasTag("n") };"#,
    );
    for bad in ["", "[]", r#"{"n": 1, "n": 2}"#, "{"] {
        let refused = test_policy.authorizer.authorize(
            &caller("s", &[]),
            &tool("t"),
            bad.as_bytes(),
            "",
            None,
            EarlierCalls::without_call(),
        );
        assert_eq!(refused.unwrap_err().name(), "arguments_json", "{bad}");
    }
}

#[test]
fn a_forbid_on_arguments_or_address_hides_nothing_but_denies() {
    let test_policy = TestPolicy::with(&format!(
        r#"{ANYBODY}
        @id("deep") forbid(principal, action == Action::"call_tool", resource)
        when {{ context.arguments.hasTag("path") && context.arguments.getTag("path") like "*..*" }};
        @id("far") forbid(principal, action == Action::"call_tool", resource)
        unless {{ context has client_ip && context.client_ip.isInRange(ip("10.0.0.0/8")) }};"#
    ));
    let decide = |arguments: &str, client_ip| {
        let decision = test_policy.authorizer.authorize(
            &caller("s", &[]),
            &tool("t"),
            arguments.as_bytes(),
            client_ip,
            None,
            EarlierCalls::without_call(),
        );
        let decision = decision.unwrap();
        (
            matches!(decision.verdict, Verdict::Allow(_)),
            decision.policies.join(" "),
        )
    };
    assert_eq!(decide("{}", "10.1.2.3"), (true, "anybody".to_owned()));
    assert_eq!(
        decide(r#"{"path": "a/../b"}"#, "10.1.2.3"),
        (false, "deep".to_owned())
    );
    assert_eq!(decide("{}", "192.0.2.1"), (false, "far".to_owned()));
    assert_eq!(decide("{}", ""), (false, "far".to_owned()));
}

#[test]
fn a_permit_says_who_what_and_until_when() {
    let test_policy = TestPolicy::with(ANYBODY);
    let (caller, tool) = (caller("s", &["R"]), tool("t"));
    let decision = test_policy.authorize(&caller, &tool, "{}");
    let Verdict::Allow(signed) = &decision.verdict else {
        panic!()
    };
    let terms = signed.unverified_terms().unwrap();
    assert_eq!(terms.decision_id, decision.id);
    assert_eq!(terms.caller_digest, caller.digest());
    assert_eq!(
        (&terms.tool, terms.definition_digest),
        (&tool.name, tool.definition_digest)
    );
    assert_eq!(terms.policy_hash, decision.policy_hash);
    assert_eq!(terms.not_before, start().minus(Duration::from_secs(5)));
    assert_eq!(terms.expires_at, start().plus(Duration::from_secs(30)));
    assert_ne!(
        test_policy.permit(&caller, &tool, "{}").id,
        terms.id,
        "each decision has a permit of its own"
    );
}

#[test]
fn a_permit_never_outlives_the_token() {
    let test_policy = TestPolicy::with(ANYBODY);
    let (caller, tool) = (caller("s", &[]), tool("t"));
    let almost_at_the_end = token_end().minus(Duration::from_secs(10)).since(start());
    test_policy.clock.advance(almost_at_the_end);
    assert_eq!(
        test_policy.permit(&caller, &tool, "{}").expires_at,
        token_end()
    );
}

#[test]
fn a_tool_that_there_is_not_is_denied_like_a_hidden_one_whatever_the_policies_allow() {
    for policies in [ANYBODY, ""] {
        let test_policy = TestPolicy::with(policies);
        let denied = test_policy.authorizer.deny_unknown(
            &caller("s", &["R"]),
            "no_such_tool".parse().unwrap(),
            b"{}",
            "",
        );
        assert!(matches!(
            denied.unwrap().verdict,
            Verdict::Deny {
                reason: DenialReason::NotPermitted,
                visible: false
            }
        ));
    }
}

#[test]
fn the_mildest_tier_that_is_allowed_wins_and_families_count() {
    let test_policy = TestPolicy::with(&format!(
        r#"{ANYBODY}
        @id("1") permit(principal, action == Action::"show_generalised", resource in Class::"a");
        @id("2") permit(principal, action == Action::"show_pseudonym", resource in Class::"a.b");
        @id("3") permit(principal, action == Action::"show_clear", resource == Class::"a.b.c");
        @id("4") forbid(principal, action, resource == Class::"a.secret");"#
    ));
    let mut tool = tool("t");
    let classes = ["a.b.c", "a.b.d", "a.e", "ab", "a.secret", "unclassified"];
    tool.classes = classes.iter().map(|class| class.parse().unwrap()).collect();
    let tiers = test_policy
        .permit(&caller("s", &[]), &tool, "{}")
        .column_tiers;
    let shown: Vec<_> = tiers
        .iter()
        .map(|(class, tier)| (class.as_str(), *tier))
        .collect();
    assert_eq!(
        shown,
        [
            ("a.b.c", ColumnTier::Clear),
            ("a.b.d", ColumnTier::Pseudonym),
            ("a.e", ColumnTier::Generalised)
        ]
    );
}

#[test]
fn tags_and_the_read_only_hint_count() {
    let test_policy = TestPolicy::with(
        r#"@id("r") permit(principal, action == Action::"call_tool", resource in Tag::"safe")
           when { resource.read_only };"#,
    );
    let caller = caller("s", &[]);
    let mut tool = tool("t");
    test_policy.denial(&caller, &tool, "{}");
    // The name and digest are the same as before, but the cached rights are not used for different facts.
    tool.tags = ["safe".to_owned(), "safe".to_owned()].into();
    test_policy.permit(&caller, &tool, "{}");
    tool.read_only = false;
    test_policy.denial(&caller, &tool, "{}");
}

#[test]
fn what_is_remembered_of_one_caller_does_not_answer_for_another() {
    let test_policy = TestPolicy::with(
        r#"@id("r") permit(principal in Role::"R", action == Action::"call_tool", resource);
           @id("o") permit(principal, action == Action::"read", resource is Row)
           when { resource has owner && resource.owner == principal.subject };"#,
    );
    for subject in ["a", "b", "a"] {
        let rule = test_policy
            .permit(&caller(subject, &["R"]), &tool("t"), "{}")
            .row_rule
            .unwrap();
        assert!(admits(&rule, subject, &row([("owner", subject)])));
        assert!(!admits(&rule, subject, &row([("owner", "c")])));
        test_policy.denial(&caller(subject, &[]), &tool("t"), "{}");
    }
}

#[test]
fn names_that_look_like_code_are_only_names() {
    let test_policy = TestPolicy::with(
        r#"@id("o") permit(principal, action, resource) when { principal.subject == "\"; permit" };"#,
    );
    let strange = "\"; permit";
    let mut tool = tool("t");
    tool.tags = ["\u{0}\"\\".to_owned()].into();
    let terms = test_policy.permit(
        &caller_with(strange, &["\"]"], [("ward", text("\"\n"))]),
        &tool,
        "{}",
    );
    assert!(terms.row_rule.unwrap().all);
    assert_eq!(
        terms.policy_hash,
        test_policy
            .authorize(&caller("x", &[]), &tool, "{}")
            .policy_hash
    );
    assert_ne!(terms.policy_hash, Digest::compute(b""));
}
