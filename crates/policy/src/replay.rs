//! Decides recorded calls anew by other policies, from what is on record: who called what, when and from where, and not with
//! which arguments.
//!
//! The record has no attributes of the caller and no arguments, so both stay unknown. An answer counts only where it holds
//! whatever they were; anything else is said to be undetermined and never guessed.

use cedar_policy::{Entities, PartialEntities};
use serde_json::Value;
use wardgate_domain::{Caller, ToolFacts};

use crate::call::Access;
use crate::context::CallContext;
use crate::fault::DecisionFault;
use crate::simulator::Simulator;

/// A call as the record knows it.
#[derive(Debug)]
pub struct RecordedCall<'a> {
    /// Subject, tenant and roles; its attributes are not on record and count as unknown.
    pub caller: &'a Caller,
    /// The tool, with the definition that it had.
    pub tool: &'a ToolFacts,
    /// When and from where; none where that is to count as unknown.
    pub context: Option<&'a CallContext>,
}

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

impl Simulator {
    /// Decides a recorded call.
    pub fn replay(&self, call: &RecordedCall<'_>) -> ReplayedCall {
        let Ok((access, approvable)) = self.access_of(call) else {
            // A policy that fails may fail only for want of an attribute.
            return ReplayedCall::Undetermined;
        };
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

    /// Whether the use of `tool` can depend on the context.
    pub fn reads_context(&self, tool: &ToolFacts) -> bool {
        self.set().access_reads_context(tool)
    }

    /// A caller who lacks an attribute that the schema requires is denied everything.
    fn requires_attributes(&self) -> bool {
        let mut attributes = self.set().vocabulary.caller_attributes.values();
        attributes.any(|attribute| attribute.required)
    }

    /// The access without an approval, and with one where there are permits that need one.
    fn access_of(
        &self,
        call: &RecordedCall<'_>,
    ) -> Result<(Access, Option<Access>), DecisionFault> {
        let set = self.set().for_roles(call.caller.roles());
        let vocabulary = &set.vocabulary;
        let principal = vocabulary.user(call.caller.subject());
        let refused = || DecisionFault::Refused("the entities of a recorded call");
        let around = vocabulary.around(Some(call.tool), &call.tool.classes)?;
        // With the schema they would have its actions among them, which have no form as partial entities.
        let entities = Entities::from_entities(around, None).map_err(|_| refused())?;
        let mut entities = entities.to_json_value().map_err(|_| refused())?;
        let roles = call.caller.roles().iter();
        let roles = roles
            .map(|role| serde_json::json!({ "type": vocabulary.role.to_string(), "id": role }));
        let mut caller = serde_json::json!({
            "uid": { "type": vocabulary.user.to_string(), "id": call.caller.subject() },
            "parents": roles.collect::<Vec<Value>>(),
            "tags": {},
        });
        if vocabulary.caller_attributes.is_empty() {
            let attributes = serde_json::json!({
                "subject": call.caller.subject(), "tenant": call.caller.tenant(),
            });
            caller["attrs"] = attributes;
        }
        entities.as_array_mut().ok_or_else(refused)?.push(caller);
        let entities = PartialEntities::from_json_value(entities, &vocabulary.schema)
            .map_err(|_| refused())?;
        let unknown = set.accesses(&principal, call.tool, &entities, None)?;
        let Some(context) = call.context else {
            return Ok(unknown);
        };
        // What went before a recorded call is not counted anew.
        if !set
            .counters_read((&unknown.0, unknown.1.as_ref()))
            .is_empty()
        {
            return Ok(unknown);
        }
        // What the arguments are is left out of the entities, and so unknown.
        let context = context.to_cedar(Some(vocabulary.call_parts(call.tool.kind)))?;
        set.accesses(&principal, call.tool, &entities, Some(&context))
    }
}
