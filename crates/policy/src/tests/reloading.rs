//! A changed directory takes effect if it is usable as a whole, and otherwise changes nothing.

use wardgate_domain::DenialReason;

use super::fixture::{Dir, TestPolicy, tool};
use super::samples::caller;
use crate::reload::{ReloadOutcome, first};

const ALLOW: &str = "@id(\"a\") permit(principal, action == Action::\"call_tool\", resource);";
const REVOKED: &str = "// nothing is allowed any more";

#[test]
fn a_usable_change_is_in_force_with_the_very_next_decision() {
    let dir = Dir::with(ALLOW);
    let (set, mut state) = first(dir.path()).unwrap();
    let test_policy = TestPolicy::over(set);
    let mut version = test_policy.authorizer.version();
    let (caller, tool) = (caller("s", &[]), tool("t"));
    let before = test_policy.permit(&caller, &tool, "{}");
    assert_eq!(before.policy_hash, version.borrow_and_update().hash);
    assert!(matches!(
        state.reload(dir.path(), &test_policy.authorizer),
        ReloadOutcome::Unchanged
    ));

    dir.write("p.cedar", REVOKED);
    assert!(matches!(
        state.reload(dir.path(), &test_policy.authorizer),
        ReloadOutcome::Swapped
    ));

    assert!(version.has_changed().unwrap());
    assert_ne!(before.policy_hash, version.borrow_and_update().hash);
    assert_eq!(
        test_policy.denial(&caller, &tool, "{}"),
        (DenialReason::NotPermitted, false)
    );
    assert!(matches!(
        state.reload(dir.path(), &test_policy.authorizer),
        ReloadOutcome::Unchanged
    ));
}

#[test]
fn an_unusable_change_leaves_the_old_set_in_force_and_is_told_once() {
    let dir = Dir::with(ALLOW);
    let (set, mut state) = first(dir.path()).unwrap();
    let test_policy = TestPolicy::over(set);
    let version = test_policy.authorizer.version();
    let (caller, tool) = (caller("s", &[]), tool("t"));
    let hash = test_policy.permit(&caller, &tool, "{}").policy_hash;
    let bad = [
        ("p.cedar", "permit(principal, action, resource)"),
        (
            "p.cedar",
            "@id(\"a\") permit(principal, action, resource) when { principal.wrad == \"x\" };",
        ),
        (
            "p.cedar",
            "@id(\"a\") forbid(principal, action, resource) when { 9223372036854775807 + 1 == 0 };",
        ),
        ("s.cedarschema", "entity Role;"),
    ];
    for (file, text) in bad {
        dir.write(file, text);
        let ReloadOutcome::Refused(error) = state.reload(dir.path(), &test_policy.authorizer)
        else {
            panic!("{text}")
        };
        assert!(error.to_string().contains(file), "{error}");
        assert!(
            matches!(
                state.reload(dir.path(), &test_policy.authorizer),
                ReloadOutcome::Unchanged
            ),
            "told once"
        );
        assert_eq!(test_policy.permit(&caller, &tool, "{}").policy_hash, hash);
    }
    assert!(!version.has_changed().unwrap());

    let mended = Dir::with(REVOKED);
    for file in ["p.cedar", "s.cedarschema"] {
        std::fs::copy(mended.path().join(file), dir.path().join(file)).unwrap();
    }
    assert!(matches!(
        state.reload(dir.path(), &test_policy.authorizer),
        ReloadOutcome::Swapped
    ));
    test_policy.denial(&caller, &tool, "{}");
}

#[test]
fn a_directory_that_is_gone_leaves_the_old_set_in_force() {
    let dir = Dir::with(ALLOW);
    let path = dir.path().to_owned();
    let (set, mut state) = first(&path).unwrap();
    let test_policy = TestPolicy::over(set);
    drop(dir);
    assert!(matches!(
        state.reload(&path, &test_policy.authorizer),
        ReloadOutcome::Refused(_)
    ));
    assert!(matches!(
        state.reload(&path, &test_policy.authorizer),
        ReloadOutcome::Unchanged
    ));
    test_policy.permit(&caller("s", &[]), &tool("t"), "{}");
}
