//! The engine, which evaluates one policy set and caches the rights of callers to tools.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use cedar_policy::{Entities, EntityUid, PartialEntities};
use quick_cache::sync::Cache;
use wardgate_domain::{
    Approvers, BundleReference, Caller, ColumnClass, ColumnTier, ConversationFacts, DenialReason,
    Digest, InvalidMessage, OfferKind, OperatorAction, RowRule, ToolFacts, ToolName,
};

use crate::arguments::{self, Arguments};
use crate::call::{Access, CallAnswer};
use crate::context::CallContext;
use crate::denial::Denial;
use crate::fault::DecisionFault;
use crate::history::CallCounters;
use crate::schema_shape::Record;
use crate::set::PolicySet;

/// Maximum number of role sets whose policies are cached.
const REMEMBERED_ROLES: usize = 256;

/// Maximum number of caller and tool pairs in the cache. Each takes a few kilobytes, so all take tens of megabytes at
/// most.
const REMEMBERED: usize = 4_096;

/// A policy set with the results computed from it. A new set starts with empty caches.
#[derive(Debug)]
pub(crate) struct Engine {
    set: PolicySet,
    /// The applicable policies by the roles of the caller.
    slices: Cache<Vec<String>, Arc<PolicySet>>,
    cache: Cache<RightsKey, Arc<ToolRights>>,
    /// The tools, by name and definition, for which it was logged that nobody may call them.
    unreachable: Cache<(ToolName, Digest), ()>,
}

/// The cache key of the rights of a caller to a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RightsKey {
    caller: Digest,
    tool: ToolName,
    definition: Digest,
}

/// The rights of a caller to a tool, as far as they do not depend on the context.
#[derive(Debug)]
pub(crate) struct ToolRights {
    /// The facts from which the rights were computed.
    pub(crate) tool: ToolFacts,
    /// The policies that can apply to this caller.
    set: Arc<PolicySet>,
    pub(crate) principal: EntityUid,
    /// The access without an approval.
    pub(crate) access: Access,
    /// The access with any approval, or `None` if no permit requires an approval.
    approvable: Option<Access>,
    /// The counters of earlier calls that the access depends on.
    pub(crate) counters: Arc<CallCounters>,
    /// The entities of a request. They are empty if a fault settled `access`.
    pub(crate) entities: Entities,
    /// Whether policies about rows or columns read the time or the client's address.
    view_depends_on_context: bool,
    /// The cached view of the result, computed when a call is first allowed, because listing tools does not need it. It
    /// stays empty if the view depends on the context.
    view: OnceLock<Result<Arc<ResultView>, Denial>>,
}

/// The view that a caller has of a tool's result.
#[derive(Debug)]
pub(crate) struct ResultView {
    /// The rule for rows, or `None` if rows are not governed as entities.
    pub(crate) row_rule: Option<RowRule>,
    pub(crate) column_tiers: BTreeMap<ColumnClass, ColumnTier>,
}

/// The answer to one call.
#[derive(Debug)]
pub(crate) struct Ruling {
    pub(crate) answer: CallAnswer,
    /// The people who may approve the call, which is allowed only with an approval; `None` if it needs no approval.
    pub(crate) approvers: Option<Approvers>,
    /// Whether the answer, or the view of the result, is valid in this context only.
    pub(crate) depends_on_context: bool,
    pub(crate) rights: Arc<ToolRights>,
}

impl ToolRights {
    /// Returns whether a call could be allowed in some context, with or without an approval.
    pub(crate) fn possible(&self) -> bool {
        self.access.possible() || self.approvable.as_ref().is_some_and(Access::possible)
    }
}

/// The arguments and the context of one call.
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

    /// Returns the policy set.
    pub(crate) fn set(&self) -> &PolicySet {
        &self.set
    }

    /// Returns the policy set without what was computed from it.
    pub(crate) fn into_set(self) -> PolicySet {
        self.set
    }

    /// Returns the bundle that the policy set comes from, if it comes from one.
    pub(crate) fn bundle(&self) -> Option<BundleReference> {
        self.set.bundle()
    }

    /// Returns the version of the policy set.
    pub(crate) fn hash(&self) -> Digest {
        self.set.hash()
    }

    /// Returns the rights of `caller` to `tool`, from the cache if possible.
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
        // The digest normally distinguishes definitions. This comparison of all facts is a safeguard.
        if rights.tool == *tool {
            return rights;
        }
        let rights = self.compute_rights(caller, tool);
        self.cache.insert(key, Arc::clone(&rights));
        rights
    }

    /// Decides one call. The arguments are parsed only if the answer depends on them.
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

    /// Decides whether `caller` may read a conversation of somebody else.
    pub(crate) fn recall(&self, caller: &Caller, conversation: &ConversationFacts) -> CallAnswer {
        let answer = self
            .set
            .vocabulary
            .caller(caller)
            .and_then(|caller| self.set.recall(caller, conversation));
        answer.unwrap_or_else(|fault| {
            tracing::warn!(cause = %fault, "the recall of a conversation was denied because its policies cannot be evaluated");
            Err(fault.denial())
        })
    }

    /// Decides whether `caller` may perform an operator action.
    pub(crate) fn operator(&self, caller: &Caller, action: OperatorAction) -> CallAnswer {
        let caller = self.set.vocabulary.caller(caller);
        let answer = caller.and_then(|caller| self.set.operator(caller, action));
        answer.unwrap_or_else(|fault| {
            let action = action.as_str();
            tracing::warn!(cause = %fault, "`{action}` was denied because its policies cannot be evaluated");
            Err(fault.denial())
        })
    }

    /// Returns the policies that permit the call and the caller's view of the result, or the denial.
    pub(crate) fn grant(
        &self,
        answer: CallAnswer,
        rights: &ToolRights,
        context: &CallContext,
    ) -> Result<(Vec<String>, Arc<ResultView>), Denial> {
        let policies = answer?;
        Ok((policies, self.view(rights, context)?))
    }

    /// Returns the caller's view of the result. If it cannot be computed, the error is a denial, which overrides any
    /// permission to call.
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

    /// Returns the policies that can apply to a caller with these roles.
    pub(crate) fn slice(&self, roles: &[String]) -> Arc<PolicySet> {
        if let Some(slice) = self.slices.get(roles) {
            return slice;
        }
        let slice = Arc::new(self.set.for_roles(roles));
        self.slices.insert(roles.to_vec(), Arc::clone(&slice));
        slice
    }

    /// Returns the rights if they depend on earlier calls, otherwise `None`. This is fast if the schema declares no
    /// counter.
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
            counters: Arc::new(set.counters_read(&access, approvable.as_ref())),
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

    /// Logs that a tool is denied to everyone, once for each definition of the tool.
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
            .map_err(|_| DecisionFault::Refused("the entities of a partial evaluation"))
    }
}

/// Returns the answer of `access` to a call, and whether it depends on the context. The arguments are parsed only if it
/// does.
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

/// Parses the arguments of a call and adds the default values with which the tool fills in missing arguments.
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

/// Converts a fault to a denial, and logs the cause once.
fn denied_for(fault: &DecisionFault, tool: &ToolFacts) -> Denial {
    tracing::warn!(tool.name = %tool.name, cause = %fault, "a call was denied because its policies cannot be evaluated");
    fault.denial()
}
