//! Decides recorded calls anew by other policies, from what is on record: who called what, when and from where, and not with
//! which arguments.
//!
//! The record has no attributes of the caller and no arguments, so both stay unknown. An answer counts only where it holds
//! whatever they were; anything else is said to be undetermined and never guessed.

use std::sync::Arc;

use cedar_policy::{Context, Entities, EntityUid, PartialEntities};
use serde_json::Value;
use wardgate_domain::{Caller, ToolFacts};

use crate::call::{Access, decide};
use crate::context::CallContext;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::simulator::Simulator;

/// A recorded call, decided anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayedCall {
    /// Allowed by these policies, whatever its arguments and the caller's attributes were.
    Allowed(Vec<String>),
    /// Allowed by these with an approval, and not without one.
    NeedsApproval(Vec<String>),
    /// Denied by these, whatever they were; by none where nothing permits it.
    Denied(Vec<String>),
    /// The answer depends on what is not on record.
    Undetermined,
}

/// What these policies say of a recorded caller and a tool, worked out once for all their calls.
#[derive(Debug)]
pub struct ReplayedRights(Rights);

#[derive(Debug)]
enum Rights {
    /// Whenever and from wherever a call was made.
    Settled(ReplayedCall),
    /// It depends on that, and perhaps on what is not on record.
    ByContext(Box<OpenRights>),
}

/// What it takes to decide once it is known when and from where a call was made.
#[derive(Debug)]
struct OpenRights {
    set: Arc<PolicySet>,
    principal: EntityUid,
    tool: ToolFacts,
    entities: PartialEntities,
    access: Access,
    approvable: Option<Access>,
    /// The caller and the tool, where the policies that can still decide look at nothing that is not on record: plain
    /// evaluation is many times as fast as partial evaluation.
    known: Option<Entities>,
}

impl Simulator {
    /// What the policies say of `caller`, whose subject, tenant and roles are on record and whose attributes count as unknown,
    /// and of `tool`, with the definition that it had.
    pub fn replay(&self, caller: &Caller, tool: &ToolFacts) -> ReplayedRights {
        let Ok(open) = self.open_rights(caller, tool) else {
            // A policy that fails may fail only for want of an attribute.
            return ReplayedRights(Rights::Settled(ReplayedCall::Undetermined));
        };
        let accesses = (&open.access, open.approvable.as_ref());
        let depends = accesses.0.open().is_some() || accesses.1.and_then(Access::open).is_some();
        let counters = open.set.counters_read(accesses);
        // What went before a recorded call is not counted anew.
        if depends && counters.is_empty() && open.set.access_reads_context(tool) {
            return ReplayedRights(Rights::ByContext(Box::new(open)));
        }
        let settled = open.set.replayed(open.access, open.approvable);
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
    /// Whether a decision depends on when and from where the call was made.
    pub fn depends_on_context(&self) -> bool {
        matches!(self.0, Rights::ByContext(_))
    }

    /// Decides a call; a `context` that is none counts as unknown.
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
        // What the arguments are is left out of the entities, and so unknown.
        let context = context.to_cedar(Some(set.vocabulary.call_parts(self.tool.kind)))?;
        // Of the policies, those that can still decide.
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
        Ok(set.replayed(access, approvable))
    }

    /// Decides by policies that look at nothing that is not on record.
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
                "the question whether a call was allowed",
            ))?;
        decide(&request, policies, known).map(Access::Settled)
    }
}

/// Whether a policy may look at the arguments of a call or at attributes of the caller.
fn looks_at_unknown(policies: &cedar_policy::PolicySet) -> bool {
    policies.policies().any(|policy| {
        let json = policy.to_json();
        json.map_or(true, |json| reads_unknown(&json["conditions"]))
    })
}

/// In conditions of policies: any use of the principal, and of the context whatever is not the time or the address.
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
    fn replayed(&self, access: Access, approvable: Option<Access>) -> ReplayedCall {
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

    /// A caller who lacks an attribute that the schema requires is denied everything.
    fn requires_attributes(&self) -> bool {
        let mut attributes = self.vocabulary.caller_attributes.values();
        attributes.any(|attribute| attribute.required)
    }
}

/// The caller and the tool as far as they are on record.
fn recorded_entities(
    set: &PolicySet,
    caller: &Caller,
    tool: &ToolFacts,
) -> Result<PartialEntities, DecisionFault> {
    let vocabulary = &set.vocabulary;
    let refused = || DecisionFault::Refused("the entities of a recorded call");
    let around = vocabulary.around(Some(tool), &tool.classes)?;
    // With the schema they would have its actions among them, which have no form as partial entities.
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
