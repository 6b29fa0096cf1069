//! Warnings about policies that are valid but probably mistaken.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{Effect, EntityTypeName, Policy};
use serde_json::Value;
use wardgate_domain::{OfferKind, ToolFacts};

use crate::approval::{approver_role, needs_approval};
use crate::error::{Finding, Position};
use crate::explanation::parts;
use crate::history::CallCounter;
use crate::set::PolicySet;

/// A policy in a form that can be compared with other policies.
struct ComparablePolicy<'a> {
    policy: &'a Policy,
    json: Value,
    /// The conditions of scope and body, all of which must hold.
    conditions: BTreeSet<String>,
    /// The pairs of action and resource type to which the policy can apply.
    questions: BTreeSet<(String, String)>,
}

impl ComparablePolicy<'_> {
    /// Returns whether, for a call that both policies permit, `other` alone allows it with no stricter approval.
    fn allows_no_more_than(&self, other: &Self) -> bool {
        !needs_approval(other.policy)
            || (needs_approval(self.policy)
                && approver_role(self.policy) == approver_role(other.policy))
    }

    /// Returns whether `other` applies wherever this policy does.
    fn is_covered_by(&self, other: &Self) -> bool {
        other.conditions.is_subset(&self.conditions)
            && self.questions.is_subset(&other.questions)
            && self.allows_no_more_than(other)
    }
}

impl PolicySet {
    /// Returns the warnings in the order of the files. `offers` are the tools and sources of the catalogue, and `roles`
    /// those that issuers assign. If one of them is empty, the corresponding names are not checked.
    pub fn lint(&self, offers: &[ToolFacts], roles: &[String]) -> Vec<Finding> {
        let policies = self.comparable_policies();
        let mut found = Vec::new();
        for (id, policy) in &policies {
            found.extend(self.covered_policy_finding(id, policy, &policies));
            if policy.policy.effect() == Effect::Forbid && has_arithmetic(&policy.json) {
                let problem = format!(
                    "forbid `{id}` uses arithmetic, which fails if the result needs more than 64 bits"
                );
                let fix = "compare without arithmetic; a forbid that fails denies every call to which it applies";
                found.push(self.warning(id, problem, fix.to_owned()));
            }
            found.extend(self.unknown_names(id, policy.policy, offers, roles));
        }
        found.sort_by(|a, b| {
            (&a.file, a.position, &a.problem).cmp(&(&b.file, b.position, &b.problem))
        });
        found
    }

    fn comparable_policies(&self) -> BTreeMap<String, ComparablePolicy<'_>> {
        let mut policies = BTreeMap::new();
        for policy in self.policies_of_questions() {
            let id = policy.id().to_string();
            let Ok(json) = policy.to_json() else {
                continue;
            };
            let environments = policy.get_valid_request_envs(&self.vocabulary.schema);
            let questions =
                environments.map(|it| (it.action().to_string(), it.resource().to_string()));
            policies.entry(id).or_insert_with(|| ComparablePolicy {
                policy,
                conditions: parts(&json).into_iter().map(|part| part.text).collect(),
                json,
                questions: questions.collect(),
            });
        }
        policies
    }

    /// Returns a warning if another policy makes this one ineffective: a forbid, or a permit, that applies at least as
    /// widely.
    fn covered_policy_finding(
        &self,
        id: &str,
        policy: &ComparablePolicy<'_>,
        policies: &BTreeMap<String, ComparablePolicy<'_>>,
    ) -> Option<Finding> {
        let is_as_wide = |(other_id, other): &(&String, &ComparablePolicy<'_>)| {
            let differs = other_id.as_str() != id && policy.is_covered_by(other);
            // Of two equivalent policies, only the later one is reported.
            let is_first = !other.is_covered_by(policy) || other_id.as_str() < id;
            differs
                && (other.policy.effect() == Effect::Forbid
                    || policy.policy.effect() == Effect::Permit)
                && (is_first || other.policy.effect() != policy.policy.effect())
        };
        let (other_id, other) = policies.iter().find(is_as_wide)?;
        let verb = if other.policy.effect() == policy.policy.effect() {
            "already makes the same decision for everything to which it applies"
        } else {
            "forbids everything that it permits"
        };
        let problem = format!("policy `{id}` never changes a decision: `{other_id}` {verb}");
        Some(self.warning(
            id,
            problem,
            format!("remove `{id}`, or narrow `{other_id}`"),
        ))
    }

    fn unknown_names(
        &self,
        id: &str,
        policy: &Policy,
        offers: &[ToolFacts],
        roles: &[String],
    ) -> Vec<Finding> {
        let literals = policy.entity_literals();
        let of_type = |name: &EntityTypeName| {
            let of_type = literals.iter().filter(|it| it.type_name() == name);
            let ids = of_type.map(|it| it.id().unescaped().to_owned());
            ids.collect::<BTreeSet<_>>()
        };
        let vocabulary = &self.vocabulary;
        let mut found = Vec::new();
        let mut warn =
            |kind: &str, names: BTreeSet<String>, is_known: &dyn Fn(&str) -> bool, fix: &str| {
                for name in names.iter().filter(|name| !is_known(name)) {
                    let problem =
                        format!("policy `{id}` names the {kind} `{name}`, which does not exist");
                    found.push(self.warning(id, problem, fix.to_owned()));
                }
            };
        if !roles.is_empty() {
            let is_known = |name: &str| roles.iter().any(|role| role == name);
            let mut named = of_type(&vocabulary.role);
            named.extend(approver_role(policy).map(str::to_owned));
            warn(
                "role",
                named,
                &is_known,
                "write it as the issuer does; names are case-sensitive",
            );
        }
        if offers.is_empty() {
            return found;
        }
        let is_tool = |name: &str| {
            let mut tools = offers.iter().filter(|it| it.kind == OfferKind::Tool);
            tools.any(|it| it.name.as_str() == name)
        };
        let mut tools = of_type(&vocabulary.tool);
        let counted = self.counters_read_by(policy);
        tools.extend(counted.flat_map(|it| it.tools.iter().map(ToString::to_string)));
        warn(
            "tool",
            tools,
            &is_tool,
            "use the tool's name in tools.yaml, not an alias",
        );
        let is_tag = |name: &str| {
            offers
                .iter()
                .any(|it| it.tags.iter().any(|tag| tag == name))
        };
        let mut tags = of_type(&vocabulary.tag);
        let counted = self.counters_read_by(policy);
        tags.extend(counted.flat_map(|it| it.tags.iter().cloned()));
        warn(
            "tag",
            tags,
            &is_tag,
            "add it to a tool or source in tools.yaml, or correct the name",
        );
        let is_class = |name: &str| {
            let family = format!("{name}.");
            let mut classes = offers.iter().flat_map(|it| &it.classes);
            classes.any(|class| class.as_str() == name || class.as_str().starts_with(&family))
        };
        warn(
            "class",
            of_type(&vocabulary.class),
            &is_class,
            "add it to a column in tools.yaml, or correct the name",
        );
        found
    }

    /// Returns the counters of earlier calls that a policy reads.
    fn counters_read_by(&self, policy: &Policy) -> impl Iterator<Item = &CallCounter> {
        let counters = self.history_readers.get(policy.id()).into_iter().flatten();
        let declared = self.vocabulary.counters(OfferKind::Tool);
        counters.filter_map(|name| declared.get(name))
    }

    fn warning(&self, id: &str, problem: String, fix: String) -> Finding {
        let location = self.locations().get(id);
        Finding {
            file: location.map(|it| it.file.clone()).unwrap_or_default(),
            position: location.map(|it| Position {
                line: it.line,
                column: 1,
            }),
            problem,
            fix: Some(fix),
        }
    }
}

fn has_arithmetic(json: &Value) -> bool {
    match json {
        Value::Object(members) => members.iter().any(|(name, operands)| {
            let calculates = matches!(name.as_str(), "+" | "-" | "*" | "neg");
            (calculates && operands.is_object()) || has_arithmetic(operands)
        }),
        Value::Array(items) => items.iter().any(has_arithmetic),
        _ => false,
    }
}
