//! Warnings about tools, rows and columns that no caller can reach.

use wardgate_domain::{ColumnClass, ToolFacts};

use super::fixture::{Dir, hospital, tool};
use crate::PolicySet;

const RULES: &str = r#"
@id("by-tag") permit(principal in Role::"A", action == Action::"call_tool", resource)
when { resource in [Tag::"shop", Tag::"stock"] };
@id("by-name") permit(principal, action == Action::"call_tool", resource == Tool::"named")
when { context.arguments.hasTag("x") && context.arguments.getTag("x") == principal.subject };
@id("never") forbid(principal, action == Action::"call_tool", resource in Tag::"closed");
@id("shown") permit(principal in Role::"A", action == Action::"show_partial", resource in Class::"shop");
"#;

fn tool_with_tags(name: &str, tags: &[&str]) -> ToolFacts {
    ToolFacts {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        entity: None,
        ..tool(name)
    }
}

fn shows(set: &PolicySet, class: &str) -> bool {
    set.shows_anyone(&class.parse::<ColumnClass>().unwrap())
}

#[test]
fn a_tool_is_unreachable_where_no_caller_could_be_permitted_to_call_it() {
    let set = Dir::with(RULES).load().unwrap();
    assert!(set.lets_anyone_call(&tool_with_tags("t", &["other", "stock"])));
    assert!(
        set.lets_anyone_call(&tool_with_tags("named", &[])),
        "some arguments are permitted"
    );
    assert!(!set.lets_anyone_call(&tool_with_tags("t", &[])));
    assert!(!set.lets_anyone_call(&tool_with_tags("t", &["other"])));
    assert!(!set.lets_anyone_call(&tool_with_tags("t", &["shop", "closed"])));
    let told = set.advice_on_tool(&tool_with_tags("t", &[])).to_string();
    for words in ["`t`", "tags: [shop or stock]", "Tool::\"t\""] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_class_is_shown_where_some_caller_could_see_it_in_some_tier() {
    let set = Dir::with(RULES).load().unwrap();
    assert!(shows(&set, "shop.price"));
    assert!(!shows(&set, "shopping"));
    assert!(!shows(&set, "unclassified"));
}

#[test]
fn the_demo_reaches_somebody_with_everything() {
    let set = PolicySet::load(&hospital()).unwrap();
    for name in set.row_types() {
        assert_eq!(set.lets_anyone_read(name), Some(true), "{name}");
    }
    assert_eq!(set.lets_anyone_read("Nothing"), None);
    assert!(shows(&set, "phi.name") && shows(&set, "none"));
}
