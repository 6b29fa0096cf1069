//! The use of source offers other than tools.

use wardgate_domain::{DenialReason, OfferKind, ToolFacts, Verdict};

use super::fixture::{TestPolicy, tool};
use super::samples::caller;

const RULES: &str = r#"
@id("tools") permit(principal, action == Action::"call_tool", resource);
@id("connects") permit(principal in Role::"A", action == Action::"connect", resource in Tag::"near");
@id("reads") permit(principal in Role::"A", action == Action::"read_resource", resource == Source::"s")
when { context.arguments.hasTag("uri") && context.arguments.getTag("uri") like "open://*" };
"#;

fn offer(kind: OfferKind, tags: &[&str]) -> ToolFacts {
    ToolFacts {
        kind,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        entity: None,
        ..tool("s")
    }
}

#[test]
fn a_right_to_one_kind_of_thing_is_none_to_another_of_the_same_name() {
    let test_policy = TestPolicy::with(RULES);
    let allowed = |role, kind, tags: &[&str]| {
        let decision = test_policy.authorize(&caller("c", &[role]), &offer(kind, tags), "{}");
        matches!(decision.verdict, Verdict::Allow(_))
    };
    assert!(allowed("B", OfferKind::Tool, &[]));
    assert!(!allowed("B", OfferKind::Connect, &["near"]));
    assert!(allowed("A", OfferKind::Connect, &["near"]));
    assert!(!allowed("A", OfferKind::Connect, &[]));
    assert!(!allowed("A", OfferKind::Prompts, &["near"]));
}

#[test]
fn a_resource_is_decided_on_by_its_uri() {
    let test_policy = TestPolicy::with(RULES);
    let resources = offer(OfferKind::Resources, &[]);
    let open = test_policy.authorize(&caller("c", &["A"]), &resources, r#"{"uri":"open://x"}"#);
    assert!(matches!(open.verdict, Verdict::Allow(_)));
    let closed = r#"{"uri":"closed://x"}"#;
    let denied = test_policy.denial(&caller("c", &["A"]), &resources, closed);
    assert_eq!(denied, (DenialReason::NotPermitted, true));
}

#[test]
fn a_right_to_call_permits_nothing_but_tools() {
    let test_policy = TestPolicy::with(
        r#"@id("tools") permit(principal, action == Action::"call_tool", resource);"#,
    );
    for kind in [OfferKind::Connect, OfferKind::Resources, OfferKind::Prompts] {
        let denied = test_policy.denial(&caller("c", &["A"]), &offer(kind, &[]), "{}");
        assert_eq!(denied, (DenialReason::NotPermitted, false), "{kind:?}");
    }
}
