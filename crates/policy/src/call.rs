//! May the caller call the tool, or use what else a source offers?

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Diagnostics, Entities, Entity, EntityUid,
    PartialEntities, PartialEntityUid, PartialRequest, PolicyId, Request,
};
use wardgate_domain::{DenialReason, OfferKind, ToolFacts};

use crate::arguments::{Arguments, attributes, tag};
use crate::context::CallContext;
use crate::denial::Denial;
use crate::entities::text;
use crate::fault::DecisionFault;
use crate::history::CallCounters;
use crate::set::{PolicySet, gather};
use crate::vocabulary::{Vocabulary, uid};

/// Whether a call is allowed: the ids of the policies that permit it, or the denial.
pub(crate) type CallAnswer = Result<Vec<String>, Denial>;

/// The access to a tool, as far as it is known before the context is: the arguments, the time and the client's address.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// The answer, whatever the context.
    Settled(CallAnswer),
    /// In some context it could be allowed, in others not: the policies that can still decide.
    ByContext(Box<cedar_policy::PolicySet>),
}

impl Vocabulary {
    /// The question whether `tool` may be called, or what else a source offers be used; none where the schema does not fit.
    pub(crate) fn call_request(
        &self,
        principal: &EntityUid,
        tool: &ToolFacts,
        context: Context,
    ) -> Option<Request> {
        let (action, resource) = self.question(tool.kind);
        let resource = uid(resource, tool.name.as_str());
        let schema = Some(&self.schema);
        Request::new(principal.clone(), action.clone(), resource, context, schema).ok()
    }
}

impl Access {
    /// The policies that can still decide; none where it is settled.
    pub(crate) fn open(&self) -> Option<&cedar_policy::PolicySet> {
        match self {
            Self::Settled(_) => None,
            Self::ByContext(policies) => Some(policies),
        }
    }

    /// True when it could be allowed in some context.
    pub(crate) fn possible(&self) -> bool {
        match self {
            Self::Settled(answer) => answer.is_ok(),
            Self::ByContext(_) => true,
        }
    }
}

/// What a decision and the policies that determined it mean.
pub(crate) fn decided(decision: Decision, policies: Vec<String>) -> CallAnswer {
    match decision {
        Decision::Allow => Ok(policies),
        // Only a forbid can determine a denial; without one, nothing permitted.
        Decision::Deny if policies.is_empty() => Err(Denial {
            reason: DenialReason::NotPermitted,
            policies,
        }),
        Decision::Deny => Err(Denial {
            reason: DenialReason::Forbidden,
            policies,
        }),
    }
}

/// Decides by the stable authorizer; a policy that fails is a fault.
pub(crate) fn decide(
    request: &Request,
    policies: &cedar_policy::PolicySet,
    entities: &Entities,
) -> Result<CallAnswer, DecisionFault> {
    let response = Authorizer::new().is_authorized(request, policies, entities);
    let failing = failing(response.diagnostics());
    if !failing.is_empty() {
        return Err(DecisionFault::Policies(failing));
    }
    Ok(decided(
        response.decision(),
        ids(response.diagnostics().reason()),
    ))
}

/// The policies that failed. Cedar passes over a failing policy, a `forbid` too, so whoever ignores
/// this allows what a rule was meant to forbid.
pub(crate) fn failing(diagnostics: &Diagnostics) -> Vec<String> {
    ids(diagnostics
        .errors()
        .map(|AuthorizationError::PolicyEvaluationError(error)| error.policy_id()))
}

pub(crate) fn ids<'a>(ids: impl Iterator<Item = &'a PolicyId>) -> Vec<String> {
    let mut ids: Vec<_> = ids.map(ToString::to_string).collect();
    ids.sort_unstable();
    ids
}

impl PolicySet {
    /// The access to a tool without an approval, and the access with any; the second is none where no permit needs one.
    pub(crate) fn accesses(
        &self,
        principal: &EntityUid,
        tool: &ToolFacts,
        entities: &PartialEntities,
        context: Option<&Context>,
    ) -> Result<(Access, Option<Access>), DecisionFault> {
        let policies = self.policies(tool.kind)?;
        let access = |policies| self.access(policies, principal, tool, entities, context);
        let without_approval = self.without_approval.as_ref();
        match without_approval.filter(|_| tool.kind == OfferKind::Tool) {
            Some(without) => Ok((access(without)?, Some(access(policies)?))),
            None => Ok((access(policies)?, None)),
        }
    }

    /// The counters of earlier calls that the access without an approval, or the one with any, depends on.
    pub(crate) fn counters_read(
        &self,
        (access, approvable): (&Access, Option<&Access>),
    ) -> CallCounters {
        if self.history_readers.is_empty() {
            return CallCounters::new();
        }
        let declared = self.vocabulary.counters(OfferKind::Tool);
        let open = [Some(access), approvable].into_iter().flatten();
        let policies = open
            .filter_map(Access::open)
            .flat_map(cedar_policy::PolicySet::policies);
        let read = policies.filter_map(|policy| self.history_readers.get(policy.id()));
        let read = read
            .flatten()
            .filter_map(|name| declared.get_key_value(name));
        read.map(|(name, counter)| (name.clone(), counter.clone()))
            .collect()
    }

    /// Decides by `policies` as far as that goes; a `context` that is none is unknown.
    pub(crate) fn access(
        &self,
        policies: &cedar_policy::PolicySet,
        principal: &EntityUid,
        tool: &ToolFacts,
        entities: &PartialEntities,
        context: Option<&Context>,
    ) -> Result<Access, DecisionFault> {
        let vocabulary = &self.vocabulary;
        let (action, resource) = vocabulary.question(tool.kind);
        let request = PartialRequest::new(
            PartialEntityUid::from_concrete(principal.clone()),
            action.clone(),
            PartialEntityUid::from_concrete(uid(resource, tool.name.as_str())),
            context.cloned(),
            &vocabulary.schema,
        )
        .map_err(|_| DecisionFault::Refused("the question whether a tool may be called"))?;
        let response = policies
            .tpe(&request, entities, &vocabulary.schema)
            .map_err(|_| {
                DecisionFault::Refused("to evaluate in part whether a tool may be called")
            })?;
        let failing = ids(response.error_forbids().chain(response.error_permits()));
        if !failing.is_empty() {
            return Err(DecisionFault::Policies(failing));
        }
        if let (Some(decision), Some(reason)) = (response.decision(), response.reason()) {
            return Ok(Access::Settled(decided(decision, ids(reason))));
        }
        // The others are false whatever the context, and would only take time.
        let residual = response.residual_policies().map(|it| it.id().clone());
        let left = response.true_permits().cloned().chain(residual);
        let left = left.filter_map(|id| policies.policy(&id).cloned());
        Ok(Access::ByContext(Box::new(gather(left))))
    }

    /// Decides with the arguments and the context; `policies` are those that can still decide.
    pub(crate) fn answer(
        &self,
        policies: &cedar_policy::PolicySet,
        principal: &EntityUid,
        tool: &ToolFacts,
        entities: &Entities,
        arguments: &Arguments,
        context: &CallContext,
    ) -> Result<CallAnswer, DecisionFault> {
        let (request, entities) =
            self.call_request(principal, tool, entities, arguments, context)?;
        decide(&request, policies, &entities)
    }

    /// The question whether a call may be made, and what it refers to.
    pub(crate) fn call_request(
        &self,
        principal: &EntityUid,
        tool: &ToolFacts,
        entities: &Entities,
        arguments: &Arguments,
        context: &CallContext,
    ) -> Result<(Request, Entities), DecisionFault> {
        let vocabulary = &self.vocabulary;
        let refused = || DecisionFault::Refused("the arguments of a call");
        let this = vocabulary.call_arguments();
        let tags = arguments
            .iter()
            .map(|(name, value)| (name.clone(), text(&tag(value))));
        let attributes = attributes(arguments, &vocabulary.argument_types)?;
        let tagged =
            Entity::new_with_tags(this.clone(), attributes, [], tags).map_err(|_| refused())?;
        let entities = entities
            .clone()
            .add_entities([tagged], None)
            .map_err(|_| refused())?;
        let context = context.to_cedar(Some(vocabulary.call_parts(tool.kind)))?;
        let request = vocabulary.call_request(principal, tool, context);
        Ok((request.ok_or_else(refused)?, entities))
    }

    pub(crate) fn policies(
        &self,
        kind: OfferKind,
    ) -> Result<&cedar_policy::PolicySet, DecisionFault> {
        let policies = self.uses.get(&kind);
        policies.ok_or(DecisionFault::Refused(
            "a kind of thing that nobody has policies for",
        ))
    }
}
