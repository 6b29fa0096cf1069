//! Decisions about the use of a tool or of another offer of a source.

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Diagnostics, Entities, Entity, EntityUid,
    PartialEntities, PartialEntityUid, PartialRequest, PolicyId, Request,
};
use wardgate_domain::{DenialReason, OfferKind, ToolFacts};

use crate::approval::needs_approval;
use crate::arguments::{Arguments, attributes, tag};
use crate::context::CallContext;
use crate::denial::Denial;
use crate::entities::text;
use crate::fault::DecisionFault;
use crate::history::CallCounters;
use crate::set::{PolicySet, gather};
use crate::vocabulary::{Vocabulary, uid};

/// The answer about a call: the ids of the policies that permit it, or the denial.
pub(crate) type CallAnswer = Result<Vec<String>, Denial>;

/// The access to a tool as far as it can be decided without the context, that is, the arguments, the time and the
/// client's address.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// The answer is the same in every context.
    Settled(CallAnswer),
    /// The answer depends on the context. The value is the set of policies that can still determine it.
    ByContext(Box<cedar_policy::PolicySet>),
}

impl Vocabulary {
    /// Creates the request whether `tool`, or another offer of a source, may be used. Returns `None` if it does not fit
    /// the schema.
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
    /// Returns the policies that can still determine the answer, or `None` if the answer is settled.
    pub(crate) fn open(&self) -> Option<&cedar_policy::PolicySet> {
        match self {
            Self::Settled(_) => None,
            Self::ByContext(policies) => Some(policies),
        }
    }

    /// Returns whether access could be allowed in some context.
    pub(crate) fn possible(&self) -> bool {
        match self {
            Self::Settled(answer) => answer.is_ok(),
            Self::ByContext(_) => true,
        }
    }
}

/// Converts a Cedar decision and the policies that determined it to an answer.
pub(crate) fn answer_from_decision(decision: Decision, policies: Vec<String>) -> CallAnswer {
    match decision {
        Decision::Allow => Ok(policies),
        // Only a forbid policy can determine a denial. Without one, no policy permitted the request.
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

/// Decides a request with Cedar's standard authorizer. A policy that fails to evaluate is a fault.
pub(crate) fn decide(
    request: &Request,
    policies: &cedar_policy::PolicySet,
    entities: &Entities,
) -> Result<CallAnswer, DecisionFault> {
    let response = Authorizer::new().is_authorized(request, policies, entities);
    let failing = failed_policies(response.diagnostics());
    if !failing.is_empty() {
        return Err(DecisionFault::Policies(failing));
    }
    Ok(answer_from_decision(
        response.decision(),
        ids(response.diagnostics().reason()),
    ))
}

/// Returns the ids of the policies that failed to evaluate. Cedar ignores a failing policy, even a `forbid`, so a
/// caller that ignored this list could allow what a rule was meant to forbid.
pub(crate) fn failed_policies(diagnostics: &Diagnostics) -> Vec<String> {
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
    /// Returns the access to a tool without an approval, and the access with any approval. The second is `None` if no
    /// permit requires an approval.
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

    /// Returns the counters of earlier calls on which the access without an approval, or with any approval, depends.
    pub(crate) fn counters_read(
        &self,
        access: &Access,
        approvable: Option<&Access>,
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

    /// Evaluates `policies` as far as possible. The context is unknown if `context` is `None`.
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
        .map_err(|_| DecisionFault::Refused("the authorization request for a tool call"))?;
        let response = policies
            .tpe(&request, entities, &vocabulary.schema)
            .map_err(|_| DecisionFault::Refused("the partial evaluation of a tool call"))?;
        let failing = ids(response.error_forbids().chain(response.error_permits()));
        if !failing.is_empty() {
            return Err(DecisionFault::Policies(failing));
        }
        // Whoever a permit names may approve the call, so which of these permits apply matters even if the call is allowed.
        let needs_approval = |id: &PolicyId| policies.policy(id).is_some_and(needs_approval);
        let has_open_approver = response.residual_permits().any(needs_approval);
        if let (Some(decision), Some(reason)) = (response.decision(), response.reason())
            && !(decision == Decision::Allow && has_open_approver)
        {
            return Ok(Access::Settled(answer_from_decision(decision, ids(reason))));
        }
        // The other policies are false in every context, and evaluating them again would only take time.
        let residual = response.residual_policies().map(|it| it.id().clone());
        let left = response.true_permits().cloned().chain(residual);
        let left = left.filter_map(|id| policies.policy(&id).cloned());
        Ok(Access::ByContext(Box::new(gather(left))))
    }

    /// Decides with the arguments and the context. `policies` are those that can still determine the answer.
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

    /// Creates the request whether a call may be made, and the entities that it refers to.
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
        policies.ok_or(DecisionFault::Refused("a request of an unsupported kind"))
    }
}
