//! Calls that need an approval: who may approve, and that an approval is valid for one call only.

use std::time::Duration;

use wardgate_domain::{
    Ambient, ApprovalDecision, ApprovalId, ApproverRefusal, Approvers, CallToApprove, Caller,
    CallerClaims, Decision, DenialReason, Digest, SignedApproval, ToolFacts, Verdict,
};

use super::fixture::{Dir, TestPolicy, tool};
use super::samples::{caller, token_end};
use crate::history::EarlierCalls;

/// Everybody may list. A payment by a teller needs the approval of a manager or an auditor, a payment by a director
/// needs none, and a gift by a teller needs the approval of the caller. Anything for a stranger is forbidden.
const POLICIES: &str = r#"
@id("everyone-lists") permit(principal, action == Action::"call_tool", resource == Tool::"list");
@id("teller-pays") @approval("Manager")
permit(principal in Role::"Teller", action == Action::"call_tool", resource == Tool::"pay");
@id("auditor-too") @approval("Auditor")
permit(principal in Role::"Teller", action == Action::"call_tool", resource == Tool::"pay");
@id("director-pays")
permit(principal in Role::"Director", action == Action::"call_tool", resource == Tool::"pay");
@id("teller-gives") @approval("caller")
permit(principal in Role::"Teller", action == Action::"call_tool", resource == Tool::"give");
@id("not-to-strangers")
forbid(principal, action == Action::"call_tool", resource)
when { context.arguments.hasTag("to") && context.arguments.getTag("to") == "stranger" };
"#;

fn teller() -> Caller {
    caller("tom", &["Teller"])
}

fn manager() -> Caller {
    caller("mia", &["Manager"])
}

fn call(caller: &Caller, tool: &ToolFacts, arguments: &'static str) -> CallToApprove {
    CallToApprove {
        id: ApprovalId::new(&Ambient::system()),
        caller: caller.clone(),
        tool: tool.clone(),
        arguments: arguments.as_bytes().into(),
        client_ip: String::new(),
    }
}

impl TestPolicy {
    fn approve(&self, approver: &Caller, call: &CallToApprove) -> ApprovalDecision {
        self.authorizer.approve(approver, call, true).unwrap()
    }

    fn approval(&self, approver: &Caller, call: &CallToApprove) -> SignedApproval {
        self.approve(approver, call).outcome.unwrap().unwrap()
    }

    fn authorize_approved(&self, call: &CallToApprove, approval: &SignedApproval) -> Decision {
        let CallToApprove {
            caller,
            tool,
            arguments,
            client_ip,
            ..
        } = call;
        let (approval, earlier) = (Some(approval), EarlierCalls::without_call());
        let decided =
            (self.authorizer).authorize(caller, tool, arguments, client_ip, approval, earlier);
        decided.unwrap()
    }

    fn approvers(&self, caller: &Caller, tool: &ToolFacts, arguments: &str) -> Approvers {
        match self.authorize(caller, tool, arguments).verdict {
            Verdict::NeedsApproval {
                approvers,
                lifetime,
            } => {
                assert_eq!(lifetime, Duration::from_mins(15));
                approvers
            }
            verdict => panic!("{verdict:?}"),
        }
    }
}

fn needs_approval(decision: &Decision) -> bool {
    matches!(decision.verdict, Verdict::NeedsApproval { .. })
}

#[test]
fn a_call_that_only_annotated_permits_allow_needs_one_of_their_approvals() {
    let policy = TestPolicy::with(POLICIES);
    let approvers = policy.approvers(&teller(), &tool("pay"), "{}");
    assert_eq!(
        approvers.to_string(),
        "another user with the role Auditor or Manager"
    );
    let decision = policy.authorize(&teller(), &tool("pay"), "{}");
    assert_eq!(decision.policies, ["auditor-too", "teller-pays"]);
    assert_eq!(decision.approval, None);
    let approvers = policy.approvers(&teller(), &tool("give"), "{}");
    assert_eq!(approvers.to_string(), "the caller");
    // A call that another permit allows needs no approval, and its permit can be reused as usual.
    policy.permit(&teller(), &tool("list"), "{}");
    policy.permit(&caller("d", &["Director", "Teller"]), &tool("pay"), "{}");
}

#[test]
fn a_permit_that_depends_on_the_arguments_adds_its_approver() {
    let policy = TestPolicy::with(
        r#"
        @id("lead") @approval("Lead")
        permit(principal in Role::"Teller", action == Action::"call_tool", resource);
        @id("chief") @approval("Chief")
        permit(principal in Role::"Teller", action == Action::"call_tool", resource)
        when { context.arguments.hasTag("to") && context.arguments.getTag("to") == "abroad" };
        "#,
    );
    for (arguments, expected) in [
        ("{}", "another user with the role Lead"),
        (
            r#"{"to":"abroad"}"#,
            "another user with the role Chief or Lead",
        ),
    ] {
        let approvers = policy.approvers(&teller(), &tool("pay"), arguments);
        assert_eq!(approvers.to_string(), expected, "{arguments}");
    }
}

#[test]
fn a_forbid_wins_over_every_approval() {
    let policy = TestPolicy::with(POLICIES);
    let to_stranger = r#"{"to":"stranger"}"#;
    let denied = policy.denial(&teller(), &tool("pay"), to_stranger);
    assert_eq!(denied, (DenialReason::Forbidden, true));
    let approved = policy.approve(&manager(), &call(&teller(), &tool("pay"), to_stranger));
    assert_eq!(
        approved.outcome.unwrap_err(),
        ApproverRefusal::NotApprovable
    );
    let director = caller("d", &["Director"]);
    let needless = policy.approve(&manager(), &call(&director, &tool("pay"), "{}"));
    assert_eq!(
        needless.outcome.unwrap_err(),
        ApproverRefusal::NotApprovable
    );
}

#[test]
fn a_tool_that_needs_an_approval_is_listed_for_those_who_could_be_given_it() {
    let policy = TestPolicy::with(POLICIES);
    let tools = ["list", "pay", "give"].map(tool);
    let listed = |caller| {
        let (names, _) = policy.authorizer.visible(&caller, &tools);
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(listed(teller()), ["list", "pay", "give"]);
    assert_eq!(listed(manager()), ["list"]);
}

#[test]
fn an_approval_lets_its_call_be_made_by_a_permit_for_its_arguments() {
    let policy = TestPolicy::with(POLICIES);
    let paid = call(&teller(), &tool("pay"), r#"{"to":"a"}"#);
    let approval = policy.approval(&manager(), &paid);
    let decision = policy.authorize_approved(&paid, &approval);
    assert_eq!(decision.approval, Some(paid.id));
    let Verdict::Allow(permit) = decision.verdict else {
        panic!("not allowed");
    };
    let terms = permit.unverified_terms().unwrap();
    assert_eq!(
        terms.arguments_digest,
        Some(Digest::compute(&paid.arguments))
    );
    // The row rule and column tiers are the same as for any allowed call.
    assert_eq!(terms.row_rule.unwrap().entity, "Row");
}

#[test]
fn an_approval_fits_no_other_call() {
    let policy = TestPolicy::with(POLICIES);
    let paid = call(&teller(), &tool("pay"), r#"{"to":"a"}"#);
    let approval = policy.approval(&manager(), &paid);
    let mut changed = tool("pay");
    changed.definition_digest = Digest::compute(b"changed");
    for other in [
        call(&caller("tim", &["Teller"]), &tool("pay"), r#"{"to":"a"}"#),
        call(
            &caller("tom", &["Teller", "Clerk"]),
            &tool("pay"),
            r#"{"to":"a"}"#,
        ),
        call(&teller(), &tool("give"), r#"{"to":"a"}"#),
        call(&teller(), &changed, r#"{"to":"a"}"#),
        call(&teller(), &tool("pay"), r#"{"to":"b"}"#),
        call(&teller(), &tool("pay"), r#"{"to": "a"}"#),
    ] {
        assert!(
            needs_approval(&policy.authorize_approved(&other, &approval)),
            "{other:?}"
        );
    }
    // A forged approval is ignored.
    let stranger = TestPolicy::with(POLICIES).approval(&manager(), &paid);
    assert!(needs_approval(&policy.authorize_approved(&paid, &stranger)));
    // A change of the policies invalidates the approval.
    let more = format!("{POLICIES}\n// Changed.");
    policy
        .authorizer
        .put_in_force(Dir::with(&more).load().unwrap());
    assert!(needs_approval(&policy.authorize_approved(&paid, &approval)));
}

#[test]
fn an_approval_ends_after_its_lifetime_and_its_permit_with_it() {
    let policy = TestPolicy::with(POLICIES);
    let paid = call(&teller(), &tool("pay"), "{}");
    let approval = policy.approval(&manager(), &paid);
    policy.clock.advance(Duration::from_secs(15 * 60 - 10));
    let Verdict::Allow(permit) = policy.authorize_approved(&paid, &approval).verdict else {
        panic!("not allowed");
    };
    let terms = permit.unverified_terms().unwrap();
    let until = approval.unverified_terms().unwrap().expires_at;
    assert_eq!(terms.expires_at, until);
    policy.clock.advance(Duration::from_secs(10));
    assert!(needs_approval(&policy.authorize_approved(&paid, &approval)));
}

#[test]
fn four_eyes_are_those_of_two_people() {
    let policy = TestPolicy::with(POLICIES);
    let both = caller("tom", &["Teller", "Manager"]);
    let paid = call(&both, &tool("pay"), "{}");
    let refusal = |approver: &Caller, call: &CallToApprove| {
        let decision = policy.approve(approver, call);
        decision.outcome.map(drop).err()
    };
    assert_eq!(refusal(&both, &paid), Some(ApproverRefusal::OwnCall));
    assert_eq!(refusal(&teller(), &paid), Some(ApproverRefusal::NoApprover));
    let uwe = caller("uwe", &["Teller"]);
    assert_eq!(refusal(&uwe, &paid), Some(ApproverRefusal::NoApprover));
    assert_eq!(refusal(&manager(), &paid), None);
    // The same subject under another issuer, or with an API key, may be the same human.
    let other_tom = Caller::from_verified(CallerClaims {
        issuer: "https://other.example".to_owned(),
        expires_at: token_end(),
        ..wardgate_testkit::claims("tom", &["Manager"])
    });
    assert_eq!(refusal(&other_tom, &paid), Some(ApproverRefusal::OwnCall));
    let given = call(&teller(), &tool("give"), "{}");
    assert_eq!(refusal(&teller(), &given), None);
    assert_eq!(
        refusal(&manager(), &given),
        Some(ApproverRefusal::NoApprover)
    );
}

#[test]
fn whoever_refuses_is_told_whether_they_may_and_nothing_is_signed() {
    let policy = TestPolicy::with(POLICIES);
    let paid = call(&teller(), &tool("pay"), "{}");
    let refused = policy.authorizer.approve(&manager(), &paid, false).unwrap();
    assert_eq!(refused.outcome.unwrap(), None);
    let refused = policy.authorizer.approve(&teller(), &paid, false).unwrap();
    assert_eq!(refused.outcome.unwrap_err(), ApproverRefusal::NoApprover);
}

#[test]
fn an_annotation_that_demands_nobodys_approval_is_refused_with_the_policys_name() {
    let head = "permit(principal, action == Action::\"call_tool\", resource);";
    for (policy, says) in [
        (format!("@id(\"p\") @approval {head}"), "names no approver"),
        (format!("@id(\"p\") @approval(\"\") {head}"), "names no approver"),
        (
            format!("@id(\"p\") @approval(\" Manager\") {head}"),
            "names no approver",
        ),
        (
            format!("@id(\"p\") @approval(\"Man\u{200b}ager\") {head}"),
            "names no approver",
        ),
        (
            "@id(\"p\") @approval(\"Manager\") forbid(principal, action == Action::\"call_tool\", resource);"
                .to_owned(),
            "an approval cannot override a forbid",
        ),
        (
            "@id(\"p\") @approval(\"Manager\") permit(principal, action == Action::\"read\", resource);".to_owned(),
            "only calls of tools can be approved",
        ),
        (
            "@id(\"p\") @approval(\"Manager\") permit(principal, action, resource);".to_owned(),
            "only calls of tools can be approved",
        ),
    ] {
        let error = Dir::with(&policy).load().unwrap_err().to_string();
        assert!(error.contains("`p`") && error.contains(says), "{error}");
        assert!(error.contains("p.cedar:1:"), "{error}");
    }
}
