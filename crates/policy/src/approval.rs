//! Approvals that policies demand: the annotation `@approval("ROLE")`, or `@approval("caller")`, of a permit.
//!
//! Such a permit lets a call be made only once somebody with the role, or the caller once more, has approved it. Where
//! another permit lets the call be made, no approval is needed; a forbid wins over both.

use cedar_policy::{ActionConstraint, Effect, EntityUid, Policy, PolicyId};

use crate::vocabulary::CALL_TOOL;

/// The name of the annotation.
const APPROVAL: &str = "approval";

/// The value that stands for the caller.
pub(crate) const CALLER: &str = "caller";

/// Longest name of a role, in bytes.
const MAX_ROLE_BYTES: usize = 128;

/// What is wrong with the annotation of a policy, and what to do about it.
pub(crate) struct AnnotationFault {
    pub(crate) problem: String,
    pub(crate) fix: &'static str,
}

/// Whether a policy allows only with an approval.
pub(crate) fn needs_approval(policy: &Policy) -> bool {
    policy.annotation(APPROVAL).is_some()
}

/// The role whose approval a policy demands; none where it demands none, or the caller's.
pub(crate) fn approver_role(policy: &Policy) -> Option<&str> {
    policy.annotation(APPROVAL).filter(|role| *role != CALLER)
}

/// Checks the annotation of the policy `id`, where it has one.
pub(crate) fn check_annotation(id: &PolicyId, policy: &Policy) -> Result<(), AnnotationFault> {
    let Some(role) = policy.annotation(APPROVAL) else {
        return Ok(());
    };
    let fault = |problem: String, fix| Err(AnnotationFault { problem, fix });
    if policy.effect() == Effect::Forbid {
        return fault(
            format!("policy `{id}` is a forbid with `@approval`, and no approval lifts a forbid"),
            "move `@approval` to the permit that is to need it",
        );
    }
    if role.trim() != role
        || role.is_empty()
        || role.len() > MAX_ROLE_BYTES
        || role.contains(wardgate_domain::is_invisible)
        || role.contains(['\n', '\t'])
    {
        return fault(
            format!("`@approval` of policy `{id}` names nobody who could approve"),
            "write `@approval(\"ROLE\")` with the name of a role, or `@approval(\"caller\")`",
        );
    }
    if !is_about_tools(&policy.action_constraint()) {
        return fault(
            format!("policy `{id}` has `@approval` and is not about calls of tools alone"),
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
