//! The compiler of policy sets, which loads, validates and tries the files of a set as a whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::thread;

use cedar_policy::{
    self as cedar, Policy, PolicyId, Schema, ValidationMode, ValidationWarning, Validator,
};
use serde_json::Value;

use crate::approval::check_annotation;
use crate::error::{Finding, Findings, Position, findings};
use crate::files::{Files, SourceFile, SourceFiles};
use crate::limits::{self, CedarLanguage};
use crate::set::{PolicyLocation, PolicySet, depth};
use crate::{Error, schema, trial};

/// Maximum number of entity dereferences that a policy may make for a row: the attributes of the principal, its roles,
/// and the attributes of the one resource. More could not be decided with the available entities (Cedar RFC 76).
const DEREFERENCES: u32 = 1;

/// The name of the annotation with the id of a policy.
const ID: &str = "id";

/// Maximum length of a policy id, in bytes. The id is written into every record.
const MAX_ID_BYTES: usize = 128;

impl PolicySet {
    /// Loads the `*.cedar` and `*.cedarschema` files of `dir`. The error reports every fault with file, line and
    /// column. The call blocks until compilation ends.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        Self::compile(&Files::read_dir(dir)?)
    }

    /// Compiles on a separate thread whose stack is large enough for everything that the limits allow.
    pub(crate) fn compile(files: &Files) -> Result<Self, Error> {
        let compiled = thread::scope(|scope| {
            thread::Builder::new()
                .name("policy-compiler".to_owned())
                .stack_size(limits::COMPILER_STACK_BYTES)
                .spawn_scoped(scope, || compile(files))
                .map(thread::ScopedJoinHandle::join)
        });
        match compiled {
            Ok(Ok(compiled)) => Ok(compiled?),
            Ok(Err(_)) | Err(_) => Err(Error::Compiler {
                path: files.dir().to_owned(),
            }),
        }
    }
}

fn compile(files: &Files) -> Result<PolicySet, Findings> {
    let sources = files.sources()?;
    let vocabulary = schema::compose(&sources.schemas)?;
    let policies = read_policies(&sources)?;
    validate(&vocabulary.schema, &policies)?;
    let set = PolicySet::new(
        files.hash(),
        vocabulary,
        &policies.set,
        policies.locations(),
    );
    let faults = trial::run(&set, &policies.set);
    if faults.is_empty() {
        return Ok(set);
    }
    let finding = |fault: trial::TrialFinding| {
        let place = fault
            .policy
            .and_then(|id| policies.positions.get(&PolicyId::new(id)));
        Finding {
            file: place.map_or_else(|| files.dir().to_owned(), |place| place.source.path.clone()),
            position: place.map(|place| Position::from_offset(place.source.text, place.start)),
            problem: fault.problem,
            fix: fault.fix.map(str::to_owned),
        }
    };
    Err(Findings(faults.into_iter().map(finding).collect()))
}

/// The parsed policies under the ids that their authors gave them, and the position where each begins.
struct ParsedPolicies<'a> {
    set: cedar::PolicySet,
    positions: HashMap<PolicyId, PolicyPosition<'a>>,
}

/// The position where a policy begins.
#[derive(Clone, Copy)]
struct PolicyPosition<'a> {
    source: &'a SourceFile<'a>,
    start: usize,
}

impl PolicyPosition<'_> {
    fn finding(&self, problem: String, fix: &str) -> Finding {
        Finding {
            file: self.source.path.clone(),
            position: Some(Position::from_offset(self.source.text, self.start)),
            problem,
            fix: Some(fix.to_owned()),
        }
    }
}

fn read_policies<'a>(sources: &'a SourceFiles<'a>) -> Result<ParsedPolicies<'a>, Findings> {
    let mut policies = ParsedPolicies {
        set: cedar::PolicySet::new(),
        positions: HashMap::new(),
    };
    let mut found = Vec::new();
    for source in &sources.policies {
        if let Err(Findings(mut wrong)) = policies.add(source) {
            found.append(&mut wrong);
        }
    }
    if found.is_empty() {
        Ok(policies)
    } else {
        Err(Findings(found))
    }
}

impl<'a> ParsedPolicies<'a> {
    fn locations(&self) -> BTreeMap<String, PolicyLocation> {
        let locations = self.positions.iter().map(|(id, place)| {
            let location = PolicyLocation {
                file: place.source.path.clone(),
                line: Position::from_offset(place.source.text, place.start).line,
            };
            (id.to_string(), location)
        });
        locations.collect()
    }

    fn add(&mut self, source: &'a SourceFile<'a>) -> Result<(), Findings> {
        let starts = source.statements(CedarLanguage::Policies)?;
        let parsed: cedar::PolicySet =
            source.text.parse().map_err(|errors: cedar::ParseErrors| {
                Findings(
                    errors
                        .iter()
                        .flat_map(|error| findings(&source.path, source.text, error))
                        .collect(),
                )
            })?;
        let mut found = Vec::new();
        for (index, start) in starts.into_iter().enumerate() {
            let place = PolicyPosition { source, start };
            // Cedar numbers the policies of a text in their order.
            let number = PolicyId::new(format!("policy{index}"));
            match parsed.policy(&number) {
                Some(policy) => found.extend(self.add_policy(policy, place)),
                None => found.push(place.finding(
                    "is a template, and templates are not supported".to_owned(),
                    "replace `?principal` and `?resource` by the entities",
                )),
            }
        }
        if found.is_empty() {
            Ok(())
        } else {
            Err(Findings(found))
        }
    }

    fn add_policy(&mut self, policy: &Policy, place: PolicyPosition<'a>) -> Option<Finding> {
        let id = policy.annotation(ID).unwrap_or_default();
        if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) {
            let problem =
                format!("a policy has no `@id(\"…\")` of 1 to {MAX_ID_BYTES} plain characters");
            return Some(place.finding(
                problem,
                "set it: decisions and records refer to the policy by its id",
            ));
        }
        let id = PolicyId::new(id);
        if let Some(first) = self.positions.get(&id) {
            let at = Position::from_offset(first.source.text, first.start);
            let problem = format!(
                "policy id `{id}` is already used by {}:{}",
                first.source.path.display(),
                at.line
            );
            return Some(place.finding(problem, "give each policy a unique id"));
        }
        if let Err(fault) = check_annotation(&id, policy) {
            return Some(place.finding(fault.problem, fault.fix));
        }
        if levels(policy) > limits::MAX_EXPRESSION_DEPTH {
            let problem = format!(
                "policy `{id}` is nested deeper than {} levels; each operator of a chain is one level",
                limits::MAX_EXPRESSION_DEPTH
            );
            let fix =
                "split it into several policies, or write a chain of `||` as `[…].contains(…)`";
            return Some(place.finding(problem, fix));
        }
        if self.set.add(policy.new_id(id.clone())).is_err() {
            return Some(place.finding(
                format!("policy `{id}` cannot be added"),
                "give it another id",
            ));
        }
        self.positions.insert(id, place);
        None
    }
}

/// Returns how deep the condition of a policy nests. Its clauses count as one chain of `&&`.
fn levels(policy: &Policy) -> usize {
    let Ok(json) = policy.to_json() else {
        return usize::MAX;
    };
    let clauses = json.get("conditions").and_then(Value::as_array);
    let clauses = clauses.map(Vec::as_slice).unwrap_or_default();
    // One level of an expression is two levels of JSON: the operator and its operands.
    clauses.len()
        + clauses
            .iter()
            .map(|clause| depth(clause) / 2)
            .max()
            .unwrap_or(0)
}

fn validate(schema: &Schema, policies: &ParsedPolicies<'_>) -> Result<(), Findings> {
    let result = Validator::new(schema.clone()).validate_with_level(
        &policies.set,
        ValidationMode::Strict,
        DEREFERENCES,
    );
    let mut found = Vec::new();
    let mut reported = HashSet::new();
    let mut add = |id: &PolicyId, error: &dyn miette::Diagnostic| {
        let Some(place) = policies.positions.get(id) else {
            return;
        };
        let mut of_cedar = findings(&place.source.path, place.source.text, error);
        for finding in &mut of_cedar {
            let start = Position::from_offset(place.source.text, place.start);
            finding.position.get_or_insert(start);
        }
        found.append(&mut of_cedar);
    };
    for error in result.validation_errors() {
        reported.insert(error.policy_id());
        add(error.policy_id(), error);
    }
    // A rule that never applies, or that reads differently than it looks, is a mistake, especially in a `forbid`.
    // Warnings about policies with an error are left out, because the error already explains them.
    for warning in result.validation_warnings() {
        let counts = matches!(
            warning,
            ValidationWarning::InvalidActionApplication(_)
                | ValidationWarning::ImpossiblePolicy(_)
                | ValidationWarning::BidiCharsInString(_)
                | ValidationWarning::BidiCharsInIdentifier(_)
        );
        if counts && reported.insert(warning.policy_id()) {
            add(warning.policy_id(), warning);
        }
    }
    found.sort_by(|a, b| (&a.file, a.position).cmp(&(&b.file, b.position)));
    if found.is_empty() {
        Ok(())
    } else {
        Err(Findings(found))
    }
}
