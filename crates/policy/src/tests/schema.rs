//! The built-in schema, and what a directory may add to it.

use wardgate_domain::Verdict;

use super::fixture::{Dir, SCHEMA, TestPolicy, tool};
use super::samples::{admits, caller, caller_with, row, text};

const CALLS: &str = r#"@id("c") permit(principal, action == Action::"call_tool", resource);"#;

/// Returns the error for a directory with this schema.
fn load_error(schema: &str) -> String {
    let dir = Dir::with(CALLS);
    dir.write("s.cedarschema", schema);
    dir.load().unwrap_err().to_string()
}

#[test]
fn policies_without_any_schema_are_checked_against_the_built_in_words() {
    let dir = Dir::with(CALLS);
    std::fs::remove_file(dir.path().join("s.cedarschema")).unwrap();
    let untyped = wardgate_domain::ToolFacts {
        entity: None,
        ..tool("t")
    };
    let decision =
        TestPolicy::over(dir.load().unwrap()).authorize(&caller("s", &[]), &untyped, "{}");
    assert!(matches!(decision.verdict, Verdict::Allow(_)));
    dir.write("p.cedar", &CALLS.replace("call_tool", "call_tols"));
    let told = dir.load().unwrap_err().to_string();
    assert!(
        told.contains("did you mean `Action::\"call_tool\"`"),
        "{told}"
    );
}

#[test]
fn attributes_of_callers_and_row_types_may_stand_in_files_of_their_own() {
    let dir = Dir::with(
        r#"@id("c") permit(principal, action == Action::"call_tool", resource)
        when { principal has ward && principal.ward == "W" };
        @id("r") permit(principal, action == Action::"read", resource is Row)
        when { resource has owner && resource.owner == principal.subject };"#,
    );
    dir.write("s.cedarschema", "entity User { ward?: String };");
    dir.write(
        "rows.cedarschema",
        "type Name = String; entity Row { owner?: Name };",
    );
    let test_policy = TestPolicy::over(dir.load().unwrap());
    let of_the_ward = caller_with("s", &[], [("ward", text("W"))]);
    let rule = test_policy
        .permit(&of_the_ward, &tool("t"), "{}")
        .row_rule
        .unwrap();
    assert!(admits(&rule, "s", &row([("owner", "s")])));
    assert!(!admits(&rule, "s", &row([("owner", "x")])));
}

#[test]
fn what_repeats_a_built_in_word_is_told_to_delete_it() {
    let cases = [
        (
            "\nentity Role;",
            "s.cedarschema:2:1: `entity Role` is built in; delete it",
        ),
        (
            "entity Tool in [Tag] { read_only: Bool };",
            "`entity Tool` is built in",
        ),
        (
            "entity Conversation { room?: String };",
            "a row type must not be named `Conversation`",
        ),
        (
            "entity Row;\naction call_tool appliesTo { principal: User, resource: Tool };",
            "s.cedarschema:2:1: `action call_tool` is built in; delete `call_tool`",
        ),
        (
            "entity Row;\naction read appliesTo { principal: User, resource: [Row] };",
            "delete `action read …;`",
        ),
        (
            "entity User in [Role] { ward?: String };",
            "`entity User` has `in […]`",
        ),
        ("entity User { tenant: String };", "delete `tenant: String`"),
        ("entity User { ward?: String } tags String;", "has `tags …`"),
        (
            "action look appliesTo { principal: User, resource: Tool };",
            "`action look` is never requested",
        ),
    ];
    for (schema, named) in cases {
        let told = load_error(schema);
        assert!(told.contains(named), "{schema}\n  told: {told}");
    }
}

#[test]
fn a_whole_schema_of_an_earlier_version_is_told_everything_to_delete_at_once() {
    let told = load_error(
        "entity Role; entity User in [Role] { subject: String, tenant: String, ward?: String };\n\
         entity Tag; entity Tool in [Tag] { read_only: Bool }; entity Class in [Class];\n\
         entity Arguments tags String; entity Row { owner?: String };\n\
         action call_tool appliesTo { principal: User, resource: Tool, context: { arguments: Arguments } };\n\
         action read appliesTo { principal: User, resource: [Row], context: {} };\n\
         action show_clear, show_partial, show_pseudonym, show_generalised appliesTo {\n\
         principal: User, resource: Class, context: {} };",
    );
    for word in [
        "Role",
        "in […]",
        "subject",
        "tenant",
        "Tag",
        "Tool",
        "Class",
        "Arguments",
        "call_tool",
        "read",
        "show_clear",
        "show_generalised",
    ] {
        assert!(
            told.contains(&format!("`{word}")) || told.contains(&format!(" {word}`")),
            "{word}: {told}"
        );
    }
    assert!(!told.contains("`entity Row`"), "{told}");
}

#[test]
fn what_no_row_and_no_caller_can_have_is_refused_at_its_place() {
    let cases = [
        (
            "\nentity Row in [Tag];",
            "s.cedarschema:2:1: row type `Row` has `in […]`",
        ),
        ("entity Row { a?: String } tags String;", "`tags …`"),
        ("entity Row enum [\"a\"];", "`enum […]`"),
        (
            "\n\nentity Row { owner?: User };",
            "s.cedarschema:3:1: `owner` of `entity Row`",
        ),
        (
            "entity Row { owner?: Set<String> };",
            "one of String, Long, Bool",
        ),
        ("entity User { ward?: Role };", "`ward` of `entity User`"),
        (
            "namespace Clinic { entity Row; }",
            "in the namespace `Clinic`",
        ),
        ("entity Row;\nentity Row;", "`Row` is declared twice"),
        ("entity Role;\nentity User {{", "s.cedarschema:2:"),
    ];
    for (schema, named) in cases {
        let told = load_error(schema);
        assert!(told.contains(named), "{schema}\n  told: {told}");
    }
}

#[test]
fn an_unknown_type_is_named_where_it_stands() {
    let told = load_error("entity Row {\n  owner?: Strin,\n};");
    assert!(
        told.contains("s.cedarschema:2:11:") && told.contains("Strin"),
        "{told}"
    );
}

#[test]
fn a_row_type_declared_by_two_files_is_named_with_both() {
    let dir = Dir::with(CALLS);
    dir.write("t.cedarschema", "entity Row;");
    assert!(SCHEMA.contains("entity Row"));
    let told = dir.load().unwrap_err().to_string();
    assert!(
        told.contains("t.cedarschema:1:1: `entity Row` is already declared in")
            && told.contains("s.cedarschema:3;"),
        "{told}"
    );
}
