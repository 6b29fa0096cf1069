//! Replay of recorded calls with other policies. The record states who called which tool, when and from where, but not
//! with which arguments.
//!
//! The record contains neither the attributes of the caller nor the arguments, so both are unknown. An answer is
//! returned only if it is the same for all their possible values; otherwise the result is undetermined.

use std::sync::Arc;

use cedar_policy::{Context, Entities, EntityUid, PartialEntities};
use serde_json::Value;
use wardgate_domain::{Caller, ToolFacts};

use crate::call::{Access, decide};
use crate::context::CallContext;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::simulator::Simulator;

/// The result of replaying a recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayedCall {
    /// These policies allow the call, whatever its arguments and the caller's attributes were.
    Allowed(Vec<String>),
    /// These policies allow the call with an approval, and no policy allows it without one.
    NeedsApproval(Vec<String>),
    /// These policies deny the call, whatever its arguments and the caller's attributes were. The list is empty if no
    /// policy permits the call.
    Denied(Vec<String>),
    /// The answer depends on information that is not on record.
    Undetermined,
}

/// The rights of a recorded caller to a tool, computed once for all calls of that caller.
#[derive(Debug)]
pub struct ReplayedRights(Rights);

#[derive(Debug)]
enum Rights {
    /// The answer does not depend on the context of a call.
    Settled(ReplayedCall),
    /// The answer depends on the context, and possibly on information that is not on record.
    ByContext(Box<OpenRights>),
}

/// The state that is needed to decide once the context of a call is known.
#[derive(Debug)]
struct OpenRights {
    set: Arc<PolicySet>,
    principal: EntityUid,
    tool: ToolFacts,
    entities: PartialEntities,
    access: Access,
    approvable: Option<Access>,
    /// The entities of the caller and the tool. It is `None` if the policies that can still decide read information
    /// that is not on record. Otherwise plain evaluation is used, which is many times as fast as partial evaluation.
    known: Option<Entities>,
}

impl Simulator {
    /// Returns the rights of `caller` to `tool`. The caller's subject, tenant and roles are on record, and the
    /// attributes count as unknown. The tool has the definition that it had at the time of the call.
    pub fn replay(&self, caller: &Caller, tool: &ToolFacts) -> ReplayedRights {
        let Ok(open) = self.open_rights(caller, tool) else {
            // A policy may fail only because an attribute is missing.
            return ReplayedRights(Rights::Settled(ReplayedCall::Undetermined));
        };
        let approvable = open.approvable.as_ref();
        let depends = open.access.open().is_some() || approvable.and_then(Access::open).is_some();
        let counters = open.set.counters_read(&open.access, approvable);
        // The earlier calls of a recorded call are not counted again, so a decision that depends on counters is
        // undetermined.
        if depends && counters.is_empty() && open.set.access_reads_context(tool) {
            return ReplayedRights(Rights::ByContext(Box::new(open)));
        }
        let settled = open.set.replayed_call(open.access, open.approvable);
        ReplayedRights(Rights::Settled(settled))
    }

    fn open_rights(&self, caller: &Caller, tool: &ToolFacts) -> Result<OpenRights, DecisionFault> {
        let set = self.slice(caller.roles());
        let entities = recorded_entities(&set, caller, tool)?;
        let principal = set.vocabulary.user(caller.subject());
        let (access, approvable) = set.accesses(&principal, tool, &entities, None)?;
        let asks_more = |access: &Access| access.open().is_some_and(looks_at_unknown);
        let known = if asks_more(&access) || approvable.as_ref().is_some_and(asks_more) {
            None
        } else {
            let caller = set.vocabulary.caller(caller);
            let known = caller.and_then(|caller| set.vocabulary.entities(caller, tool));
            known.ok()
        };
        Ok(OpenRights {
            known,
            set,
            principal,
            tool: tool.clone(),
            entities,
            access,
            approvable,
        })
    }
}

impl ReplayedRights {
    /// Returns whether a decision depends on the context of the call.
    pub fn depends_on_context(&self) -> bool {
        matches!(self.0, Rights::ByContext(_))
    }

    /// Decides a call. `context` is `None` if it is unknown.
    pub fn decide(&self, context: Option<&CallContext>) -> ReplayedCall {
        match (&self.0, context) {
            (Rights::Settled(settled), _) => settled.clone(),
            (Rights::ByContext(_), None) => ReplayedCall::Undetermined,
            (Rights::ByContext(open), Some(context)) => {
                open.decide(context).unwrap_or(ReplayedCall::Undetermined)
            }
        }
    }
}

impl OpenRights {
    fn decide(&self, context: &CallContext) -> Result<ReplayedCall, DecisionFault> {
        let set = &self.set;
        // The entity of the arguments is missing from the entities, so the arguments are unknown.
        let context = context.to_cedar(Some(set.vocabulary.call_parts(self.tool.kind)))?;
        // Only the policies that can still decide are evaluated.
        let settle = |access: &Access| match access {
            Access::Settled(_) => Ok(access.clone()),
            Access::ByContext(policies) => match &self.known {
                Some(known) => self.evaluate(policies, known, &context),
                None => set.access(
                    policies,
                    &self.principal,
                    &self.tool,
                    &self.entities,
                    Some(&context),
                ),
            },
        };
        let access = settle(&self.access)?;
        let approvable = self.approvable.as_ref().map(settle).transpose()?;
        Ok(set.replayed_call(access, approvable))
    }

    /// Decides by policies that read only information that is on record.
    fn evaluate(
        &self,
        policies: &cedar_policy::PolicySet,
        known: &Entities,
        context: &Context,
    ) -> Result<Access, DecisionFault> {
        let vocabulary = &self.set.vocabulary;
        let request = vocabulary
            .call_request(&self.principal, &self.tool, context.clone())
            .ok_or(DecisionFault::Refused(
                "the authorization request of a recorded call",
            ))?;
        decide(&request, policies, known).map(Access::Settled)
    }
}

/// Returns whether a policy may read the arguments of a call or attributes of the caller.
fn looks_at_unknown(policies: &cedar_policy::PolicySet) -> bool {
    policies.policies().any(|policy| {
        let json = policy.to_json();
        json.map_or(true, |json| reads_unknown(&json["conditions"]))
    })
}

/// Returns whether conditions of policies use the principal, or any part of the context other than the time and the
/// address.
fn reads_unknown(json: &Value) -> bool {
    match json {
        Value::Object(members) => {
            let reads_context =
                members.get("left").map(|left| &left["Var"]) == Some(&"context".into());
            let attribute = members.get("attr").and_then(Value::as_str);
            if reads_context {
                return !matches!(attribute, Some("time" | "local" | "client_ip"));
            }
            let variable = members.get("Var").and_then(Value::as_str);
            matches!(variable, Some("principal" | "context")) || members.values().any(reads_unknown)
        }
        Value::Array(items) => items.iter().any(reads_unknown),
        _ => false,
    }
}

impl PolicySet {
    fn replayed_call(&self, access: Access, approvable: Option<Access>) -> ReplayedCall {
        match (access, approvable) {
            (Access::Settled(Ok(_)), _) if self.requires_attributes() => ReplayedCall::Undetermined,
            (Access::Settled(Ok(policies)), _) => ReplayedCall::Allowed(policies),
            (Access::Settled(Err(_)), Some(Access::Settled(Ok(policies)))) => {
                if self.requires_attributes() {
                    return ReplayedCall::Undetermined;
                }
                ReplayedCall::NeedsApproval(policies)
            }
            (Access::Settled(Err(denial)), None | Some(Access::Settled(Err(_)))) => {
                ReplayedCall::Denied(denial.policies)
            }
            (Access::ByContext(_), _) | (_, Some(Access::ByContext(_))) => {
                ReplayedCall::Undetermined
            }
        }
    }

    /// Returns whether the schema requires an attribute of callers. A caller who lacks a required attribute is denied
    /// everything.
    fn requires_attributes(&self) -> bool {
        let mut attributes = self.vocabulary.caller_attributes.values();
        attributes.any(|attribute| attribute.required)
    }
}

/// Returns the entities of the caller and the tool as far as they are on record.
fn recorded_entities(
    set: &PolicySet,
    caller: &Caller,
    tool: &ToolFacts,
) -> Result<PartialEntities, DecisionFault> {
    let vocabulary = &set.vocabulary;
    let refused = || DecisionFault::Refused("the entities of a recorded call");
    let around = vocabulary.around(Some(tool), &tool.classes)?;
    // With the schema, the entities would include its actions, which cannot be converted to partial entities.
    let entities = Entities::from_entities(around, None).map_err(|_| refused())?;
    let mut entities = entities.to_json_value().map_err(|_| refused())?;
    let roles = caller.roles().iter();
    let roles =
        roles.map(|role| serde_json::json!({ "type": vocabulary.role.to_string(), "id": role }));
    let mut principal = serde_json::json!({
        "uid": { "type": vocabulary.user.to_string(), "id": caller.subject() },
        "parents": roles.collect::<Vec<Value>>(),
        "tags": {},
    });
    if vocabulary.caller_attributes.is_empty() {
        let attributes = serde_json::json!({
            "subject": caller.subject(), "tenant": caller.tenant(),
        });
        principal["attrs"] = attributes;
    }
    entities.as_array_mut().ok_or_else(refused)?.push(principal);
    PartialEntities::from_json_value(entities, &vocabulary.schema).map_err(|_| refused())
}
