//! Tests of the scopes.

use super::*;

fn rules(written: serde_json::Value) -> ScopesConfig {
    serde_json::from_value(written).unwrap()
}

fn create_access(scopes: &str, rules: &Arc<ScopesConfig>) -> TokenAccess {
    let scopes = scopes.split(' ').map(ToOwned::to_owned).collect();
    let metadata = "https://mcp.example/metadata".to_owned();
    TokenAccess::new(Arc::new(scopes), rules, metadata)
}

#[test]
fn a_scope_counts_as_those_it_includes_whatever_leads_back() {
    let rules = Arc::new(rules(serde_json::json!({
        "required": ["read"],
        "includes": { "admin": ["write"], "write": ["read", "admin"], "other": [] },
    })));
    for good in ["read", "write", "admin", "other read"] {
        create_access(good, &rules).check_required().unwrap();
    }
    for bad in ["", "other", "rea", "Read"] {
        let refused = create_access(bad, &rules).check_required().unwrap_err();
        assert_eq!(refused.reason().as_str(), "insufficient_scope", "{bad}");
    }
}

#[test]
fn whoever_needs_none_is_asked_for_none() {
    create_access("", &Arc::default()).check_required().unwrap();
}

#[test]
fn a_scope_that_no_challenge_could_carry_is_named() {
    for bad in ["", "a b", "a\"b", "a\\b", "ä"] {
        for written in [
            serde_json::json!({ "required": [bad] }),
            serde_json::json!({ "tags": { "any": [bad] } }),
            serde_json::json!({ "includes": { bad: [] } }),
        ] {
            assert_eq!(rules(written).validate(), Err(bad));
        }
    }
}
