//! One policy set at work: what it says of a caller and a tool, worked out once.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use cedar_policy::{Entities, EntityUid, PartialEntities};
use quick_cache::sync::Cache;
use wardgate_domain::{
    Approvers, Caller, ColumnClass, ColumnTier, ConversationFacts, DenialReason, Digest,
    InvalidMessage, OfferKind, OperatorAction, RowRule, ToolFacts, ToolName,
};

use crate::arguments::{self, Arguments};
use crate::call::{Access, CallAnswer};
use crate::context::CallContext;
use crate::denial::Denial;
use crate::fault::DecisionFault;
use crate::history::CallCounters;
use crate::schema_shape::Record;
use crate::set::PolicySet;

/// Sets of roles whose policies are remembered.
const REMEMBERED_ROLES: usize = 256;

/// Pairs of caller and tool to remember; at a few kilobytes each, tens of megabytes at most.
const REMEMBERED: usize = 4_096;

/// A policy set and what was worked out from it. A new set starts with an empty memory.
#[derive(Debug)]
pub(crate) struct Engine {
    set: PolicySet,
    /// The policies for callers with these roles.
    slices: Cache<Vec<String>, Arc<PolicySet>>,
    cache: Cache<RightsKey, Arc<ToolRights>>,
    /// Tools that nobody may call, by name and definition, that were logged.
    unreachable: Cache<(ToolName, Digest), ()>,
}

/// The key of remembered rights.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RightsKey {
    caller: Digest,
    tool: ToolName,
    definition: Digest,
}

/// The rights of a caller to a tool, as far as they do not depend on the context.
#[derive(Debug)]
pub(crate) struct ToolRights {
    /// What they were worked out from.
    pub(crate) tool: ToolFacts,
    /// The policies for this caller.
    set: Arc<PolicySet>,
    pub(crate) principal: EntityUid,
    /// The access without an approval.
    pub(crate) access: Access,
    /// The access with any approval; none where no permit needs one.
    approvable: Option<Access>,
    /// The counters of earlier calls that the access depends on.
    pub(crate) counters: CallCounters,
    /// Empty when `access` is settled by a fault.
    pub(crate) entities: Entities,
    /// Policies about rows or columns look at the time or the client's address.
    view_depends_on_context: bool,
    /// Worked out when a call is first allowed; listing does not need it. Empty where it depends on the context.
    view: OnceLock<Result<Arc<ResultView>, Denial>>,
}

/// The view that a caller has of a tool's result.
#[derive(Debug)]
pub(crate) struct ResultView {
    /// `None` where rows are not governed as entities.
    pub(crate) row_rule: Option<RowRule>,
    pub(crate) column_tiers: BTreeMap<ColumnClass, ColumnTier>,
}

/// The answer to one call.
#[derive(Debug)]
pub(crate) struct Ruling {
    pub(crate) answer: CallAnswer,
    /// Those of whom one has to approve the call, which is allowed only then; none where it needs no approval.
    pub(crate) approvers: Option<Approvers>,
    /// The answer, or the view of the result, holds in this context only.
    pub(crate) depends_on_context: bool,
    pub(crate) rights: Arc<ToolRights>,
}

impl ToolRights {
    /// Whether a call could be allowed in some context, with an approval or without.
    pub(crate) fn possible(&self) -> bool {
        self.access.possible() || self.approvable.as_ref().is_some_and(Access::possible)
    }
}

/// The arguments of one call, and when and from where it is made.
#[derive(Clone, Copy)]
struct CallParameters<'a> {
    arguments: &'a [u8],
    context: &'a CallContext,
}

impl Engine {
    pub(crate) fn new(set: PolicySet) -> Self {
        Self {
            set,
            slices: Cache::new(REMEMBERED_ROLES),
            cache: Cache::new(REMEMBERED),
            unreachable: Cache::new(REMEMBERED),
        }
    }

    /// The policies.
    pub(crate) fn set(&self) -> &PolicySet {
        &self.set
    }

    /// The version in force.
    pub(crate) fn hash(&self) -> Digest {
        self.set.hash()
    }

    /// What `caller` may do with `tool`, remembered from the last time if possible.
    pub(crate) fn rights(&self, caller: &Caller, tool: &ToolFacts) -> Arc<ToolRights> {
        let key = RightsKey {
            caller: caller.digest(),
            tool: tool.name.clone(),
            definition: tool.definition_digest,
        };
        let cached = self.cache.get_or_insert_with(&key, || {
            Ok::<_, Infallible>(self.compute_rights(caller, tool))
        });
        let rights = match cached {
            Ok(rights) => rights,
            Err(never) => match never {},
        };
        // The digest should tell definitions apart; should it not, the facts still do.
        if rights.tool == *tool {
            return rights;
        }
        let rights = self.compute_rights(caller, tool);
        self.cache.insert(key, Arc::clone(&rights));
        rights
    }

    /// Rules on one call. The arguments are read only when the answer depends on them.
    pub(crate) fn rule(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &[u8],
        context: &CallContext,
    ) -> Result<Ruling, InvalidMessage> {
        let rights = self.rights(caller, tool);
        let parameters = CallParameters { arguments, context };
        let (answer, by_context) = decide_access(&rights, tool, &rights.access, parameters)?;
        let depends_on_context = by_context || rights.view_depends_on_context;
        let is_not_permitted = matches!(
            &answer,
            Err(denial) if denial.reason == DenialReason::NotPermitted
        );
        let Some(approvable) = (rights.approvable.as_ref()).filter(|_| is_not_permitted) else {
            return Ok(Ruling {
                answer,
                approvers: None,
                depends_on_context,
                rights,
            });
        };
        let (answer, by_context) = decide_access(&rights, tool, approvable, parameters)?;
        Ok(Ruling {
            approvers: answer.as_ref().ok().map(|ids| rights.set.approvers(ids)),
            answer,
            depends_on_context: depends_on_context || by_context,
            rights,
        })
    }

    /// Rules on reading a conversation of somebody else.
    pub(crate) fn recall(&self, caller: &Caller, conversation: &ConversationFacts) -> CallAnswer {
        let answer = self
            .set
            .vocabulary
            .caller(caller)
            .and_then(|caller| self.set.recall(caller, conversation));
        answer.unwrap_or_else(|fault| {
            tracing::warn!(cause = %fault, "a recall was denied because its policies cannot decide it");
            Err(fault.denial())
        })
    }

    /// Rules on what operators do.
    pub(crate) fn operator(&self, caller: &Caller, action: OperatorAction) -> CallAnswer {
        let caller = self.set.vocabulary.caller(caller);
        let answer = caller.and_then(|caller| self.set.operator(caller, action));
        answer.unwrap_or_else(|fault| {
            let action = action.as_str();
            tracing::warn!(cause = %fault, "`{action}` was denied because its policies cannot decide it");
            Err(fault.denial())
        })
    }

    /// The policies that permit the call and what the caller may see of its result, or the denial.
    pub(crate) fn grant(
        &self,
        answer: CallAnswer,
        rights: &ToolRights,
        context: &CallContext,
    ) -> Result<(Vec<String>, Arc<ResultView>), Denial> {
        let policies = answer?;
        Ok((policies, self.view(rights, context)?))
    }

    /// What the caller may see of the result; when that cannot be worked out, the denial that takes the
    /// place of any permission to call.
    fn view(&self, rights: &ToolRights, context: &CallContext) -> Result<Arc<ResultView>, Denial> {
        let evaluate = || {
            self.evaluate(rights, context)
                .map(Arc::new)
                .map_err(|fault| denied_for(&fault, &rights.tool))
        };
        if rights.view_depends_on_context {
            return evaluate();
        }
        rights.view.get_or_init(evaluate).clone()
    }

    /// The policies for a caller with these roles.
    pub(crate) fn slice(&self, roles: &[String]) -> Arc<PolicySet> {
        if let Some(slice) = self.slices.get(roles) {
            return slice;
        }
        let slice = Arc::new(self.set.for_roles(roles));
        self.slices.insert(roles.to_vec(), Arc::clone(&slice));
        slice
    }

    /// The same where it depends on earlier calls; none where it does not. Where no counter is declared that is known at once.
    pub(crate) fn rights_by_history(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
    ) -> Option<Arc<ToolRights>> {
        if self.set.vocabulary.counters(tool.kind).is_empty() {
            return None;
        }
        Some(self.rights(caller, tool)).filter(|rights| !rights.counters.is_empty())
    }

    fn compute_rights(&self, caller: &Caller, tool: &ToolFacts) -> Arc<ToolRights> {
        let set = self.slice(caller.roles());
        let vocabulary = &set.vocabulary;
        let principal = vocabulary.user(caller.subject());
        let known = vocabulary.caller(caller).and_then(|caller| {
            let entities = vocabulary.entities(caller, tool)?;
            let partial = self.partial(&entities)?;
            let (access, approvable) = set.accesses(&principal, tool, &partial, None)?;
            Ok((access, approvable, entities))
        });
        let (access, approvable, entities) = known.unwrap_or_else(|fault| {
            (
                Access::Settled(Err(denied_for(&fault, tool))),
                None,
                Entities::empty(),
            )
        });
        let rights = Arc::new(ToolRights {
            tool: tool.clone(),
            counters: set.counters_read((&access, approvable.as_ref())),
            view_depends_on_context: set.view_reads_context(tool),
            set,
            principal,
            access,
            approvable,
            entities,
            view: OnceLock::new(),
        });
        if !rights.possible() {
            self.note_denial(tool);
        }
        rights
    }

    /// Logs, once for each definition of a tool, that it is denied to everyone.
    fn note_denial(&self, tool: &ToolFacts) {
        let key = (tool.name.clone(), tool.definition_digest);
        if tool.kind != OfferKind::Tool || self.unreachable.get(&key).is_some() {
            return;
        }
        self.unreachable.insert(key, ());
        if !self.set.lets_anyone_call(tool) {
            tracing::warn!("{}", self.set.advice_on_tool(tool));
        }
    }

    fn evaluate(
        &self,
        rights: &ToolRights,
        context: &CallContext,
    ) -> Result<ResultView, DecisionFault> {
        let context = context.to_cedar(None)?;
        let row_rule = match &rights.tool.entity {
            Some(entity) => {
                let partial = self.partial(&rights.entities)?;
                Some((rights.set).row_rule(&rights.principal, entity, &partial, &context)?)
            }
            None => None,
        };
        let column_tiers =
            rights
                .set
                .column_tiers(&rights.principal, &rights.tool, &rights.entities, &context)?;
        Ok(ResultView {
            row_rule,
            column_tiers,
        })
    }

    fn partial(&self, entities: &Entities) -> Result<PartialEntities, DecisionFault> {
        PartialEntities::from_concrete(entities.clone(), &self.set.vocabulary.schema)
            .map_err(|_| DecisionFault::Refused("the entities of a question in part"))
    }
}

/// What `access` says of a call, and whether that holds in its context only. The arguments are read only then.
fn decide_access(
    rights: &ToolRights,
    tool: &ToolFacts,
    access: &Access,
    parameters: CallParameters<'_>,
) -> Result<(CallAnswer, bool), InvalidMessage> {
    let policies = match access {
        Access::Settled(answer) => return Ok((answer.clone(), false)),
        Access::ByContext(policies) => policies,
    };
    let CallParameters { arguments, context } = parameters;
    let arguments = with_defaults(tool, arguments, &rights.set.vocabulary.argument_types)?;
    let answer = rights
        .set
        .answer(
            policies,
            &rights.principal,
            tool,
            &rights.entities,
            &arguments,
            context,
        )
        .unwrap_or_else(|fault| Err(denied_for(&fault, tool)));
    Ok((answer, true))
}

/// The arguments of a call. What it leaves out, the tool will fill in.
pub(crate) fn with_defaults(
    tool: &ToolFacts,
    arguments: &[u8],
    declared: &Record,
) -> Result<Arguments, InvalidMessage> {
    let mut arguments = arguments::parse_arguments(arguments)?;
    for (name, default) in &tool.argument_defaults {
        let declared = declared.get(name).map(|attribute| &attribute.r#type);
        arguments
            .entry(name.clone())
            .or_insert_with(|| arguments::default_value(default, declared));
    }
    Ok(arguments)
}

/// The denial that a fault is, with the one log line that tells its cause.
fn denied_for(fault: &DecisionFault, tool: &ToolFacts) -> Denial {
    tracing::warn!(tool.name = %tool.name, cause = %fault, "a call was denied because its policies cannot decide it");
    fault.denial()
}
