//! A faulty policy set is rejected with the position of the fault, and no fault ends the process.

use super::fixture::{Dir, TestPolicy, hospital, tool};
use super::samples::{admits, caller, row};
use crate::PolicySet;

fn load_error(policies: &str) -> String {
    Dir::with(policies).load().unwrap_err().to_string()
}

#[test]
fn the_demo_loads() {
    let set = PolicySet::load(&hospital()).unwrap();
    assert!(set.policy_ids().contains(&"doctor-reads-own-shifts"));
}

#[test]
fn a_misspelt_attribute_is_refused_with_file_line_and_column() {
    let told = load_error(
        "@id(\"ok\") permit(principal, action == Action::\"read\", resource is Row)\n\
         when { resource has owner && resource.owner == principal.subject };\n\n\
         @id(\"typo\")\npermit(principal, action == Action::\"read\", resource is Row)\n\
         when { resource has owner && resource.ownr == principal.subject };",
    );
    assert!(told.contains("p.cedar:6:30: "), "{told}");
    assert!(told.contains("typo") && told.contains("ownr"), "{told}");
}

#[test]
fn each_mistake_is_named_at_its_place() {
    let cases = [
        (
            "permit(principal, action, resource",
            "p.cedar:1:",
            "unexpected end",
        ),
        (
            "\n\npermit(principal, action, resource);",
            "p.cedar:3:1:",
            "no `@id",
        ),
        (
            "@id(\"a\") permit(principal == ?principal, action, resource);",
            "p.cedar:1:1:",
            "template",
        ),
        (
            "@id(\"a\") permit(principal, action, resource);\n@id(\"a\") forbid(principal, action, resource);",
            "p.cedar:2:1:",
            "already used by",
        ),
        (
            "@id(\"a\") permit(principal, action == Action::\"raed\", resource);",
            "p.cedar:1:",
            "raed",
        ),
        (
            "@id(\"a\") permit(principal is Usr, action, resource);",
            "p.cedar:1:",
            "Usr",
        ),
        // An optional attribute without a guard.
        (
            "@id(\"a\") permit(principal, action == Action::\"read\", resource is Row)\nwhen { resource.open };",
            "p.cedar:2:8:",
            "open",
        ),
        // A rule that can never apply.
        (
            "@id(\"a\") forbid(principal, action == Action::\"read\", resource is Tool);",
            "p.cedar:1:",
            "unable to find an applicable action",
        ),
        // An entity that is not available when a row is evaluated.
        (
            "@id(\"a\") permit(principal, action == Action::\"read\", resource)\n\
             when { User::\"x\" in Role::\"R\" };",
            "p.cedar:2:",
            "entity literal",
        ),
        // A condition that cannot be decided from a row for any caller.
        (
            "\n@id(\"a\") permit(principal, action == Action::\"read\", resource is Row)\nwhen { \
             principal in (if resource has open then Role::\"A\" else Role::\"B\") };",
            "p.cedar:2:1:",
            "uses an entity other than the row",
        ),
        // A condition that fails for every caller.
        (
            "@id(\"a\") forbid(principal, action == Action::\"read\", resource is Row)\n\
             when { 9223372036854775807 + 1 == 0 };",
            "p.cedar:1:1:",
            "fails to evaluate",
        ),
    ];
    for (policies, place, named) in cases {
        let told = load_error(policies);
        assert!(
            told.contains(place) && told.contains(named),
            "{policies}\n  told: {told}"
        );
    }
}

#[test]
fn every_mistake_is_told_at_once() {
    let told = load_error(
        "@id(\"a\") permit(principal is Usr, action, resource);\n@id(\"b\") permit(principal, action, \
         resource is Rwo);",
    );
    assert!(told.contains("Usr") && told.contains("Rwo"), "{told}");
}

#[test]
fn a_missing_directory_is_named() {
    let told = PolicySet::load("/nowhere/at/all".as_ref())
        .unwrap_err()
        .to_string();
    assert!(told.contains("/nowhere/at/all"), "{told}");
}

/// Each of these policies would overflow the stack of a thread if it reached Cedar unchecked.
#[test]
fn deep_nesting_is_refused_and_ends_nothing() {
    let when = |condition: String| {
        format!("@id(\"a\") permit(principal, action, resource) when {{ {condition} }};")
    };
    let deep = 100_000;
    let policies = [
        when(format!("{}true{}", "(".repeat(deep), ")".repeat(deep))),
        when(format!("{}1{} == [1]", "[".repeat(deep), "]".repeat(deep))),
        when(format!(
            "{}true",
            "if true then true else ".repeat(deep / 4)
        )),
        when(format!("true{}", " && true".repeat(deep))),
        when(format!("{}true", "!".repeat(deep))),
        when(format!("0{} == 0", " + 1".repeat(deep))),
        when(format!("context{} == 0", ".a".repeat(deep))),
        "(".repeat(deep),
        "@id(\"".repeat(deep),
    ];
    for policy in policies {
        let told = load_error(&policy);
        assert!(told.len() < 2_000, "the text is not repeated");
    }
    for schema in [
        "Set<".repeat(deep),
        format!("entity E {{ a: {}", "{a: ".repeat(deep)),
        "[".repeat(deep),
    ] {
        let dir = Dir::with("");
        dir.write("s.cedarschema", &schema);
        dir.load().unwrap_err();
    }
}

#[test]
fn chains_below_the_operator_limit_compile_or_are_refused() {
    for link in ["true && ", "true || ", "if true then true else "] {
        let condition = format!("{}true", link.repeat(300));
        let told = load_error(&format!(
            "@id(\"a\") permit(principal, action, resource) when {{ {condition} }};"
        ));
        assert!(
            told.contains("p.cedar:1:1:") && told.contains("deeper than 24 levels"),
            "{told}"
        );
    }
}

/// Checks that, with these policies, a call with these arguments may see a row of `x` on a thread with an ordinary
/// stack.
fn decides_on_an_ordinary_stack(policies: String, arguments: &'static str) {
    let small_stack = std::thread::Builder::new().stack_size(2 << 20);
    let decided = small_stack.spawn(move || {
        let test_policy = TestPolicy::with(&policies);
        let permit = test_policy.permit(&caller("s", &[]), &tool("t"), arguments);
        admits(&permit.row_rule.unwrap(), "s", &row([("owner", "x")]))
    });
    assert!(decided.unwrap().join().unwrap());
}

#[test]
fn the_deepest_policy_that_loads_decides_on_an_ordinary_stack() {
    let chain = |length: usize, link: &str| vec![link; length].join(" || ");
    let policies = |length: usize| {
        let call = chain(
            length,
            "(context.arguments.hasTag(\"x\") && context.arguments.getTag(\"x\") == \"y\")",
        );
        let read = chain(length, "(resource has owner && resource.owner == \"x\")");
        format!(
            "@id(\"c\") permit(principal, action == Action::\"call_tool\", resource) when {{ {call} }};\n\
             @id(\"a\") permit(principal, action == Action::\"read\", resource is Row) when {{ {read} }};"
        )
    };
    let deepest = (1..60)
        .rev()
        .map(policies)
        .find(|policies| Dir::with(policies).load().is_ok())
        .unwrap();
    assert!(
        deepest.matches("||").count() > 30,
        "the limit leaves room for real policies"
    );
    decides_on_an_ordinary_stack(deepest, r#"{"x": "y"}"#);
}

#[test]
fn a_row_rule_as_deep_as_allowed_is_read_on_an_ordinary_stack() {
    let nested = |depth: usize| {
        let condition = (0..depth).fold("resource has n".to_owned(), |inner, level| {
            match level % 2 {
                0 => format!("(resource has owner || ({inner}))"),
                _ => format!("(resource has open && ({inner}))"),
            }
        });
        format!(
            "@id(\"c\") permit(principal, action == Action::\"call_tool\", resource);\n\
             @id(\"a\") permit(principal, action == Action::\"read\", resource is Row) when {{ {condition} }};"
        )
    };
    assert!(load_error(&nested(18)).contains("is nested too deeply"));
    let deepest = (1..18)
        .rev()
        .map(nested)
        .find(|policies| Dir::with(policies).load().is_ok())
        .unwrap();
    assert!(
        deepest.matches("resource has").count() > 10,
        "the limit leaves room for real policies"
    );
    decides_on_an_ordinary_stack(deepest, "{}");
}

#[test]
fn a_huge_file_is_refused() {
    let told = load_error(&"// filler\n".repeat(120_000));
    assert!(
        told.contains("p.cedar") && told.contains("longer than"),
        "{told}"
    );
}

#[test]
fn many_small_policies_load() {
    let policy = |n| {
        let scope =
            format!("principal in Role::\"R{n}\", action == Action::\"call_tool\", resource");
        format!("@id(\"p{n}\") permit({scope});\n")
    };
    let policies = (0..1_000).map(policy).collect::<Vec<_>>().concat();
    assert_eq!(
        Dir::with(&policies).load().unwrap().policy_ids().len(),
        1_000
    );
}

#[test]
fn the_hash_follows_every_byte_of_every_file() {
    let dir = Dir::with("@id(\"a\") permit(principal, action, resource);");
    let first = dir.load().unwrap().hash();
    assert_eq!(dir.load().unwrap().hash(), first);
    dir.write(
        "p.cedar",
        "@id(\"a\") permit(principal, action, resource); // same rule",
    );
    let commented = dir.load().unwrap().hash();
    assert_ne!(commented, first);
    dir.write("q.cedar", "");
    assert_ne!(dir.load().unwrap().hash(), commented);
    dir.write("README.md", "not a policy");
    std::fs::remove_file(dir.path().join("q.cedar")).unwrap();
    assert_eq!(dir.load().unwrap().hash(), commented);
}
