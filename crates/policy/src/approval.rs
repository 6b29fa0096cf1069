//! Approvals that policies require, by the annotation `@approval("ROLE")` or `@approval("caller")` of a permit policy.
//!
//! Such a permit allows a call only after a person with the role, or the caller, has approved it. If another permit
//! allows the call, no approval is needed. A forbid policy overrides both.

use cedar_policy::{ActionConstraint, Effect, EntityUid, Policy, PolicyId};

use crate::vocabulary::CALL_TOOL;

/// The name of the annotation.
const APPROVAL: &str = "approval";

/// The value of the annotation that stands for the caller.
pub(crate) const CALLER: &str = "caller";

/// Maximum length of a role name, in bytes.
const MAX_ROLE_BYTES: usize = 128;

/// A fault in the annotation of a policy, with its fix.
pub(crate) struct AnnotationFault {
    pub(crate) problem: String,
    pub(crate) fix: &'static str,
}

/// Returns whether a policy allows a call only with an approval.
pub(crate) fn needs_approval(policy: &Policy) -> bool {
    policy.annotation(APPROVAL).is_some()
}

/// Returns the role whose approval a policy requires, or `None` if it requires no approval or that of the caller.
pub(crate) fn approver_role(policy: &Policy) -> Option<&str> {
    policy.annotation(APPROVAL).filter(|role| *role != CALLER)
}

/// Checks the annotation of the policy `id`, if it has one.
pub(crate) fn check_annotation(id: &PolicyId, policy: &Policy) -> Result<(), AnnotationFault> {
    let Some(role) = policy.annotation(APPROVAL) else {
        return Ok(());
    };
    let fault = |problem: String, fix| Err(AnnotationFault { problem, fix });
    if policy.effect() == Effect::Forbid {
        return fault(
            format!(
                "policy `{id}` is a forbid with `@approval`, but an approval cannot override a forbid"
            ),
            "move `@approval` to the permit that requires the approval",
        );
    }
    if role.trim() != role
        || role.is_empty()
        || role.len() > MAX_ROLE_BYTES
        || role.contains(wardgate_domain::is_invisible)
        || role.contains(['\n', '\t'])
    {
        return fault(
            format!("`@approval` of policy `{id}` names no approver"),
            "write `@approval(\"ROLE\")` with the name of a role, or `@approval(\"caller\")`",
        );
    }
    if !is_about_tools(&policy.action_constraint()) {
        return fault(
            format!("policy `{id}` has `@approval` and does not apply to tool calls only"),
            "only calls of tools can be approved: write `action == Action::\"call_tool\"` in its scope",
        );
    }
    Ok(())
}

fn is_about_tools(action: &ActionConstraint) -> bool {
    let calls = |action: &EntityUid| action.id().unescaped() == CALL_TOOL;
    match action {
        ActionConstraint::Any => false,
        ActionConstraint::Eq(action) => calls(action),
        ActionConstraint::In(actions) => actions.iter().all(calls),
    }
}
