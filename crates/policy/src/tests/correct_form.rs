//! Findings about common mistakes suggest the correct form.

use super::fixture::Dir;

/// Checks that the finding about each policy contains the expected text.
fn assert_findings_suggest(cases: &[(&str, &str)]) {
    for (policy, correct) in cases {
        let dir = Dir::with(&format!("@id(\"a\") {policy}"));
        let told = dir.load().unwrap_err().to_string();
        assert!(told.contains(correct), "{policy}\n  told: {told}");
    }
}

#[test]
fn a_list_in_the_head_is_told_to_go_into_a_condition() {
    assert_findings_suggest(&[
        (
            r#"permit(principal in [Role::"A", Role::"B"], action, resource);"#,
            r#"write `principal` in the scope and `when { principal in [Role::"A", Role::"B"] }` after it"#,
        ),
        (
            r#"permit(principal, action, resource in [Tool::"a", Tool::"b"]);"#,
            r#"`when { resource in [Tool::"a", Tool::"b"] }`"#,
        ),
        (
            r#"permit(principal, action == [Action::"read"], resource);"#,
            r#"write `action in [Action::"read"]`"#,
        ),
    ]);
}

#[test]
fn a_text_or_a_type_in_the_place_of_an_entity_is_told_the_entity() {
    assert_findings_suggest(&[
        (
            r#"permit(principal in "Doctor", action, resource);"#,
            r#"write `principal in Role::"Doctor"`"#,
        ),
        (
            r#"permit(principal == "ann", action, resource);"#,
            r#"write `principal == User::"ann"`"#,
        ),
        (
            r#"permit(principal, action == "read", resource);"#,
            r#"write `action == Action::"read"`"#,
        ),
        (
            "permit(principal, action == call_tool, resource);",
            r#"write `action == Action::"call_tool"`"#,
        ),
        (
            r#"permit(principal, action, resource == "x");"#,
            r#"`resource == Tool::"x"`"#,
        ),
        (
            "permit(principal, action, resource in Row);",
            "write `resource is Row`",
        ),
        (
            r#"permit(principal, action, resource) when { principal in "Doctor" };"#,
            r#"write `principal in Role::"Doctor"`"#,
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource) when { resource == "x" };"#,
            r#"`resource == Tool::"x"`"#,
        ),
        (
            r#"permit(principal, action, resource) when { principal.subject in ["a", "b"] };"#,
            r#"write `["a", "b"].contains(principal.subject)`"#,
        ),
        (
            r#"permit(principal, action == Action::"read", resource is Row)
               when { resource has owner && resource.owner == principal };"#,
            "write `resource.owner == principal.subject`",
        ),
    ]);
}

#[test]
fn an_action_about_something_else_is_told_what_each_action_is_about() {
    assert_findings_suggest(&[
        (
            r#"permit(principal == Role::"A", action == Action::"call_tool", resource);"#,
            r#"replacing `==` with `in` in the principal clause; callers are `principal == User::"…"`"#,
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource is Row);"#,
            r#"`call_tool` requires `resource == Tool::"…"`"#,
        ),
    ]);
}

#[test]
fn what_may_be_absent_is_told_its_guard() {
    assert_findings_suggest(&[
        (
            r#"permit(principal, action == Action::"call_tool", resource)
               when { context has client_ip && context.client_ip like "10.*" };"#,
            r#"an IP address is not a string; write `context.client_ip.isInRange(ip("10.0.0.0/8"))`"#,
        ),
        (
            r#"permit(principal, action == Action::"read", resource is Row)
               when { resource.owner == principal.subject };"#,
            "write `resource has owner && resource.owner …`",
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource) when { context.client_ip.isLoopback() };"#,
            "write `context has client_ip && context.client_ip …`",
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource)
               when { context.arguments.getTag("limit") == "3" };"#,
            r#"write `context.arguments.hasTag("limit") && context.arguments.getTag("limit") …`"#,
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource)
               when { context.arguments.hasTag("limit") && context.arguments.getTag("limit") == 3 };"#,
            r#"write `context.arguments.getTag("limit") == "3"`"#,
        ),
    ]);
}

#[test]
fn a_word_that_is_not_there_is_told_the_nearest_or_where_it_is_declared() {
    assert_findings_suggest(&[
        (
            r#"permit(principal, action == Action::"read", resource is Row)
               when { resource has owner && resource.ownr == "x" };"#,
            "did you mean `owner`? Additional attributes are declared in a `.cedarschema`: `entity Row { ownr?: String };`",
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource) when { context.clent_ip.isLoopback() };"#,
            "did you mean `client_ip`?",
        ),
        (
            r#"permit(principal, action == Action::"show_cler", resource);"#,
            r#"did you mean `Action::"show_clear"`?"#,
        ),
        (
            r#"permit(principal, action, resource) when { resource in Tol::"x" };"#,
            "did you mean `Tool`? A row type is declared in a `.cedarschema`: `entity Tol",
        ),
        (
            r#"permit(principal, action, resource) when { principal.roles.contains("x") };"#,
            r#"write `principal in Role::"…"`"#,
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource) when { resource.name == "x" };"#,
            r#"write `resource == Tool::"…"`"#,
        ),
        (
            r#"permit(principal, action == Action::"call_tool", resource) when { context.arguments.limit == "3" };"#,
            r#"write `context.arguments.hasTag("limit") && context.arguments.getTag("limit") == "…"`"#,
        ),
    ]);
}
