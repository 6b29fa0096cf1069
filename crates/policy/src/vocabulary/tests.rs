//! Which schemas have the words, and which are told what they lack.

use super::*;
use crate::tests::fixture::{AUDITING, SCHEMA, SHARING, USING};

fn lacks(schema: &str) -> Vec<MissingDeclaration> {
    let (fragment, _) = cedar_policy::SchemaFragment::from_cedarschema_str(schema).unwrap();
    let declared = Declarations::read(&fragment.to_json_value().unwrap()).unwrap();
    let (schema, _) = Schema::from_cedarschema_str(schema).unwrap();
    Vocabulary::of(schema, &declared).err().unwrap_or_default()
}

#[test]
fn a_complete_schema_lacks_nothing() {
    assert_eq!(lacks(SCHEMA), []);
}

#[test]
fn each_missing_or_bent_word_is_named() {
    let cases = [
        ("entity Tag;", "entity Tag in [Tag];", "`Tag` is in other"),
        ("read_only: Bool", "read_only: String", "`read_only: Bool`"),
        ("read_only: Bool", "read_only?: Bool", "`read_only: Bool`"),
        (
            "read_only: Bool",
            "read_only: Bool, cost: Long",
            "`cost`, which nothing",
        ),
        (
            "entity Class in [Class];",
            "entity Class;",
            "`Class` is in other",
        ),
        (
            "entity Arguments tags String;",
            "entity Arguments;",
            "tags of entity `Arguments`",
        ),
        (
            "client_ip?: String",
            "client_ip: String",
            "`client_ip?: String`",
        ),
        ("tenant: String,", "", "lacks `tenant: String`"),
        ("ward?: String,", "ward?: Role,", "`ward` of entity `User`"),
        (
            "entity Row {",
            "entity Row in [Tag] {",
            "row type `Row` has parents",
        ),
        ("owner?: String", "owner?: User", "`owner` of entity `Row`"),
        (
            "owner?: String",
            "owner?: Set<String>",
            "`owner` of entity `Row`",
        ),
        ("show_partial, ", "", "no action `show_partial`"),
        (
            "resource: [Row, Other],",
            "resource: [Row, Other], context: { x: Bool },",
            "`x`, which nothing",
        ),
    ];
    for (word, bent, named) in cases {
        assert!(SCHEMA.contains(word), "{word}");
        let found = lacks(&SCHEMA.replacen(word, bent, 1));
        assert!(
            found.iter().any(|lack| lack.problem.contains(named)),
            "{bent}: {found:?}"
        );
    }
}

#[test]
fn words_for_sharing_are_offered_together_and_as_meant_or_not_at_all() {
    assert_eq!(lacks(&format!("{SCHEMA}{SHARING}")), []);
    let cases = [
        ("owner: User", "owner: String", "`owner: User`"),
        ("owner: User", "owner?: User", "`owner: User`"),
        ("tenant: String", "ward: String", "`ward`, which nothing"),
        (
            "Conversation {",
            "Conversation in [Tag] {",
            "`Conversation` is in other",
        ),
        (
            "resource: [Conversation]",
            "resource: [Tool]",
            "resource of action `recall`",
        ),
        ("[User]", "[Role]", "principal of action `recall`"),
        ("action recall", "action forget", "no action `recall`"),
        ("Conversation", "Talk", "no entity `Conversation`"),
    ];
    each_bent_word_is_told(SHARING, &cases);
}

/// Each replacement of a word in `words` is told as a problem that names it.
fn each_bent_word_is_told(words: &str, cases: &[(&str, &str, &str)]) {
    for (word, bent, named) in cases {
        assert!(words.contains(word), "{word}");
        let found = lacks(&format!("{SCHEMA}{}", words.replace(word, bent)));
        assert!(
            found.iter().any(|lack| lack.problem.contains(named)),
            "{bent}: {found:?}"
        );
    }
}

#[test]
fn words_for_the_record_are_offered_together_and_as_meant_or_not_at_all() {
    assert_eq!(lacks(&format!("{SCHEMA}{AUDITING}")), []);
    let cases = [
        (
            "entity Audit;",
            "entity Audit { day: Long };",
            "`day`, which nothing",
        ),
        ("[Audit]", "[Tool]", "resource of action `read_record`"),
        ("[User]", "[Role]", "principal of action `read_record`"),
        ("read_record", "look", "no action `read_record`"),
        ("Audit", "Log", "no entity `Audit`"),
    ];
    each_bent_word_is_told(AUDITING, &cases);
}

#[test]
fn words_for_using_sources_are_offered_together_and_as_meant_or_not_at_all() {
    assert_eq!(lacks(&format!("{SCHEMA}{USING}")), []);
    let cases = [
        ("in [Tag]", "", "`Source` is in other"),
        ("[Source]", "[Tool]", "resource of action `connect`"),
        ("connect, ", "", "no action `connect`"),
        (", get_prompt", "", "no action `get_prompt`"),
        ("client_ip?: String", "day: Long", "`day`, which nothing"),
        ("Source", "Server", "no entity `Source`"),
    ];
    each_bent_word_is_told(USING, &cases);
}

#[test]
fn rows_may_be_called_conversations_where_nothing_is_shared() {
    let schema = SCHEMA.replace("[Row, Other]", "[Row, Other, Conversation]");
    let schema = format!("{schema}\nentity Conversation {{ room?: String }};");
    assert_eq!(lacks(&schema), []);
}

#[test]
fn an_empty_schema_is_told_every_declaration_it_needs() {
    let found = lacks("");
    for word in [
        "Role",
        "User",
        "Tag",
        "Tool",
        "Class",
        "Arguments",
        "call_tool",
        "read",
        "show_clear",
    ] {
        let named = |lack: &MissingDeclaration| {
            lack.problem.contains(&format!("`{word}`")) && lack.declare.contains(word)
        };
        assert!(found.iter().any(named), "{word}");
    }
}
