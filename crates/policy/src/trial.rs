//! Trial of a policy set before it is put in force. Every question is asked once for made-up callers, to find faults
//! that validation cannot detect, such as an overflow or a rule that cannot be decided from a row.

use std::collections::{BTreeSet, HashMap};

use cedar_policy::{
    self as cedar, Entity, EntityTypeName, EntityUid, PartialEntities, Policy, RestrictedExpression,
};
use serde_json::Value;
use wardgate_domain::{
    ColumnClass, ConversationFacts, Digest, OfferKind, OperatorAction, RowRule, TimeZone,
    Timestamp, ToolFacts, ToolName,
};

use crate::arguments::Arguments;
use crate::call::Access;
use crate::context::CallContext;
use crate::entities::text;
use crate::fault::DecisionFault;
use crate::history::CallCounters;
use crate::schema_shape::{Attribute, Record, Type};
use crate::set::PolicySet;
use crate::vocabulary::{SUBJECT, TENANT, uid};

/// Maximum number of roles, and of tools, that are tried individually. All roles are tried together in any case.
const TRIED_ALONE: usize = 64;

/// The value of the counters of earlier calls in the trial with many calls.
const MANY_CALLS: u64 = 10_000;

/// The id of every made-up entity.
const MADE_UP: &str = "self-check";

/// A problem that the trial found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrialFinding {
    /// The policy at fault, or `None` if it is not a single policy.
    pub(crate) policy: Option<String>,
    pub(crate) problem: String,
    pub(crate) fix: Option<&'static str>,
}

/// Asks all questions of `set`, which consists of `policies`.
pub(crate) fn run(set: &PolicySet, policies: &cedar::PolicySet) -> Vec<TrialFinding> {
    let literals: BTreeSet<_> = policies
        .policies()
        .flat_map(Policy::entity_literals)
        .collect();
    let of_type = |name: &EntityTypeName| -> Vec<String> {
        let of_type = literals
            .iter()
            .filter(|literal| literal.type_name() == name);
        of_type
            .map(|literal| literal.id().unescaped().to_owned())
            .collect()
    };
    let vocabulary = &set.vocabulary;
    let (roles, tags) = (of_type(&vocabulary.role), of_type(&vocabulary.tag));
    let classes = of_type(&vocabulary.class)
        .iter()
        .filter_map(|class| class.parse().ok())
        .collect::<Vec<_>>();

    let mut trial = Trial {
        set,
        findings: BTreeSet::new(),
    };
    for kind in OfferKind::ALL {
        let (_, entity) = vocabulary.question(kind);
        let offer = |name: ToolName| made_up_offer(kind, name, &tags, &classes);
        let Ok(any) = MADE_UP.parse().map(offer) else {
            continue;
        };
        trial.evaluate_offer(&[], AttributeExtent::Least, &any);
        trial.evaluate_offer(&[], AttributeExtent::Most, &any);
        trial.evaluate_offer(&roles, AttributeExtent::Least, &any);
        trial.evaluate_offer(&roles, AttributeExtent::Most, &any);
        for role in roles.iter().take(TRIED_ALONE) {
            trial.evaluate_offer(std::slice::from_ref(role), AttributeExtent::Most, &any);
        }
        for name in of_type(entity)
            .iter()
            .take(TRIED_ALONE)
            .filter_map(|name| name.parse().ok())
        {
            trial.evaluate_offer(&roles, AttributeExtent::Most, &offer(name));
        }
    }
    trial.findings.into_iter().collect()
}

fn made_up_offer(
    kind: OfferKind,
    name: ToolName,
    tags: &[String],
    classes: &[ColumnClass],
) -> ToolFacts {
    ToolFacts {
        kind,
        name,
        definition_digest: Digest::compute(b""),
        read_only: false,
        tags: tags.into(),
        entity: None,
        classes: classes
            .iter()
            .cloned()
            .chain([ColumnClass::unclassified()])
            .collect(),
        argument_defaults: std::collections::BTreeMap::new(),
    }
}

fn made_up_conversation() -> Result<ConversationFacts, DecisionFault> {
    Ok(ConversationFacts {
        key: "00000000-0000-0000-0000-000000000000"
            .parse()
            .map_err(|_| DecisionFault::Refused("a sample conversation"))?,
        owner: MADE_UP.to_owned(),
        tenant: MADE_UP.to_owned(),
    })
}

/// Which optional attributes a made-up entity has: none, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttributeExtent {
    Least,
    Most,
}

struct Trial<'a> {
    set: &'a PolicySet,
    findings: BTreeSet<TrialFinding>,
}

impl Trial<'_> {
    fn evaluate_offer(&mut self, roles: &[String], extent: AttributeExtent, tool: &ToolFacts) {
        if let Err(fault) = self.try_evaluate_offer(roles, extent, tool) {
            self.note(&fault);
        }
    }

    fn note(&mut self, fault: &DecisionFault) {
        match fault {
            DecisionFault::Policies(ids) => {
                let finding = |id: &String| TrialFinding {
                    policy: Some(id.clone()),
                    problem: format!("policy `{id}` fails to evaluate for a sample caller"),
                    fix: Some(
                        "an error never allows a call, so the policy would deny every call to which it applies; check for overflows",
                    ),
                };
                self.findings.extend(ids.iter().map(finding));
            }
            DecisionFault::NotByRow { policy, problem } => {
                let problem =
                    format!("policy `{policy}` cannot be evaluated for a single row: {problem}");
                let fix =
                    Some("compare only attributes of the row with attributes of the principal");
                self.findings.insert(TrialFinding {
                    policy: Some(policy.clone()),
                    problem,
                    fix,
                });
            }
            other => {
                self.findings.insert(TrialFinding {
                    policy: None,
                    problem: other.to_string(),
                    fix: None,
                });
            }
        }
    }

    fn try_evaluate_offer(
        &mut self,
        roles: &[String],
        extent: AttributeExtent,
        tool: &ToolFacts,
    ) -> Result<(), DecisionFault> {
        let vocabulary = &self.set.vocabulary;
        let principal = vocabulary.user(MADE_UP);
        let parents = roles
            .iter()
            .map(|role| uid(&vocabulary.role, role))
            .collect();
        let mut attributes = made_up_attributes(&vocabulary.caller_attributes, extent);
        attributes.extend([SUBJECT, TENANT].map(|name| (name.to_owned(), text(MADE_UP))));
        let caller = Entity::new(principal.clone(), attributes, parents)
            .map_err(|_| DecisionFault::Refused("a sample caller"))?;
        let entities = vocabulary.entities(caller.clone(), tool)?;
        let partial = PartialEntities::from_concrete(entities.clone(), &vocabulary.schema)
            .map_err(|_| DecisionFault::Refused("the sample entities of a partial evaluation"))?;

        let context = made_up_context(extent, vocabulary.counters(tool.kind));
        let policies = self.set.policies(tool.kind)?;
        let access = (self.set).access(policies, &principal, tool, &partial, None)?;
        if let Access::ByContext(policies) = access {
            // The answer does not matter, only that there is one.
            let arguments = made_up_arguments(&vocabulary.argument_types, extent);
            let _decided = self
                .set
                .answer(&policies, &principal, tool, &entities, &arguments, &context)?;
        }
        let context = context.to_cedar(None)?;
        self.set
            .column_tiers(&principal, tool, &entities, &context)?;
        for action in OperatorAction::ALL {
            let _decided = self.set.operator(caller.clone(), action)?;
        }
        let _decided = self.set.recall(caller, &made_up_conversation()?)?;
        for name in vocabulary.rows.keys() {
            let rule = self.set.row_rule(&principal, name, &partial, &context)?;
            for extent in [AttributeExtent::Least, AttributeExtent::Most] {
                self.admit(&principal, &rule, extent)?;
            }
        }
        Ok(())
    }

    /// Evaluates a row rule in the same way as the tool-runner.
    fn admit(
        &self,
        principal: &EntityUid,
        rule: &RowRule,
        extent: AttributeExtent,
    ) -> Result<(), DecisionFault> {
        let refused = || DecisionFault::Refused("a sample row");
        let vocabulary = &self.set.vocabulary;
        let row_type = vocabulary.rows.get(&rule.entity).ok_or_else(refused)?;
        let row = uid(&row_type.name, MADE_UP);
        let attributes = made_up_attributes(&row_type.attributes, extent);
        let entity = Entity::new(row, attributes, [].into()).map_err(|_| refused())?;
        // The answer does not matter, only that there is one.
        let _admitted = vocabulary.admits(principal, rule, entity)?;
        Ok(())
    }
}

/// Returns a context for the trial: midnight on a Sunday with an unknown address and no earlier calls, or noon on a
/// Wednesday with an address for documentation (RFC 5737) and many earlier calls.
fn made_up_context(extent: AttributeExtent, counters: &CallCounters) -> CallContext {
    let (seconds, client_ip, count) = match extent {
        AttributeExtent::Least => (1_767_484_800, None, 0),
        AttributeExtent::Most => (1_767_787_200, Some([192, 0, 2, 1].into()), MANY_CALLS),
    };
    let counts = counters.keys().map(|name| (name.clone(), count));
    CallContext {
        time: Timestamp::from_seconds(seconds),
        time_zone: TimeZone::default(),
        client_ip,
        counts: counts.collect(),
    }
}

fn made_up_arguments(declared: &Record, extent: AttributeExtent) -> Arguments {
    let declared = declared.iter();
    let filled = declared.filter(|_| extent == AttributeExtent::Most);
    let argument = |(name, attribute): (&String, &Attribute)| {
        (name.clone(), made_up_argument(&attribute.r#type))
    };
    filled.map(argument).collect()
}

fn made_up_argument(declared: &Type) -> Value {
    match declared {
        Type::Integer | Type::Decimal => Value::from(0),
        Type::Boolean => Value::from(false),
        Type::Set(element) => Value::from(vec![made_up_argument(element)]),
        Type::Record(members) => {
            let member = |(name, member): (&String, &Attribute)| {
                (name.clone(), made_up_argument(&member.r#type))
            };
            members.iter().map(member).collect()
        }
        Type::Text | Type::Entity(_) | Type::Other => Value::from(MADE_UP),
    }
}

fn made_up_attributes(
    declared: &Record,
    extent: AttributeExtent,
) -> HashMap<String, RestrictedExpression> {
    let mut attributes = HashMap::new();
    for (name, attribute) in declared {
        if !attribute.required && extent == AttributeExtent::Least {
            continue;
        }
        let value = match attribute.r#type {
            Type::Integer => RestrictedExpression::new_long(0),
            Type::Boolean => RestrictedExpression::new_bool(false),
            Type::Set(_) => RestrictedExpression::new_set([text(MADE_UP)]),
            Type::Text | Type::Decimal | Type::Record(_) | Type::Entity(_) | Type::Other => {
                text(MADE_UP)
            }
        };
        attributes.insert(name.clone(), value);
    }
    attributes
}
