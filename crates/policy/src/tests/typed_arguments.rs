//! Arguments that the schema declares have their declared types in policies, and a value of another type never allows a
//! call.

use wardgate_domain::{DenialReason, ToolFacts, Verdict};

use super::fixture::{Dir, SCHEMA, TestPolicy, tool};
use super::samples::caller;

const ARGUMENTS: &str = "entity Arguments {
  limit?: Long, amount?: decimal, urgent?: Bool, codes?: Set<String>, name?: String, unseen?: Long,
  filter?: { from?: String, days: Long },
};";

fn policy(condition: &str) -> TestPolicy {
    let dir = Dir::with(&format!(
        "@id(\"p\") permit(principal, action == Action::\"call_tool\", resource) when {{ {condition} }};"
    ));
    dir.write("s.cedarschema", &format!("{SCHEMA}{ARGUMENTS}"));
    TestPolicy::over(dir.load().unwrap())
}

/// Returns whether a call is allowed, or the reason for the denial.
fn answer(policy: &TestPolicy, tool: &ToolFacts, arguments: &str) -> Result<(), DenialReason> {
    match policy.authorize(&caller("s", &[]), tool, arguments).verdict {
        Verdict::Allow(_) => Ok(()),
        Verdict::Deny { reason, .. } => Err(reason),
        Verdict::NeedsApproval { approvers, .. } => panic!("needs approval: {approvers}"),
        Verdict::NeedsIntent => panic!("needs an intent"),
    }
}

#[test]
fn policies_compare_numbers_truths_lists_and_records() {
    let cases = [
        (
            "context.arguments has limit && context.arguments.limit <= 100",
            r#"{"limit": 100}"#,
            r#"{"limit": 101}"#,
        ),
        (
            "context.arguments has amount && context.arguments.amount.lessThan(decimal(\"99.99\"))",
            r#"{"amount": 99.98}"#,
            r#"{"amount": 100}"#,
        ),
        (
            "context.arguments has urgent && context.arguments.urgent",
            r#"{"urgent": true}"#,
            r#"{"urgent": false}"#,
        ),
        (
            "context.arguments has codes && [\"a\", \"b\"].containsAll(context.arguments.codes)",
            r#"{"codes": ["b"]}"#,
            r#"{"codes": ["b", "c"]}"#,
        ),
        (
            "context.arguments has filter && context.arguments.filter.days < 8 && context.arguments.filter has from",
            r#"{"filter": {"from": "x", "days": 7, "more": [1]}}"#,
            r#"{"filter": {"days": 7, "from": null}}"#,
        ),
        (
            "context.arguments has name && context.arguments.name == \"1\"",
            r#"{"name": "1"}"#,
            r#"{"limit": 1}"#,
        ),
    ];
    for (condition, allowed, denied) in cases {
        let policy = policy(condition);
        assert_eq!(answer(&policy, &tool("t"), allowed), Ok(()), "{condition}");
        assert_eq!(
            answer(&policy, &tool("t"), denied),
            Err(DenialReason::NotPermitted),
            "{condition}"
        );
    }
}

#[test]
fn the_form_by_tags_works_beside_the_types() {
    let policy = policy(
        "context.arguments has limit && context.arguments.hasTag(\"limit\") && context.arguments.getTag(\"limit\") == \"10\"",
    );
    assert_eq!(answer(&policy, &tool("t"), r#"{"limit": 10}"#), Ok(()));
}

#[test]
fn a_value_of_another_type_is_denied_where_a_policy_looks_at_it_and_a_forbid_cannot_be_slipped_past()
 {
    let dir = Dir::with(
        "@id(\"p\") permit(principal, action == Action::\"call_tool\", resource);\n\
         @id(\"f\") forbid(principal, action == Action::\"call_tool\", resource)\n\
         when { context.arguments has limit && context.arguments.limit > 100 };\n\
         @id(\"g\") forbid(principal, action == Action::\"call_tool\", resource)\n\
         when { context has arguments.filter && context.arguments.filter.days > 100 };",
    );
    dir.write("s.cedarschema", &format!("{SCHEMA}{ARGUMENTS}"));
    let policy = TestPolicy::over(dir.load().unwrap());
    for unfit in [
        r#"{"limit": "101"}"#,
        r#"{"limit": 101.0}"#,
        r#"{"limit": 1e3}"#,
        r#"{"limit": 9223372036854775808}"#,
        r#"{"limit": [101]}"#,
        r#"{"limit": true}"#,
        r#"{"filter": {"days": "101"}}"#,
        r#"{"filter": {}}"#,
        r#"{"filter": 1}"#,
    ] {
        assert_eq!(
            answer(&policy, &tool("t"), unfit),
            Err(DenialReason::PolicyError),
            "{unfit}"
        );
    }
    assert_eq!(
        answer(&policy, &tool("t"), r#"{"limit": 101}"#),
        Err(DenialReason::Forbidden)
    );
    for fit in [
        r#"{"limit": 100}"#,
        "{}",
        r#"{"limit": null}"#,
        r#"{"unseen": "no number"}"#,
    ] {
        assert_eq!(answer(&policy, &tool("t"), fit), Ok(()), "{fit}");
    }
}

#[test]
fn a_default_that_the_tool_fills_in_has_its_type() {
    let policy = policy("context.arguments has limit && context.arguments.limit <= 10");
    let with_default = |default: &str| ToolFacts {
        argument_defaults: [("limit".to_owned(), default.to_owned())].into(),
        ..tool(&format!("t{default}"))
    };
    assert_eq!(answer(&policy, &with_default("10"), "{}"), Ok(()));
    assert_eq!(
        answer(&policy, &with_default("11"), "{}"),
        Err(DenialReason::NotPermitted)
    );
    assert_eq!(
        answer(&policy, &with_default("11"), r#"{"limit": 3}"#),
        Ok(())
    );
}

#[test]
fn what_a_call_may_leave_out_is_declared_as_optional_and_of_a_type_that_arguments_have() {
    for (declared, told) in [
        ("entity Arguments { limit: Long };", "write `limit?`"),
        (
            "entity Arguments { who?: User };",
            "`who` of `entity Arguments` has a type",
        ),
        (
            "entity Arguments { ip?: Set<ipaddr> };",
            "`ip` of `entity Arguments` has a type",
        ),
        (
            "entity Arguments { limit?: Long } tags String;",
            "`entity Arguments` has `tags …`",
        ),
    ] {
        let dir = Dir::with("");
        dir.write("s.cedarschema", declared);
        let refused = dir.load().unwrap_err().to_string();
        assert!(refused.contains(told), "{declared}\n  told: {refused}");
    }
    let refused = Dir::with(
        "@id(\"a\") permit(principal, action == Action::\"call_tool\", resource) when { context.arguments.limit < 3 };",
    );
    let told = refused.load().unwrap_err().to_string();
    assert!(
        told.contains("`entity Arguments { limit?: Long };`"),
        "{told}"
    );
}

#[test]
fn a_rule_that_overflows_on_arguments_is_refused_at_load() {
    let dir = Dir::with(
        "@id(\"p\") permit(principal, action == Action::\"call_tool\", resource);\n\
         @id(\"a\") forbid(principal, action == Action::\"call_tool\", resource)\n\
         when { context.arguments has limit && context.arguments.limit + 9223372036854775807 + 1 > 0 };",
    );
    dir.write("s.cedarschema", ARGUMENTS);
    let told = dir.load().unwrap_err().to_string();
    assert!(told.contains("`a` fails to evaluate"), "{told}");
}
