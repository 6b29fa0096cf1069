//! The record is read by nobody whom the policies do not let.

use wardgate_domain::Caller;

use super::fixture::{AUDITING, Desk, Dir, SCHEMA};
use super::samples::caller;

const BY_AUDITORS: &str = r#"
@id("auditors") permit(principal in Role::"Auditor", action == Action::"read_record", resource);
@id("never") forbid(principal == User::"mallory", action == Action::"read_record", resource);
"#;

fn desk(policies: &str) -> Desk {
    let dir = Dir::with(policies);
    dir.write("s.cedarschema", &format!("{SCHEMA}{AUDITING}"));
    Desk::over(dir.load().unwrap())
}

fn may(desk: &Desk, caller: &Caller) -> bool {
    desk.store.authorize_record(caller).allowed
}

#[test]
fn the_record_is_read_by_whom_the_policies_name_and_no_one_else() {
    let desk = desk(BY_AUDITORS);
    assert!(may(&desk, &caller("lee", &["Auditor"])));
    assert!(!may(&desk, &caller("lee", &["Doctor"])));
    assert!(!may(&desk, &caller("mallory", &["Auditor"])));
}

#[test]
fn a_schema_without_the_words_opens_the_record_to_nobody() {
    let desk =
        Desk::with(r#"@id("all") permit(principal, action == Action::"call_tool", resource);"#);
    assert!(!may(&desk, &caller("lee", &["Auditor"])));
}

#[test]
fn a_rule_that_always_fails_is_refused_at_load() {
    let dir = Dir::with(
        r#"@id("broken") forbid(principal, action == Action::"read_record", resource)
        when { 9223372036854775807 + 1 == 0 };"#,
    );
    dir.write("s.cedarschema", &format!("{SCHEMA}{AUDITING}"));
    let refused = dir.load().unwrap_err().to_string();
    assert!(refused.contains("`broken` fails to evaluate"), "{refused}");
}
