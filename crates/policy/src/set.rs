//! An immutable, compiled policy set, organised by the questions that it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cedar_policy::{self as cedar, Policy, PolicyId, PrincipalConstraint};
use serde_json::Value;
use wardgate_domain::{Approvers, BundleReference, Digest, OfferKind, OperatorAction, ToolFacts};

use crate::approval::{approver_role, needs_approval};
use crate::arguments;
use crate::history::collect_counters;
use crate::vocabulary::{PolicyQuestion, Vocabulary};

/// The location of a policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyLocation {
    /// The file.
    pub file: PathBuf,
    /// The line where the policy begins, counted from 1.
    pub line: usize,
}

/// A schema and policies that were checked as a whole: they are within the limits, valid under strict validation, cover
/// everything that Wardgate asks, and were tried once.
#[derive(Debug)]
pub struct PolicySet {
    hash: Digest,
    /// The bundle that the files come from, or `None` if they come from a directory.
    bundle: Option<BundleReference>,
    locations: Arc<BTreeMap<String, PolicyLocation>>,
    /// The policies that read the context: the time, the client's address or earlier calls.
    context_readers: Arc<BTreeSet<PolicyId>>,
    /// The policies that read earlier calls, with the counters that they read.
    pub(crate) history_readers: Arc<BTreeMap<PolicyId, BTreeSet<String>>>,
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// The policies that can apply to each kind of use, kept separately so that a decision evaluates only relevant
    /// policies.
    pub(crate) uses: BTreeMap<OfferKind, cedar::PolicySet>,
    /// The policies about tool calls without the permits that require an approval, or `None` if no permit requires one.
    pub(crate) without_approval: Option<cedar::PolicySet>,
    pub(crate) read: BTreeMap<String, cedar::PolicySet>,
    pub(crate) show: [cedar::PolicySet; 4],
    pub(crate) recall: cedar::PolicySet,
    pub(crate) operator: BTreeMap<OperatorAction, cedar::PolicySet>,
}

impl PolicySet {
    /// Returns the SHA-256 digest of file names and contents: the version that decisions and permits state.
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// Returns the bundle that the files come from, or `None` if they come from a directory.
    pub fn bundle(&self) -> Option<BundleReference> {
        self.bundle
    }

    /// Returns the same set as one of a bundle.
    pub(crate) fn of_bundle(self, bundle: BundleReference) -> Self {
        Self {
            bundle: Some(bundle),
            ..self
        }
    }

    /// Returns the ids of the policies, sorted.
    pub(crate) fn policy_ids(&self) -> Vec<&str> {
        self.locations.keys().map(String::as_str).collect()
    }

    /// Returns every policy, once for each question to which it can apply.
    pub(crate) fn policies_of_questions(&self) -> impl Iterator<Item = &Policy> {
        let sets = self.uses.values().chain(self.read.values());
        let sets = sets.chain(&self.show).chain([&self.recall]);
        let sets = sets.chain(self.operator.values());
        sets.flat_map(cedar::PolicySet::policies)
    }

    /// Returns the policies that can apply to a question, or `None` if the set has no such row type.
    pub(crate) fn policies_about(&self, question: &PolicyQuestion) -> Option<&cedar::PolicySet> {
        match question {
            PolicyQuestion::Use(kind) => self.uses.get(kind),
            PolicyQuestion::Read(row) => self.read.get(row),
            PolicyQuestion::Show(tier) => self.show.get(*tier),
            PolicyQuestion::Recall => Some(&self.recall),
            PolicyQuestion::Operator(action) => self.operator.get(action),
        }
    }

    /// Returns the people who may approve a call that only these policies permit.
    pub(crate) fn approvers(&self, ids: &[String]) -> Approvers {
        let mut approvers = Approvers::default();
        let policies = self.uses.get(&OfferKind::Tool);
        let permits = ids
            .iter()
            .filter_map(|id| policies?.policy(&PolicyId::new(id)));
        for permit in permits {
            match approver_role(permit) {
                Some(role) => {
                    approvers.roles.insert(role.to_owned());
                }
                None => approvers.caller = true,
            }
        }
        approvers
    }

    /// Returns the location of each policy, by its id.
    pub fn locations(&self) -> &BTreeMap<String, PolicyLocation> {
        &self.locations
    }

    /// Returns whether the use of `tool` can depend on the context.
    pub(crate) fn access_reads_context(&self, tool: &ToolFacts) -> bool {
        self.read_context(self.uses.get(&tool.kind))
    }

    /// Returns whether the rows or columns of `tool` can depend on the context.
    pub(crate) fn view_reads_context(&self, tool: &ToolFacts) -> bool {
        let rows = tool.entity.as_ref();
        let rows = rows.and_then(|entity| self.read.get(entity));
        let columns = (self.show.iter()).filter(|_| !tool.classes.is_empty());
        self.read_context(rows.into_iter().chain(columns))
    }

    /// Returns the roles that policies about the use of `tool`, about its rows or about columns name. No other role of a
    /// caller affects a decision about the tool.
    pub(crate) fn roles_of_tool(&self, tool: &ToolFacts) -> BTreeSet<String> {
        let rows = tool.entity.as_ref();
        let rows = rows.and_then(|entity| self.read.get(entity));
        let uses = self.uses.get(&tool.kind).into_iter();
        self.roles_named(uses.chain(rows).chain(&self.show))
    }

    /// Returns the roles that policies about `action` name.
    pub(crate) fn roles_of_operator(&self, action: OperatorAction) -> BTreeSet<String> {
        self.roles_named(self.operator.get(&action))
    }

    fn roles_named<'a>(
        &self,
        sets: impl IntoIterator<Item = &'a cedar::PolicySet>,
    ) -> BTreeSet<String> {
        let policies = sets.into_iter().flat_map(cedar::PolicySet::policies);
        let literals = policies.flat_map(Policy::entity_literals);
        let roles = literals.filter(|it| *it.type_name() == self.vocabulary.role);
        roles.map(|it| it.id().unescaped().to_owned()).collect()
    }

    fn read_context<'a>(&self, sets: impl IntoIterator<Item = &'a cedar::PolicySet>) -> bool {
        let mut policies = sets.into_iter().flat_map(cedar::PolicySet::policies);
        policies.any(|policy| self.context_readers.contains(policy.id()))
    }

    /// Returns the set without the policies whose scope requires a role that is not in `roles`. Decisions about a
    /// caller with these roles are the same, but faster, because Cedar evaluates every policy of a set.
    pub(crate) fn for_roles(&self, roles: &[String]) -> Self {
        let applies = |policy: &&Policy| match policy.principal_constraint() {
            PrincipalConstraint::In(group) | PrincipalConstraint::IsIn(_, group) => {
                *group.type_name() != self.vocabulary.role
                    || roles.iter().any(|role| role == group.id().unescaped())
            }
            PrincipalConstraint::Any | PrincipalConstraint::Eq(_) | PrincipalConstraint::Is(_) => {
                true
            }
        };
        let slice =
            |policies: &cedar::PolicySet| gather(policies.policies().filter(applies).cloned());
        let uses = self.uses.iter().map(|(kind, it)| (*kind, slice(it)));
        let read = self.read.iter().map(|(name, it)| (name.clone(), slice(it)));
        let operator = self.operator.iter().map(|(it, set)| (*it, slice(set)));
        Self {
            hash: self.hash,
            bundle: self.bundle,
            locations: Arc::clone(&self.locations),
            context_readers: Arc::clone(&self.context_readers),
            history_readers: Arc::clone(&self.history_readers),
            vocabulary: Arc::clone(&self.vocabulary),
            without_approval: self.without_approval.as_ref().map(slice),
            uses: uses.collect(),
            read: read.collect(),
            show: self.show.each_ref().map(slice),
            recall: slice(&self.recall),
            operator: operator.collect(),
        }
    }

    /// Creates a set, with the policies grouped by the questions to which they can apply.
    pub(crate) fn new(
        hash: Digest,
        mut vocabulary: Vocabulary,
        policies: &cedar::PolicySet,
        locations: BTreeMap<String, PolicyLocation>,
    ) -> Self {
        let reads = PolicyReads::from_policies(policies, &vocabulary);
        // Only arguments that a policy reads have to have their declared type.
        vocabulary
            .argument_types
            .retain(|name, _| reads.arguments.contains(name));
        let mut uses: BTreeMap<_, Vec<Policy>> =
            OfferKind::ALL.map(|kind| (kind, Vec::new())).into();
        let mut read: BTreeMap<String, Vec<Policy>> = vocabulary
            .rows
            .keys()
            .map(|name| (name.clone(), Vec::new()))
            .collect();
        let mut show: [Vec<Policy>; 4] = Default::default();
        let mut recall = Vec::new();
        let mut operator: BTreeMap<_, Vec<Policy>> =
            OperatorAction::ALL.map(|it| (it, Vec::new())).into();
        for policy in policies.policies() {
            for environment in policy.get_valid_request_envs(&vocabulary.schema) {
                let group = match vocabulary.question_of(&environment) {
                    Some(PolicyQuestion::Use(kind)) => uses.entry(kind).or_default(),
                    Some(PolicyQuestion::Read(row)) => read.entry(row).or_default(),
                    Some(PolicyQuestion::Show(tier)) => &mut show[tier],
                    Some(PolicyQuestion::Recall) => &mut recall,
                    Some(PolicyQuestion::Operator(action)) => operator.entry(action).or_default(),
                    None => continue,
                };
                group.push(policy.clone());
            }
        }
        let of_tools = uses.get(&OfferKind::Tool).into_iter().flatten();
        let without_approval = of_tools.clone().any(needs_approval).then(|| {
            let unconditional = of_tools.filter(|policy| !needs_approval(policy));
            gather(unconditional.cloned())
        });
        Self {
            hash,
            bundle: None,
            locations: Arc::new(locations),
            context_readers: Arc::new(reads.context_readers),
            history_readers: Arc::new(reads.history_readers),
            without_approval,
            uses: uses
                .into_iter()
                .map(|(kind, of_kind)| (kind, gather(of_kind)))
                .collect(),
            read: read
                .into_iter()
                .map(|(name, of_type)| (name, gather(of_type)))
                .collect(),
            show: show.map(gather),
            recall: gather(recall),
            operator: operator
                .into_iter()
                .map(|(action, of_action)| (action, gather(of_action)))
                .collect(),
            vocabulary: Arc::new(vocabulary),
        }
    }
}

/// The arguments, context and counters that the policies of a set read.
#[derive(Default)]
struct PolicyReads {
    /// The names of the arguments that any policy reads.
    arguments: BTreeSet<String>,
    context_readers: BTreeSet<PolicyId>,
    history_readers: BTreeMap<PolicyId, BTreeSet<String>>,
}

impl PolicyReads {
    fn from_policies(policies: &cedar::PolicySet, vocabulary: &Vocabulary) -> Self {
        let counters = vocabulary.counters(OfferKind::Tool);
        let mut reads = Self::default();
        for policy in policies.policies() {
            let id = policy.id().clone();
            let mut read = BTreeSet::new();
            if let Ok(json) = policy.to_json() {
                arguments::collect_names(&json, &mut reads.arguments);
                if reads_context(&json) {
                    reads.context_readers.insert(id.clone());
                }
                collect_counters(&json, counters, &mut read);
            } else {
                // The compiler rejects a policy without a JSON form. If one occurred, it would count as reading
                // everything.
                let arguments = vocabulary.argument_types.keys().cloned();
                reads.arguments.extend(arguments);
                reads.context_readers.insert(id.clone());
                read.extend(counters.keys().cloned());
            }
            if !read.is_empty() {
                reads.history_readers.insert(id, read);
            }
        }
        reads
    }
}

/// Creates a Cedar policy set. Adding a policy cannot fail, because the ids are already unique.
pub(crate) fn gather(policies: impl IntoIterator<Item = Policy>) -> cedar::PolicySet {
    let mut set = cedar::PolicySet::new();
    for policy in policies {
        let _unique = set.add(policy);
    }
    set
}

/// Returns whether an expression reads any part of the context other than the arguments.
fn reads_context(json: &Value) -> bool {
    match json {
        Value::Object(members) => {
            let of_context = |variable: &Value| variable == "context";
            let left = members.get("left").map(|left| &left["Var"]);
            if left.is_some_and(of_context) {
                return members.get("attr").is_none_or(|it| it != "arguments");
            }
            members.get("Var").is_some_and(of_context) || members.values().any(reads_context)
        }
        Value::Array(items) => items.iter().any(reads_context),
        _ => false,
    }
}

/// Returns the nesting depth of a JSON value. A scalar has depth 0.
pub(crate) fn depth(json: &Value) -> usize {
    match json {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
